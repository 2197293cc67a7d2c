"""The commands on a file of rows: `schema` writes a schema to fill in, from its header alone, and `check` counts the values that
a schema can read. The counts are exact, and for the owner of the file alone.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from honestdp import checks
from honestdp.cli import datasets
from honestdp.cli import options as option
from honestdp.cli.terminal import emit
from honestdp.files import SCHEMA, written
from honestdp.notebook import as_text

if TYPE_CHECKING:
    from honestdp.data.tables.cells import Cells
    from honestdp.data.tables.columns import Column
    from honestdp.data.tables.table import Table

CAUTION = (
    "NOT FOR PUBLISHING: exact counts of private rows, for the owner of the file alone. Mend spellings and kinds by them; bounds "
    "and categories must still come from public knowledge"
)
_FILE = "A CSV or Parquet file. All its rows are read; nothing is charged, and nothing is written."
_PERSON = "The column with a person's id: people are counted."
_DELIMITER = "(CSV only) The sign between two values. Left out, it is found in the header."
_SHOWN = 3  # values of a column that are not as declared


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
    from honestdp.data.tables.schema import header_of, template

    out = out or Path(f"{datasets.label_of(file)}.toml")
    if out.exists() and not force:
        raise checks.InvalidArgument("out", str(out), "a file that is not there yet, or given with --force")
    between = None if delimiter is None else delimiter.encode().decode("unicode_escape")
    text = template(file, encoding=encoding, delimiter=between, quote=quote)
    columns = list(header_of(file, encoding=encoding, delimiter=between, quote=quote)[1])
    with written(out, argument="out", force=force, own=SCHEMA) as to:
        to.write(text.encode())
    seen = shlex.join(["honestdp", "check", str(file), "--schema", str(out)])
    tune = shlex.join(["honestdp", "tune", str(file), "--schema", str(out), "--epsilon", "3", "--out", "model"])
    many = f"{len(columns)} column{'s' * (len(columns) != 1)}"
    words = f"{'schema':<12}{out}, {many} to declare: nothing in it may be read off the rows"
    words += f"\n{'fill it in':<12}then see what it can read: {seen}\n{'and train':<12}{tune}"
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
    names = [*table.inputs, table.target, *([] if table.person is None else [table.person])]
    counted = _counted(table, source.batches(names))
    emit(lambda: counted, as_json=as_json, text=lambda: "\n".join(_lines(table, counted)))


def _counted(table: Table, batches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of the values of a file, each of them by itself, as training will read it."""
    from honestdp.data.tables.cells import Ids

    rows, without_id, people = 0, 0, Ids(table.cells)
    declared = {name: table.columns[name] for name in (*table.inputs, table.target)}
    columns = {name: _nothing(column) for name, column in declared.items()}
    for batch in batches:
        for name, column in declared.items():
            _count(columns[name], column, batch[name], table.cells)
        rows += len(batch[table.target])
        if table.person is not None:
            without_id += int((people.numbers(batch[table.person]) < 0).sum())
    for counts in columns.values():
        counts["not_declared"] = dict(counts["not_declared"].most_common(_SHOWN))
    who = {} if table.person is None else {"people": len(people), "rows_without_id": without_id}
    return {"caution": CAUTION, "rows": rows, **who, "target": table.target, "columns": columns}


def _nothing(column: Column) -> dict[str, Any]:
    """Counts before the first row: values read as declared, of them outside of the bounds, missing, and not as declared."""
    values = column.classes if column.kind == "categories" else ()
    counts: dict[str, Any] = {"read": 0, "outside": 0, "missing": 0, "unreadable": 0, "not_declared": Counter()}
    return counts | ({"values": dict.fromkeys(map(str, values), 0)} if values else {})


def _count(counts: dict[str, Any], column: Column, values: Any, cells: Cells) -> None:
    """Add a batch of values to the counts of their column."""
    from honestdp.data.tables.columns import Categories, Quantity

    missing = cells.places(values, ()) == -2
    read = ~missing
    if isinstance(column, Categories) and "values" in counts:
        places = column.places(values, cells)
        read = places >= 0
        for place, value in enumerate(counts["values"]):
            counts["values"][value] += int((places == place).sum())
    if isinstance(column, Quantity):
        raw = column.raw(values, cells)
        read = ~np.isnan(raw)
        low, high = (-np.inf, np.inf) if column.private else column.limits
        counts["outside"] += int(((raw < low) | (raw > high)).sum())
    strange = ~read & ~missing
    for name, which in (("read", read), ("missing", missing & ~read), ("unreadable", strange)):
        counts[name] += int(which.sum())
    counts["not_declared"].update(str(cells.text_of(value)) for value in values.filter(strange).to_pylist())


def _lines(table: Table, counted: dict[str, Any]) -> Iterator[str]:
    yield CAUTION
    lines = [("rows", str(counted["rows"]))]
    if table.person is not None:
        without = counted["rows_without_id"]
        more = f"; rows without an id, which are left out: {without}" if without else ""
        lines.append(("people", f"{counted['people']} by {table.person}{more}"))
    for name in counted["columns"]:
        lines.append((f"target {name}" if name == table.target else name, "; ".join(_words(table, name, counted))))
    yield as_text(lines)


def _words(table: Table, name: str, counted: dict[str, Any]) -> Iterator[str]:
    """The counts of a column in words."""
    rows, counts = counted["rows"], counted["columns"][name]
    yield f"{counts['read']} of {rows} can be read as {table.columns[name].kind}"
    if "values" in counts:
        yield ", ".join(f"{value} {times}" for value, times in counts["values"].items())
    for which, words in (("outside", "outside its bounds, which are clipped"), ("missing", "missing")):
        if counts[which]:
            yield f"{counts[which]} {words}"
    if counts["unreadable"]:
        found = ", ".join(f"{text!r} {times}" for text, times in counts["not_declared"].items())
        yield f"{counts['unreadable']} not as declared, such as {found}"
    if name == table.target and counts["read"] < rows:
        yield f"{rows - counts['read']} rows are left out of the training"
    if not counts["read"]:
        yield "NOT ONE: compare its kind and its values with the file"
