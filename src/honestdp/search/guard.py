"""Guards the process while a search runs: SIGTERM acts like Ctrl-C, and a crash writes no memory to the disk."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from honestdp.logs import Shared


@contextmanager
def _no_cores() -> Iterator[None]:
    """Linux hands a core to a program (a pattern that is a pipe) whatever the limit, but for a limit of exactly 1 byte; a
    file of at most 1 byte holds nothing.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


without_cores = Shared(_no_cores)
"""A context in which a crash of this process writes no memory to the disk."""


@contextmanager
def guarded() -> Iterator[None]:
    """Within, no core is dumped, and a SIGTERM raises KeyboardInterrupt where this is the main thread: others have no signals."""
    with without_cores, _stopped_by_sigterm():
        yield


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    before, owner = signal.getsignal(signal.SIGTERM), os.getpid()
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)  # a worker process, which is ended by this signal
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
