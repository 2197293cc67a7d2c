"""`TableRows`: the rows of a table, in memory or in a file, which are read and encoded after the charge, into one array.

A file is streamed: a batch of rows is read, encoded into its place, and forgotten. Rows whose target is missing or not declared
are left out, each for itself. The arrays are made for as many rows as there are said to be and grow where there are more: memory
that no row was written to is not held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.unread import Known, Unread
from honestdp.checks import InvalidArgument
from honestdp.data.tables.files import TableFile
from honestdp.data.tables.rows import Named, named
from honestdp.data.tables.values import Array

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table

_FIRST, _GROWS = 1 << 22, 1.25


class TableRows(Unread):
    """What `Table.data` returns, for `train` and `tune`: the rows behind a table. Its length is N, declared or counted."""

    def __init__(self, table: Table, source: Any, *, records: int | None = None) -> None:
        if records is not None:
            checks.whole(least=1, most=checks.MOST, records=records)
        self.table, self._source = table, source_of(table, source)
        self._records = table.records if records is None else records
        self.known = Known(
            declared=self._records is not None,
            preprocessing="; ".join(table.describe()),
            spent=table.spent,
            words=f"by the table {table.digest[:16]}",
        )
        self.where = Path(source) if isinstance(source, str | Path) else source
        check_header(table, self._source.header)

    def __len__(self) -> int:
        if self._records is None:
            self._records = self._source.count()
            if not self._records:
                raise InvalidArgument("data", "no rows", "at least one row below the header")
        return self._records

    @property
    def none(self) -> tuple[Tensor, Tensor]:
        label = torch.float32 if self.table.classes is None else torch.int64
        return torch.empty(0, self.table.width), torch.empty(0, dtype=label)

    def read(self) -> tuple[Array, Array]:
        table, kept, first = self.table, 0, min(len(self), _FIRST)
        x = np.empty((first, table.width), np.float32)
        y = np.empty(first, np.float32 if table.classes is None else np.int64)
        for batch in self._source.batches([*table.inputs, table.target]):
            labels = table.encode_labels(batch[table.target])
            there = np.flatnonzero(~np.isnan(labels) if table.classes is None else labels >= 0)
            end = kept + len(labels)
            if end > len(y):
                for array in (x, y):
                    array.resize((max(end, int(_GROWS * len(array))), *array.shape[1:]), refcheck=False)
            table.encode_batch(batch, x[kept:end])
            y[kept:end] = labels
            if len(there) < len(labels):
                x[kept : kept + len(there)], y[kept : kept + len(there)] = x[kept:end][there], labels[there]
            kept += len(there)
        for array in (x, y):
            array.resize((kept, *array.shape[1:]), refcheck=False)
        return x, y


class _InMemory:
    """Rows in memory, with the names of their columns as a header."""

    def __init__(self, rows: Named) -> None:
        self._rows = rows

    @property
    def header(self) -> Mapping[str, Any]:
        return self._rows.columns

    def count(self) -> int:
        return self._rows.length

    def batches(self, names: list[str]) -> Iterator[dict[str, Any]]:
        return Named({name: self._rows.columns[name] for name in names}, self._rows.length).batches()


def source_of(table: Table, source: Any) -> _InMemory | TableFile:
    """Rows in memory or a file, read alike."""
    if isinstance(source, str | Path):
        return TableFile(Path(source), table.encoding, table.delimiter)
    return _InMemory(named(source, table.orders))


def check_header(table: Table, header: Mapping[str, Any]) -> None:
    """Every declared column is there, and no other: which a model sees is declared for each."""
    unknown = [str(name) for name in header if name not in table.columns and name != table.person]
    if unknown:
        wanted = 'declared: as Ignore() (kind = "ignore" in a schema file) where no model is to see it'
        raise InvalidArgument("columns", f"a column {unknown[0]!r} that the table does not know", wanted)
    table.check_columns(header, [*table.inputs, table.target, *([] if table.person is None else [table.person])])
