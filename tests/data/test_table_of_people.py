"""A table whose records are people: a file of visits becomes people with up to so many of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

import honestdp
from honestdp import Categories, Range
from honestdp.boundary.data import PrivateData
from honestdp.boundary.seed import Seed
from honestdp.data.tables.cells import Cells, Ids

CPU = torch.device("cpu")


def table(**more: Any) -> honestdp.Table:
    columns = {"age": Range(0, 100), "ill": Categories("no", "yes")}
    return honestdp.Table(columns, target="ill", person="patient", rows_per_person=2, **more)


ROWS = {
    "patient": ["a", "b", "a", " a", "", "c", "b", "d"],
    "age": [10, 20, 10, 10, 50, 30, 20, 60],
    "ill": ["no", "yes", "no", "no", "yes", "yes", "?", "?"],
}
"""Patient a has three rows, b one with a target, c one, nobody one, and d none that can be used."""


def written(folder: Path) -> Path:
    path = folder / "visits.csv"
    lines = [",".join(ROWS), *(",".join(map(str, row)) for row in zip(*ROWS.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def check(data: Any) -> None:
    private = PrivateData(data)
    assert (private.unit.person, private.unit.rows, len(private)) == ("patient", 2, 4)
    read = private.read().drawn(Seed.fixed(1))
    x, y = read._gathered(dtype=torch.float32, device=CPU, workers=0, seed=Seed.fixed(1))
    assert len(read) == 3  # of d no row is left
    seen = sorted((round(100 * float(age)), int(label)) for age, label in zip(x[:, 0], y, strict=True))
    assert seen == [(10, 0), (10, 0), (20, 1), (30, 1)]


def test_a_file_of_rows_is_read_as_people(tmp_path: Path) -> None:
    check(table().data(written(tmp_path)))


def test_rows_in_memory_are_too() -> None:
    check(table().data(ROWS))


def test_the_number_of_people_may_be_declared_and_is_then_not_counted(tmp_path: Path) -> None:
    assert len(PrivateData(table(records=5).data(written(tmp_path)))) == 5


def test_an_id_is_the_same_person_as_a_number_and_as_a_text() -> None:
    ids = Ids(Cells(("NA",)))
    assert ids.numbers(pa.array([7, 8, None])).tolist() == [0, 1, -1]
    assert ids.numbers(pa.array(["8", " 7 ", "NA", ""])).tolist() == [1, 0, -1, -1]
    assert ids.numbers(pa.array([7.0, 9.0])).tolist() == [0, 2]
    assert ids.numbers(pa.array(["7"]).dictionary_encode()).tolist() == [0]
    assert len(ids) == 3
    with pytest.raises(honestdp.errors.InvalidArgument, match="person"):
        ids.numbers(pa.array([[1], [2]]))


def test_a_person_is_one_person_whatever_ids_are_in_the_same_batch() -> None:
    """Rows in memory come in batches: an id that is spelled by the company it is in would make two people of one."""
    ids = Ids(Cells())
    for company in (None, "x", 0.5, True):
        found = ids.numbers([10**15, 1e15, "1000000000000000", company])
        assert found[:3].tolist() == [0, 0, 0], company


def test_ids_that_floating_point_merges_are_refused() -> None:
    for kind, large in ((pa.float64(), 2.0**53), (pa.float32(), 2.0**24)):
        assert Ids(Cells()).numbers(pa.array([large - 1], kind)).tolist() == [0]
        with pytest.raises(honestdp.errors.InvalidArgument, match="tell apart"):
            Ids(Cells()).numbers(pa.array([large], kind))


@pytest.mark.slow
def test_a_search_on_a_table_of_people_is_a_statement_about_people(tmp_path: Path) -> None:
    maker = np.random.default_rng(0)
    ids = maker.integers(0, 60, 200)
    rows = {"patient": ids, "age": maker.integers(0, 100, 200), "ill": maker.choice(["no", "yes"], 200)}
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", honestdp.Budget(5.0, 1e-3))
    result = honestdp.tune(
        nn.Linear(1, 2),
        table(records=60).data(rows),
        budget=honestdp.Budget(2.0, 1e-3),
        optimizer="sgd",
        space={"lr": [0.5, 1.0], "clip": 1.0},
        selection="compose",
        lot=10,
        steps=3,
        ledger=ledger,
        dataset="clinic",
        out=tmp_path / "search",
    )
    assert result.statement.relation == "add or remove one person, with all of their rows"
    assert "patient" in str(result.statement.protects)
    assert "a row without patient is left out" in str(result.statement.preprocessing)
    assert "0.2 of all people" in result.statement.scores
    assert "one person, with all of their rows" in (tmp_path / "search" / "report.html").read_text()
    assert ledger.balance("clinic").unit == "patient"
    with pytest.raises(honestdp.errors.OtherUnit, match="single rows"):
        honestdp.train(
            nn.Linear(1, 2),
            (torch.zeros(60, 1), torch.zeros(60).long()),
            run=honestdp.Run(records=60, lot=10, steps=1, noise=5.0),
            ledger=ledger,
            dataset="clinic",
            delta=1e-3,
        )
