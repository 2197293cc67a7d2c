"""What stands for a missing value does so in columns of every kind, whether a file or a frame holds them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from honestdp import Categories, Date, Flag, Number, Range, Table
from honestdp.data.tables.columns import Column

KINDS: dict[str, tuple[Column, tuple[str, ...], list[Any]]] = {
    "a range of whole numbers": (Range(0, 10, indicator=True), ("-9",), [pa.array([3, -9])]),
    "a range of numbers": (Range(0, 10, indicator=True), ("-9",), [pa.array([3.0, -9.0]), pa.array([3.0, -9.0], pa.float32())]),
    "parts that few digits round": (
        Range(0, 10, indicator=True), ("-9.9",), [pa.array([3.0, -9.9]), pa.array([3.0, -9.9], pa.float32())],
    ),
    "a number": (Number(0, 10, indicator=True), ("-9",), [np.array([3, -9]), [3, -9], [Decimal(3), Decimal(-9)]]),
    "a flag": (Flag(indicator=True), ("0", "False"), [pa.array([1, 0]), pa.array([1.0, 0.0]), pa.array([True, False])]),
    "a date": (
        Date("2000-01-01", "2020-01-01", indicator=True), ("1900-01-01",),
        [[date(2001, 1, 1), date(1900, 1, 1)], pa.array([datetime(2001, 1, 1), datetime(1900, 1, 1)])],
    ),
    "categories": (Categories(1, 2, indicator=True), ("-9",), [pa.array([1, -9]), pa.array([1.0, -9.0])]),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_missing_value_is_missing_in_a_file_and_in_a_frame_of_any_type(name: str, tmp_path: Path) -> None:
    column, missing, stored = KINDS[name]
    table = Table({"a": column, "ill": Categories("no", "yes")}, "ill", missing=missing)
    texts = [str(value) for value in pa.array(stored[0]).to_pylist()]
    for values in (*stored, texts):
        for source in (_in_memory(values), _parquet(tmp_path / "a.parquet", values), _csv(tmp_path / "a.csv", texts)):
            x = table.data(source).read()[0]
            assert x[:, -1].tolist() == [0, 1], (name, values, source)


def _in_memory(values: Any) -> dict[str, Any]:
    return {"a": values, "ill": ["no", "yes"]}


def _parquet(path: Path, values: Any) -> Path:
    pa.parquet.write_table(pa.table({"a": pa.array(values), "ill": ["no", "yes"]}), path)
    return path


def _csv(path: Path, texts: list[str]) -> Path:
    path.write_text("a,ill\n" + "".join(f"{text},{ill}\n" for text, ill in zip(texts, ("no", "yes"), strict=True)))
    return path


@pytest.mark.parametrize("target", [Range(0, 10), Flag()])
def test_a_row_whose_target_stands_for_a_missing_one_is_left_out(target: Column) -> None:
    table = Table({"a": Range(0, 1), "t": target}, "t", missing=("0",))
    assert len(table.data({"a": [1, 1, 1], "t": np.array([1, 0, 1])}).read()[1]) == 2


def test_a_number_that_is_missing_may_be_written_in_several_ways() -> None:
    table = Table({"a": Range(-10, 10, indicator=True), "t": Flag()}, "t", missing=("-9", "1e3"))
    assert table.encode({"a": ["-9.0", " -9 ", "1000", "9", "-9.5"]})[:, 1].tolist() == [1, 1, 1, 0, 0]


COMMAS = Table({"a": Range(0, 2000, indicator=True), "t": Flag()}, "t", decimal=",", missing=("", "-9,5", "7"))


def test_with_decimal_commas_what_has_a_point_is_missing() -> None:
    """1.234 would be 1.234 in one file and 1234 in another, and 1.234,5 is no number to either."""
    x = COMMAS.encode({"a": ["1234,5", "1.234", "1.234,5", "3", "-9,5", "7,0"]})
    assert x[:, 1].tolist() == [0, 1, 1, 0, 1, 1]
    assert x[0, 0] == pytest.approx(1234.5 / 2000)


def test_commas_are_of_texts_and_not_of_numbers() -> None:
    assert COMMAS.encode({"a": np.array([1.234, -9.5, 7.0])})[:, 1].tolist() == [0, 1, 1]
