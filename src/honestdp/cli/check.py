"""`honestdp check`: counts what a schema can read of a file. The counts are exact, and for the owner of the file alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from honestdp.cli import options as option
from honestdp.cli import sources
from honestdp.cli.terminal import emit

if TYPE_CHECKING:
    from honestdp.data.tables.columns import Column
    from honestdp.data.tables.table import Table

CAUTION = (
    "NOT FOR PUBLISHING: exact counts of private rows, for the owner of the file alone. Mend spellings and kinds by them; bounds "
    "and categories must still come from public knowledge"
)
_FILE = "A CSV or Parquet file. All its rows are read; nothing is charged, and nothing is written."
_PERSON = "The column with a person's id: people are counted."
_SHOWN = 3  # values of the target that were not declared


def check(
    name: Annotated[str, Argument(metavar="FILE", help=_FILE)],
    schema: sources.Schema = None,
    target: sources.Target = None,
    person: Annotated[str | None, Option(help=_PERSON)] = None,
    as_json: option.Json = False,
) -> None:
    """Count what can be read of a file as its schema declares it. **For the owner of the file alone: never publish the output.**

    `honestdp check patients.csv --schema patients.toml --target readmitted`

    In training a value that cannot be read counts as missing, and a row without a declared label is left out. Nobody is told of
    either, since to tell would be to tell of rows. So check before a budget is spent: how many values of each column can be read,
    which labels match and which do not, and with --person how many people there are.
    """
    from honestdp.data.tables.reading import TableFile
    from honestdp.data.tables.source import check_header

    given: dict[str, Any] = {"name": name, "schema": schema, "target": target, "person": person}
    table = sources.table_of(given | {"rows_per_person": None if person is None else 1})
    source = TableFile(Path(name), table.dialect)
    check_header(table, source.header)
    counted = _Counted(table)
    for batch in source.batches([*counted.columns, *([] if table.person is None else [table.person])]):
        counted.add(batch)
    emit(counted.as_dict, as_json=as_json, text=lambda: "\n".join(counted.lines()))


@dataclass
class _Count:
    """Values of one column: read as declared, of them outside its bounds, missing, and none of what was declared."""

    read: int = 0
    outside: int = 0
    missing: int = 0
    unreadable: int = 0
    matched: Counter[str] = field(default_factory=Counter)
    strange: Counter[str] = field(default_factory=Counter)


class _Counted:
    """Counts of a file, batch by batch."""

    def __init__(self, table: Table) -> None:
        from honestdp.data.tables.cells import Ids

        self.table, self.rows, self.without_id, self._people = table, 0, 0, Ids(table.cells)
        self.columns = {**table.inputs, table.target: table.columns[table.target]}
        self.counts = {name: _Count() for name in self.columns}

    def add(self, batch: dict[str, Any]) -> None:
        for name, column in self.columns.items():
            _add(self.counts[name], column, self.table, batch[name], is_target=name == self.table.target)
        self.rows += len(batch[self.table.target])
        if self.table.person is not None:
            self.without_id += int((self._people.numbers(batch[self.table.person]) < 0).sum())

    def as_dict(self) -> dict[str, Any]:
        people = {} if self.table.person is None else {"people": len(self._people), "rows_without_id": self.without_id}
        columns = {}
        for name, count in self.counts.items():
            numbers = {each: getattr(count, each) for each in ("read", "outside", "missing", "unreadable")}
            columns[name] = numbers | ({"values": dict(count.matched)} if count.matched else {})
        strange = dict(self.counts[self.table.target].strange.most_common(_SHOWN))
        about = {"target": self.table.target, "not_declared": strange, "columns": columns}
        return {"caution": CAUTION, "rows": self.rows, **people, **about}

    def lines(self) -> Iterator[str]:
        yield CAUTION
        rows: list[tuple[str, str]] = [("rows", str(self.rows))]
        if self.table.person is not None:
            without = f"; rows without an id, which are left out: {self.without_id}" if self.without_id else ""
            rows.append(("people", f"{len(self._people)} by {self.table.person}{without}"))
        for name, count in self.counts.items():
            rows.append((f"target {name}" if name == self.table.target else name, self._words(name, count)))
        width = max(len(label) for label, _ in rows) + 2
        yield from (f"{label:<{width}}{text}" for label, text in rows)

    def _words(self, name: str, count: _Count) -> str:
        kind, is_target = self.columns[name].kind, name == self.table.target
        parts = [f"{count.read} of {self.rows} can be read as {kind}"]
        if count.matched:
            parts.append(", ".join(f"{value} {times}" for value, times in count.matched.items()))
        parts += [f"{count.outside} outside its bounds, which are clipped"] * bool(count.outside)
        parts += [f"{count.missing} missing"] * bool(count.missing)
        parts += [f"{count.unreadable} not as declared"] * bool(count.unreadable)
        if is_target and count.strange:
            parts.append("found are " + ", ".join(f"{text!r} {n}" for text, n in count.strange.most_common(_SHOWN)))
        if is_target and count.read < self.rows:
            parts.append(f"{self.rows - count.read} rows are left out of the training")
        if not count.read:
            parts.append("NOT ONE: compare its kind and its values with the file")
        return "; ".join(parts)


def _add(count: _Count, column: Column, table: Table, values: Any, *, is_target: bool) -> None:
    """The values of a column in one batch, each counted by itself, as training will read it."""
    from honestdp.data.tables.columns import Categories, Quantity

    if isinstance(column, Categories):
        found = column.places(values, table.cells) if column.bounds == "declared" else table.cells.places(values, ())
        missing, read = found == -2, found >= (0 if column.bounds == "declared" else -1)
        for place, value in enumerate(column.values if column.bounds == "declared" else ()):
            count.matched[str(value)] += int((found == place).sum())
    else:
        assert isinstance(column, Quantity)
        raw, (low, high) = column.raw(values, table.cells), column.limits
        read = ~np.isnan(raw)
        missing = ~read & (table.cells.places(values, ()) == -2)
        count.outside += int(((raw < low) | (raw > high)).sum())
    strange = ~read & ~missing
    count.read += int(read.sum())
    count.missing += int(missing.sum())
    count.unreadable += int(strange.sum())
    if is_target:
        count.strange.update(str(table.cells.text_of(value)) for value in values.filter(strange).to_pylist())
