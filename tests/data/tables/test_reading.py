"""Files that were not written with care: a record is a line, a header is its first line, and neither reaches into another."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from honestdp import Categories, Range, Table, template
from honestdp.data.tables import reading
from honestdp.data.tables.reading import Dialect, TableFile
from honestdp.errors import InvalidArgument

TABLE = Table({"age": Range(0, 100), "note": Categories("a", "b"), "ill": Categories("no", "yes")}, "ill")
HEADER = "age,note,ill\n"


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "a.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ---- One cell, and the rows of others

SWALLOWING = {
    "closed rows later": '7,"4711,no\n' + "8,b,yes\n" * 40 + '9,b",no\n',
    "never closed": '7,"4711,no\n' + "8,b,yes\n" * 40,
    "in the last row": '8,b,yes\n7,b,"4711\n',
    "in a column that no model sees": '7,"4711,no\n8,"b,yes\n',
    "by a carriage return": '7,"4711\r",no\r\n8,b,yes\r\n',
    "a doubled quote that closes nothing": '7,"4711"",no\n8,b,yes\n9,"b,no\n',
}


@pytest.mark.parametrize("name", SWALLOWING)
@pytest.mark.parametrize("block", [64, 1 << 23])
def test_a_cell_that_goes_on_in_the_next_line_is_refused_and_not_quoted(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BLOCK", block)
    path = file(tmp_path, HEADER + "1,a,yes\n" * 20 + SWALLOWING[name])
    for read in (lambda: TABLE.data(path, records=60).read(), lambda: len(TABLE.data(path))):
        with pytest.raises(InvalidArgument, match=r"next line|quote is not closed") as caught:
            read()
        assert "4711" not in str(caught.value)


def test_no_column_is_handed_out_before_all_of_them_were_scanned(tmp_path: Path) -> None:
    """The cell that spans lines is in a column that is not asked for."""
    source = TableFile(file(tmp_path, HEADER + '1,"a\n2,b",no\n3,a,yes\n'))
    with pytest.raises(InvalidArgument, match="next line"):
        next(source.batches(["age"]))


def test_a_file_without_quotes_is_read_line_by_line_as_declared(tmp_path: Path) -> None:
    path = file(tmp_path, HEADER + '10,a,yes\n20,"b,no\n30,a,yes\n40,b",no\n')
    x, y = replace(TABLE, quote="").data(path).read()
    assert x[:, 0].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert x[:, 1:].tolist() == [[1, 0], [0, 0], [1, 0], [0, 0]]
    assert y.tolist() == [1, 0, 1, 0]


def test_values_of_several_lines_are_read_where_they_are_declared(tmp_path: Path) -> None:
    path = file(tmp_path, HEADER + '1,"two\nlines",yes\n2,a,no\n')
    assert replace(TABLE, newlines=True).data(path).read()[1].tolist() == [1, 0]


def test_a_file_that_was_changed_since_it_was_scanned_is_scanned_again(tmp_path: Path) -> None:
    data = TABLE.data(file(tmp_path, HEADER + "1,a,yes\n"), records=9)
    data.scan()
    file(tmp_path, HEADER + '1,"a\n2,b",no\n')
    with pytest.raises(InvalidArgument, match="next line"):
        data.read()


def test_how_a_file_is_written_is_part_of_the_schema() -> None:
    table = replace(TABLE, quote="", delimiter=";")
    assert Table.from_dict(table.as_dict()) == table != TABLE
    assert replace(TABLE, newlines=True).digest != TABLE.digest


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("encoding", "foo"), ("encoding", 5), ("encoding", "hex"), ("encoding", "a\0b"),
        ("delimiter", ";;"), ("delimiter", ""), ("delimiter", "é"), ("delimiter", "\n"), ("delimiter", 5),
        ("quote", "''"), ("quote", ","), ("quote", None), ("newlines", "yes"),
    ],
)  # fmt: skip
def test_what_no_file_can_be_written_with_is_refused_by_name(argument: str, value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        replace(TABLE, **{argument: value})  # type: ignore[arg-type]
    assert caught.value.argument == argument


def test_lines_within_values_need_quotes() -> None:
    with pytest.raises(InvalidArgument, match="newlines"):
        Dialect(quote="", newlines=True)


# ---- The header

NO_HEADER = {
    "a quote that rows close": 'age,"note,ill\n4711,a",yes\n',
    "a quote that nothing closes": 'age,"note,ill\n4711,a,yes\n',
    "a name of two lines": 'age,"no\nte",ill\n4711,a,yes\n',
    "a number among names": "4711,a,yes\n1,b,no\n",
    "a number with a comma": "4711;a;3,5\n",
    "a date": "a,2024-01-31,yes\n4711,2024-02-01,no\n",
    "a day of a month": "a,31.01.2024,yes\n",
    "a time": "a,2024-01-31T12:00:00,yes\n",
    "an American date": "a,1/31/24,yes\n",
    "a name without an end": "a" * 200_000 + ",b\n",
    "a line without an end": "a," * 3_000_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_HEADER)
def test_a_first_line_that_names_no_columns_gives_no_template(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="first line") as caught:
        template(file(tmp_path, NO_HEADER[name]), delimiter=";" if ";" in NO_HEADER[name] else ",")
    assert "4711" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("packed", [False, True])
def test_a_header_is_read_and_nothing_below_it(packed: bool, tmp_path: Path) -> None:
    """Rows that could not even be decoded change nothing, right after the line break."""
    content = b'\xef\xbb\xbfage,"no,te",ill\n\xff\xfe"""\0,'
    path = file(tmp_path, gzip.compress(content) if packed else content)
    path = path.rename(tmp_path / "a.csv.gz") if packed else path
    assert list(TableFile(path).header) == ["age", "no,te", "ill"]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_of_three_ways(end: str, encoding: str, tmp_path: Path) -> None:
    table = replace(TABLE, encoding=encoding)
    path = file(tmp_path, end.join(["age,note,ill", "10,a,yes", "20,b,no", ""]).encode(encoding))
    x, y = table.data(path).read()
    assert (x[:, 1:].tolist(), y.tolist()) == ([[1, 0], [0, 1]], [1, 0])
    assert "[columns.age]" in template(path, encoding=encoding)


def test_a_template_says_how_the_file_is_written(tmp_path: Path) -> None:
    text = template(file(tmp_path, 'age;"note;ill\n1;a;yes\n'), delimiter=";", quote="")
    assert 'quote = ""' in text
    assert '[columns."\\"note"]' in text


# ---- Rows that are empty lines


def test_an_empty_line_is_a_row_where_there_is_one_column_and_none_elsewhere(tmp_path: Path) -> None:
    assert TableFile(file(tmp_path, "age\n1\n\n3\n\n5\n")).count() == 5
    assert [len(each["age"]) for each in TableFile(tmp_path / "a.csv").batches(["age"])] == [5]
    assert TableFile(file(tmp_path, HEADER + "1,a,yes\n\n2,b,no\n\n")).count() == 2
