"""Whether a device has our own GPU kernels, and what they offer; without Triton, tensor operations do the same.

The kernels are on the private side of the boundary, so all are held against the tensor operations they stand for
(tests/kernels/test_fused.py in Triton's interpreter, benchmarks/gpu_checks.py on a GPU).
"""

from __future__ import annotations

import functools
import importlib
from typing import Protocol

import torch
from torch import Tensor

from honestdp.logs import logger


class Kernels(Protocol):
    """What honestdp.kernels.fused offers; shapes and dtypes are said there."""

    def gather(self, rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]: ...

    def weigh(self, rows: Tensor, weights: Tensor) -> Tensor: ...

    def differs(self, one: Tensor, other: Tensor, flag: Tensor) -> None: ...

    def noisy(self, drawn: Tensor, total: Tensor, deviation: Tensor, *, shift: float) -> Tensor: ...

    def outer_square_norms(self, left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor: ...


@functools.cache
def on(device: torch.device) -> Kernels | None:
    """The kernels, if they can be had on this device: it is a GPU, Triton is there, and it can compile."""
    if device.type != "cuda":
        return None
    try:
        fused: Kernels = importlib.import_module("honestdp.kernels.fused")
        first = torch.zeros(1, dtype=torch.int64, device=device)
        fused.gather(torch.zeros(1, 1, device=device), first, first, 1.0)
    except Exception as trouble:  # whatever keeps Triton from compiling here: no module, no compiler, no driver
        logger("honestdp.kernels").info("without Triton's kernels, a little slower: %s", trouble)
        return None
    return fused
