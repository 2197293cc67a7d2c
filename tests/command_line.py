"""The command line as a user runs it, in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import honestdp

# A process started in the background inherits that Ctrl-C is ignored; one at a terminal does not.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from honestdp.cli.main import main; main()"
DIGITS = ("digits", "--epsilon", "3", "--optimizer", "adam", "--space", "clip=0.1,1", "--lot", "64")


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HONESTDP")}
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        cwd=folder,
        env=own | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(honestdp.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
        process = started(folder, *words, "--out", out)
        while not (folder / out / ".secret" / "batch0").exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(number)
        said, err = process.communicate(timeout=300)
        if process.returncode != 0:
            break
    return process.returncode, said, err


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    process = started(folder, *words)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err
