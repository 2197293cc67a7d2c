"""Runs attention the one way that holds for every mask, where torch or transformers would look into the masks to choose.

Without padding some kernels are faster, so both libraries ask `mask.all()` and the like before they begin. That is a look at
the numbers of a whole lot, by which one example would decide how another is computed, if only by its rounding. Each choice has
one way that is right whatever the mask holds, and within `one_way` it is always taken: transformers builds its masks as it does
under a tracer, torch leaves its fast path for inference alone, and does not compare a mask with the causal one. Nothing is read
then, and a lot goes through the model at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
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
def one_way(model: nn.Module) -> Iterator[None]:
    """Within, no mask is read to choose a kernel by it, by this model."""
    global _depth
    with _LOCK:
        _depth += 1
        _switch(_masking(model))
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                while _before:
                    setattr(*_before.pop())


_of_transformers: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether a model has modules of transformers'; to be found out once."""


def _masking(model: nn.Module) -> ModuleType | None:
    """Where transformers makes its masks, if the model is made of its modules."""
    if model not in _of_transformers:
        _of_transformers[model] = any(type(part).__module__.startswith("transformers.") for part in model.modules())
    if not _of_transformers[model]:
        return None
    try:
        from transformers import masking_utils
    except ImportError:  # an older one
        return None
    module: ModuleType = masking_utils
    return module


def _switch(masking: ModuleType | None) -> None:
    if _depth == 1:
        _replace(mha, "_is_fastpath_enabled", False)
        _replace(transformer, "_detect_is_causal_mask", _hinted)
    if masking is not None and getattr(masking, "is_tracing", None) is not _always:
        _replace(masking, "is_tracing", _always)


def _replace(module: ModuleType, name: str, value: object) -> None:
    if hasattr(module, name):  # another version may have other names; its models then go example by example
        _before.append((module, name, getattr(module, name)))
        setattr(module, name, value)
