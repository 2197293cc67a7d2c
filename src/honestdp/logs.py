"""Loggers, and their silence while a search runs: what is logged, warned or printed could tell the secret number of
runs.

How often a line is logged tells how many populations were trained, and a line on memory tells how many runs were in one: under
random stopping both are secret. So whatever the package logs goes through loggers made here, and a search silences them, together
with warnings, which come from the same places. What is worth saying is said before, when model and rules are rehearsed.

A user's code may log and print as well, and is heard once per run and step. So standard output and standard error lead nowhere
meanwhile, for Python's streams and for the descriptors 1 and 2, which libraries in other languages and worker processes write
to. That holds for the whole process, other threads included: there is no such thing as one thread's output.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from io import TextIOBase, UnsupportedOperation
from typing import Any, TextIO

_silent: ContextVar[bool] = ContextVar("honestdp_silent", default=False)
_quiet = threading.Event()  # while standard output and standard error are muted


def _heard(record: logging.LogRecord) -> bool:
    return not _silent.get()


def logger(name: str) -> logging.Logger:
    """The logger of this name. It is a filter of its own that silences it, which no level or handler overrules."""
    found = logging.getLogger(name)
    found.addFilter(_heard)  # once: the same filter is not added twice
    return found


@contextmanager
def silence() -> Iterator[None]:
    """Within, nobody logs anything, no warning is shown or raised, and what is printed goes nowhere."""
    before = _silent.set(True)
    try:
        with warnings.catch_warnings(), muted, unlogged:
            warnings.simplefilter("ignore")
            yield
    finally:
        _silent.reset(before)


class Shared:
    """A state of the whole process that several threads may ask for: the first that enters makes it, the last ends it."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._lock = make, threading.RLock()
        self._inside, self._made = 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._made.enter_context(self._make())
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._made.close()


@contextmanager
def _muted() -> Iterator[None]:
    streams = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
    _flush(streams)
    with open(os.devnull, "w") as nowhere, ExitStack() as back:
        _quiet.set()
        back.callback(_quiet.clear)  # the last thing that is done
        for number in (1, 2):
            with suppress(OSError):  # a process may have closed them
                kept = os.dup(number)
                back.callback(os.close, kept)
                back.callback(os.dup2, kept, number)
                os.dup2(nowhere.fileno(), number)
        # What code that kept a stream has written into its buffer goes nowhere too: flushed before the way back is open.
        back.callback(_flush, streams)
        out, err = (_StandIn(stream, nowhere) for stream in streams[:2])
        with redirect_stdout(out), redirect_stderr(err):
            yield


class _StandIn(TextIOBase):
    """In a stream's place while all are muted. Code may keep it for ever, as `logging.basicConfig` does: what is written to it
    later, when nothing is muted, goes to the stream that it stood for, and not to a file that is closed.
    """

    def __init__(self, stream: TextIO | None, nowhere: TextIO) -> None:
        self._stream, self._nowhere = stream, nowhere

    def _now(self) -> TextIO | None:
        return self._nowhere if _quiet.is_set() else self._stream

    def write(self, text: str) -> int:
        return len(text) if _quiet.is_set() or self._stream is None else self._stream.write(text)

    def flush(self) -> None:
        if not _quiet.is_set() and self._stream is not None:
            self._stream.flush()

    def fileno(self) -> int:
        if (now := self._now()) is None:
            raise UnsupportedOperation("fileno")
        return now.fileno()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> Any:
        return getattr(self._now(), "buffer", None)


@contextmanager
def _unlogged() -> Iterator[None]:
    """No logger of anybody's is heard: a handler may write where no descriptor leads, as a notebook's does."""
    before = logging.root.manager.disable
    logging.disable(sys.maxsize)
    try:
        yield
    finally:
        logging.disable(before)


def _flush(streams: list[TextIO | None]) -> None:
    for stream in streams:
        with suppress(Exception):  # closed, or a stand-in without it
            if stream is not None:
                stream.flush()
    with suppress(Exception):  # what C and C++ have buffered
        ctypes.CDLL(None).fflush(None)


muted = Shared(_muted)
"""A context in which nothing that is written to standard output or standard error is heard."""


unlogged = Shared(_unlogged)


def heard_stream() -> TextIO:
    """A stream to where standard error leads now, also while it is muted. For words that tell nothing of the runs."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    except (OSError, AttributeError, ValueError):  # a notebook's, which has no descriptor
        return sys.stderr
