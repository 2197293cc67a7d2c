"""What the kernels of convolutions compute, in tensor operations: their reference, and their stand-in where there is no GPU.

Of examples behind those that are wanted (`counts`) nothing is promised: here all that is made of them is not a number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp.kernels import Shape


def _wanted(made: Tensor, counts: Tensor | None) -> Tensor:
    """`[examples, ...]` with NaN for those that are not wanted."""
    if counts is None:
        return made
    here = torch.arange(len(made) // len(counts)) < counts[:, None]
    return torch.where(here.view(-1, *[1] * (made.dim() - 1)), made, torch.nan)


def unpool(grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor:
    height, width, side = *shape.pooled, shape.pool
    parts = torch.arange(side * side, device=grad.device, dtype=chosen.dtype).view(side, 1, side)
    spread = torch.where(chosen[..., :, None, :, None] == parts, grad[..., :, None, :, None], 0)
    whole = grad.new_zeros(*grad.shape[:2], shape.out_height, shape.out_width)
    whole[..., : height * side, : width * side] = spread.reshape(*grad.shape[:2], height * side, width * side)
    return _wanted(whole, counts)


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """`[examples, rows, out_height, out_width]`, run by run."""
    settings = (shape.stride, shape.padding, shape.dilation)
    lots = x.unflatten(0, (len(weight), -1))
    shifts = [None] * len(weight) if bias is None else bias
    return torch.cat(
        [F.conv2d(lot, own, shift, *settings) for lot, own, shift in zip(lots, weight, shifts, strict=True)]
    )


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Shape,
    *,
    relu: bool = False,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    out = _convolved(x.double(), weight.double(), None if bias is None else bias.double(), shape)
    out = out.relu() if relu else out
    if shape.pool == 1:
        return _wanted(out.float(), counts).contiguous(memory_format=torch.channels_last), None
    largest, index = F.max_pool2d(out, shape.pool, return_indices=True)
    row, column = index // shape.out_width, index % shape.out_width
    which = (row % shape.pool * shape.pool + column % shape.pool).to(torch.uint8)
    return _wanted(largest.float(), counts).contiguous(memory_format=torch.channels_last), which


def back(
    grad: Tensor,
    chosen: Tensor | None,
    weight: Tensor,
    shape: Shape,
    *,
    counts: Tensor | None = None,
) -> Tensor:
    grad = grad if chosen is None else unpool(grad, chosen, shape)
    with torch.enable_grad():
        leaf = torch.zeros(len(grad), shape.channels, shape.height, shape.width, dtype=torch.float64).requires_grad_()
        out = _convolved(leaf, weight.double(), None, shape)
    found = torch.autograd.grad(out, leaf, grad.double())[0]
    return _wanted(found.float(), counts)


def _each(x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, runs: int, bias: bool) -> Tensor:
    """`[runs, lot, numbers]` in float64: rows, then columns with the channels last; then the bias."""
    grad = (grad if chosen is None else unpool(grad, chosen, shape)).double().flatten(2)
    windows = F.unfold(x.double(), shape.kernel, shape.dilation, shape.padding, shape.stride)
    made = torch.matmul(grad, windows.mT).unflatten(2, (shape.channels, -1)).transpose(2, 3).flatten(1)
    return torch.cat([made, grad.sum(2)] if bias else [made], 1).unflatten(0, (runs, -1))


def square_norms(
    x: Tensor,
    grad: Tensor,
    chosen: Tensor | None,
    shape: Shape,
    *,
    runs: int,
    bias: bool,
    keep: bool,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    made = _each(x, grad, chosen, shape, runs, bias)
    made = _wanted(made.flatten(0, 1), counts).view_as(made)
    return made.square().sum(2).float(), made.float() if keep else None


def sum_rows(
    kept: Tensor, weights: Tensor, shape: Shape, *, bias: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    silent = torch.where((weights != 0)[..., None], kept.double(), 0)
    total = torch.einsum("rl,rln->rn", weights.double(), silent).to(dtype)
    weight, shift = total[:, : shape.rows * shape.columns], total[:, shape.rows * shape.columns :]
    ordered = weight.reshape(len(weight), shape.rows, *shape.kernel, shape.channels).permute(0, 1, 4, 2, 3)
    return ordered, shift if bias else None


def weighted_sum(
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
    return sum_rows(_each(x, grad, chosen, shape, len(weights), bias), weights, shape, bias=bias, dtype=dtype)
