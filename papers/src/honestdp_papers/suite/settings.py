"""The settings of the suite: data, model, noise, lot, steps and records, drawn by a seed from lists of public numbers.

Setting k of a seed is a function of the seed, of k and of the lists below alone: it is the same on every machine, whatever
other settings are asked for with it, and whatever a measurement has found. So nothing here may be changed; a suite of another
form gets another FORM, which is in what is kept of every training. Families come in blocks of 16, each with all of them, in an
order that is drawn, so that any 16 settings in a row have the same mixture.

What a setting costs is estimated beside it and decides nothing about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeVar

FORM = 1
"""Of settings, models and data. To be raised when any of them is changed: then everything is drawn and trained anew."""
BLOCK = ("dense",) * 7 + ("scattering",) * 2 + ("convolution",) * 3 + ("residual",) * 2 + ("transformer",) * 2
FAMILIES = tuple(dict.fromkeys(BLOCK))
NOISES = (0.5, 1.0, 2.0, 4.0, 8.0)
MOST_WORK = 4e11
"""Lot x steps x weights of a dense setting; where it would be more, fewer steps are made."""
ACTIVATIONS = ("relu", "tanh")
STEP_SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
CANDIDATES = tuple((lr, clip) for lr in STEP_SIZES for clip in CLIPS)
"""The oracle's: DPSGD, 12 step sizes x 4 clips, constant steps."""
Option = TypeVar("Option")


@dataclass(frozen=True)
class Source:
    """What is publicly known of a dataset: numbers a record, classes, how many training records to draw from; side and colours
    of images, length of texts; repeats: of every candidate, more where there are few test records.
    """

    features: int
    classes: int
    records: tuple[int, ...]
    side: int = 0
    colours: int = 1
    repeats: int = 3


SOURCES = {
    "mnist": Source(784, 10, (60_000, 20_000, 5_000), side=28),
    "fashion-mnist": Source(784, 10, (12_000, 5_000), side=28),
    "adult": Source(104, 2, (36_177, 10_000, 3_000)),
    "enron": Source(5512, 2, (4_137, 2_000), repeats=4),
    "gisette-standin": Source(5000, 2, (4_800, 2_400), repeats=4),
    "digits": Source(64, 10, (1_437,), side=8, repeats=6),
    "cifar10": Source(3072, 10, (10_000, 5_000), side=32, colours=3),
    "mnist-scattering": Source(3969, 10, (20_000, 5_000), side=28),
    "fashion-mnist-scattering": Source(3969, 10, (12_000, 5_000), side=28),
    "cifar10-scattering": Source(15_552, 10, (10_000, 5_000), side=32, colours=3),
    "digits-scattering": Source(324, 10, (1_437,), side=8, repeats=6),
    "enron-text": Source(32, 2, (4_137, 2_000)),
    "newsgroups-text": Source(32, 4, (9_650, 4_000)),
    "digits-text": Source(16, 10, (1_437,)),
}
WORDS = {"enron-text": 1000, "newsgroups-text": 1000, "digits-text": 18}
"""How many words a text's numbers stand for, with 0 for none and 1 for its beginning."""


@dataclass(frozen=True)
class Net:
    """A model by public numbers. kind: a family's; widths: of hidden layers, channels of convolutions, or the width of a
    transformer; depth: of residual blocks and of a transformer's layers.
    """

    kind: str
    widths: tuple[int, ...] = ()
    activation: str = ""
    depth: int = 0

    def __str__(self) -> str:
        size = "-".join(map(str, self.widths)) or "linear"
        kind = self.kind if self.kind in ("strided", "pooled") else ""
        return " ".join(filter(None, (kind, size, f"x {self.depth}" if self.depth else "", self.activation)))


@dataclass(frozen=True)
class Setting:
    """One point of the suite."""

    seed: str
    number: int
    family: str
    data: str
    records: int
    net: Net
    noise: float
    lot: int
    steps: int
    repeats: int

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.number:03d}"

    @property
    def identity(self) -> dict[str, Any]:
        return {"form": FORM, **asdict(self)}

    def __str__(self) -> str:
        where = f"{self.data} {self.records}, {self.family} {self.net}"
        return f"{where}, sigma {self.noise:g}, lot {self.lot}, {self.steps} steps"


class Dice:
    """Draws from a seed and a number, by SHA-256: the same in every version of everything."""

    def __init__(self, *words: object) -> None:
        self._words, self._count = "/".join(map(str, ("suite", FORM, *words))), 0

    def number(self) -> int:
        self._count += 1
        return int.from_bytes(hashlib.sha256(f"{self._words}/{self._count}".encode()).digest()[:8], "big")

    def pick(self, options: Sequence[Option]) -> Option:
        return options[self.number() % len(options)]

    def shuffled(self, options: Sequence[Option]) -> list[Option]:
        return [
            option for _, option in sorted(((self.number(), option) for option in options), key=lambda both: both[0])
        ]


def settings(seed: str, count: int, *, quick: bool = False) -> list[Setting]:
    """The first `count` settings of a seed; quick: tiny ones, of digits alone, one of each family and so on."""
    return [tiny(seed, number) if quick else drawn(seed, number) for number in range(count)]


def drawn(seed: str, number: int) -> Setting:
    block, place = divmod(number, len(BLOCK))
    family = Dice(seed, "block", block).shuffled(BLOCK)[place]
    dice = Dice(seed, number)
    data, net, lots, steps = _DRAWS[family](dice)
    records = dice.pick(SOURCES[data].records)
    lot = dice.pick([each for each in lots if 4 * each <= records])
    noise, many = dice.pick(NOISES), dice.pick(steps)
    if net.kind == "dense":
        fitting = [each for each in steps if each <= many and lot * each * dense_weights(data, net) <= MOST_WORK]
        many = max(fitting, default=min(steps))
    repeats = SOURCES[data].repeats if net.kind == "dense" else 2
    return Setting(seed, number, family, data, records, net, noise, lot, many, repeats)


Draw = tuple[str, Net, tuple[int, ...], tuple[int, ...]]


def _dense(dice: Dice) -> Draw:
    data = dice.pick(("mnist", "fashion-mnist", "adult", "enron", "gisette-standin", "digits", "cifar10"))
    hidden = dice.pick(range(6))
    width = dice.pick((32, 64, 128) if SOURCES[data].features > 1000 else (32, 64, 128, 256, 512))
    activation = dice.pick(ACTIVATIONS)
    net = Net("dense", (width,) * hidden, activation if hidden else "")
    return data, net, (64, 250, 1000), (300, 1000, 3000)


def _scattering(dice: Dice) -> Draw:
    data = dice.pick(("mnist-scattering", "fashion-mnist-scattering", "cifar10-scattering"))
    hidden, activation = dice.pick(((), (), (32,), (64,))), dice.pick(ACTIVATIONS)
    return data, Net("dense", hidden, activation if hidden else ""), (64, 250, 1000), (300, 1000)


def _convolution(dice: Dice) -> Draw:
    data, kind = dice.pick(("mnist", "fashion-mnist", "cifar10")), dice.pick(("strided", "pooled"))
    net = Net(kind, dice.pick(((8, 16), (16, 32))), dice.pick(ACTIVATIONS))
    return data, net, (64, 128, 250), (200, 500)


def _residual(dice: Dice) -> Draw:
    data = dice.pick(("mnist", "fashion-mnist", "cifar10"))
    net = Net("residual", (dice.pick((8, 16)),), dice.pick(ACTIVATIONS), depth=dice.pick((1, 2)))
    return data, net, (64, 128), (200, 400)


def _transformer(dice: Dice) -> Draw:
    data = dice.pick(("enron-text", "newsgroups-text"))
    net = Net("transformer", (dice.pick((16, 32)),), dice.pick(("relu", "gelu")), depth=dice.pick((1, 2)))
    return data, net, (64, 128, 250), (200, 500)


_DRAWS = {
    "dense": _dense,
    "scattering": _scattering,
    "convolution": _convolution,
    "residual": _residual,
    "transformer": _transformer,
}
_TINY = {
    "dense": ("digits", (Net("dense"), Net("dense", (32,), "tanh"), Net("dense", (16,) * 4, "relu"))),
    "scattering": ("digits-scattering", (Net("dense"),)),
    "convolution": ("digits", (Net("pooled", (4, 4), "relu"), Net("pooled", (4, 4), "tanh"))),
    "residual": ("digits", (Net("residual", (4,), "relu", depth=1),)),
    "transformer": ("digits-text", (Net("transformer", (8,), "relu", depth=1),)),
}


def tiny(seed: str, number: int) -> Setting:
    """One of digits that a CPU has trained in seconds."""
    family, dice = FAMILIES[number % len(FAMILIES)], Dice(seed, "quick", number)
    data, nets = _TINY[family]
    net, noise = dice.pick(nets), dice.pick((0.5, 1.0, 2.0))
    return Setting(seed, number, family, data, SOURCES[data].records[0], net, noise, lot=64, steps=100, repeats=2)


def dense_weights(data: str, net: Net) -> int:
    sides = (SOURCES[data].features, *net.widths, SOURCES[data].classes)
    return sum((before + 1) * after for before, after in pairwise(sides))


def seconds(setting: Setting, runs: int, *, compiled: bool = False) -> float:
    """Of so many runs of a setting on one H200, roughly: before the first step, and in all steps.

    compiled: the kernels of its shapes are there, as after the setting's oracle. Dense: fitted to 95 populations of 56 and 66
    runs that were timed there. Convolutions: 60 picoseconds a weight and example, as measured for a network of 26010 weights;
    before the first step they are compiled. Residual networks by a ResNet of 20 layers, 27 microseconds an example.
    Transformers were not measured on a GPU: a guess.
    """
    kind, lot, width = setting.net.kind, setting.lot, max(setting.net.widths[:1], default=0)
    if kind == "dense":
        weights = dense_weights(setting.data, setting.net)
        read = lot * SOURCES[setting.data].features
        start, step = 1.2, 10 + 8e-5 * weights + 1.6e-7 * weights * lot + 1e-5 * read
    elif kind == "transformer":
        start, step = 4.0 if compiled else 6.0, 100 + 0.04 * lot * width * setting.net.depth
    elif kind == "residual":
        start, step = 6.0 if compiled else 20.0, 60 + 0.08 * lot * width * (1 + setting.net.depth)
    else:
        start, step = 4.0 if compiled else 15.0, 20 + 1.6 * lot * (width / 16) ** 1.5
    return start + 1e-6 * runs * setting.steps * step
