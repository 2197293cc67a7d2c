"""Runs attention the one way that holds for every mask, where torch or transformers would look into the masks to choose.

Without padding some kernels are faster, so both libraries ask `mask.all()` and the like before they begin. That is a look at
the numbers of a whole lot, by which one example would decide how another is computed, if only by its rounding. Each choice has
one way that is right whatever the mask holds, and within `one_way` it is always taken: transformers builds its masks as it does
under a tracer, torch leaves its fast path for inference alone, and does not compare a mask with the causal one. Nothing is read
then, and a lot goes through the model at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch.backends import mha
from torch.nn.modules import transformer

_LOCK = threading.RLock()
_depth = 0
_before: list[tuple[ModuleType, str, Any]] = []


def _always(*tensors: object) -> bool:
    return True


def _hinted(mask: object, is_causal: bool | None = None, size: object = None) -> bool:
    """Whether the caller said that the mask is the causal one; otherwise it is applied as any other."""
    return is_causal is True


@contextmanager
def one_way() -> Iterator[None]:
    """Within, no mask is read to choose a kernel by it."""
    global _depth
    with _LOCK:
        _depth += 1
        if _depth == 1:
            _switch()
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                while _before:
                    setattr(*_before.pop())


def _switch() -> None:
    fast = mha.get_fastpath_enabled()
    if fast:
        _replace(mha, "_is_fastpath_enabled", False)
    _replace(transformer, "_detect_is_causal_mask", _hinted)
    masks = sys.modules.get("transformers.masking_utils")
    if masks is not None:
        _replace(masks, "is_tracing", _always)


def _replace(module: ModuleType, name: str, value: object) -> None:
    if hasattr(module, name):  # another version may have other names; its models then go example by example
        _before.append((module, name, getattr(module, name)))
        setattr(module, name, value)
