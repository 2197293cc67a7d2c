"""The paper's experiments on networks: datasets, networks, initial weights, sizes, step sizes, and their trainings as
parts.

The authors' form is that of their published code (github.com/DPBayes/ADADP) where the text is silent: clips of 10 and
3, inputs normalised by public constants, dense layers without biases, initial weights between -1/sqrt(out) and
1/sqrt(out). Lots are Poisson samples, as they are accounted; the authors shuffle, and drop the last incomplete lot.

A part keeps right answers on the test records and step sizes, epoch by epoch, of one optimizer's grid on one dataset at
one noise, so figures share parts: ADADP's are in figures 1, 3 and 4. On a GPU images of CIFAR-10 are cropped and
flipped anew in every step (`cifar.Crops`). The quick version takes 10000 records, a few epochs, narrow layers, and
CIFAR-10 as it is, without crops.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import Run, load_dataset, optimizers
from honestdp.boundary.data import PrivateData
from honestdp.data.named import NamedDataset
from honestdp.errors import HonestdpError
from honestdp.optimizers import Rule
from honestdp_papers.curves import Bench, Measure, placed, state_of
from honestdp_papers.koskela2020 import cifar
from honestdp_papers.parts import Array, Arrays, Part, Tell, described

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


QUICK_RECORDS, QUICK_TESTS, QUICK_EPOCHS, QUICK_SWITCH = 10000, 2000, 20, 10
QUICK_SIZES = {"mnist-normalised": (784, 64, 64, 64, 10), "cifar10": (1600, 64, 64, 10)}
REPEATS, ADADP_REPEATS = 3, 6
ADADP, PUBLISHED, ADAM, SGD = "ADADP", "ADADP-published", "DPAdam", "DPSGD"
PUBLISHED_FIRST = 1e-3
TOGETHER = {"cuda": 120, "cpu": 12}
"""Runs of a population, at most."""


def sized(task: Task, quick: bool) -> Task:
    if not quick:
        return task
    return replace(task, records=QUICK_RECORDS, tests=QUICK_TESTS, sizes=QUICK_SIZES[task.name])


def epochs_of(quick: bool) -> int:
    return QUICK_EPOCHS if quick else EPOCHS


def switch_of(quick: bool) -> int:
    """Epochs before the step size decays."""
    return QUICK_SWITCH if quick else SWITCH


def rules_of(optimizer: str, task: Task, quick: bool) -> list[Rule]:
    """The candidates of an optimizer, in the paper's half decades."""
    task = sized(task, quick)
    if optimizer == ADADP:
        return [optimizers.ADADP(clip=task.clip, lr=FIRST, tau=TAU, switch=switch_of(quick) * task.epoch)]
    if optimizer == PUBLISHED:
        return [optimizers.ADADP(clip=task.clip, lr=PUBLISHED_FIRST, tau=TAU, published=True)]
    if optimizer == ADAM:
        sizes = half_decades(3, 10)
        return [optimizers.Adam(clip=task.clip, lr=lr) for lr in (sizes[1:7:2] if quick else sizes)]
    sizes = half_decades(1, 8)
    return [optimizers.SGD(clip=task.clip, lr=lr) for lr in (sizes[1:6:2] if quick else sizes)]


@dataclass(frozen=True)
class Grid:
    """Candidates that are trained on one task at one noise. every: epochs between two looks."""

    task: Task
    rules: Sequence[Rule]
    noise: float
    repeats: int
    epochs: int
    quick: bool
    schedule: str = "constant"
    every: int = 1


def part_name(task: Task, optimizer: str, noise: float) -> str:
    return f"{task.name}/sigma{noise:g}/{optimizer}"


def optimizer_part(task: Task, optimizer: str, noise: float, quick: bool, *, optional: bool = False) -> Part:
    rules = rules_of(optimizer, task, quick)
    repeats = 1 if quick else ADADP_REPEATS if optimizer in (ADADP, PUBLISHED) else REPEATS
    grid = Grid(sized(task, quick), rules, noise, repeats, epochs_of(quick), quick)
    return grid_part(part_name(task, optimizer, noise), grid, optional=optional)


def grid_part(name: str, grid: Grid, *, optional: bool = False) -> Part:
    """The part keeps `right` `[repeats, candidates, looks]`, `eta` of the same shape where the rule has one, and `tests`."""
    seed = zlib.crc32(name.encode())
    identity = {
        "dataset": grid.task.name,
        "records": grid.task.records,
        "sizes": list(grid.task.sizes),
        "noise": grid.noise,
        "epochs": grid.epochs,
        "every": grid.every,
        "schedule": grid.schedule,
        "candidates": [described(rule) for rule in grid.rules],
        "repeats": grid.repeats,
        "crops": grid.task.name == CIFAR.name and not grid.quick,
        "seed": seed,
    }

    def work(device: str, tell: Tell) -> Arrays:
        return trained(grid, seed, device, tell)

    seconds = 5 + run_steps(grid) * step_cost(grid.task)
    return Part(name, identity, seconds, work, optional=optional)


def run_steps(grid: Grid) -> int:
    return len(grid.rules) * grid.repeats * grid.epochs * grid.task.epoch


def step_cost(task: Task) -> float:
    """Seconds of a run's step on a large GPU, roughly: products and touching every weight several times."""
    return 5e-6 + 4e-11 * task.weights


@dataclass(frozen=True, eq=False)
class Loaded:
    """Training records behind one name, and test inputs and labels on the device."""

    train: PrivateData
    x: Tensor
    y: Tensor


@lru_cache(maxsize=2)
def loaded(task: Task, quick: bool, device: str) -> Loaded:
    place = placed(device)
    if task.name != CIFAR.name:
        dataset = mnist_normalised()
        (x, y), (tests, labels) = dataset.train, dataset.test
        x, y, tests, labels = x[: task.records], y[: task.records], tests[: task.tests], labels[: task.tests]
        private = PrivateData((torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))))
        return Loaded(private, *_at(place, torch.from_numpy(tests), labels))
    if place.type == "cpu" and not quick:
        wanted = "a GPU: the features of every crop of 50000 images take 16 GB; --quick does without crops"
        raise HonestdpError(f"CIFAR-10 in full size needs {wanted}")
    pixels, labels = cifar.images()
    train, classes = pixels[: cifar.TRAIN][: task.records], torch.from_numpy(labels[: cifar.TRAIN][: task.records])
    seen = cifar.features(pixels[cifar.TRAIN :][: task.tests], place)
    if quick:
        private = PrivateData((cifar.features(train, place), classes))
    else:
        private = PrivateData((torch.arange(len(train))[:, None], classes))
        private.augment = cifar.Crops(cifar.every_crop(train, place))
    return Loaded(private, *_at(place, seen, labels[cifar.TRAIN :][: task.tests]))


def _at(place: torch.device, x: Tensor, y: Array) -> tuple[Tensor, Tensor]:
    return x.to(place), torch.from_numpy(y.astype(np.int64)).to(place)


def trained(grid: Grid, seed: int, device: str, tell: Tell) -> Arrays:
    """Train every candidate of a grid as often as it says, and look at all of them every so many epochs."""
    place, task = placed(device), grid.task
    records = loaded(task, grid.quick, device)
    run = task.run(noise=grid.noise, epochs=grid.epochs)
    bench = Bench(task.model(), records.train, place, records=task.records)
    measures: dict[str, Measure] = {"right": bench.exam(records.x, records.y), "eta": state_of("eta")}
    every, together = grid.every * task.epoch, TOGETHER[place.type]
    how: dict[str, Any] = {"seed": seed, "every": every, "together": together, "schedule": grid.schedule, "tell": tell}
    looks = range(every, run.steps + 1, every)
    kept = bench.grid(task.model, run, grid.rules, range(grid.repeats), measures, looks, **how)
    if not kept["eta"].any():
        del kept["eta"]
    return kept | {"tests": np.array(len(records.y)), "every": np.array(grid.every)}
