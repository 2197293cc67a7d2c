"""What leaves a search: the winner, and nothing that tells how many runs there were or who lost; and when it is charged.

Searches are forced to have different numbers of runs and different losers but the same winner (`forced_draws.py`), and everything
that an outsider could get hold of is compared: results, console, files, their modes and times, ledger, logs, warnings, errors.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import honestdp
from honestdp.ledger import Ledger
from honestdp.ledger.paying import Payment
from honestdp.logs import logger
from honestdp.search import tune_result as leaving
from honestdp.search import vault
from honestdp.search.lifecycle import Search, SearchStopped
from honestdp.search.runs import Execution, SearchFailed
from honestdp.selection import LiuTalwar, RandomStopping, Selection, Winner, count_of
from tests.tiny_search import once_charged

from . import closed_form_search as closed_form
from .forced_draws import Forced, Warner, force, leavings, remember_public_numbers, tune

ENVELOPE = RandomStopping(count=count_of(runs=4.0, shape=1.0))
SELECTIONS: list[Selection] = [
    ENVELOPE,
    replace(ENVELOPE, bound="profile"),
    replace(ENVELOPE, bound="papernot-steinke"),
    RandomStopping(count=count_of(runs=4.0, shape="poisson")),
    LiuTalwar(gamma=0.25),
]
ONE_RUN = Forced(runs=1)
BATCHES = 1000
OTHERS = {
    "two runs": Forced(runs=2, place=1),
    "five runs": Forced(runs=5, place=3),
    "other losers": Forced(runs=5, place=0, losers=1),
    "losers diverge": Forced(runs=5, place=2, trouble="diverged"),
    "losers raise": Forced(runs=3, place=2, trouble=RuntimeError("run 0 met record 17")),
    "losers raise another error": Forced(runs=4, place=1, trouble=ValueError("run 0 met record 17")),
    "losers divide by zero": Forced(runs=3, place=1, trouble=ZeroDivisionError()),
    "losers fail a check of their own": Forced(runs=2, place=1, trouble=AssertionError()),
    "losers look up too far": Forced(runs=2, place=0, trouble=IndexError("target 12 is out of bounds")),
}


@pytest.fixture(autouse=True)
def _public(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_public_numbers(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def left(
    how: Forced, folder: Path, search: Callable[[Path], Any], plant: Callable[[pytest.MonkeyPatch], None] | None = None
) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        force(patch, how)
        if plant is not None:
            plant(patch)
        return leavings(folder, search)


# ---- Whatever the secret draws are, the same leaves


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
def test_nothing_tells_the_number_of_runs_or_the_losers(other: str, tmp_path: Path) -> None:
    one = left(ONE_RUN, tmp_path / "one", lambda folder: tune(folder, ENVELOPE))
    many = left(OTHERS[other], tmp_path / "many", lambda folder: tune(folder, ENVELOPE))
    assert "error" not in one
    assert set(one["files"]) == {
        ".",
        "search.json",
        "model.safetensors",
        "statement.json",
        "result.json",
        "report.html",
    }
    assert one == many


@pytest.mark.slow
@pytest.mark.parametrize("selection", SELECTIONS[1:], ids=lambda selection: f"{selection.name}-{selection.runs:g}")
def test_nothing_tells_them_under_any_selection_by_random_stopping(selection: Selection, tmp_path: Path) -> None:
    one = left(ONE_RUN, tmp_path / "one", lambda folder: tune(folder, selection))
    many = left(OTHERS["five runs"], tmp_path / "many", lambda folder: tune(folder, selection))
    assert "error" not in one
    assert one == many


@pytest.mark.slow
def test_a_grid_with_one_winner_tells_nothing_of_its_losers(tmp_path: Path) -> None:
    grid = Winner(candidates=len(closed_form.RATES))
    fine = left(Forced(runs=2, place=1), tmp_path / "one", lambda folder: tune(folder, grid))
    failed = Forced(runs=2, place=1, trouble=RuntimeError("run 0 met record 17"))
    assert "error" not in fine
    assert fine == left(failed, tmp_path / "many", lambda folder: tune(folder, grid))


def test_a_model_that_warns_and_has_no_layer_rule_tells_nothing_of_the_runs(tmp_path: Path) -> None:
    def search(folder: Path) -> Any:
        return tune(folder, ENVELOPE, model=Warner(-0.33))

    one, many = (left(how, tmp_path / str(how.runs), search) for how in (ONE_RUN, OTHERS["five runs"]))
    assert any("materialised" in line for line in one["logs"])
    assert one["warnings"].count("used") > 0
    assert one == many


def test_a_search_that_is_over_is_read_again_without_a_trace(tmp_path: Path) -> None:
    def search(folder: Path) -> Any:
        tune(folder, ENVELOPE)
        return tune(folder, ENVELOPE, resume=True)

    one, many = (left(how, tmp_path / str(how.runs), search) for how in (ONE_RUN, OTHERS["five runs"]))
    assert "error" not in one
    assert one == many


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_the_console_tells_nothing_either(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what typer imports of click
        from honestdp.cli.main import main as cli

    def search(folder: Path) -> tuple[str, str, Any]:
        monkeypatch.chdir(folder)
        Ledger("ledger.db").set_budget("breast-cancer", honestdp.Budget(5.0, 1e-4))
        words = "tune breast-cancer --epsilon 2 --delta 1e-4 --optimizer sgd --space lr=1,1.2 --space clip=1 --lot 100"
        words += " --steps 1 --selection envelope --max-runs 4 --ledger ledger.db --out out" + " --json" * as_json
        monkeypatch.setattr(sys, "argv", ["honestdp", *words.split()])
        with pytest.raises(SystemExit) as end:
            cli()
        return (*capfd.readouterr(), end.value.code)

    found = [left(how, tmp_path / str(how.runs), search) for how in (ONE_RUN, OTHERS["five runs"])]
    out, err, code = found[0]["told"]
    assert (err, code) == ("", 0)
    assert "envelope" in out
    assert found[0] == found[1]


# ---- Errors


@pytest.mark.slow
def test_a_search_in_which_every_run_fails_says_the_same_however_many_there_were(tmp_path: Path) -> None:
    ways: list[str | Exception] = ["diverged", RuntimeError("run 3 met record 17"), ValueError("run 4 met record 18")]
    found = [
        left(Forced(runs=runs, trouble=way, everybody=True), tmp_path / f"{runs}{i}", lambda f: tune(f, ENVELOPE))
        for i, way in enumerate(ways)
        for runs in (1, 5)
    ]
    assert SearchFailed.__name__ in found[0]["error"]
    assert "record 1" not in found[0]["error"]
    assert not found[0]["secret"]
    assert all(each == found[0] for each in found)


def test_a_search_that_is_interrupted_says_the_same_whenever_that_was(tmp_path: Path) -> None:
    stops = [Forced(runs=1, stop=0), Forced(runs=5, stop=0), Forced(runs=5, stop=2)]
    found = [left(how, tmp_path / str(i), lambda folder: tune(folder, ENVELOPE)) for i, how in enumerate(stops)]
    assert SearchStopped.__name__ in found[0]["error"]
    assert "During handling" not in found[0]["error"]
    assert found[0]["secret"]  # it can be resumed
    assert all(each == found[0] for each in found)


@pytest.mark.slow
def test_a_lack_of_memory_is_not_logged_with_the_number_of_runs(tmp_path: Path) -> None:
    def scarce(patch: pytest.MonkeyPatch) -> None:
        from honestdp.training.loop import Job

        real = Job._train

        def train(self: Job, chunk: list[int], *rest: Any) -> Any:
            if len(chunk) > 1:
                raise torch.OutOfMemoryError
            return real(self, chunk, *rest)

        once_charged(patch, Job, "_train", train)

    one, many = (
        left(how, tmp_path / str(how.runs), lambda f: tune(f, ENVELOPE), scarce)
        for how in (ONE_RUN, OTHERS["five runs"])
    )
    assert "error" not in many
    assert one == many


# ---- The secret state


def test_the_secret_state_is_its_owners_alone_and_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    seen: set[tuple[str, int]] = set()
    real = Execution._save

    def save(self: Execution, standing: Any) -> None:
        real(self, standing)
        seen.update((path.name, 0) for path in (tmp_path / "temporary").glob("honestdp*"))
        own = (tmp_path / "deep" / "out").rglob("*") if (tmp_path / "deep" / "out" / ".secret").exists() else []
        for path in own:
            seen.add((path.name, stat.S_IMODE(path.stat().st_mode)))

    once_charged(monkeypatch, Execution, "_save", save)
    before = os.umask(0)
    try:
        tune(tmp_path, ENVELOPE, out=tmp_path / "deep" / "out")
        tune(tmp_path, ENVELOPE, out=None)
    finally:
        os.umask(before)
    assert seen == {
        (".lock", 0o600),
        ("search.json", 0o644),
        (".secret", 0o700),
        ("key", 0o600),
        ("plan", 0o600),
        ("weights", 0o600),
        ("data", 0o600),
        ("standing", 0o600),
        *((f"batch{number}", 0o600) for number in range(BATCHES) if (f"batch{number}", 0o600) in seen),
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep", tmp_path / "deep" / "out")} == {0o755}
    assert not (tmp_path / "deep" / "out" / ".secret").exists()
    assert list((tmp_path / "temporary").glob("honestdp*")) == []
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".new")]


# ---- Planted faults


def _count_in_the_result(patch: pytest.MonkeyPatch) -> None:
    real = leaving.result_of

    def result(design: Any, said: Any, execution: Any, drawn: Any, *rest: Any) -> Any:
        made = real(design, said, execution, drawn, *rest)
        return replace(made, hyperparameters={**made.hyperparameters, "runs": len(drawn.candidates)})

    patch.setattr(leaving, "result_of", result)


def _losers_beside_the_winner(patch: pytest.MonkeyPatch) -> None:
    real = Execution._batch

    def batch(self: Execution, number: int, runs: list[int], standing: Any) -> None:
        real(self, number, runs, standing)
        if standing.weights is not None:
            standing.kept |= dict.fromkeys(runs, standing.weights.clone())

    once_charged(patch, Execution, "_batch", batch)


def _a_line_for_each_run(patch: pytest.MonkeyPatch) -> None:
    real = Execution._score

    def score(self: Execution, *rest: Any) -> tuple[int, ...]:
        logging.getLogger("somebody").debug("scored")
        return real(self, *rest)

    once_charged(patch, Execution, "_score", score)
    patch.setattr("honestdp.logs.unlogged", nullcontext())


def _loud(patch: pytest.MonkeyPatch) -> None:
    """The library's own logger, in every run, where nothing silences it."""
    real = Execution._score

    def score(self: Execution, *rest: Any) -> tuple[int, ...]:
        logger("honestdp.search").warning("scored")
        return real(self, *rest)

    once_charged(patch, Execution, "_score", score)
    patch.setattr("honestdp.search.lifecycle.silence", nullcontext)


def _files_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leaving, "settle", lambda folder: None)


def _secrets_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vault, "erase", lambda folder: None)


def _count_in_the_ledger(patch: pytest.MonkeyPatch) -> None:
    real, charge = Search._paid, Payment.charge

    def paid(self: Search, begun: Any) -> Any:
        what = f"honestdp tune, {len(begun.plan.candidates)} runs"
        patch.setattr(
            Payment, "charge", lambda self, spending, **named: charge(self, spending, **{**named, "what": what})
        )
        return real(self, begun)

    patch.setattr(Search, "_paid", paid)


LEAKS = [
    _count_in_the_result,
    _losers_beside_the_winner,
    _a_line_for_each_run,
    _loud,
    _files_by_the_clock,
    _secrets_stay,
    _count_in_the_ledger,
]


@pytest.mark.slow
@pytest.mark.parametrize("plant", LEAKS)
def test_a_planted_leak_is_noticed(plant: Any, tmp_path: Path) -> None:
    one, many = (
        left(how, tmp_path / str(how.runs), lambda folder: tune(folder, ENVELOPE), plant)
        for how in (ONE_RUN, OTHERS["five runs"])
    )
    clean = left(OTHERS["five runs"], tmp_path / "clean", lambda folder: tune(folder, ENVELOPE))
    assert "error" not in one
    assert one != many or many != clean


def test_the_number_of_runs_in_an_error_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Execution._finish

    def finish(self: Execution) -> Any:
        try:
            return real(self)
        except SearchFailed as failed:
            failed.args = (f"{failed} ({len(self._secret.candidates)} runs)",)
            raise

    monkeypatch.setattr(Execution, "_finish", finish)
    ways = [Forced(runs=runs, trouble="diverged", everybody=True) for runs in (1, 5)]
    one, many = (left(how, tmp_path / str(how.runs), lambda folder: tune(folder, ENVELOPE)) for how in ways)
    assert one != many
