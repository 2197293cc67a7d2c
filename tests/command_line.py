"""The command line as a user runs it: in a process of its own, or called in this one where the answer alone is asked for."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.forked_python import Forked

# A process started in the background inherits that Ctrl-C is ignored; one at a terminal does not.
MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "honestdp"
from honestdp.cli.main import main
main()
"""
UNHURRIED = """
import honestdp.training.progress as progress
progress.SECONDS = 1e9
"""
"""Run before a command: no line says that it goes on still, however slow the machine is."""
DIGITS = ("digits", "--epsilon", "3", "--optimizer", "adam", "--space", "clip=0.1,1", "--lot", "64")


def started(folder: Path, *words: str, before: str = "") -> Forked:
    """before: code that the process runs first."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HONESTDP")}
    return Forked(folder, f"{before}\n{MAIN}", *words, environment=own)


def stopped(
    folder: Path, number: signal.Signals, *words: str, out: str, before: Callable[[], object] = list
) -> tuple[int, str, str]:
    """A search that got a signal after its first checkpoint: (exit code, standard output, standard error).

    One that was done before the signal came, as may be where the tests were held up, is begun again, a few times.

    before: what is done before each of them.
    """
    for _ in range(5):
        before()
        shutil.rmtree(folder / out, ignore_errors=True)
        process = started(folder, *words, "--out", out, before=UNHURRIED)
        while not (folder / out / ".secret" / "batch0").exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(number)
        said, err = process.communicate(timeout=300)
        if process.returncode != 0:
            break
    assert process.returncode is not None
    return process.returncode, said, err


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    process = started(folder, *words, before=UNHURRIED)
    out, err = process.communicate(timeout=300)
    assert process.returncode is not None
    return process.returncode, out, err


def called(folder: Path, *words: str) -> tuple[int, str, str]:
    """As `run`, in this process: what a command answers does not depend on its start, which takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the command line's own libraries
        patch.setattr(sys, "argv", ["honestdp", *words])
        patch.delenv("HONESTDP_DATA", raising=False)
        patch.chdir(folder)
        main = importlib.import_module("honestdp.cli.main").main
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
            main()
    return int(left.value.code or 0), out.getvalue(), err.getvalue()
