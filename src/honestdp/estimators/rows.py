"""Rows of an estimator as its model reads them: by bounds, by a `honestdp.Table`, or as they are. Nothing is learnt from a row.

The guarantee needs no bounds: a row's gradient is clipped whatever its inputs are. They are for the model, which learns little
from columns of very different sizes; a scale that is read off the rows would tell of them, so it is declared or there is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import validate_data
from torch import Tensor

from honestdp.boundary.layouts import Known, Unread
from honestdp.checks import InvalidArgument
from honestdp.data.tables.reading import named
from honestdp.data.tables.table import Table

Array = np.ndarray[Any, Any]
_WANTED = (
    "(low, high) for every column, a list of such pairs, one for each column, or a dictionary of them by the columns' names: "
    "public numbers, not read off these rows"
)
_BLOCK = 65536
_TEXTS, _MISSING = "could not convert string to float", "missing values encoded as NaN"  # scikit-learn's own words
_MOST_DENSE = 8 << 30  # bytes of a sparse matrix once it is dense


@dataclass(frozen=True)
class Bounds:
    """Declared bounds of each column, `[columns]`; None where there are none and inputs are taken as they are."""

    low: Array | None
    high: Array | None

    def encode(self, x: Any) -> Array:
        """float32 `[rows, columns]`, a copy: from -1 at the lower bound to 1 at the upper, and clipped to them."""
        x = dense(x)
        if self.low is None or self.high is None:
            return np.array(x, dtype=np.float32, order="C")
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        scaled = np.empty(x.shape, np.float32)
        for first in range(0, len(x), _BLOCK):  # so that no second copy of all rows is made on the way
            scaled[first : first + _BLOCK] = np.clip((x[first : first + _BLOCK] - middle) / half, -1, 1)
        return scaled

    @property
    def digest(self) -> str:
        """Equal for equal bounds alone."""
        ends = b"" if self.low is None or self.high is None else self.low.tobytes() + self.high.tobytes()
        return hashlib.sha256(ends).hexdigest()[:16]

    def describe(self) -> list[str]:
        if self.low is None:
            return ["inputs were taken as they came; nothing was scaled here"]
        return [f"{len(self.low)} columns by declared bounds as -1 to 1, clipped"]


class EncodedRows(Unread):
    """Rows in memory, encoded after the charge. labels: as a loss reads them. words: on what was done to them, for a statement.
    where: the user's own object, by which a second fit on the same rows is known. classes: how many there are.
    """

    def __init__(
        self, x: Any, labels: Array, bounds: Bounds, *, words: list[str], where: Any, classes: int | None = None
    ) -> None:
        self._x, self._labels, self._bounds, self.where = x, labels, bounds, where
        self.known = Known(
            declared=False,
            preprocessing="; ".join(words),
            spent=0.0,
            words=f"by bounds {bounds.digest}",
            classes=classes,
        )

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def none(self) -> tuple[Tensor, Tensor]:
        return torch.empty(0, self._x.shape[1]), torch.from_numpy(self._labels[:0].copy())

    def read(self) -> tuple[Array, Array]:
        return self._bounds.encode(self._x), self._labels.copy()


def bounds_of(bounds: Any, *, columns: int, names: Any) -> Bounds:
    """What a user declared, for so many columns. names: of them, where they have any."""
    if bounds is None:
        return Bounds(None, None)
    if isinstance(bounds, Mapping):
        if names is None:
            raise InvalidArgument(
                "bounds",
                sorted(map(str, bounds)),
                "a list, one pair for each column in their order, where they have no names, as behind most steps of a Pipeline",
            )
        missing = [name for name in names if name not in bounds]
        if missing:
            raise InvalidArgument("bounds", sorted(map(str, bounds)), f"with every column; {missing[0]!r} is not there")
        bounds = [bounds[name] for name in names]
    pairs = _pairs(bounds)
    if pairs.ndim == 1:
        pairs = np.tile(pairs, (columns, 1))
    if pairs.shape != (columns, 2):
        raise InvalidArgument("bounds", f"{len(pairs)} pairs", f"{_WANTED}; there are {columns} columns")
    return Bounds(pairs[:, 0], pairs[:, 1])


def target_bounds_of(target_bounds: Any) -> tuple[float, float] | None:
    """(low, high) of what is predicted, declared; None where it is not."""
    if target_bounds is None:
        return None
    try:
        low, high = (float(end) for end in target_bounds)
    except (TypeError, ValueError):
        low = high = 0.0
    if not (np.isfinite([low, high]).all() and low < high):
        raise InvalidArgument(
            "target_bounds", target_bounds, "(low, high), two public numbers, not read off these rows"
        )
    return low, high


def _pairs(bounds: Any) -> Array:
    try:
        pairs = np.asarray(bounds, dtype=float)
    except (TypeError, ValueError):
        pairs = np.zeros(0)
    shaped = pairs.shape == (2,) or (pairs.ndim == 2 and pairs.shape[1] == 2)
    if not shaped or not np.isfinite(pairs).all() or not (pairs[..., 0] < pairs[..., 1]).all():
        raise InvalidArgument("bounds", bounds, _WANTED)
    return pairs


def numbers_in(estimator: Any, *arrays: Any, **how: Any) -> Any:
    """X, and y where it is given, as scikit-learn checks them; in words of our own where its advice would not be private."""
    try:
        return validate_data(estimator, *arrays, accept_sparse="csr", dtype="numeric", **how)
    except ValueError as trouble:
        words = str(trouble)
        if _TEXTS not in words and _MISSING not in words:
            raise
    # Here and not there, so that a value which is quoted in scikit-learn's words is not carried along.
    if _TEXTS in words:
        wanted = "numbers: declare categories in table=honestdp.Table(...), or encode them by OneHotEncoder(categories=[...])"
        raise InvalidArgument("X", "texts", wanted)
    wanted = (
        "free of NaN. The way out: a honestdp.Table, whose columns declare what a missing value counts as (fill=, "
        "indicator=True), or SimpleImputer(strategy='constant', fill_value=0, keep_empty_features=True) before this "
        "estimator; a mean of the rows in their place would tell of them"
    )
    raise InvalidArgument("X", "NaN", wanted)


def refuse_fit_arguments(arguments: Mapping[str, Any]) -> None:
    """What `fit` of other estimators takes and that of a private one does not."""
    if "sample_weight" in arguments:
        wanted = (
            "left out: a gradient is clipped whatever its weight, and a weight that was made from other rows tells of them. "
            "Weights of whole classes, by declared prevalence, are class_weights="
        )
        raise InvalidArgument("sample_weight", type(arguments["sample_weight"]).__name__, wanted)
    if arguments:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(arguments))!r}; it takes X and y")


def refuse_too_wide(x: Any) -> None:
    """A sparse matrix becomes an array: gradients of all its columns are clipped and noised, also where it is 0."""
    if bool(sparse.issparse(x)) and x.shape[0] * x.shape[1] * 4 > _MOST_DENSE:
        size = f"a sparse matrix of {x.shape[0]} x {x.shape[1]}"
        wanted = "small enough to be dense: noise is added to the weights of all columns; hash to fewer columns"
        raise InvalidArgument("X", size, wanted)


def dense(x: Any) -> Any:
    """A sparse matrix as an array."""
    return x.astype(np.float32).toarray() if bool(sparse.issparse(x)) else x


# ---- Rows of a table


def table_of(table: Any, *, task: str, bounds: Any) -> Table:
    """The table, which declares what it must for this task, and everything that could be declared beside it."""
    if not isinstance(table, Table):
        raise InvalidArgument("table", table, "a honestdp.Table")
    if table.task != task:
        wanted = f"one for {task}: the kind of its target decides which estimator it is for"
        raise InvalidArgument("table", f"a table for {table.task}", wanted)
    if bounds is not None:
        raise InvalidArgument("bounds", bounds, "left out where there is a table, which declares them")
    return table


def rows_of(table: Table, X: Any, y: Any) -> Any:
    """What `Table.data` reads. y: the target's column where X has none of it."""
    if y is None:
        return X
    if isinstance(X, str | Path):
        raise InvalidArgument(
            "y", type(y).__name__, f"left out for a file, whose column {table.target!r} has the labels"
        )
    used = [name for name in table.columns if name not in (table.target, table.person)]
    columns = dict(named(X, [list(table.inputs), used]).header)
    if table.target in columns:
        raise InvalidArgument("y", type(y).__name__, f"left out where X has the column {table.target!r}, the target")
    labels = y if hasattr(y, "__len__") else np.asarray(y)
    return columns | {table.target: getattr(labels, "array", labels)}
