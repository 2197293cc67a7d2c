"""The precision of float32 products, set for a while: full digits or TensorFloat-32, and no autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.backends import cudnn

_AS_IS = nullcontext()
_SHORTENED: tuple[Any, ...] = (cudnn.conv, cudnn.rnn)  # type: ignore[attr-defined]
"""What a GPU may take with fewer digits by default. Both are set alike: torch refuses recurrent layers where they differ."""


def products(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """Within, float32 products are taken with this precision ("high" is TensorFloat-32), and autocast is off.

    With "highest" convolutions and recurrent layers have all digits too, which on a GPU they have not by default: two ways
    to one gradient are then compared that take the same side of every kink (ReLU, max-pooling).
    """
    before, cast = torch.get_float32_matmul_precision(), torch.is_autocast_enabled(device.type)
    short = _SHORTENED if precision == "highest" and device.type == "cuda" else ()
    short = tuple(layers for layers in short if layers.fp32_precision == "tf32")
    return _AS_IS if before == precision and not cast and not short else _changed(precision, before, device, short)


@contextmanager
def _changed(precision: str, before: str, device: torch.device, short: tuple[Any, ...]) -> Iterator[None]:
    torch.set_float32_matmul_precision(precision)
    for layers in short:
        layers.fp32_precision = "ieee"
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
        for layers in short:
            layers.fp32_precision = "tf32"
