"""What the paper's experiments on networks share: datasets, networks, initial weights, sizes, step sizes.

The authors' form is that of their published code (github.com/DPBayes/ADADP) where the text is silent: clips of 10 and 3, inputs
normalised by public constants, dense layers without biases, initial weights between -1/sqrt(out) and 1/sqrt(out). Lots are
Poisson samples, as they are accounted; the authors shuffle, and drop the last incomplete lot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from honestdp.data.named import NamedDataset, load_dataset
from honestdp.run import Run

LOT, EPOCHS, DELTA = 200, 100, 1e-6
SWITCH = 50
"""Epochs after which a step size that was found, or held, decays."""
NOISES = (2.0, 4.0, 6.0, 8.0)
TUNED_AT = 2.0
"""The noise at which DP-SGD is tuned in figures 3 and 4."""
FIRST, TAU = 0.1, 1.0
"""eta0 and tau of ADADP on networks."""
MNIST_MEAN, MNIST_DEVIATION = 0.1307, 0.3081


def half_decades(first: int, last: int) -> tuple[float, ...]:
    """10^(-i/2) for i from first to last: the paper's grids."""
    return tuple(10 ** (-i / 2) for i in range(first, last + 1))


@dataclass(frozen=True)
class Task:
    """A dataset with its network. sizes: widths of the dense layers, the inputs' first. words: the network, for a reader."""

    name: str
    title: str
    records: int
    tests: int
    clip: float
    sizes: tuple[int, ...]
    words: str

    @property
    def epoch(self) -> int:
        """Releases of an epoch."""
        return self.records // LOT

    @property
    def steps(self) -> int:
        return EPOCHS * self.epoch

    @property
    def weights(self) -> int:
        return sum(a * b for a, b in itertools.pairwise(self.sizes))

    def run(self, *, noise: float, epochs: int = EPOCHS) -> Run:
        return Run(records=self.records, lot=LOT, steps=epochs * self.epoch, noise=noise)

    @property
    def model(self) -> Callable[[], nn.Module]:
        """Makes the layers that are trained, with fresh initial weights."""
        return lambda: dense(self.sizes)


MNIST = Task(
    "mnist-normalised",
    "MNIST",
    60000,
    10000,
    10.0,
    (784, 256, 256, 256, 10),
    "784-256-256-256-10, ReLU, no biases; pixels normalised by 0.1307 and 0.3081",
)
CIFAR = Task(
    "cifar10",
    "CIFAR-10",
    50000,
    10000,
    3.0,
    (1600, 500, 500, 10),
    "two convolutions (3x3, 64 channels, ReLU, max pool 3 by 2) with the authors' weights, trained on CIFAR-100 and frozen, then "
    "1600-500-500-10, ReLU, no biases; training images cropped (pad 4) and flipped at random, normalised by channel",
)
TASKS = (MNIST, CIFAR)


def dense(sizes: tuple[int, ...]) -> nn.Sequential:
    """Dense layers without biases, ReLU between, with the authors' initial weights: uniform within 1/sqrt(out).

    By the fan-out where 1/sqrt(in) is usual; a slip of the published code, which gives the last layer +-0.316.
    """
    layers: list[nn.Module] = []
    for width, out in itertools.pairwise(sizes):
        layer = nn.Linear(width, out, bias=False)
        nn.init.uniform_(layer.weight, -1 / math.sqrt(out), 1 / math.sqrt(out))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@lru_cache(maxsize=1)
def mnist_normalised() -> NamedDataset:
    """MNIST as the published code has it: a pixel p in [0, 1] is (p - 0.1307) / 0.3081."""
    plain = load_dataset("mnist")
    x = (plain.x.astype(np.float32) / np.float32(255) - np.float32(MNIST_MEAN)) / np.float32(MNIST_DEVIATION)
    scaling = f"pixels in [0, 1], less {MNIST_MEAN}, divided by {MNIST_DEVIATION}"
    return replace(plain, name=MNIST.name, title="MNIST (normalised)", x=x, scaling=scaling)


def at_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"
