"""Rows of a `honestdp.Table` as an estimator gets them: a frame and its labels apart, rows that hold both, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from honestdp.checks import InvalidArgument
from honestdp.data.tables.reading import named
from honestdp.data.tables.table import Table
from honestdp.estimators.inputs import Array


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


def classes_of(table: Table) -> Array:
    """The declared labels, in the order of the model's outputs."""
    return table.decode(np.arange(table.outputs))
