"""Ctrl-C and kill -9 of the command line: what it says is the command that goes on."""

from __future__ import annotations

import json
import shlex
import signal
import time
from pathlib import Path

import pytest

from honestdp import Budget
from honestdp.ledger import Ledger
from tests.command_line import DIGITS, UNHURRIED, run, started, stopped
from tests.forked_python import Forked

pytestmark = pytest.mark.kill

SEARCH = ("tune", *DIGITS, "--selection", "compose", "--steps", "1500")


def test_a_stopped_search_says_how_to_go_on_and_goes_on_to_the_same_result(tmp_path: Path) -> None:
    seeded = (*SEARCH, "--noise-seed", "3")
    whole = started(tmp_path, *seeded, "--out", "whole")
    code, out, err = stopped(tmp_path, signal.SIGINT, *seeded, out="a folder")
    assert (code, out) == (130, "")
    said, command = err.splitlines()
    assert said == "honestdp: the search was stopped; it is in no ledger; to go on:"
    words = shlex.split(command)
    assert words == ["honestdp", "tune", "--resume", "a folder"]
    code, out, err = run(tmp_path, *words[1:], "--json")
    assert (code, err) == (0, "")
    whole.communicate(timeout=300)
    assert whole.returncode == 0
    result = json.loads((tmp_path / "whole" / "result.json").read_text())
    assert json.loads(out) == result | {"folder": "a folder", "warnings": []}
    for path in sorted((tmp_path / "whole").rglob("*")):
        if path.is_file() and path.name not in ("search.json", "report.html"):
            assert path.read_bytes() == (tmp_path / "a folder" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_a_killed_search_goes_on_uncharged(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")

    def fresh() -> None:
        ledger.path.unlink(missing_ok=True)
        ledger.set_budget("digits", Budget(3.5, 1e-5))

    code, _, err = stopped(tmp_path, signal.SIGKILL, *SEARCH, "--ledger", "ledger.db", out="out", before=fresh)
    assert (code, err) == (-signal.SIGKILL, "")
    charged = ledger.balance("digits")
    assert charged.charges == 1
    code, out, err = run(tmp_path, "tune", "--resume", "out", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["ledger"]["charged"]
    assert result["ledger"]["head"] == charged.head
    ledger.verify()
    assert ledger.balance("digits").spent == charged.spent
    assert [entry.kind for entry in ledger.entries("digits")] == ["budget", "charge", "resume", "over"]
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize("words", [["--epsilon", "2"], ["digits"], ["--ledger", "ledger.db"], ["--out", "other"]])
def test_a_resume_takes_no_other_settings(tmp_path: Path, words: list[str]) -> None:
    code, _, err = run(tmp_path, "tune", "--resume", "out", *words)
    assert code == 2
    assert "--resume must be given alone" in err
    assert err.count("\n") == 1


PLANNING = f"""{UNHURRIED}
import pathlib
import honestdp.search.tune as tuning
honest = tuning.design
def design(request):
    pathlib.Path("planning").touch()
    return honest(request)
tuning.design = design
"""
MANY = ("--optimizer", "adam-wosm", "--space", f"clip={','.join(f'{0.1 + i / 100:.2f}' for i in range(80))}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_search_stopped_while_it_is_planned_says_one_line_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("digits", Budget(3.5, 1e-5))
    words = ("tune", "digits", "--epsilon", "3", *MANY, "--lot", "64", "--ledger", "ledger.db", "--out", "out")
    process = started(tmp_path, *words, before=PLANNING)
    while not (tmp_path / "planning").exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err == "honestdp: the search was stopped; nothing was charged\n"
    assert not (tmp_path / "out").exists()
    assert ledger.balance("digits").charges == 0


BEFORE_THE_COMMAND = """
import sys
class Stopped:
    def find_spec(self, name, path=None, target=None):
        if name == "honestdp.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stopped())
for name in [name for name in sys.modules if name.startswith("honestdp.cli")]:
    del sys.modules[name]
from honestdp.__main__ import main
main()
"""


def test_ctrl_c_in_the_first_second_says_that_nothing_was_charged(tmp_path: Path) -> None:
    process = Forked(tmp_path, BEFORE_THE_COMMAND, "tune", "digits", "--epsilon", "3")
    assert process.communicate(timeout=120) == ("", "honestdp: stopped before the command began; nothing was charged\n")
    assert process.returncode == 130
