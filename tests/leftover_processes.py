"""Processes that a test has started and left alive, its orphans included: read from /proc, as Linux keeps it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: a process whose parent has died becomes a child of this one
_TO_DIE = 20.0  # a killed process needs a moment, and on a busy machine more; only a test that fails waits so long
_OF_PYTHON = b"multiprocessing.resource_tracker"  # one for each process, started once and gone with it
SHARED: set[int] = set()  # processes that all tests share, which end when the tests do


def adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def living_children() -> set[int]:
    """The children of this process that have not ended. What they have started in turn is theirs, until they end."""
    return {number for number in _children() - SHARED if _lives(number)}


def left_over(before: set[int]) -> dict[int, str]:
    """The children that were not there before and do not end by themselves, with their commands. They are killed."""
    limit = time.monotonic() + _TO_DIE
    while (left := living_children() - before) and time.monotonic() < limit:
        time.sleep(0.01)
    commands = {number: _command(number).replace(b"\0", b" ").decode(errors="replace") for number in left}
    for number in left:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return commands


def _children() -> set[int]:
    found = set()
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found |= {int(number) for number in thread.read_text().split()}
    return found


def _lives(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X") and _OF_PYTHON not in _command(number)


def _command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""
