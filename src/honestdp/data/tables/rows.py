"""Rows as users hold them, as named columns: pandas, pyarrow, numpy, dictionaries, and whatever speaks Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from honestdp.checks import InvalidArgument

BATCH = 65536
WANTED = (
    "rows with named columns: a pandas DataFrame, a pyarrow Table, a dictionary of columns, a list of dictionaries, a numpy "
    "structured array, or a 2-d array with the columns in the order in which they are declared"
)


@dataclass(frozen=True)
class Named:
    """Columns by name, all of one length."""

    columns: Mapping[str, Any]
    length: int

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns, so many rows at a time."""
        for first in range(0, self.length, BATCH):
            yield {name: self.columns[name][first : first + BATCH] for name in names}


def named(rows: Any, orders: Sequence[Sequence[str]]) -> Named:
    """The columns of rows in memory. orders: those that a plain 2-d array may have, one of each width."""
    if _is_sparse(rows):
        wanted = "dense: a table encodes every value, also those that are 0; pass rows.toarray(), or train on the matrix itself"
        raise InvalidArgument("rows", f"a sparse matrix ({type(rows).__name__})", wanted)
    if isinstance(rows, Named):
        return rows
    if isinstance(rows, pa.RecordBatch | pa.Table):
        return _checked({name: rows.column(name) for name in _once(rows.schema.names)})
    if isinstance(rows, np.ndarray):
        return _of_array(rows, orders)
    if isinstance(rows, Mapping):
        return _checked({str(name): _column(values) for name, values in rows.items()})
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes) and all(isinstance(r, Mapping) for r in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return _checked({str(name): [row.get(name) for row in rows] for name in names}, len(rows))
    if type(rows).__module__.split(".")[0] == "pandas" and hasattr(rows, "columns"):
        return _checked({name: rows[name] for name in _once([str(c) for c in rows.columns])}, len(rows), iloc=True)
    if hasattr(rows, "__arrow_c_stream__"):
        return named(pa.table(rows), orders)
    raise InvalidArgument("rows", type(rows).__name__, WANTED)


def _of_array(rows: np.ndarray[Any, Any], orders: Sequence[Sequence[str]]) -> Named:
    if rows.dtype.names is not None:
        return _checked({name: rows[name] for name in rows.dtype.names})
    fits = [order for order in orders if rows.ndim == 2 and len(order) == rows.shape[1]]
    if not fits:
        widths = " or ".join(str(len(order)) for order in orders)
        raise InvalidArgument(
            "rows", f"an array of shape {rows.shape}", f"2-d, with {widths} columns in their declared order"
        )
    return _checked({name: rows[:, place] for place, name in enumerate(fits[0])}, len(rows))


def _column(values: Any) -> Any:
    """A column that can be cut into batches."""
    if hasattr(values, "numpy") and hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return values if isinstance(values, np.ndarray | list | tuple | pa.Array | pa.ChunkedArray) else np.asarray(values)


def _checked(columns: dict[str, Any], length: int | None = None, *, iloc: bool = False) -> Named:
    columns = {name: values.array if iloc else values for name, values in columns.items()}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim != 1:
            raise InvalidArgument(f"rows[{name!r}]", f"an array of shape {values.shape}", "one value a row")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgument("rows", f"columns of {sorted(set(lengths.values()))} values", "columns of one length")
    return Named(columns, length if length is not None else next(iter(lengths.values()), 0))


def _once(names: Sequence[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument("rows", f"two columns named {twice[0]!r}", "columns with different names")
    return list(names)


def _is_sparse(rows: Any) -> bool:
    return type(rows).__module__.startswith("scipy.sparse") or hasattr(rows, "sparse")
