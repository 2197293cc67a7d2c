"""The precision of float32 products, set for a while: full digits or TensorFloat-32, and no autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_AS_IS = nullcontext()


def products(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """Within, float32 products are taken with this precision ("high" is TensorFloat-32), and autocast is off."""
    before, cast = torch.get_float32_matmul_precision(), torch.is_autocast_enabled(device.type)
    return _AS_IS if before == precision and not cast else _changed(precision, before, device)


@contextmanager
def _changed(precision: str, before: str, device: torch.device) -> Iterator[None]:
    torch.set_float32_matmul_precision(precision)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
