"""`TableRows`: the rows of a table, in memory or in a file, which are read and encoded after the charge, into one array.

A file is streamed: a batch of rows is read, encoded, and forgotten. Rows whose target is missing or not declared are left out,
each for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.layouts import Known, Unread
from honestdp.boundary.people import by_person
from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Ids
from honestdp.data.tables.columns import Categories
from honestdp.data.tables.reading import Named, TableFile, named, other_delimiter
from honestdp.data.tables.table import check_present
from honestdp.run import ROW, Unit

if TYPE_CHECKING:
    from honestdp.data.tables.table import Table


class TableRows(Unread):
    """What `Table.data` returns, for `train` and `tune`: the rows behind a table. Its length is N, declared or counted."""

    def __init__(self, table: Table, source: Any, *, records: int | None = None, extra: bool = False) -> None:
        """extra: columns that the table does not know are passed over."""
        if records is not None:
            checks.whole(least=1, most=checks.MOST, records=records)
        self.table, self._source = table, source_of(table, source)
        self._records = table.records if records is None else records
        self.known = Known(
            declared=self._records is not None,
            preprocessing="; ".join(table.describe()),
            spent=table.spent,
            words=f"by the table {table.digest[:16]}",
            unit=ROW if table.person is None else Unit(table.person, table.rows_per_person or 1),
            classes=None if table.classes is None else len(table.classes),
        )
        self.where = Path(source) if isinstance(source, str | Path) else source
        check_header(table, self._source.header, extra=extra)

    def __len__(self) -> int:
        """Of people, where they are the records. Those of whom no row is left count too: N is public, and no less private."""
        if self._records is None:
            self._records = self._source.count() if self.table.person is None else self._people()
            if not self._records:
                raise InvalidArgument("data", "no rows", "at least one row below the header")
        return self._records

    def scan(self) -> None:
        self._source.count()

    @property
    def none(self) -> tuple[Tensor, Tensor]:
        label = torch.float32 if self.table.classes is None else torch.int64
        return torch.empty(0, self.table.width), torch.empty(0, dtype=label)

    def _people(self) -> int:
        """How many people there are, a number that is taken to be public where it is not declared."""
        assert self.table.person is not None
        ids = Ids(self.table.cells)
        for batch in self._source.batches([self.table.person]):
            ids.numbers(batch[self.table.person])
        return len(ids)

    def read(self) -> Any:
        table, ids = self.table, Ids(self.table.cells)
        names = [*table.inputs, table.target, *([] if table.person is None else [table.person])]
        x, y = (each.numpy() for each in self.none)
        parts = [(x, y, np.empty(0, np.int64))]
        for batch in self._source.batches(names):
            labels = table.columns[table.target].labels(batch[table.target], table.cells)
            stays = ~np.isnan(labels) if table.classes is None else labels >= 0
            person = np.zeros(len(labels), np.int64) if table.person is None else ids.numbers(batch[table.person])
            stays &= person >= 0
            x = np.empty((len(labels), table.width), np.float32)
            table.encode_batch(batch, x)
            parts.append((x[stays], labels[stays], person[stays]))
        x, y, whose = (np.concatenate(each) for each in zip(*parts, strict=True))
        if table.person is None:
            return x, y
        return by_person((x, y), whose, rows=table.rows_per_person or 1, name=table.person)


def source_of(table: Table, source: Any) -> Named | TableFile:
    """Rows in memory or a file, read alike."""
    if isinstance(source, str | Path):
        return TableFile(Path(source), table.dialect)
    return named(source, table.orders)


def check_header(table: Table, header: Mapping[str, Any], *, extra: bool = False) -> None:
    """Every declared column is there, and no other: which a model sees is declared for each. extra: others are passed over."""
    names = (*table.inputs, table.target)
    unknown = [str(name) for name in header if name not in table.columns and name != table.person]
    absent = [name for name in names if name not in header]
    if other_delimiter(map(str, header)):
        check_present(header, names)
    if unknown and not extra:
        wanted = 'declared: as Ignore() (kind = "ignore" in a schema file) where no model is to see it'
        if absent:
            wanted += f"; {absent[0]!r} is declared and not there: is it the same column?"
        raise InvalidArgument("columns", f"a column {unknown[0]!r} that the table does not know", wanted)
    if table.person is not None and table.person not in header:
        wanted = f"a column of the data, which tells whose row it is; there are {', '.join(sorted(map(str, header)))}"
        raise InvalidArgument("person", table.person, wanted)
    check_present(header, names)
    for name in names:
        column, kind = table.columns[name], _type_of(header[name])
        if isinstance(column, Categories) and column.only_texts and _is_number(kind, floats=name == table.target):
            wanted = (
                "texts, as its declared categories are: no value would be one of them. Declare the numbers, as in "
                "Categories(0, 1), or turn them into those texts"
            )
            raise InvalidArgument(f"the column {name!r}", "of a numeric type", wanted)
        if isinstance(header[name], str) and kind.startswith(_NEVER.get(column.kind, ())):
            wanted = f"of a kind that fits its type in the file, {kind}: every value of it would count as missing"
            raise InvalidArgument(f"columns[{name!r}]", column.kind, wanted)


def _type_of(stored: Any) -> str:
    """The type that a file or a container declares for a column, or "": public, and never made of a value of the column."""
    return stored if isinstance(stored, str) else str(getattr(stored, "dtype", getattr(stored, "type", "")))


def _is_number(kind: str, *, floats: bool) -> bool:
    """Whether a type holds numbers. floats: count them too, the type of texts that are all missing in pandas."""
    numbers = ("int", "uint", "bool", *(("float", "double") if floats else ()))
    return not kind.lower().startswith("interval") and kind.lower().startswith(numbers)


_NOT_ONE = ("list", "large_list", "fixed_size_list", "struct", "map")
_NO_NUMBER = ("date", "time", "duration", *_NOT_ONE)
_NEVER = {
    "range": _NO_NUMBER,
    "number": _NO_NUMBER,
    "flag": _NO_NUMBER,
    "date": ("float", "halffloat", "bool", "time32", "time64", "duration", *_NOT_ONE),
}
"""Types of Parquet, which are public, that no value of a kind has: a wrong declaration that can be told without a row."""
