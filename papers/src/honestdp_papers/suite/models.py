"""The models of the suite by their public numbers: dense, convolutional, residual with GroupNorm, and a small transformer."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from honestdp_papers.suite.settings import SOURCES, WORDS, Net, Source

ACTIVATION: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
HIDDEN = 32


def maker(data: str, net: Net) -> Callable[[], nn.Module]:
    """A function that makes the model with fresh initial weights from torch's generator."""
    source = SOURCES[data]
    if net.kind == "transformer":
        return partial(Transformer, source, WORDS[data], net)
    return partial(_MADE[net.kind], source, net)


def dense(source: Source, net: Net) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise((source.features, *net.widths, source.classes)):
        layers += [nn.Linear(before, after), *([ACTIVATION[net.activation]()] if net.activation else [])]
    return nn.Sequential(*layers[: len(layers) - bool(net.activation)])


def strided(source: Source, net: Net) -> nn.Module:
    """The network of Papernot et al. 2021 for MNIST: wide kernels, strides of 2, pools that overlap."""
    act, (first, second) = ACTIVATION[net.activation], net.widths
    last = (source.side // 2 - 1 - 4) // 2  # a side after strides and pools
    return nn.Sequential(
        nn.Unflatten(1, (source.colours, source.side, source.side)),
        nn.Conv2d(source.colours, first, 8, stride=2, padding=3),
        act(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(first, second, 4, stride=2),
        act(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(second * last**2, HIDDEN),
        act(),
        nn.Linear(HIDDEN, source.classes),
    )


def pooled(source: Source, net: Net) -> nn.Module:
    """Two convolutions of 3 x 3, each with a pool, and one linear layer."""
    act, (first, second) = ACTIVATION[net.activation], net.widths
    return nn.Sequential(
        nn.Unflatten(1, (source.colours, source.side, source.side)),
        nn.Conv2d(source.colours, first, 3, padding=1),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 3, padding=1),
        act(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (source.side // 4) ** 2, source.classes),
    )


class Block(nn.Module):
    """x + convolutions of it, each after a GroupNorm and an activation."""

    def __init__(self, channels: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        parts = [
            (nn.GroupNorm(4, channels), act(), nn.Conv2d(channels, channels, 3, padding=1, bias=False)) for _ in "12"
        ]
        self.body = nn.Sequential(*(layer for part in parts for layer in part))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.body(x)
        return found


def residual(source: Source, net: Net) -> nn.Module:
    """A convolution of stride 2, residual blocks, the mean over 2 x 2 parts of the image, and a linear layer."""
    act, channels = ACTIVATION[net.activation], net.widths[0]
    return nn.Sequential(
        nn.Unflatten(1, (source.colours, source.side, source.side)),
        nn.Conv2d(source.colours, channels, 3, stride=2, padding=1),
        *(Block(channels, act) for _ in range(net.depth)),
        nn.GroupNorm(4, channels),
        act(),
        nn.AvgPool2d(source.side // 4),
        nn.Flatten(),
        nn.Linear(4 * channels, source.classes),
    )


class Transformer(nn.Module):
    """Words and their places, torch's encoder with a mask for what is no word, and the mean over the words."""

    places: Tensor

    def __init__(self, source: Source, words: int, net: Net) -> None:
        super().__init__()
        width = net.widths[0]
        self.table = nn.Embedding(words, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.0, activation=net.activation, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, net.depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, source.classes)
        self.register_buffer("places", waves(source.features, width))

    def forward(self, ids: Tensor) -> Tensor:
        seen = self.body(self.table(ids) + self.places, src_key_padding_mask=ids == 0)
        present = (ids != 0).unsqueeze(-1)
        mean: Tensor = self.head((seen * present).sum(1) / present.sum(1))
        return mean


def waves(length: int, width: int) -> Tensor:
    """A place as sines and cosines (Vaswani et al. 2017)."""
    pitch = torch.exp(-math.log(10_000) * torch.arange(0, width, 2) / width)
    turn = torch.arange(length)[:, None] * pitch
    return torch.stack([turn.sin(), turn.cos()], 2).flatten(1)


_MADE: dict[str, Callable[[Source, Net], nn.Module]] = {
    "dense": dense,
    "strided": strided,
    "pooled": pooled,
    "residual": residual,
}
