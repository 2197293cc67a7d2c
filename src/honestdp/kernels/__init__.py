"""Whether a device has our own GPU kernels, and what they offer; without Triton, tensor operations do the same.

The kernels are on the private side of the boundary, so all are held against the tensor operations they stand for
(tests/kernels/test_fused.py in Triton's interpreter, benchmarks/gpu_checks.py on a GPU).
"""

from __future__ import annotations

import functools
import importlib
from typing import NamedTuple, Protocol

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

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> tuple[Tensor, Tensor | None]: ...

    def unpool(self, grad: Tensor, chosen: Tensor, shape: Shape) -> Tensor: ...

    def back(self, grad: Tensor, chosen: Tensor | None, weight: Tensor, shape: Shape) -> Tensor: ...

    def square_norms(
        self, x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, *, runs: int, bias: bool, keep: bool
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
    ) -> tuple[Tensor, Tensor | None]: ...


@functools.cache
def convolutions(device: torch.device) -> Convolutions | None:
    """The kernels of convolutions, where there are kernels at all, and these compile here and give what torch gives."""
    if on(device) is None:
        return None
    try:
        found: Convolutions = importlib.import_module("honestdp.kernels.convolution")
        agrees = _agrees(found, device)
    except Exception as trouble:  # as above
        logger("honestdp.kernels").info("convolutions without Triton's kernels, slower: %s", trouble)
        return None
    return found if agrees else None


def _agrees(found: Convolutions, device: torch.device) -> bool:
    """Whether the kernels give torch's numbers for a small convolution and its pool, to the digits of TensorFloat-32.

    Norms too: what is clipped by a norm that is too small is more than its clip.
    """
    shape = Shape(16, 6, 6, 8, 4, 4, (3, 3), (1, 1), (0, 0), (1, 1), 2)
    made = torch.linspace(-1, 1, 2 * 16 * 36 + 8 * 144, dtype=torch.float64, device=device).mul(7).sin()
    x, weight = made[: 2 * 16 * 36].view(2, 16, 6, 6), made[2 * 16 * 36 :].view(8, 16, 3, 3) / 4
    grad, share = made[:64].view(2, 8, 2, 2), made.new_full((1, 2), 0.5)
    with torch.enable_grad():
        x, weight, bias = (value.clone().requires_grad_() for value in (x, weight, made.new_zeros(8)))
        y = torch.nn.functional.max_pool2d(torch.nn.functional.conv2d(x, weight, bias), 2)
        wanted = [y, *torch.autograd.grad(y, [x, weight, bias], grad / 2, retain_graph=True)]
        alone = (torch.autograd.grad(y[i], [weight, bias], grad[i] / 2, retain_graph=True) for i in range(2))
        norms = torch.stack([torch.cat([part.flatten() for part in each]).norm() for each in alone])
    values, slopes = (value.detach().float() for value in (x, grad / 2))
    matrix, weights = weight.detach().float()[None], share.float() * 2
    out, chosen = found.forward(values, matrix, None, shape)
    pairs: list[tuple[Tensor | None, Tensor]] = []
    for dtype in (torch.float32, torch.float64):
        for keep in (False, True):
            squares, kept = found.square_norms(values, slopes, chosen, shape, runs=1, bias=True, keep=keep)
            if kept is None:
                total, shift = found.weighted_sum(values, slopes, chosen, weights, shape, bias=True, dtype=dtype)
            else:
                total, shift = found.sum_rows(kept, weights, shape, bias=True, dtype=dtype)
            pairs += [(total[0], wanted[2]), (shift, wanted[3][None]), (squares.sqrt()[0], norms)]
    assert chosen is not None
    spread = found.unpool(slopes, chosen, shape)
    dx = [found.back(slopes, chosen, matrix, shape), found.back(spread, None, matrix, shape._replace(pool=1))]
    pairs += [(out, wanted[0]), *((one, wanted[1]) for one in dx)]
    return all(one is not None and bool(((one - other).norm() <= 0.01 * other.norm()).item()) for one, other in pairs)
