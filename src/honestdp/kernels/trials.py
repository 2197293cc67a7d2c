"""Which kernels have given what tensor operations give: asked once each, never while a graph is captured; what fails is said.

A kernel is known by all that a compiler makes another one for, which its caller tells (honestdp.kernels.passes, tried). Nothing
but a trial of its own lets it be used. One that is off or does not run is never used; one that cannot be tried now is not used
now, and is tried when it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import torch
from torch import Tensor

from honestdp.logs import logger

_LONG = 3.0
"""Seconds after which it is said that kernels are compiled."""
_spent = 0.0
"""Seconds of first calls of kernels in this process; infinite once they were spoken of."""


class Trials:
    """Of the kernels of one device."""

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}
        self._late: set[object] = set()

    def agreed(self, asked: object, device: torch.device, off: Callable[[], float], *words: object) -> bool:
        """Whether the kernel has given what is right; where that cannot be asked now, it has not, which is said.

        asked: all that it is known by; off, words: as for `agrees`.
        """
        if asked not in self._known and waits(device):
            self._known[asked] = agrees(device, off, *words)
        elif asked not in self._known and asked not in self._late:
            self._late.add(asked)
            _say(device, "was not tried before a graph was captured", words)
        return self._known.get(asked, False)


@torch.no_grad()
def agrees(device: torch.device, off: Callable[[], float], *words: object) -> bool:
    """Whether a kernel gives what is right, asked now.

    off: lets it make something of made-up numbers, and tells how far that is off where it is by more than rounding, else 0.
    words: what the kernel is called.
    """
    try:
        by = off()
    except torch.OutOfMemoryError:
        raise
    except Exception as trouble:  # the compiler's, of made-up numbers: what a step needs is there without it
        _say(device, f"does not run ({type(trouble).__name__})", words)
        return False
    if by != 0:
        _say(device, f"is off from tensor operations by {by:.1e}", words)
    return by == 0


def _say(device: torch.device, what: str, words: tuple[object, ...]) -> None:
    said = "%s %s on %s: tensor operations do it, slower"
    logger("honestdp.kernels").warning(said, " ".join(map(str, words)), what, device)


def waits(device: torch.device) -> bool:
    """Whether a number can be read from the device now: not while a graph is captured, nor while waiting is an error."""
    waiting_is_an_error = 2
    return device.type != "cuda" or not (
        torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode() == waiting_is_an_error
    )


@contextmanager
def compiled() -> Iterator[None]:
    """That kernels are compiled is said once, where it takes long: nearly all of a first call's time is that."""
    global _spent
    began = monotonic()
    yield
    _spent += monotonic() - began
    if _LONG < _spent < float("inf"):
        _spent = float("inf")
        said = "compiling kernels for this GPU, which may take half a minute; they are kept for the next run"
        logger("honestdp.kernels").warning(said)


def beside(value: Tensor) -> int:
    """Numbers by which it begins beside a place that a kernel may read by whole lines: such a one is another kernel."""
    return value.data_ptr() % 16 // value.element_size()
