"""What the kernels of convolutions compute, in tensor operations in float64: what they are compared with, and what stands in for
one that gives other numbers on a device. Shapes and layouts are said in honestdp.kernels.convolution.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp.kernels import Shape


def _lots(values: Tensor, runs: int) -> Tensor:
    """`[runs, lot, ...]`"""
    return values.reshape(runs, -1, *values.shape[1:])


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, *, relu: bool = False, first: bool = False,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    lots, shifts = _lots(x.double(), len(weight)), [None] * len(weight) if bias is None else bias.double()
    how = (shape.stride, shape.padding, shape.dilation)
    made = [F.conv2d(lots[run], weight[run].double(), shifts[run], *how) for run in range(len(weight))]
    out, which = torch.cat(made), None
    if shape.pool > 1:
        out, index = F.max_pool2d(out, shape.pool, return_indices=True)
        row, column = index // shape.out_width % shape.pool, index % shape.out_width % shape.pool
        which = (row * shape.pool + column).to(torch.uint8).contiguous(memory_format=torch.channels_last)
    layout = torch.contiguous_format if first else torch.channels_last
    return (out.relu() if relu else out).float().contiguous(memory_format=layout), which


def unpool(grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor:
    side, (height, width) = shape.pool, shape.pooled
    parts = torch.arange(side * side, device=grad.device, dtype=chosen.dtype).view(side, 1, side)
    spread = torch.where(chosen[..., :, None, :, None] == parts, grad[..., :, None, :, None], 0)
    whole = grad.new_zeros(*grad.shape[:2], shape.out_height, shape.out_width)
    whole[..., : height * side, : width * side] = spread.reshape(*grad.shape[:2], height * side, width * side)
    return whole.contiguous(memory_format=torch.channels_last)


def channels_last(grad: Tensor, after: Tensor | None, *, counts: Tensor | None = None) -> Tensor:
    found = grad if after is None else torch.where(after <= 0, 0, grad)
    return found.contiguous(memory_format=torch.channels_last)


def back(
    grad: Tensor, chosen: Tensor | None, weight: Tensor, shape: Shape, *, x: Tensor | None = None,
    counts: Tensor | None = None,
) -> Tensor:  # fmt: skip
    whole = grad if chosen is None else unpool(grad, chosen, shape)
    made: list[Tensor] = []
    for lot, own in zip(_lots(whole.double(), len(weight)), weight.double(), strict=True):
        seen = lot.new_empty(len(lot), shape.channels, shape.height, shape.width)  # of its size alone
        how = (shape.stride, shape.padding, shape.dilation, False, (0, 0), 1, (True, False, False))
        made.append(torch.ops.aten.convolution_backward(lot, seen, own, None, *how)[0])
    out = torch.cat(made).float()
    return (out if x is None else torch.where(x <= 0, 0, out)).contiguous(memory_format=torch.channels_last)


def _each(x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, runs: int, bias: bool) -> Tensor:
    """`[runs, lot, numbers]` in float64: rows, then columns with the channels last; then the bias."""
    whole = (grad if chosen is None else unpool(grad, chosen, shape)).double().flatten(2)
    seen = F.unfold(x.double(), shape.kernel, shape.dilation, shape.padding, shape.stride)
    made = torch.matmul(whole, seen.mT).view(len(x), shape.rows, shape.channels, -1).transpose(2, 3).flatten(1)
    return _lots(torch.cat([made, whole.sum(2)] if bias else [made], 1), runs)


def square_norms(
    x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, *, runs: int, bias: bool, keep: bool,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    made = _each(x, grad, chosen, shape, runs, bias).float()  # the norm is of the numbers that are summed
    squares = made.double().square().sum(2).float()
    if counts is not None:
        squares = torch.where(torch.arange(made.shape[1], device=x.device) < counts[:, None], squares, 0)
    return squares, made if keep else None


def sum_rows(
    kept: Tensor, weights: Tensor, shape: Shape, *, bias: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    silent = torch.where((weights != 0)[..., None], kept.double(), 0)
    total = torch.einsum("rl,rln->rn", weights.double(), silent).to(dtype)
    weight, shift = total[:, : shape.rows * shape.columns], total[:, shape.rows * shape.columns :]
    ordered = weight.reshape(len(weight), shape.rows, *shape.kernel, shape.channels).permute(0, 1, 4, 2, 3)
    return ordered, shift if bias else None


def weighted_sum(
    x: Tensor, grad: Tensor, chosen: Tensor | None, weights: Tensor, shape: Shape, *, bias: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    made = _each(x, grad, chosen, shape, len(weights), bias).float()
    return sum_rows(made, weights, shape, bias=bias, dtype=dtype)
