"""`honestdp ledger` as a user meets it: the numbers, the words, and errors of one line with exit code 2."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import sys
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from honestdp import Run, accounting
from honestdp.ledger import Ledger
from honestdp.ledger.spending import Spending, total_epsilon
from honestdp.plain_words import rounded_down, rounded_up
from honestdp.selection import named
from tests.command_line import MAIN
from tests.forked_python import forked

RUN = Run(records=60000, lot=250, steps=1000, noise=4.0)
CONSTANTS = ["--records", "60000", "--lot", "250", "--steps", "1000", "--noise", "4"]
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


class Terminal:
    """The command line, called as the installed program calls it, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.delenv("HONESTDP_LEDGER", raising=False)

    def __call__(self, *arguments: str) -> str:
        code, out, error = self.raw(*arguments)
        assert (code, error) == (0, "")
        return out

    def raw(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["honestdp", "ledger", *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the command line's own libraries
            main = importlib.import_module("honestdp.cli.main").main
            with pytest.raises(SystemExit) as left:
                main()
        said = self._capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        code, out, error = self.raw(*arguments)
        assert (code, out) == (2, "")
        assert error.startswith("honestdp: error: ")
        assert error.count("\n") == 1
        assert "Traceback" not in error
        return error


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


@pytest.fixture
def begun(terminal: Terminal) -> Terminal:
    terminal("set-budget", "--dataset", "hospital", *BUDGET)
    return terminal


def test_a_run_made_elsewhere_is_charged(begun: Terminal) -> None:
    found = begun.json("spend", "--dataset", "hospital", *CONSTANTS, "--key", "week-12", "--what", "baseline")
    assert found["spent"] == accounting.epsilon(RUN.event, delta=1e-6)
    assert (found["before"], found["charges"], found["charged"]) == (0, 1, True)
    again = begun.json("spend", "--dataset", "hospital", *CONSTANTS, "--key", "week-12")
    assert (again["charged"], again["spent"], again["charges"]) == (False, found["spent"], 1)
    assert "nothing is charged again" in begun("spend", "--dataset", "hospital", *CONSTANTS, "--key", "week-12")
    assert "2 charges" in begun("spend", "--dataset", "hospital", *CONSTANTS)


def test_a_search_made_elsewhere_is_charged_with_its_selection(begun: Terminal) -> None:
    options = [
        "--selection",
        "envelope",
        "--candidates",
        "9",
        "--runs",
        "20",
        "--shape",
        "0",
        "--score",
        "50",
        "--sensitivity",
        "1",
    ]
    found = begun.json("spend", "--dataset", "hospital", *CONSTANTS, *options)
    selection = named("envelope", runs=20, shape=0.0)
    assert found["spent"] == total_epsilon([Spending(selection, ((RUN, 9),), score=50.0, sensitivity=1)], delta=1e-6)
    (shown,) = begun.json("show", "--dataset", "hospital")
    assert Spending.from_dict(shown["entries"][0]["spending"]).selection == selection
    composed = begun.json("spend", "--dataset", "hospital", *CONSTANTS, "--candidates", "2", "--choice", "0.1")
    assert composed["spent"] > found["spent"]


def test_a_score_says_its_sensitivity_and_costs_what_its_law_does(terminal: Terminal) -> None:
    """Whole numbers that one record changes by 1 cost 9.376, a Gaussian of .4 costs 13.21: neither is assumed."""
    terminal("set-budget", "--dataset", "d", "--epsilon", "100", "--delta", "1e-5")
    asked = ["--records", "60000", "--lot", "100", "--steps", "100", "--noise", "4", "--score", "0.4"]
    unsaid = terminal.refused("spend", "--dataset", "d", *asked)
    assert "--sensitivity must be given with a score" in unsaid
    assert "0 where its noise is continuous" in unsaid
    assert terminal.json("show", "--dataset", "d")[0]["entries"] == []
    assert 13.2 < terminal.json("spend", "--dataset", "d", *asked, "--sensitivity", "0")["spent"] < 13.22
    terminal("set-budget", "--dataset", "e", "--epsilon", "100", "--delta", "1e-5")
    assert 9.37 < terminal.json("spend", "--dataset", "e", *asked, "--sensitivity", "1")["spent"] < 9.38
    (shown,) = terminal.json("show", "--dataset", "e")
    assert shown["entries"][0]["spending"]["sensitivity"] == 1


def test_a_sensitivity_of_no_score_is_refused(begun: Terminal) -> None:
    assert "no score" in begun.refused("spend", "--dataset", "hospital", *CONSTANTS, "--sensitivity", "2")


def test_show_says_what_may_be_spent_is_spent_and_is_left(begun: Terminal) -> None:
    begun("spend", "--dataset", "hospital", *CONSTANTS, "--what", "first [bold]model", "--key", "one")
    begun("set-budget", "--dataset", "school", "--epsilon", "2", "--delta", "1e-5")
    one, both = begun("show", "--dataset", "hospital"), begun("show")
    spent = accounting.epsilon(RUN.event, delta=1e-6)
    for words in ("hospital", "epsilon 1 at delta 1e-06", "add or remove one record", "first [bold]model"):
        assert words in one
    assert f"spent      {rounded_up(spent)} in 1 charge" in one
    assert f"left       {rounded_down(1 - spent)}" in one
    assert "school" not in one
    assert "school" in both
    hospital, school = begun.json("show")
    assert (hospital["dataset"], school["dataset"], school["entries"]) == ("hospital", "school", [])
    assert hospital["entries"][0]["alone"] == hospital["spent"]
    assert hospital["entries"][0]["key"] == "one"


def test_verify_and_export(begun: Terminal) -> None:
    head = begun.json("verify")["head"]
    assert "intact" in begun("verify", "--head", head)
    begun("spend", "--dataset", "hospital", *CONSTANTS)
    exported = json.loads(begun("export"))
    assert exported["head"] == begun.json("verify", "--head", head)["head"]
    assert [entry["kind"] for entry in exported["entries"]] == ["budget", "charge"]
    assert begun.json("export", "--dataset", "hospital") == exported
    assert "is not in ledger.db" in begun.refused("verify", "--head", "0" * 63 + "1")


def test_the_hash_of_a_charge_is_shown_and_found_when_others_have_followed(begun: Terminal) -> None:
    begun("spend", "--dataset", "hospital", *CONSTANTS)
    noted = begun.json("verify")["head"]
    begun("set-budget", "--dataset", "school", "--epsilon", "2", "--delta", "1e-5")
    assert f"hash {noted}" in begun("show")
    assert begun.json("show", "--dataset", "hospital")[0]["entries"][0]["hash"] == noted
    assert "is that of entry 2" in begun("verify", "--head", noted)
    assert begun.json("verify", "--head", noted.upper())["found"] == 2


def test_a_part_of_a_hash_is_no_alarm(begun: Terminal) -> None:
    said = begun.refused("verify", "--head", begun.json("verify")["head"][:8])
    assert "--head must be a whole hash" in said
    assert "cut off" not in said


def test_the_ledger_is_named_by_option_or_environment(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal("set-budget", "--dataset", "a", *BUDGET, "--ledger", "one.db")
    monkeypatch.setenv("HONESTDP_LEDGER", "two.db")
    terminal("set-budget", "--dataset", "b", *BUDGET)
    assert Ledger("one.db").datasets() == ["a"]
    assert Ledger("two.db").datasets() == ["b"]
    assert [shown["dataset"] for shown in terminal.json("show", "--ledger", "one.db")] == ["a"]


@pytest.mark.slow
def test_bad_input_is_one_line_and_charges_nothing(begun: Terminal) -> None:
    before = Path("ledger.db").read_bytes()
    spend = ["spend", "--dataset", "hospital", *CONSTANTS]
    for arguments, words in (
        (
            ["spend", "--dataset", "nobody", *CONSTANTS],
            "honestdp ledger set-budget --ledger ledger.db --dataset nobody",
        ),
        ([*spend, "--steps", "1000000"], "over budget: hospital may spend epsilon 1 at delta 1e-06"),
        ([*spend, "--noise", "0"], "infinite epsilon"),
        ([*spend, "--lot", "70000"], "--lot must be"),
        ([*spend, "--choice", "0.1", "--selection", "winner"], "--choice must be left out for winner"),
        ([*spend, "--score", "-1"], "--score must be"),
        ([*spend, "--key", ""], "--key must be"),
        ([*spend, "--what", "two\nlines"], "--what must be"),
        ([*spend, "--selection", "best"], "--selection must be"),
        (["set-budget", "--dataset", "hospital", "--epsilon", "9", "--delta", "1e-6"], "a budget is set once"),
        (["set-budget", "--dataset", "other", "--epsilon", "-1", "--delta", "1e-6"], "--epsilon must be"),
        (["show", "--dataset", "nobody"], "nobody has no budget"),
        (["show", "--ledger", "missing.db"], "missing.db does not exist"),
        (["verify", "--ledger", "."], "is not a file"),
        ([*spend, "--colour", "blue"], "No such option"),
    ):
        assert words in begun.refused(*arguments)
    assert Path("ledger.db").read_bytes() == before
    begun("spend", "--dataset", "hospital", *CONSTANTS, "--key", "one")
    assert "stands for another spending" in begun.refused(*spend, "--noise", "5", "--key", "one")
    assert len(Ledger("ledger.db").entries()) == 2


def test_a_broken_ledger_is_one_line(begun: Terminal) -> None:
    begun("spend", "--dataset", "hospital", *CONSTANTS)
    with closing(sqlite3.connect("ledger.db")) as connection:
        trigger = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'entries_are_not_changed'").fetchone()[
            0
        ]
        connection.execute("DROP TRIGGER entries_are_not_changed")
        connection.execute("UPDATE entries SET what = 'nothing' WHERE number = 2")
        connection.execute(trigger)
        connection.commit()
    for arguments in (["verify"], ["show"], ["export"], ["spend", "--dataset", "hospital", *CONSTANTS]):
        assert "entry 2 is broken" in begun.refused(*arguments)
    Path("ledger.db").write_text("not a ledger at all " * 100)
    assert "not a ledger" in begun.refused("show")


def test_help_teaches(terminal: Terminal) -> None:
    for command in ([], ["set-budget"], ["show"], ["spend"], ["verify"], ["export"]):
        assert "Usage: honestdp ledger" in terminal(*command, "--help")
    assert "before the training reads a record" in " ".join(terminal("spend", "--help").replace("│", " ").split())


def test_as_a_real_program(tmp_path: Path) -> None:
    environment = {**os.environ, "HONESTDP_LEDGER": str(tmp_path / "ledger.db")}

    def program(*arguments: str) -> tuple[int, str, str]:
        return forked(tmp_path, MAIN, "ledger", *arguments, environment=environment)

    code, out, error = program("spend", "--dataset", "a", *CONSTANTS)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert program("set-budget", "--dataset", "a", *BUDGET)[0] == 0
    _, out, _ = program("spend", "--dataset", "a", *CONSTANTS, "--json")
    assert json.loads(out)["charges"] == 1


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.123456, 0.99999, 2.0, 12345.6, -1.0])
def test_what_is_left_is_never_rounded_up(value: float) -> None:
    assert float(rounded_down(value)) <= max(value, 0.0)
    assert float(rounded_down(value)) >= 0.999 * value
