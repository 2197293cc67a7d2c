"""`honestdp check`: the owner of a file sees what its schema can read, and that nobody else may see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import called

ROWS = """id,age,sex,when,ill
p1,30,M,2020-01-01,0
p1,200,F,1999-01-01,1
p2,,?,soon,0
,x,z,2021-05-05,yes
p3,17,M,,no
"""
SCHEMA = """
target = "ill"
[columns.id]
kind = "ignore"
[columns.age]
low = 17
high = 90
[columns.sex]
values = ["M", "F"]
fill = "M"
[columns.when]
first = "2000-01-01"
last = "2029-12-31"
[columns.ill]
values = ["no", "yes"]
"""
CHECK = ("check", "rows.csv", "--schema", "rows.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "rows.toml").write_text(SCHEMA)
    return tmp_path


def test_each_value_is_counted_as_training_will_read_it(folder: Path) -> None:
    code, said, err = called(folder, *CHECK, "--person", "id", "--json")
    assert (code, err) == (0, "")
    found = json.loads(said)
    assert (found["rows"], found["people"], found["rows_without_id"]) == (5, 3, 1)
    assert found["columns"] == {
        "age": {"read": 3, "outside": 1, "missing": 1, "unreadable": 1, "not_declared": {"x": 1}},
        "sex": {
            "read": 3, "outside": 0, "missing": 1, "unreadable": 1, "not_declared": {"z": 1}, "values": {"M": 2, "F": 1},
        },
        "when": {"read": 3, "outside": 1, "missing": 1, "unreadable": 1, "not_declared": {"soon": 1}},
        "ill": {
            "read": 2, "outside": 0, "missing": 0, "unreadable": 3, "not_declared": {"0": 2, "1": 1},
            "values": {"no": 1, "yes": 1},
        },
    }  # fmt: skip


def test_the_output_says_that_it_is_not_for_publishing_and_what_the_file_has_instead(folder: Path) -> None:
    code, said, _ = called(folder, *CHECK)
    assert code == 0
    assert said.startswith("NOT FOR PUBLISHING: exact counts of private rows")
    assert "target ill  2 of 5 can be read as categories; no 1, yes 1; 3 not as declared, such as '0' 2, '1' 1" in said
    assert "3 rows are left out of the training" in said
    assert json.loads(called(folder, *CHECK, "--json")[1])["caution"].startswith("NOT FOR PUBLISHING")


def test_a_target_of_which_nothing_matches_is_cried_out(folder: Path) -> None:
    (folder / "rows.toml").write_text(SCHEMA.replace('["no", "yes"]', '["healthy", "ill"]'))
    assert "NOT ONE: compare its kind and its values with the file" in called(folder, *CHECK)[1]


def test_a_column_whose_bounds_are_to_be_learnt_has_none_to_be_outside_of(folder: Path) -> None:
    (folder / "rows.toml").write_text(SCHEMA.replace("low = 17\nhigh = 90", 'kind = "range"\nbounds = "private"'))
    code, said, err = called(folder, *CHECK, "--json")
    assert (code, err) == (0, "")
    assert json.loads(said)["columns"]["age"] == {
        "read": 3, "outside": 0, "missing": 1, "unreadable": 1, "not_declared": {"x": 1},
    }  # fmt: skip


def test_it_writes_nothing_and_needs_no_ledger(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    assert called(folder, *CHECK)[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("words", [("check", "rows.csv"), (*CHECK, "--target", "nothing"), (*CHECK, "--person", "who")])
def test_what_is_wrong_is_one_line(folder: Path, words: tuple[str, ...]) -> None:
    code, said, err = called(folder, *words)
    assert (code, said, len(err.splitlines())) == (2, "", 1), err


def test_it_teaches_by_its_help(folder: Path) -> None:
    assert "never publish the output" in " ".join(called(folder, "check", "--help")[1].split())
