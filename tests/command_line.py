"""The command line as a user runs it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import honestdp

# A process started in the background inherits that Ctrl-C is ignored; one at a terminal does not.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from honestdp.cli.main import main; main()"
DIGITS = ("digits", "--epsilon", "3", "--optimizer", "adam", "--space", "clip=0.1,1", "--lot", "64")


def started(folder: Path, *words: str, before: str = "") -> subprocess.Popen[str]:
    """before: code that the process runs first."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HONESTDP")}
    return subprocess.Popen(
        [sys.executable, "-c", f"{before}\n{MAIN}", *words],
        cwd=folder,
        env=own | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(honestdp.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    process = started(folder, *words)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err
