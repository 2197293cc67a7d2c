"""Whether a device has our own GPU kernels, and what they offer; without Triton, tensor operations do the same.

The kernels are on the private side of the boundary, so all are held against the tensor operations they stand for: each on the
device before it is used (honestdp.kernels.passes, tried, agreement), and by tests/kernels in Triton's interpreter.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from honestdp.logs import logger


class Kernels(Protocol):
    """What honestdp.kernels.fused offers; shapes and dtypes are said there."""

    def gather(self, rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]: ...

    def weigh(self, rows: Tensor, weights: Tensor) -> Tensor: ...

    def widened(self, rows: Tensor, weights: Tensor) -> Tensor: ...

    def differs(self, one: Tensor, other: Tensor, flag: Tensor) -> None: ...

    def noisy(self, drawn: Tensor, total: Tensor, deviation: Tensor, *, shift: float) -> Tensor: ...

    def outer_square_norms(self, left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor: ...


@functools.cache
def on(device: torch.device) -> Kernels | None:
    """The kernels, if they can be had on this device: it is a GPU, Triton is there, and it can compile. Each is used only where
    it gives what tensor operations give (honestdp.kernels.passes).
    """
    if device.type != "cuda":
        return None
    try:
        fused: Kernels = importlib.import_module("honestdp.kernels.fused")
        first = torch.zeros(1, dtype=torch.int64, device=device)
        fused.gather(torch.zeros(1, 1, device=device), first, first, 1.0)
    except Exception as trouble:  # whatever keeps Triton from compiling here: no module, no compiler, no driver
        logger("honestdp.kernels").info("without Triton's kernels, a little slower: %s", trouble)
        return None
    from honestdp.kernels.passes import TriedPasses

    return TriedPasses(fused)


class Shape(NamedTuple):
    """A convolution of two dimensions: channels and sizes of its input and of its output, its settings, and the pool after it.

    pool: its output is divided into squares of this side, and the largest number of each is kept; 1 for none.
    """

    channels: int
    height: int
    width: int
    rows: int
    """Channels of the output."""
    out_height: int
    out_width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    pool: int = 1

    @property
    def pooled(self) -> tuple[int, int]:
        return self.out_height // self.pool, self.out_width // self.pool

    @property
    def columns(self) -> int:
        return self.channels * self.kernel[0] * self.kernel[1]


class Convolutions(Protocol):
    """What honestdp.kernels.convolution offers; shapes and layouts are said there."""

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        shape: Shape,
        *,
        relu: bool = False,
        first: bool = False,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]: ...

    def channels_last(self, grad: Tensor, after: Tensor | None, *, counts: Tensor | None = None) -> Tensor: ...

    def unpool(self, grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor: ...

    def back(
        self,
        grad: Tensor,
        chosen: Tensor | None,
        weight: Tensor,
        shape: Shape,
        *,
        bias: Tensor | None = None,
        relu: bool = False,
        x: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor: ...

    def square_norms(
        self,
        x: Tensor,
        grad: Tensor,
        chosen: Tensor | None,
        shape: Shape,
        *,
        runs: int,
        bias: bool,
        keep: bool,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]: ...

    def sum_rows(
        self, kept: Tensor, weights: Tensor, shape: Shape, *, bias: bool, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]: ...

    def weighted_sum(
        self,
        x: Tensor,
        grad: Tensor,
        chosen: Tensor | None,
        weights: Tensor,
        shape: Shape,
        *,
        bias: bool,
        dtype: torch.dtype,
        squares: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """squares: what `square_norms` gave. Where gradients are made in another way than for that, none counts for more."""


class Normalisations(Protocol):
    """What honestdp.kernels.normalisation offers; shapes and layouts are said there."""

    def takes(self, x: Tensor, groups: int) -> bool: ...

    def forward(
        self, x: Tensor, gain: Tensor | None, shift: Tensor | None, groups: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def back(
        self, x: Tensor, grad: Tensor, gain: Tensor | None, means: Tensor, scales: Tensor, groups: int
    ) -> tuple[Tensor, Tensor, Tensor]: ...


@functools.cache
def convolutions(device: torch.device) -> Convolutions | None:
    """The kernels of convolutions, where there are kernels at all and a small one gives what tensor operations give: each is
    compared with these before it is used (honestdp.kernels.tried).
    """
    if on(device) is None:
        return None
    from honestdp.kernels.tried import Tried

    try:
        found = Tried(importlib.import_module("honestdp.kernels.convolution"))
        if found.works(device):
            return found
    except Exception as trouble:  # as above
        logger("honestdp.kernels").warning("the kernels of convolutions: %s", type(trouble).__name__)
    logger("honestdp.kernels").warning("the kernels of convolutions are NOT used on %s: several times slower", device)
    return None


@functools.cache
def normalisations(device: torch.device) -> Normalisations | None:
    """The kernels of norms, where those of a small one give what torch gives (honestdp.kernels.agreement)."""
    if on(device) is None:
        return None
    from honestdp.kernels.agreement import disagreements

    try:
        found: Any = importlib.import_module("honestdp.kernels.normalisation")
        wrong = disagreements(found, device)
    except Exception as trouble:  # as above
        wrong = [f"{type(trouble).__name__}: {trouble}"]
    if not wrong:
        return found  # type: ignore[no-any-return]
    said = "the kernels of norms are NOT used on %s, which is several times slower; off from torch: %s"
    logger("honestdp.kernels").warning(said, device, "; ".join(wrong))
    return None
