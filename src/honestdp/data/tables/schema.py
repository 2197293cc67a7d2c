"""Schema files: a `Table` declared in TOML, and a template made of a file's header.

target = "readmitted"
records = 100000

[columns.age]
low = 17
high = 90

[columns.sex]
values = ["Male", "Female"]

[columns.income]
kind = "range"
bounds = "private"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from honestdp.checks import InvalidArgument
from honestdp.data.tables.columns import KINDS, Categories, Column
from honestdp.data.tables.reading import QUOTE, Dialect, TableFile, other_delimiter
from honestdp.data.tables.table import Table

TO_FILL = "?"
_MOST_BYTES = 1 << 24  # 10,000 long categories in each of 100 columns; a device or a pipe has no end
_OF_TABLE = tuple(each.name for each in fields(Table) if each.name != "columns")
_NUMBERS = {"range": ("low", "high", "fill"), "number": ("centre", "scale", "within", "fill"), "categories": ("most",)}
_INFERRED = {
    "low": "range",
    "high": "range",
    "centre": "number",
    "values": "categories",
    "first": "date",
    "last": "date",
}


def read_schema(path: str | Path, *, target: str | None = None) -> Table:
    """The table that a TOML file declares.

    path: of the file. It has target, and for each column a section [columns.NAME] with the arguments of its kind: kind is one of
        range, number, categories, flag, date and ignore, and may be left out where low, values, centre or first tell it.
    target: the column to predict, in the place of the file's, which need not be filled in then.

    Returns a Table.

    Raises InvalidArgument where the file cannot be read, or contradicts itself.

    >>> import pathlib, tempfile, honestdp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "patients.toml"
    >>> _ = path.write_text('target = "ill"\\n[columns]\\nage = {low = 17, high = 90}\\nill = {values = ["no", "yes"]}\\n')
    >>> honestdp.read_schema(path).features
    ('age',)
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InvalidArgument("schema", str(path), f"a file of at most {_MOST_BYTES >> 20} MiB")
        written = tomllib.loads(content.decode("utf-8"))
    except OSError as trouble:
        raise InvalidArgument("schema", str(path), f"a file that can be read ({trouble.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidArgument("schema", str(path), "a TOML file in UTF-8") from None
    except tomllib.TOMLDecodeError as trouble:
        raise InvalidArgument("schema", str(path), f"a TOML file: {trouble}") from None
    return table_of(written if target is None else {**written, "target": target})


def table_of(written: Mapping[str, Any]) -> Table:
    """The table of a dictionary as `Table.as_dict` writes it."""
    unknown = [name for name in written if name not in (*_OF_TABLE, "columns")]
    if unknown:
        raise InvalidArgument("schema", unknown[0], f"made of {', '.join(_OF_TABLE)} and columns")
    columns = written.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidArgument("columns", columns, "one section for each column, such as [columns.age]")
    if written.get("target") in (None, TO_FILL):
        wanted = 'the name of the column to predict, here or as target = "..." in the schema, which leaves it open'
        raise InvalidArgument("target", written.get("target"), wanted)
    given = {name: written[name] for name in _OF_TABLE if name in written}
    return Table({name: _column(name, declared) for name, declared in columns.items()}, **given)


def _column(name: str, declared: object) -> Column:
    place = f"columns.{name}"
    if not isinstance(declared, Mapping):
        raise InvalidArgument(place, declared, "a section of settings, such as {low = 17, high = 90}")
    settings = dict(declared)
    kinds = {_INFERRED[each] for each in settings if each in _INFERRED}
    kind = settings.pop("kind", kinds.pop() if len(kinds) == 1 else None)
    if kind == TO_FILL or kind not in KINDS:
        wanted = f"one of {', '.join(KINDS)}, with what belongs to it beside it"
        raise InvalidArgument(f"{place}.kind", kind, wanted)
    known = [each.name for each in fields(KINDS[kind])]
    for each in settings:
        if each not in known:
            raise InvalidArgument(
                f"{place}.{each}", settings[each], f"left out: a {kind} has {', '.join(known) or 'nothing'}"
            )
        if isinstance(settings[each], str) and each in _NUMBERS.get(kind, ()):
            wanted = "a number: leave out the quotes"
            raise InvalidArgument(f"{place}.{each}", f"the text {settings[each]!r}", wanted)
    try:
        if KINDS[kind] is Categories:
            values = settings.pop("values", [])
            if not isinstance(values, list | tuple):
                raise InvalidArgument("values", values, "a list of categories")
            return Categories(*values, **settings)
        return KINDS[kind](**settings)
    except InvalidArgument as trouble:
        raise InvalidArgument(f"{place}.{trouble.argument}", trouble.value, trouble.wanted) from None
    except TypeError:
        required = "centre and scale" if kind == "number" else "first and last"
        raise InvalidArgument(place, dict(declared), f"with {required}") from None


def template(path: str | Path, *, encoding: str = "utf-8", delimiter: str | None = None, quote: str = QUOTE) -> str:
    """A schema file to fill in, from the header of a file: names of columns, and types where the file declares them.

    path: of a CSV or Parquet file, of which no row is read, so that nothing in the template is a value of anybody; unless a CSV
        has no header, and its first line is a row of words, which cannot be told from names. encoding, delimiter, quote: of a
        CSV; a delimiter that is left out is found in the header; quote is "" for a file that is written without quotes.

    Returns the TOML text. Every kind in it is "?" until it is filled in, but for Parquet columns whose type leaves one choice.

    Raises InvalidArgument where the file has no header that can be read.

    >>> import pathlib, tempfile, honestdp
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "patients.csv"
    >>> _ = path.write_text("age,ill\\n81,yes\\n")
    >>> text = honestdp.template(path)
    >>> "[columns.age]" in text, "81" in text
    (True, False)
    """
    dialect, header = header_of(Path(path), encoding=encoding, delimiter=delimiter, quote=quote)
    given = [*([f"encoding = {_toml(encoding)}"] * (encoding != "utf-8"))]
    given += [f"delimiter = {_toml(dialect.delimiter)}"] * (dialect.delimiter != ",")
    given += [f"quote = {_toml(quote)}"] * (quote != QUOTE)
    given += ['# decimal = ","     # where numbers are written as 3,5'] * (dialect.delimiter == ";")
    lines = [*_HEAD, *given]
    for name, kind in header.items():
        nameless = ['kind = "ignore"  # no name in the header: an index, most likely']
        lines += ["", f"[columns.{_key(name)}]", *(_to_fill(kind) if name else nameless)]
    return "\n".join(lines) + "\n"


def header_of(path: Path, *, encoding: str, delimiter: str | None, quote: str) -> tuple[Dialect, dict[str, str | None]]:
    """The dialect of a file, with the delimiter that its header shows where none is given, and the header."""
    dialect = Dialect(encoding, "," if delimiter is None else delimiter, quote)
    header = TableFile(path, dialect).header
    found = other_delimiter(header) if delimiter is None else None
    return header_of(path, encoding=encoding, delimiter=found, quote=quote) if found else (dialect, header)


_HEAD = (
    "# What is publicly known of the table. Nothing in here may be read off the private rows.",
    "# kind is one of",
    "#   range       low = 0, high = 100; numbers outside are clipped. log = true for amounts that are mostly small.",
    '#               bounds = "private" in place of low and high: learnt from the rows, out of the budget.',
    "#   number      centre = 120, scale = 20, within = 3",
    '#   categories  values = ["a", "b"]; other = true for one more, which is any other value.',
    '#               bounds = "private", most = 20 in place of values: learnt from the rows, out of the budget.',
    "#   flag        yes and no, true and false, 1 and 0",
    '#   date        first = "2000-01-01", last = "2029-12-31"',
    "#   ignore      no model sees it",
    "# fill = a value says what a missing one counts as; indicator = true makes its absence a feature.",
    "# Nobody is told of a wrong declaration, since to tell would be to tell of rows: a value that is not of its column's kind",
    "# counts as missing, and a row whose target is not one of the values is left out: texts are compared letter by letter.",
    "",
    f'target = "{TO_FILL}"  # the column to predict',
    "# records = 100000  # the public number of rows; left out, it is counted, and the statement says so",
    '# person = "..."    # the column that tells whose row it is, where a person may have several',
    "# rows_per_person = 10",
)


def _to_fill(kind: str | None) -> list[str]:
    known = {"bool": "flag", "date32[day]": "date"}.get(kind or "", TO_FILL)
    if kind is not None and kind.startswith("timestamp"):
        known = "date"
    return [f'kind = "{known}"' + ("" if kind is None else f"  # {kind} in the file")]


def _key(name: str) -> str:
    plain = name and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    return name if plain else _toml(name)


def text_of(table: Table) -> str:
    """The schema file of a table, which `read_schema` reads back as an equal table."""
    written = table.as_dict()
    columns = written.pop("columns")
    lines = [f"{name} = {_toml(value)}" for name, value in written.items()]
    for name, column in columns.items():
        lines += ["", f"[columns.{_key(name)}]", *(f"{each} = {_toml(value)}" for each, value in column.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # as JSON writes it, but for the one letter more that TOML wants escaped
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
