"""The commands on a file of rows: `schema` writes a schema to fill in, from its header alone, and `check` counts the values that
a schema can read. The counts are exact, and for the owner of the file alone.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from honestdp import checks
from honestdp.cli import datasets
from honestdp.cli import options as option
from honestdp.cli.terminal import emit
from honestdp.files import SCHEMA, check_place, written

if TYPE_CHECKING:
    from honestdp.data.tables.columns import Column
    from honestdp.data.tables.table import Table

CAUTION = (
    "NOT FOR PUBLISHING: exact counts of private rows, for the owner of the file alone. Mend spellings and kinds by them; bounds "
    "and categories must still come from public knowledge"
)
_FILE = "A CSV or Parquet file. All its rows are read; nothing is charged, and nothing is written."
_PERSON = "The column with a person's id: people are counted."
_DELIMITER = "(CSV only) The sign between two values. Left out, it is found in the header."
_SHOWN = 3  # values of the target that were not declared


def schema(
    file: Annotated[Path, Argument(metavar="FILE", help="A CSV or Parquet file, of which the header alone is parsed.")],
    out: Annotated[Path | None, Option(help="The schema to write; FILE's name with .toml if left out, here.")] = None,
    encoding: Annotated[str, Option(help="(CSV only) The encoding, such as latin-1.")] = "utf-8",
    delimiter: Annotated[str | None, Option(help=_DELIMITER)] = None,
    quote: Annotated[str, Option(help='(CSV only) The sign around values; "" for a file without quotes.')] = '"',
    force: Annotated[bool, Option("--force", help="Write over a schema that is there.")] = False,
    as_json: option.Json = False,
) -> None:
    """Write a schema to fill in: the columns of a file, by name, and the declarations that are to be made of them.

    `honestdp schema patients.csv` writes patients.toml; fill in what is publicly known of each column, then

    `honestdp tune patients.csv --schema patients.toml --target readmitted --epsilon 3 --out model/`

    The first line alone of a CSV is parsed, which must be a header: a first row of words cannot be told from names. Bounds that
    are read off private rows are not private. Bounds that nobody can declare can be learnt privately, out of the budget:
    bounds = "private".
    """
    from honestdp.data.tables.reading import Dialect, TableFile, other_delimiter
    from honestdp.data.tables.schema import template

    out = out or Path(f"{datasets.label_of(file)}.toml")
    if out.exists() and not force:
        raise checks.InvalidArgument("out", str(out), "a file that is not there yet, or given with --force")
    check_place(out, argument="out", force=force, own=SCHEMA)
    between = (delimiter or ",").encode().decode("unicode_escape")
    if len(between) != 1 or delimiter == "":
        raise checks.InvalidArgument("delimiter", delimiter, "one character")
    if delimiter is None:
        between = other_delimiter(TableFile(file, Dialect(encoding, quote=quote)).header) or between
    text = template(file, encoding=encoding, delimiter=between, quote=quote)
    with written(out, argument="out", force=force, own=SCHEMA) as to:
        to.write(text.encode())
    columns = list(TableFile(file, Dialect(encoding, between, quote)).header)
    command = shlex.join(["honestdp", "tune", str(file), "--schema", str(out), "--epsilon", "3", "--out", "model"])
    many = f"{len(columns)} column{'s' * (len(columns) != 1)}"
    words = f"{'schema':<12}{out}, {many} to declare: nothing in it may be read off the rows\n{'then':<12}{command}"
    emit(lambda: {"schema": str(out), "columns": columns}, as_json=as_json, text=lambda: words)


def check(
    name: Annotated[str, Argument(metavar="FILE", help=_FILE)],
    schema: datasets.Schema = None,
    target: datasets.Target = None,
    person: Annotated[str | None, Option(help=_PERSON)] = None,
    as_json: option.Json = False,
) -> None:
    """Count the values of a file that its schema can read. **For the owner of the file alone: never publish the output.**

    `honestdp check patients.csv --schema patients.toml --target readmitted`

    A training counts a value that cannot be read as missing, and leaves a row without a declared label out. It reports neither,
    since a report would be about rows. So check before a budget is spent: how many values of each column can be read, which
    labels match and which do not, and with --person how many people there are.
    """
    from honestdp.data.tables.reading import TableFile
    from honestdp.data.tables.source import check_header

    given: dict[str, Any] = {"name": name, "schema": schema, "target": target, "person": person}
    table = datasets.table_of(given | {"rows_per_person": None if person is None else 1})
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
