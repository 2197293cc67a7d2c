"""What a search says when it fails after the charge: words of our own, and nothing of a record or a run.

Users' code fails in its own words, and these name records: a Dataset says which file is broken, a shape how many records a coin
put on a side, a lack of memory how many runs there were. So what was caught is looked at for its kind alone, and a new error is
made.
"""

from __future__ import annotations

import errno
import os

import torch

from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.data import WorkerDied

_CHARGED = "what it was charged stays charged"
_UNSAID = "which record it was and why is not said, for it tells of the record"


class SearchFailed(HonestdpError):
    """A search that is over without a result: no run has weights that are numbers, or labels do not fit model or metric."""


def without_records(trouble: Exception) -> Exception:
    """The error that leaves in the place of `trouble`. To be raised where `trouble` is not being handled any more."""
    if isinstance(trouble, InvalidArgument):
        return _unfit(trouble.argument)
    if isinstance(trouble, HonestdpError):
        return type(trouble)(str(trouble))  # words of this package, about its own files
    if isinstance(trouble, WorkerDied):
        return HonestdpError(
            f"a process that decodes the Dataset was ended while it worked: the search stopped; {_CHARGED}; where `out` was "
            "given it goes on with resume=True"
        )
    if isinstance(trouble, torch.OutOfMemoryError | MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if isinstance(trouble, torch.AcceleratorError):
        return OSError(errno.EIO, os.strerror(errno.EIO))
    if isinstance(trouble, OSError):
        number = trouble.errno if isinstance(trouble.errno, int) else errno.EIO
        return OSError(number, os.strerror(number))
    return HonestdpError(
        f"the search failed; {_CHARGED}. Why is not said, for it may tell of records: try model, loss, metric and Dataset on "
        "made-up records"
    )


def _unfit(argument: str) -> HonestdpError:
    if argument == "labels":
        return SearchFailed(
            f"labels of some records are none of the model's classes; which is not said, for it tells of them; {_CHARGED}"
        )
    if argument == "data":
        return HonestdpError(
            f"the Dataset failed on a record, or its records are no pairs (x, y) of one shape; {_UNSAID}. {_CHARGED}; read every "
            "record once, outside a search, to find it; where `out` was given the search then goes on with resume=True"
        )
    if argument == "checkpoint":
        return HonestdpError(f"a checkpoint of this search cannot be read: it cannot go on; {_CHARGED}")
    if argument in ("metric", "loss", "model") or argument.startswith("the "):
        return SearchFailed(
            f"{argument} does not fit the records and their labels; {_CHARGED}. Try it on made-up records of their shapes; for "
            "labels that are no classes take honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, low=, high=)"
        )
    return HonestdpError(f"its {argument} cannot be read: this search cannot go on; {_CHARGED}")
