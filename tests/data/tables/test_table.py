"""Each row is encoded by itself, by what was declared: no value of it changes another row, and none is an error."""

from __future__ import annotations

import datetime as dt
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
import torch

from honestdp import Categories, Date, Flag, Ignore, Number, Range, Table
from honestdp.data.tables import cells
from honestdp.data.tables.cells import Cells
from honestdp.errors import InvalidArgument
from tests.data.tables.patients import HOSTILE, TABLE, rows, write_csv


def part(columns: dict[str, list[Any]], some: list[int]) -> dict[str, list[Any]]:
    return {name: [column[i] for i in some] for name, column in columns.items()}


def test_a_row_is_encoded_alike_in_any_company() -> None:
    """The privacy argument of a table: one row more or less changes one record."""
    columns = rows()
    x, y = TABLE.encode(columns), TABLE.encode_target(columns)
    for i in range(len(y)):
        assert np.array_equal(TABLE.encode(part(columns, [i])), x[i : i + 1])
        assert np.array_equal(TABLE.encode_target(part(columns, [i])), y[i : i + 1])
    order = list(np.random.default_rng(1).permutation(len(y)))
    assert np.array_equal(TABLE.encode(part(columns, order)), x[order])


def test_one_text_that_is_no_number_leaves_the_others_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a batch that falls back to nothing where one value of it cannot be read."""
    column = pa.array(["1", "2.5", "x"])
    assert Cells().numbers(column)[:2].tolist() == [1.0, 2.5]

    def in_one(read: Cells, texts: pa.Array) -> pa.Array:
        try:
            return texts.cast(pa.float64())
        except pa.ArrowInvalid:
            return pa.array(np.full(len(texts), math.nan))

    monkeypatch.setattr(Cells, "_numbers_of_texts", in_one)
    with pytest.raises(AssertionError):
        test_a_row_is_encoded_alike_in_any_company()


def test_values_of_mixed_kinds_are_read_as_each_would_be_alone() -> None:
    """pyarrow takes a column of one kind as it is, and one of several as texts: that must make no difference."""
    mixed = [1, 2.5, True, "x", "40", None, dt.date(2021, 6, 1), 2**70, math.nan, [1, 2], "Male", b"Female"]
    columns = dict.fromkeys(TABLE.columns, mixed)
    x, y = TABLE.encode(columns), TABLE.encode_target(columns)
    for i in range(len(mixed)):
        assert np.array_equal(TABLE.encode(part(columns, [i])), x[i : i + 1]), mixed[i]
        assert np.array_equal(TABLE.encode_target(part(columns, [i])), y[i : i + 1]), mixed[i]


ANY_KIND = [
    3, 7.0, 2.5, "3", True, np.bool_(True), "True", b"3", Decimal("2.5"), 2**53 + 1, 1e15, np.float32(0.1), dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1, 23, tzinfo=dt.timezone(-dt.timedelta(hours=5))), np.datetime64("2020-01-01"), dt.time(3, 4),
    pd.NaT, pd.NA, "2020-01-01", (3,), 10**5000,
]  # fmt: skip


def other_in_company() -> list[str]:
    """Columns in which a value of some kind is read in another way beside one of another kind than alone."""
    columns = {"r": Range(0, 10), "n": Number(0, 1), "d": Date("2019-12-01", "2020-03-01"), "f": Flag()}
    table = Table({**columns, "c": Categories("3", "7", "2.5", "True", "2020-01-01", indicator=True), "t": Flag()}, "t")
    alone = [table.encode({name: [one] for name in table.inputs})[0] for one in ANY_KIND]
    changed = set()
    for i, one in enumerate(ANY_KIND):
        for j in range(i):
            beside = table.encode({name: [one, ANY_KIND[j]] for name in table.inputs})
            for found, wanted in zip(beside, (i, j), strict=True):
                changed |= {table.features[k] for k in np.flatnonzero(found != alone[wanted])}
    return sorted(changed)


def test_no_value_changes_how_those_beside_it_are_read() -> None:
    """One date in a column of whole numbers must not make dates, and so nothing, of all the others."""
    assert other_in_company() == []


def test_a_type_that_is_inferred_from_all_values_of_a_column_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = [
        one for one in ANY_KIND if not isinstance(one, np.generic)
    ]  # pyarrow itself crashes on some of the others
    monkeypatch.setattr(sys.modules[__name__], "ANY_KIND", ordinary)
    monkeypatch.setattr(cells, "_untyped", lambda column: False)
    assert {"r", "n", "d"} <= set(other_in_company())


@pytest.mark.parametrize("bad", HOSTILE)
def test_no_value_is_an_error_and_every_feature_is_a_number_within_its_bounds(bad: object) -> None:
    columns = {name: [bad, bad] for name in TABLE.columns}
    x = TABLE.encode(columns)
    assert np.isfinite(x).all()
    assert np.abs(x).max() <= 3
    assert set(TABLE.encode_target(columns)) <= {-1, 0, 1}


def test_values_are_clipped_filled_and_flagged_as_declared() -> None:
    table = Table({"a": Range(0, 10, fill=2, indicator=True), "n": Number(0, 2, within=2), "t": Flag()}, "t")
    x = table.encode({"a": [-5, 5, 50, None, math.inf], "n": [1e300, -3, 0, None, -math.inf]})
    assert x.tolist() == [[0, 0, 2], [0.5, 0, -1.5], [1, 0, 0], [np.float32(0.2), 1, 0], [1, 0, -2]]


def test_an_undeclared_category_is_none_of_them_or_the_declared_other() -> None:
    for other, last in ((False, [0, 0]), (True, [0, 0, 1])):
        table = Table({"c": Categories("a", "b", other=other), "t": Flag()}, "t")
        assert table.encode({"c": ["a", "zebra"]}).tolist() == [[1, 0] + [0] * other, last]


def test_a_missing_category_counts_as_its_fill_and_is_flagged() -> None:
    table = Table({"c": Categories("a", "b", fill="b", indicator=True, other=True), "t": Flag()}, "t")
    assert table.encode({"c": ["a", None, "", "?", "q"]}).tolist() == [
        [1, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0],
    ]  # fmt: skip


def test_a_declared_category_is_never_taken_for_a_missing_one() -> None:
    table = Table({"c": Categories("NA", "EU", indicator=True), "t": Flag()}, "t")
    assert table.encode({"c": ["NA", "null"]}).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_numbers_and_texts_of_one_category_are_the_same() -> None:
    table = Table({"c": Categories(1, 2), "t": Flag()}, "t")
    for column in ([1, 2], [1.0, 2.0], ["1", " 2"], np.array([1, 2], np.uint8), pd.Categorical(["1", "2"])):
        assert table.encode({"c": column}).tolist() == [[1, 0], [0, 1]]


def test_dates_come_as_texts_dates_and_time_stamps() -> None:
    table = Table({"d": Date("2020-01-01", "2020-12-31"), "t": Flag()}, "t")
    stamps = pd.to_datetime(["2020-01-01", "2020-12-31 23:59", None], format="ISO8601")
    for column in (["2020-01-01", "2020-12-31T10:00", None], stamps, stamps.date):
        assert table.encode({"d": column})[:, 0].tolist() == [0, 1, 0.5]


def test_rows_come_from_anything_with_named_columns(tmp_path: Path) -> None:
    columns = rows(hostile=False)
    x = TABLE.encode(columns)
    frame, arrow = pd.DataFrame(columns), pa.table(columns)
    structured = np.rec.fromarrays([np.array(v) for v in columns.values()], names=list(columns))
    plain = np.array(list(columns.values()), object).T
    listed = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    batch = arrow.to_batches()[0]
    for each in (frame, arrow, batch, structured, plain, plain[:, :-1], np.delete(plain, [6, 7], 1), listed):
        assert np.array_equal(TABLE.encode(each), x), type(each)
    typed = frame.astype({"age": float, "income": float, "sex": "category"})
    assert np.array_equal(TABLE.encode(typed), x)


def test_what_has_no_named_columns_is_refused_in_words() -> None:
    for bad, words in (
        (scipy.sparse.eye(3), "dense"),
        (np.zeros((3, 5)), "in their declared order"),
        (3, "rows with named columns"),
        ({"age": [1], "sex": ["Male", "Female"]}, "columns of one length"),
        (pd.DataFrame([[1, 2]], columns=["age", "age"]), "different names"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            TABLE.encode(bad)


def test_predictions_are_labels_or_numbers_in_the_users_units() -> None:
    assert TABLE.decode(torch.tensor([[0.0, 1.0], [2.0, 1.0]])).tolist() == ["yes", "no"]
    assert TABLE.decode([1, 0]).tolist() == ["yes", "no"]
    for column, wanted in ((Range(10, 20), 14.0), (Range(0, 99, log=True), 14.0), (Number(10, 2), 14.0)):
        table = Table({"a": Flag(), "y": column}, "y")
        assert (table.task, table.outputs, table.classes) == ("regression", 1, None)
        assert table.decode(table.encode_target({"y": [wanted]})[:, None])[0] == pytest.approx(wanted, rel=1e-5)
    whole = Table({"a": Flag(), "y": Categories(3, 7)}, "y")
    assert whole.decode([1, 0]).tolist() == [7, 3]


def test_a_row_without_a_declared_target_is_left_out_and_no_other(tmp_path: Path) -> None:
    columns = rows(8, hostile=False)
    columns["ill"] = ["yes", "no", None, "perhaps", "", "yes", "no", "no"]
    kept = [0, 1, 5, 6, 7]
    for source in (columns, write_csv(tmp_path / "some.csv", columns)):
        x, y = TABLE.data(source).read()
        assert np.array_equal(x, TABLE.encode(part(columns, kept)))
        assert y.tolist() == [1, 0, 1, 0, 0]


def test_widths_names_and_words_agree() -> None:
    assert len(TABLE.features) == TABLE.width == TABLE.encode(rows(1)).shape[1]
    assert "sex is another" in TABLE.features
    said = TABLE.describe()
    assert [line.split(":")[0] for line in said[:-2]] == [*TABLE.inputs]
    assert "name" not in TABLE.inputs


def test_one_category_and_any_other_are_two() -> None:
    table = Table({"c": Categories("here", other=True), "t": Flag()}, "t")
    assert table.encode({"c": ["here", "there", None]}).tolist() == [[1, 0], [0, 1], [0, 0]]
    with pytest.raises(InvalidArgument, match="or one with other=True"):
        Categories("here")


CONTRADICTIONS: dict[str, tuple[Any, str]] = {
    "no columns": (lambda: Table({}, "a"), "columns"),
    "a target that is not declared": (lambda: Table({"a": Flag()}, "b"), "target"),
    "nothing to predict from": (lambda: Table({"a": Flag(), "b": Ignore()}, "a"), "columns"),
    "a target that is ignored": (lambda: Table({"a": Flag(), "b": Ignore()}, "b"), "target"),
    "a constant target": (lambda: Categories("yes"), "values"),
    "a constant quantity": (lambda: Range(3, 3), "high"),
    "bounds the wrong way round": (lambda: Range(90, 17), "high"),
    "a fill outside its bounds": (lambda: Range(0, 1, fill=2), "fill"),
    "a fill that is no category": (lambda: Categories("a", "b", fill="c"), "fill"),
    "one category twice": (lambda: Categories(1, "1"), "values"),
    "bounds declared and private": (lambda: Range(0, 1, bounds="private"), "bounds"),
    "categories declared and private": (lambda: Categories("a", bounds="private"), "bounds"),
    "a private target": (lambda: Table({"a": Flag(), "b": Range(bounds="private")}, "b"), "columns['b']"),
    "a target that is filled": (lambda: Table({"a": Flag(), "b": Categories("x", "y", fill="x")}, "b"), "columns['b'].fill"),
    "a flag of a target that is filled": (lambda: Table({"a": Flag(), "b": Flag(fill=False)}, "b"), "columns['b'].fill"),
    "a quantity to predict that is filled": (lambda: Table({"a": Flag(), "b": Range(0, 9, fill=0)}, "b"), "columns['b'].fill"),
    "a target whose absence is a feature": (
        lambda: Table({"a": Flag(), "b": Number(0, 1, indicator=True)}, "b"), "columns['b'].indicator",
    ),
    "a list of categories": (lambda: Categories(["a", "b"]), "values"),  # type: ignore[arg-type]
    "a million categories": (lambda: Categories(*range(1_000_000)), "values"),
    "a person without a cap": (lambda: Table({"a": Flag(), "b": Flag()}, "a", person="p"), "rows_per_person"),
    "a person that is a feature": (
        lambda: Table({"a": Flag(), "b": Flag(), "c": Flag()}, "a", person="b", rows_per_person=2), "columns['b']",
    ),
    "dates the wrong way round": (lambda: Date("2021-01-01", "2020-01-01"), "last"),
    "no date": (lambda: Date("soon", "2020-01-01"), "first"),
    "no scale": (lambda: Number(0, 0), "scale"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_declarations_that_contradict_each_other_are_refused_by_name(name: str) -> None:
    make, argument = CONTRADICTIONS[name]
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert caught.value.argument == argument
