"""How a search fails after the charge: no core of the process, and errors in words of our own, without a record or a run.

Users' code fails in its own words, and these name records: a Dataset says which file is broken, a shape how many records a coin
put on a side, a lack of memory how many runs there were. So an error that was caught is looked at for its kind alone, and a new
error is made. While a search lasts SIGTERM acts like Ctrl-C, and a crash writes no memory to the disk.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import torch

from honestdp.boundary.decoding import RecordFailed, WorkerDied
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import RefusedModel
from honestdp.logs import Shared

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers


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
    """Within, no core is dumped, and a SIGTERM raises KeyboardInterrupt."""
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)  # a worker process, which is ended by this signal
        os.kill(os.getpid(), number)

    with without_cores, signals(stop, signal.SIGTERM):
        yield


@contextmanager
def signals(handler: Handler | None, *numbers: int) -> Iterator[None]:
    """Within, this handler has the signals, and after it whoever had them before. None: only give them back.

    Other threads than the main one have no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    known = {number: former for number, former in before.items() if former is not None}  # None: set outside of Python
    if handler is not None:
        for number in known:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in known.items():
            signal.signal(number, former)


_CHARGED = "what it was charged stays charged"
_UNSAID = "which record it was and why is not said, for it tells of the record"
_OWN_FILES = ("honestdp.files", "honestdp.search.vault", "honestdp.search.tune_result", "honestdp.ledger.store")
_OF_MACHINES = {
    errno.EACCES, errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.ENODEV, errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.EROFS, errno.ESTALE,
}  # fmt: skip
Answer = TypeVar("Answer")


class SearchFailed(HonestdpError):
    """A search that is over without a result: no run has weights that are numbers, or labels do not fit model or metric."""


class MachineStopped(HonestdpError):
    """Something outside the runs stops a search, which can be resumed. Its words name the kind of failure."""


def in_own_words(act: Callable[[], Answer], *, of_runs: bool = False) -> Answer:
    """What `act` returns. What it raises is replaced, but for an interruption by the user, which `Search` replaces.

    of_runs: errors of this package are replaced too: within a run their words may be of its records. Elsewhere they are kept.
    """
    try:
        return act()
    except KeyboardInterrupt:
        raise
    except BaseException as trouble:  # also what ends a process: a Dataset may raise it, with words of a record
        kept = isinstance(trouble, HonestdpError) and not isinstance(trouble, RecordFailed) and _raised_here(trouble)
        if kept and not of_runs:
            raise
        error = without_records(trouble)
    raise error  # here and not there, so that nothing of what was caught is carried along as its context


def without_records(trouble: BaseException) -> Exception:
    """The error that leaves in the place of `trouble`. To be raised where `trouble` is not being handled any more.

    An error of this package keeps its words only where this package raised it: a Dataset may raise one too.
    """
    if isinstance(trouble, RecordFailed):
        return _unfit("data")
    if isinstance(trouble, RefusedModel):  # words on made-up inputs, of a population wider than was tried before
        return SearchFailed(f"{trouble}; {_CHARGED}")
    if isinstance(trouble, HonestdpError) and _raised_here(trouble):
        if isinstance(trouble, InvalidArgument):
            return _unfit(trouble.argument)
        kind = type(trouble) if type(trouble) in (SearchFailed, MachineStopped) else HonestdpError
        return kind(str(trouble))  # words about its own files; other kinds may have other constructors
    if isinstance(trouble, WorkerDied):
        return HonestdpError(
            f"a process that decodes the Dataset was ended while it worked: the search stopped; {_CHARGED}; the "
            "same call goes on with it"
        )
    if isinstance(trouble, torch.OutOfMemoryError | MemoryError):
        return MachineStopped(os.strerror(errno.ENOMEM))
    if isinstance(trouble, torch.AcceleratorError):
        return MachineStopped(os.strerror(errno.EIO))
    if isinstance(trouble, OSError):
        return MachineStopped(os.strerror(_number(trouble)))
    return HonestdpError(
        f"the search failed; {_CHARGED}. Why is not said, for it may tell of records: try model, loss, metric and Dataset on "
        "made-up records"
    )


def _modules(trouble: BaseException) -> list[str]:
    """The modules that an error came through, the one that raised it last."""
    return [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(trouble.__traceback__)]


def _raised_here(trouble: BaseException) -> bool:
    return any(name.startswith("honestdp.") for name in _modules(trouble)[-1:])


def _number(trouble: OSError) -> int:
    """The number of an error of our own files, where a machine's failure has such a number; EIO for all others. A Dataset may
    put a record's number there, and a worker process drops what it puts.
    """
    own = any(name in _OWN_FILES for name in _modules(trouble))
    return trouble.errno if own and type(trouble.errno) is int and trouble.errno in _OF_MACHINES else errno.EIO


def _unfit(argument: str) -> HonestdpError:
    if argument == "data":
        return HonestdpError(
            f"the Dataset failed on a record, or its records are no pairs (x, y) of one shape; {_UNSAID}. {_CHARGED}; read every "
            "record once, outside a search, to find it; the same call then goes on with the search"
        )
    if argument == "checkpoint":
        return HonestdpError(f"a checkpoint of this search cannot be read: it cannot go on; {_CHARGED}")
    if argument in ("metric", "loss", "model") or argument.startswith("the "):
        return SearchFailed(
            f"{argument} does not fit the records and their labels; {_CHARGED}. Try it on made-up records of their shapes: a "
            "Dataset whose attribute made_up is a made-up record in the layout of its own is tried so before the charge. For "
            "labels that are no classes take honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, low=, high=)"
        )
    return HonestdpError(f"its {argument} cannot be read: this search cannot go on; {_CHARGED}")
