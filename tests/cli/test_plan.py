"""`honestdp plan`: a recommendation first, the table on request, a chart, and what is wrong in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from honestdp import Budget
from honestdp.planner.shapes import chosen_shape
from tests.command_line import called

SMALL = ("--records", "2000", "--candidates", "3", "--epsilon", "2")
SHAPE = ("--lot", "100", "--steps", "100")


def plan(folder: Path, *words: str) -> str:
    code, out, err = called(folder, "plan", *words)
    assert (code, err) == (0, "")
    return out


@pytest.mark.slow
def test_it_recommends_first_and_says_how_to_do_it(tmp_path: Path) -> None:
    said = plan(tmp_path, *SMALL)
    first, *_ = said.splitlines()
    assert first.startswith("recommended  envelope")
    assert "runs on average, with noise" in first
    for words in (
        "times the noise of one run",
        "lot and steps were chosen from public numbers",
        "1600 train, 400 score",
    ):
        assert words in said
    [command] = [line for line in said.splitlines() if line.startswith("do it")]
    chosen = chosen_shape(Budget(2.0, 1e-5), records=1600, candidates=3)
    assert "honestdp tune DATASET --epsilon 2 --delta 1e-05" in command
    assert f"--lot {chosen.lot:g} --steps {chosen.steps}" in command
    assert "a space of 3 candidates" in command
    assert "equal coverage" not in said
    assert "add or remove one record" in said


@pytest.mark.slow
def test_the_table_is_shown_on_request_and_does_not_change_the_recommendation(tmp_path: Path) -> None:
    brief, whole = plan(tmp_path, *SMALL, *SHAPE), plan(tmp_path, *SMALL, *SHAPE, "--all")
    assert whole.startswith(brief.split("\n\n")[0])
    assert "equal coverage" in whole
    assert "within 0.7 %" in whole


@pytest.mark.slow
def test_json_has_everything_always(tmp_path: Path) -> None:
    found = plan_as_json(tmp_path, *SMALL)
    assert len(found["methods"]) > 10
    assert found["training_records"] == 1600
    assert found["validation"] == 0.2
    assert found["chosen"].startswith("lot and steps were chosen")
    assert found["command"].startswith("honestdp tune DATASET --epsilon 2")
    assert found["warnings"] == []
    assert found["score_noise"] > 0
    [same] = [
        m for m in found["methods"] if m["selection"] == "envelope" and m["noise"] == found["recommended"]["noise"]
    ]
    assert same["epsilon"] <= 2


def plan_as_json(folder: Path, *words: str) -> dict[str, Any]:
    found = json.loads(plan(folder, *words, "--json"))
    assert isinstance(found, dict)
    return found


def test_one_candidate_has_no_table_of_selections(tmp_path: Path) -> None:
    said = plan(tmp_path, "--records", "2000", "--epsilon", "2", *SHAPE, "--table")
    assert said.startswith("recommended  one run, with noise")
    assert "1 candidate;" in said
    assert "1 candidates" not in said
    for heading in ("all candidates", "equal runs", "equal coverage", "crossover"):
        assert heading not in said


def test_what_is_hopeless_is_said(tmp_path: Path) -> None:
    said = plan(tmp_path, "--records", "100", "--epsilon", "0.01")
    warned = [line for line in said.splitlines() if line.startswith("WARNING")]
    assert len(warned) == 2
    assert "noise drowns the gradients" in warned[0]
    assert "all of its range" in warned[1]
    found = plan_as_json(tmp_path, "--records", "2000", "--epsilon", "1", "--parameters", "1e9")
    assert "1000000000 weights" in found["warnings"][0]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_chart_of_lot_steps_and_epsilon_is_drawn(suffix: str, tmp_path: Path) -> None:
    said = plan(tmp_path, *SMALL, "--chart", f"which{suffix}")
    assert said.splitlines()[-1] == f"chart        which{suffix}"
    content = (tmp_path / f"which{suffix}").read_bytes()
    assert len(content) > 10_000
    assert content.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--records", "2000"), "one of --epsilon and --noise must be given: .*; got neither"),
        (
            ("--records", "2000", "--epsilon", "1", "--noise", "1"),
            "one of --epsilon and --noise must be given: .*; got both",
        ),
        (("--epsilon", "1"), "--records must be given, or a file"),
        (("--records", "2000", "--noise", "1"), "--lot must be given together with a noise"),
        (
            ("--records", "2000", "--epsilon", "1", "--validation", "1"),
            "--validation must be a fraction of the records",
        ),
        (
            ("--records", "2000", "--epsilon", "1", "--steps", "3", "--epochs", "2"),
            "--epochs must be left out where steps",
        ),
        (
            ("--records", "2000", "--epsilon", "1", "--chart", "which.pdf"),
            "--chart must be a file name ending in .png or",
        ),
        (
            (*SHAPE, "--records", "2000", "--noise", "1", "--chart", "which.png"),
            "--chart must be left out with --noise",
        ),
        (
            ("--records", "2000", "--epsilon", "1", "--parameters", "0"),
            "--parameters must be a whole number of at least 1",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    import re

    code, out, err = called(tmp_path, "plan", *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert re.search(said, err), err


def test_the_command_asks_for_the_very_numbers_and_no_rounded_ones(tmp_path: Path) -> None:
    exact = ("--epsilon", "1.23456444", "--delta", "1.2345678e-06", "--lot", "100", "--steps", "100")
    command = plan_as_json(tmp_path, "--records", "2000", *exact, "--validation", "0.1234567")["command"]
    assert command == f"honestdp tune DATASET {' '.join(exact)} --validation 0.1234567"


@pytest.mark.slow
def test_a_search_without_records_that_score_has_no_command(tmp_path: Path) -> None:
    words = (*SMALL, *SHAPE, "--validation", "0")
    assert "plan it with a validation above 0" in plan(tmp_path, *words)
    assert plan_as_json(tmp_path, *words)["command"] is None


def test_a_delta_too_large_for_the_records_is_said(tmp_path: Path) -> None:
    assert "delta 0.01 is not below 1/2000" in plan(tmp_path, "--records", "2000", "--epsilon", "2", "--delta", "0.01")
    _, out, _ = called(tmp_path, "epsilon", "--records", "2000", *SHAPE, "--noise", "2", "--delta", "0.01")
    assert "delta 0.01 is not below 1/2000" in out
