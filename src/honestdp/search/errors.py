"""What a search says when it fails after the charge: words of our own, and nothing of a record or a run.

Users' code fails in its own words, and these name records: a Dataset says which file is broken, a shape how many records a coin
put on a side, a lack of memory how many runs there were. So what was caught is looked at for its kind alone, and a new error is
made.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable
from typing import TypeVar

import torch

from honestdp.boundary.decoding import RecordFailed, WorkerDied
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import RefusedModel

_CHARGED = "what it was charged stays charged"
_UNSAID = "which record it was and why is not said, for it tells of the record"
_OWN_FILES = ("honestdp.files", "honestdp.search.vault", "honestdp.search.result", "honestdp.ledger.store")
_OF_MACHINES = {
    errno.EACCES, errno.EAGAIN, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.ENODEV, errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.EROFS, errno.ESTALE,
}  # fmt: skip
Answer = TypeVar("Answer")


class SearchFailed(HonestdpError):
    """A search that is over without a result: no run has weights that are numbers, or labels do not fit model or metric."""


class MachineStopped(HonestdpError):
    """Something outside the runs stops a search, which can be resumed. Its words name the kind of failure."""


def in_own_words(act: Callable[[], Answer]) -> Answer:
    """What `act` returns. What it raises is replaced, but for errors of this package and an interruption by the user, which
    `Search` replaces.
    """
    try:
        return act()
    except KeyboardInterrupt:
        raise
    except BaseException as trouble:
        if isinstance(trouble, HonestdpError) and not isinstance(trouble, RecordFailed) and _raised_here(trouble):
            raise
        error = without_records(trouble)
    raise error


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
