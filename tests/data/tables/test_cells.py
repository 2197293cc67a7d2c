"""A tool that writes rows picks one type for a whole column, and one row more respells all others: each is read as before."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from honestdp import Categories, Date, Flag, Number, Range, Table
from honestdp.data.tables import cells
from honestdp.data.tables.cells import Cells, Ids
from honestdp.data.tables.columns import Column
from honestdp.data.tables.reading import TableFile
from honestdp.errors import InvalidArgument

WEST, EAST, SUMMER = (dt.timezone(dt.timedelta(hours=hours)) for hours in (-5, 1, 2))
NIGHT = [pd.Timestamp(2020, 1, day, 0, 30, tz=EAST) for day in (5, 6, 7)]
ODD: tuple[Any, ...] = (
    None,
    "x",
    2.5,
    3,
    True,
    3j,
    pd.Timestamp(2020, 7, 1, 0, 30, tz=SUMMER),
    dt.datetime(2020, 2, 1, 3),
    dt.datetime(1, 1, 1, tzinfo=WEST),
    "0x1",
)

COLUMNS: dict[str, tuple[Column, list[Any]]] = {
    "whole numbers": (Categories(1, 2, 3, indicator=True), [1, 2, 3]),
    "whole numbers declared as texts": (Categories("1", "2", other=True), [1, 2, 3]),
    "codes with zeros": (Categories("01", "02", "03"), ["01", "02", "03"]),
    "codes of words": (Categories("a", "1e", "x1"), ["a", "1e", "x1"]),
    "parts": (Categories("0.50", "2.50", "1"), ["0.50", "2.50", "1.00"]),
    "large codes": (Categories(10**15, 10**15 + 1), [10**15, 10**15 + 1]),
    "codes larger than float64 keeps apart": (Categories(10**17 + 1, 10**18, other=True), [10**17 + 1, 10**18]),
    "parts of float32": (Categories(0.1, 2.3, other=True), [np.float32(0.1), np.float32(2.3)]),
    "learnt large codes": (
        Categories(*range(0, 1 << 16, 7), bounds="learnt", most=10_000),
        [10**17 + i for i in range(0, 900, 29)],
    ),
    "words": (Categories("a", "b", other=True), ["a", "b"]),
    "learnt stamps": (
        Categories(*range(0, 1 << 16, 7), bounds="learnt", most=10_000),
        [pd.Timestamp(2020, 1, day, 0, 30, tz=WEST) for day in range(1, 29)],
    ),
    "booleans": (Categories(False, True, indicator=True), [False, True]),
    "learnt categories": (Categories(*range(0, 1 << 16, 7), bounds="learnt", most=10_000), [1, 2, 3, 4, 5, 6, 7, 8]),
    "learnt codes": (Categories(*range(0, 1 << 16, 7), bounds="learnt", most=10_000), [f"{i:03}" for i in range(1, 40)]),
    "flags of numbers": (Flag(indicator=True), [1, 0, 1]),
    "flags of booleans": (Flag(), [True, False]),
    "flags of words": (Flag(), ["yes", "NO", "TRUE"]),
    "a range": (Range(-5, 5, indicator=True), [1, -9, 3]),
    "a range of parts": (Range(-5, 5), [1.5, -9.25, 0.1]),
    "a number": (Number(0, 3), ["1.50", "-2", "1e0"]),
    "a range of booleans": (Range(0, 2), [True, False]),
    "stamps": (Date("2020-01-01", "2020-12-31"), [pd.Timestamp(2020, 1, day, 23, 30) for day in (5, 6)]),
    "categories of days": (Categories("2020-01-05", "2020-01-06"), [pd.Timestamp(2020, 1, day) for day in (5, 6)]),
    "stamps of a zone": (Date("2020-01-01", "2020-12-31"), NIGHT),
    "days": (Date("2020-01-01", "2020-12-31", indicator=True), [dt.date(2020, 1, 5), dt.date(2020, 3, 5)]),
    "days as texts": (Date("2020-01-01", "2020-12-31"), ["2020-01-05", "2020-03-05"]),
    "days as numbers": (Date("2020-01-01", "2020-12-31"), [20200105, 20200305]),
}  # fmt: skip


def csv(values: list[Any], folder: Path) -> Path:
    pd.DataFrame({"a": values, "t": "yes"}).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def csv_of_arrow(values: list[Any], folder: Path) -> Path:
    pa.csv.write_csv(pa.table({"a": values, "t": ["yes"] * len(values)}), folder / "a.csv")
    return folder / "a.csv"


def parquet(values: list[Any], folder: Path) -> Path:
    pd.DataFrame({"a": values, "t": "yes"}).to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


def read_from_csv(values: list[Any], folder: Path, **how: Any) -> pd.DataFrame:
    """What pandas makes of texts, to which it gives types of its own."""
    text = "a,t\n" + "".join(f"{'' if value is None else value},yes\n" for value in values)
    return pd.read_csv(io.StringIO(text), **how)


CONTAINERS: dict[str, Callable[[list[Any], Path], Any]] = {
    "a frame": lambda values, _: pd.DataFrame({"a": values, "t": "yes"}),
    "a frame of objects": lambda values, _: pd.DataFrame({"a": values, "t": "yes"}, dtype=object),
    "a CSV": csv,
    "a CSV of pyarrow": csv_of_arrow,
    "a Parquet file": parquet,
    "frames put together": lambda values, _: pd.concat(
        [pd.DataFrame({"a": [value], "t": ["yes"]}) for value in values], ignore_index=True
    ),
    "a frame read from a CSV": read_from_csv,
    "a frame of nullable types": lambda values, folder: read_from_csv(values, folder, dtype_backend="numpy_nullable"),
    "a frame of pyarrow's types": lambda values, folder: read_from_csv(values, folder, dtype_backend="pyarrow"),
    "a table that pyarrow read": lambda values, folder: dict(
        zip("at", pa.csv.read_csv(csv(values, folder)).columns, strict=True)
    ),
    "a dictionary of lists": lambda values, _: {"a": values, "t": ["yes"] * len(values)},
    "a dictionary of arrays": lambda values, _: {"a": np.array(values), "t": np.array(["yes"] * len(values))},
    "a list of dictionaries": lambda values, _: [{"a": value, "t": "yes"} for value in values],
}
UNWRITTEN = (pa.ArrowException, TypeError, OverflowError)
"""What a writer says to values that it cannot hold beside one another."""


def features(column: Column, source: Any) -> Any:
    return Table({"a": column, "t": Flag()}, "t").data(source).read()[0]


def labels(column: Column, source: Any) -> Any:
    target = Table({"a": column, "t": Flag()}, "a")
    values = dict(source) if not isinstance(source, Path | list) else source
    if isinstance(values, list):
        values = {"a": [row["a"] for row in values]}
    if isinstance(values, Path):
        (values,) = TableFile(values).batches(["a"])
    return target.encode_target(values)


def changing(read: Callable[[Column, Any], Any], name: str, container: str, folder: Path) -> list[Any]:
    """Values that change how the rows before them are read."""
    (column, values), make, found = COLUMNS[name], CONTAINERS[container], []
    alone = read(column, make(values, folder))
    for odd in ODD:
        try:
            source = make([*values, odd], folder)
        except UNWRITTEN:
            continue
        if not np.array_equal(read(column, source)[: len(values)], alone, equal_nan=True):
            found.append(odd)
    return found


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", COLUMNS)
def test_one_row_more_changes_no_other_whatever_a_tool_respells(name: str, container: str, tmp_path: Path) -> None:
    assert changing(features, name, container, tmp_path) == []


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ["codes with zeros", "flags of booleans", "large codes", "a range of parts"])
def test_one_row_more_changes_no_label(name: str, container: str, tmp_path: Path) -> None:
    assert changing(labels, name, container, tmp_path) == []


@pytest.mark.parametrize("name", COLUMNS)
def test_every_container_of_the_same_values_is_read_to_the_same_features(name: str, tmp_path: Path) -> None:
    column, values = COLUMNS[name]
    wanted = features(column, {"a": values, "t": ["yes"] * len(values)})
    assert len(np.unique(wanted, axis=0)) > 1
    for container, make in CONTAINERS.items():
        assert np.array_equal(features(column, make(values, tmp_path)), wanted), container


SPELLINGS = (1, 1.0, "1", "1.0", "01", "1e0", " 1 ", "+1", "1.", "10e-1", True, "True", "true", "TRUE", np.int8(1), np.float32(1),
             Decimal("1.00"), b"1.0", "(1+0j)", 1 + 0j)  # fmt: skip


@pytest.mark.parametrize("one", SPELLINGS, ids=repr)
def test_a_whole_number_is_known_however_it_is_spelled(one: Any) -> None:
    table = Table({"c": Categories(0, 1), "f": Flag(), "r": Range(0, 2), "t": Flag()}, "t")
    assert table.encode({"c": [one], "f": [one], "r": [one]}).tolist() == [[0, 1, 1, 0.5]]
    assert Ids(Cells()).numbers([7, "7.0", "07", "7e0", 7.0, Decimal(7), " 7"]).tolist() == [0] * 7


def test_texts_that_are_no_numbers_stay_texts() -> None:
    table = Table({"c": Categories("1a", "1e", "10j", "e1", "0x1", "1_0", "-", "1.2.3"), "t": Flag()}, "t")
    values = table.columns["c"].values
    assert np.array_equal(table.encode({"c": list(values)}), np.eye(len(values)))
    assert not table.encode({"c": ["1A", "1e0", "1", "10", "01a"]}).any()


@pytest.mark.parametrize(
    "same", [("1", "01"), (1, "1.0"), (True, "true"), (1, True), ("1.1", "1.10"), (2**53, 2**53 + 1)], ids=repr
)
def test_categories_that_a_tool_would_make_one_are_refused(same: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidArgument, match="named once"):
        Categories(*same)


def test_with_decimal_commas_too_a_number_is_known_however_it_is_spelled() -> None:
    """pandas writes 1,0 where a column is of numbers, and 1.0 in one of objects."""
    table = Table({"c": Categories(1, 1000), "r": Range(0, 2), "t": Flag()}, "t", decimal=",")
    for one in ("1", "1,0", "1.0", "01,00", 1, 1.0):
        assert table.encode({"c": [one, "x"], "r": [one, "x"]})[0].tolist() == [1, 0, 0.5], one
    assert table.encode({"c": ["1.000"], "r": ["0.500"]}).tolist() == [[0, 0, 0.5]]
    parts = [table.encode({"c": [1] * len(values), "r": values})[0, 2] for values in ([0.25], [0.25, "x"], ["0,25"])]
    assert parts == [0.125] * 3


def test_a_stamp_is_read_in_utc(tmp_path: Path) -> None:
    """Half past midnight in the east is the day before; a zone that nobody knows is no trouble, since no day goes by it."""
    table = Table({"d": Date("2020-01-01", "2020-01-11"), "t": Flag()}, "t")
    stamp = pa.array([NIGHT[0].to_pydatetime()], pa.timestamp("us", "Europe/Berlin"))
    for one in (NIGHT[0], NIGHT[0].to_pydatetime(), str(NIGHT[0]), "2020-01-05T00:30:00+01:00", "2020-01-04T23:30:00Z"):
        assert table.encode({"d": [one]})[0, 0] == pytest.approx(0.3)
    for column in (stamp, stamp.cast(pa.timestamp("us", "Nowhere/None"))):
        pa.parquet.write_table(pa.table({"d": column, "t": ["yes"]}), tmp_path / "a.parquet")
        for source in ({"d": column, "t": ["yes"]}, tmp_path / "a.parquet"):
            assert table.data(source).read()[0][0, 0] == pytest.approx(0.3)


def test_a_stamp_is_one_category_however_its_midnight_is_written() -> None:
    column = Categories("2020-01-05", "2020-01-06 10:00")
    midnight = (
        "2020-01-05",
        "2020-01-05 00:00:00",
        "2020-01-05T00:00",
        "2020-01-05 00:00:00.000000",
        dt.date(2020, 1, 5),
    )
    ten = (
        "2020-01-06T10:00:00",
        "2020-01-06 11:00:00+01:00",
        dt.datetime(2020, 1, 6, 10),
        np.datetime64("2020-01-06T10"),
    )
    table = Table({"c": column, "t": Flag()}, "t")
    assert table.encode({"c": [*midnight, *ten]}).argmax(1).tolist() == [0] * len(midnight) + [1] * len(ten)


def test_an_empty_text_is_missing_whatever_else_is(tmp_path: Path) -> None:
    table = Table({"a": Categories("x", "y", other=True, indicator=True), "t": Flag()}, "t", missing=("-9",))
    assert table.encode({"a": ["", " ", None, "-9.0", "q"]}).tolist() == [*[[0, 0, 0, 1]] * 4, [0, 0, 1, 0]]


def test_a_number_among_texts_is_read_as_in_a_column_of_numbers() -> None:
    """pyarrow reads a column of texts that are all numbers; beside one that is none, texts are read in two other ways."""
    draw = np.random.default_rng(0)
    letters = np.array(list("0123456789.eE+-"))
    texts = ["".join(draw.choice(letters, draw.integers(1, 7))) for _ in range(1_500)] + [
        "inf",
        "-Infinity",
        "1e999",
        "1e0005",
    ]
    for decimal in ".,":
        read = Cells(decimal=decimal)
        together = read.numbers([text.replace(".", decimal) for text in texts])
        alone = [read.numbers([text.replace(".", decimal)])[0] for text in texts]
        assert np.array_equal(together, alone, equal_nan=True)
    assert np.isfinite(together).sum() > 100
    assert np.isnan(together).sum() > 100


IDS = [1, 2, 3]


@pytest.mark.parametrize("odd", [None, "x", 2.5, True], ids=repr)
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_person_is_one_whatever_a_tool_made_of_the_ids_of_one_of_two_files(
    container: str, odd: Any, tmp_path: Path
) -> None:
    ids = Ids(Cells(("NA",)))
    for values in (IDS, [*IDS, odd]):
        try:
            source = CONTAINERS[container](values, tmp_path)
        except UNWRITTEN:
            continue
        if isinstance(source, list):
            source = {"a": [row["a"] for row in source]}
        (batch,) = (
            TableFile(source).batches(["a"])
            if isinstance(source, Path)
            else [{"a": getattr(source["a"], "array", source["a"])}]
        )
        assert ids.numbers(batch["a"])[:3].tolist() == [0, 1, 2]


def test_ids_that_floating_point_has_merged_are_refused_as_texts_too() -> None:
    ids = Ids(Cells())
    assert ids.numbers([str(2**53), str(2**53 + 1), "12345e40", "9.0", 9]).tolist() == [0, 1, 2, 3, 3]
    for merged in ("1.2345678901234568e+16", "9007199254740993.0"):
        with pytest.raises(InvalidArgument, match="tell apart"):
            ids.numbers([merged])


def test_the_type_of_a_column_is_never_read_off_its_values() -> None:
    """Stamps in a list have no type: a name of a zone in their texts, or in a text among them, is none of the column's."""
    table = Table({"d": Date("2020-01-01", "2020-01-11"), "t": Flag()}, "t")
    for values in ([NIGHT[0]], ["2020-01-05, tz=Nowhere/None]"], np.array(["tz=Nowhere]"], object)):
        assert len(table.data({"d": values, "t": ["yes"]}).read()[0]) == 1


def test_frames_put_together_are_read_as_one() -> None:
    """pandas holds their texts in pieces."""
    frame = pd.DataFrame({"a": ["x", "y"], "t": ["yes", "no"]})
    both = pd.concat([frame, frame], ignore_index=True)
    inputs, target = Table({"a": Categories("x", "y"), "t": Flag()}, "t").data(both).read()
    assert (inputs.argmax(1).tolist(), target.tolist()) == ([0, 1, 0, 1], [1, 0, 1, 0])
    assert Ids(Cells()).numbers(both["a"].array).tolist() == [0, 1, 0, 1]


def test_a_reading_by_the_spelling_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Planted: what a text was known as before, and a stamp by the day that it shows."""
    monkeypatch.setattr(Cells, "known_as", Cells.text_of)
    assert changing(features, "whole numbers", "a CSV", tmp_path) == [None, 2.5, 3j]
    assert changing(features, "codes with zeros", "a frame read from a CSV", tmp_path) != []
    monkeypatch.undo()
    monkeypatch.setattr(cells, "_instant", lambda text: text)
    assert changing(features, "stamps of a zone", "a frame", tmp_path) != []
    assert changing(features, "categories of days", "a CSV", tmp_path) != []
