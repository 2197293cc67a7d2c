"""Schema files: what a table declares and nothing else; a template has no value of the data."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from honestdp import Categories, Flag, Range, Table, read_schema, template
from honestdp.data.tables.schema import text_of
from honestdp.errors import InvalidArgument
from tests.data.tables.patients import TABLE, rows, write_csv

LEARNT = Table(
    {"a b.c": Range(1.5, 2.5, bounds="learnt"), "c": Categories(7, 9, bounds="learnt"), 'q"': Flag()},
    'q"',
    person="who",
    rows_per_person=3,
    records=1000,
    missing=("-", ""),
    encoding="latin-1",
    delimiter=";",
    spent=0.25,
)


@pytest.mark.parametrize("table", [TABLE, LEARNT], ids=["declared", "learnt"])
def test_a_table_is_written_and_read_back_whole(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(text_of(table), "utf-8")
    assert read_schema(path) == table == Table.from_dict(table.as_dict())
    assert read_schema(path).digest == table.digest


NASTY = (
    "\x7f",
    "\0",
    "\r\n",
    '"""',
    "\\u0041",
    "é",
    "\u2028",
    "\ufeff",
    "\U0001f600",
    "#",
    "a.b",
    " ",
    "'",
    "[x]",
    "=",
    "\t",
)


@pytest.mark.parametrize("text", NASTY, ids=repr)
def test_any_text_and_any_number_are_read_back_as_they_were_declared(text: str, tmp_path: Path) -> None:
    """Whatever a table declares can be saved with a model: found before a charge, for a table that cannot is not made."""
    numbers = Range(np.float32(0.1), np.float64(1e300), fill=np.int64(7))
    columns = {text: numbers, f"{text}x": Categories(f"{text}a", 3, 1e16, True), "t": Flag()}
    table = Table(columns, "t", person=f"{text}who", rows_per_person=np.int32(3), records=np.int64(9), missing=(text,))
    (tmp_path / "schema.toml").write_bytes(text_of(table).encode())
    assert read_schema(tmp_path / "schema.toml") == table


@pytest.mark.parametrize(
    "make",
    [
        lambda odd: Table({odd: Flag(), "t": Flag()}, "t"),
        lambda odd: Table({"a": Categories(odd, "b"), "t": Flag()}, "t"),
        lambda odd: Table({"a": Flag(), "t": Flag()}, "t", missing=(odd,)),
        lambda odd: Table({"a": Flag(), "t": Flag()}, "t", person=odd, rows_per_person=2),
    ],
)
def test_a_text_that_no_file_can_hold_is_refused_when_it_is_declared(make: Callable[[str], Table]) -> None:
    with pytest.raises(InvalidArgument, match="can be written to a schema file"):
        make("\ud800")


def test_the_order_of_the_columns_is_that_of_the_inputs_and_counts() -> None:
    one, other = {"a": Flag(), "b": Flag()}, {"b": Flag(), "a": Flag()}
    tables = [Table({**columns, "t": Flag()}, "t") for columns in (one, other)]
    assert tables[0] != tables[1]
    assert tables[0].digest != tables[1].digest


def test_a_kind_may_be_left_out_where_its_settings_tell_it() -> None:
    table = Table.from_dict(
        {"target": "t", "columns": {"a": {"low": 0, "high": 1}, "d": {"first": "2020-01-01", "last": "2021-01-01"},
                                    "n": {"centre": 0, "scale": 1}, "t": {"values": ["x", "y"]}}}
    )  # fmt: skip
    assert [column.kind for column in table.columns.values()] == ["range", "date", "number", "categories"]


SCHEMAS = {
    "no TOML": ("target = ", "schema"),
    "no target": ("[columns.a]\nkind = 'flag'", "target"),
    "no columns": ("target = 'a'", "columns"),
    "a word it does not know": ("target = 'a'\nseed = 3\n[columns.a]\nkind = 'flag'", "schema"),
    "a kind that is not filled in": ("target = 'a'\n[columns.a]\nkind = '?'", "columns.a.kind"),
    "two kinds in one": ("target = 'a'\n[columns.a]\nlow = 0\nvalues = ['x', 'y']", "columns.a.kind"),
    "a setting of another kind": ("target = 'a'\n[columns.a]\nkind = 'flag'\nlow = 0", "columns.a.low"),
    "bounds the wrong way round": ("target = 'a'\n[columns.a]\nlow = 9\nhigh = 1", "columns.a.high"),
    "half a number": ("target = 'a'\n[columns.a]\ncentre = 9", "columns.a"),
    "a person without a cap": ("target = 'a'\nperson = 'p'\n[columns.a]\nkind='flag'", "rows_per_person"),
    "a cap without a person": ("target = 'a'\nrows_per_person = 3\n[columns.a]\nkind='flag'", "person"),
    "a number in quotes": ("target = 'a'\n[columns.a]\nlow = '12'\nhigh = 40", "columns.a.low"),
    "a column that is a word": ("target = 'a'\ncolumns = {a = 'flag'}", "columns.a"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_contradicts_itself_is_refused_by_name(name: str, tmp_path: Path) -> None:
    text, argument = SCHEMAS[name]
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        read_schema(tmp_path / "schema.toml")
    assert caught.value.argument == argument


def test_a_number_in_quotes_is_called_a_text(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text("target = 'a'\n[columns.a]\nlow = '12'\nhigh = 40")
    with pytest.raises(
        InvalidArgument, match=r"columns.a.low must be a number: leave out the quotes, got .*the text '12'"
    ):
        read_schema(tmp_path / "schema.toml")


def test_a_schema_that_is_not_there_or_not_in_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="can be read"):
        read_schema(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes("target = 'größe'".encode("latin-1"))
    with pytest.raises(InvalidArgument, match="UTF-8"):
        read_schema(tmp_path / "latin.toml")


def test_a_template_has_names_and_types_and_no_value_of_the_data(tmp_path: Path) -> None:
    """Two files of one header have one template, whatever their rows."""
    first, second = rows(5, seed=1), rows(50, seed=2)
    texts = [template(write_csv(tmp_path / f"{i}.csv", each)) for i, each in enumerate((first, second))]
    assert texts[0] == texts[1]
    assert not any(value in texts[0] for value in first["name"])
    assert list(tomllib.loads(texts[0])["columns"]) == list(first)
    typed = pa.table({"age": [42], "when": pa.array([None], pa.timestamp("s")), "smokes": [True]})
    pa.parquet.write_table(typed, tmp_path / "typed.parquet")
    text = template(tmp_path / "typed.parquet")
    assert "int64" in text
    assert "42" not in text
    kinds = {name: column["kind"] for name, column in tomllib.loads(text)["columns"].items()}
    assert kinds == {"age": "?", "when": "date", "smokes": "flag"}


def test_a_file_without_a_header_has_no_template(tmp_path: Path) -> None:
    """Its first row would be in it."""
    (tmp_path / "bare.csv").write_text("81,yes,Smith\n40,no,Jones\n")
    with pytest.raises(InvalidArgument, match="names its columns") as caught:
        template(tmp_path / "bare.csv")
    assert "Smith" not in str(caught.value)


def test_a_template_that_was_not_filled_in_is_no_schema(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(template(write_csv(tmp_path / "a.csv", rows(2))))
    with pytest.raises(InvalidArgument, match="target must be the name of the column to predict"):
        read_schema(tmp_path / "t.toml")


def test_a_schema_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at most 16 MiB"):
        read_schema("/dev/zero")
