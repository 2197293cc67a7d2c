"""Public datasets by name: `load_dataset("mnist")`.

A dataset here is public, so its sizes, its classes and the constants it is scaled by are public too. They are declared in
the code and not taken from the records that are loaded: the same code would be honest on private records of the same kind.
docs/data.md says for each dataset where it comes from and how it is scaled.

Splits into training and test records are fixed and depend on the number of records alone.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from honestdp import checks

Array = np.ndarray[Any, Any]
TRAIN_PART = 0.8
SPLIT_SEED = 2022


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedDataset:
    """Records and what is publicly known of them.

    x: `[records, features]`, uint8 where the source is (the engine scales bytes to [0, 1]), float32 in [0, 1] elsewhere.
    y: `[records]`, classes as whole numbers from 0.
    tests: how many of the last records are the publisher's test records; None for the split 80 to 20 of `split_rows`.
    standin: what this set stands in for and how it was made; None for the real thing. Say it wherever results are shown.
    checksums: sha256 of the content of each file that was read.
    """

    name: str
    title: str
    x: Array
    y: Array
    classes: int
    source: str
    licence: str
    scaling: str
    tests: int | None = None
    standin: str | None = None
    checksums: dict[str, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """Which records a model is trained on, and which it is tested on; no record is in both."""
        if self.tests is None:
            return split_rows(self.records)
        every = np.arange(self.records)
        return every[: -self.tests], every[-self.tests :]

    @property
    def records(self) -> int:
        return len(self.x)

    @property
    def features(self) -> int:
        return int(self.x.shape[1])

    @property
    def train_rows(self) -> Array:
        return self.rows[0]

    @property
    def test_rows(self) -> Array:
        return self.rows[1]

    @property
    def train(self) -> tuple[Array, Array]:
        """Training inputs and labels."""
        return self.x[self.train_rows], self.y[self.train_rows]

    @property
    def test(self) -> tuple[Array, Array]:
        """Test inputs and labels."""
        return self.x[self.test_rows], self.y[self.test_rows]


def shuffled(count: int, *, seed: int) -> Array:
    """The numbers below `count` in an order that every version of numpy gives: raw bits are stable, draws are not."""
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def split_rows(count: int) -> tuple[Array, Array]:
    """Training and test rows, 80 to 20, chosen by the number of records alone."""
    order, cut = shuffled(count, seed=SPLIT_SEED), int(TRAIN_PART * count)
    return np.sort(order[:cut]), np.sort(order[cut:])


def load_dataset(name: str) -> NamedDataset:
    """A public dataset by its name.

    name: mnist, fashion-mnist, adult or ag-news, which are downloaded once and kept in a cache; cifar10, enron or gisette, whose
        files are put into HONESTDP_DATA by hand; or digits and breast-cancer, which need no files.

    Returns a NamedDataset: `x` and `y`, `train` and `test` as pairs, `classes`, and where it comes from.

    Raises InvalidArgument for a name that is none of these, and DatasetUnavailable where files cannot be had.

    >>> import honestdp
    >>> digits = honestdp.load_dataset("digits")
    >>> x, y = digits.train
    >>> x.shape, digits.classes
    ((1437, 64), 10)
    """
    checks.one_of(names(), name=name)
    module, _, function = LOADERS[name].partition(":")
    found: NamedDataset = getattr(importlib.import_module(module), function)()
    return found


def names() -> tuple[str, ...]:
    """Every name that `load_dataset` knows."""
    return tuple(LOADERS)


LOADERS = {
    "mnist": "honestdp.data.datasets.images:mnist",
    "fashion-mnist": "honestdp.data.datasets.images:fashion_mnist",
    "cifar10": "honestdp.data.datasets.cifar:cifar10",
    "adult": "honestdp.data.datasets.adult:adult",
    "enron": "honestdp.data.datasets.enron:enron",
    "gisette": "honestdp.data.datasets.gisette:gisette",
    "ag-news": "honestdp.data.datasets.news:ag_news",
    "digits": "honestdp.data.datasets.embedded:digits",
    "breast-cancer": "honestdp.data.datasets.embedded:breast_cancer",
}
"""The function that loads each dataset, as "module:function". Another distribution adds the names of its own."""
