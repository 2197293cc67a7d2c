"""What the kernels of convolutions compute, in tensor operations of a given precision: float64 is what they are compared with,
float32 stands in for one that gives other numbers on a device. Shapes and layouts are said in honestdp.kernels.convolution.

All runs go in one product with what is seen through each hole of the kernel, copied side by side: slices of all examples at
once, since torch's own unfold starts a kernel for every example on a GPU, and its convolutions one for every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp.kernels import Shape


def _lots(values: Tensor, runs: int) -> Tensor:
    """`[runs, lot, ...]`"""
    return values.reshape(runs, -1, *values.shape[1:])


def _holes(padded: Tensor, shape: Shape) -> Iterator[Tensor]:
    """Of values `[..., height, width]` with their padding what the positions see through each hole of the kernel."""
    sides = zip(shape.stride, (shape.out_height, shape.out_width), strict=True)
    (down, high), (right, wide) = ((by, by * (size - 1) + 1) for by, size in sides)
    for row in range(0, shape.kernel[0] * shape.dilation[0], shape.dilation[0]):
        for column in range(0, shape.kernel[1] * shape.dilation[1], shape.dilation[1]):
            yield padded[..., row : row + high : down, column : column + wide : right]


def _padded(x: Tensor, shape: Shape) -> Tensor:
    (high, wide) = shape.padding
    return F.pad(x, (wide, wide, high, high)) if high + wide else x


def put_on(out: Tensor, bias: Tensor | None, *, relu: bool) -> Tensor:
    """An output `[examples, channels, height, width]` with the bias `[runs, channels]`, then through a ReLU, in its place."""
    if bias is not None:
        _lots(out, len(bias)).add_(bias[:, None, :, None, None])
    return out.relu_() if relu else out


@dataclass(frozen=True)
class Tensors:
    """All that the kernels do, in this precision; outputs are float32, as theirs are."""

    dtype: torch.dtype

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, *, relu: bool = False, first: bool = False,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        runs, (height, width) = len(weight), (shape.out_height, shape.out_width)
        lots = _lots(_padded(x.to(self.dtype), shape), runs).transpose(1, 2)  # [runs, channels, lot, height, width]
        seen = torch.stack(list(_holes(lots, shape)), 1).view(runs, shape.columns, -1)
        matrix = weight.to(self.dtype).permute(0, 1, 3, 4, 2).reshape(runs, shape.rows, -1)
        made = torch.bmm(matrix, seen) if bias is None else torch.baddbmm(bias.to(self.dtype)[..., None], matrix, seen)
        out = made.view(runs, shape.rows, -1, height, width).transpose(1, 2).flatten(0, 1)
        which = None
        if shape.pool > 1:
            out, index = F.max_pool2d(out, shape.pool, return_indices=True)
            row, column = index // width % shape.pool, index % width % shape.pool
            which = (row * shape.pool + column).to(torch.uint8).contiguous(memory_format=torch.channels_last)
        layout = torch.contiguous_format if first else torch.channels_last
        return (out.relu() if relu else out).float().contiguous(memory_format=layout), which

    def unpool(self, grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor:
        side, (height, width) = shape.pool, shape.pooled
        parts = torch.arange(side * side, device=grad.device, dtype=chosen.dtype).view(side, 1, side)
        spread = torch.where(chosen[..., :, None, :, None] == parts, grad[..., :, None, :, None], 0)
        whole = grad.new_zeros(*grad.shape[:2], shape.out_height, shape.out_width)
        whole[..., : height * side, : width * side] = spread.reshape(*grad.shape[:2], height * side, width * side)
        return whole.contiguous(memory_format=torch.channels_last)

    def channels_last(self, grad: Tensor, after: Tensor | None, *, counts: Tensor | None = None) -> Tensor:
        found = grad if after is None else torch.where(after <= 0, 0, grad)
        return found.contiguous(memory_format=torch.channels_last)

    def back(
        self, grad: Tensor, chosen: Tensor | None, weight: Tensor, shape: Shape, *, bias: Tensor | None = None,
        relu: bool = False, x: Tensor | None = None, counts: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        runs, (down, right) = len(weight), shape.padding
        whole = (grad if chosen is None else self.unpool(grad, chosen, shape)).to(self.dtype)
        matrix = weight.to(self.dtype).permute(0, 3, 4, 2, 1).reshape(runs, shape.columns, -1)
        sent = torch.bmm(matrix, _lots(whole, runs).transpose(1, 2).reshape(runs, shape.rows, -1))
        parts = sent.view(runs, -1, shape.channels, len(grad) // runs, shape.out_height, shape.out_width).unbind(1)
        padded = sent.new_zeros(*parts[0].shape[:3], shape.height + 2 * down, shape.width + 2 * right)
        for hole, part in zip(_holes(padded, shape), parts, strict=True):
            hole.add_(part)
        inner = padded[..., down : down + shape.height, right : right + shape.width]
        out = put_on(inner.transpose(1, 2).flatten(0, 1), bias, relu=relu).float()
        return (out if x is None else torch.where(x <= 0, 0, out)).contiguous(memory_format=torch.channels_last)

    def _each(self, x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, runs: int, bias: bool) -> Tensor:
        """`[runs, lot, numbers]`: rows, then columns with the channels last; then the bias."""
        whole = (grad if chosen is None else self.unpool(grad, chosen, shape)).to(self.dtype).flatten(2)
        seen = torch.stack(list(_holes(_padded(x.to(self.dtype), shape), shape)), 1).view(len(x), shape.columns, -1)
        made = torch.bmm(whole, seen.mT).flatten(1)
        return _lots(torch.cat([made, whole.sum(2)] if bias else [made], 1), runs).float()

    def square_norms(
        self, x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, *, runs: int, bias: bool, keep: bool,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        made = self._each(x, grad, chosen, shape, runs, bias)  # the norm is of the numbers that are summed
        squares = made.to(self.dtype).square().sum(2, dtype=torch.float64).float()
        if counts is not None:
            squares = torch.where(torch.arange(made.shape[1], device=x.device) < counts[:, None], squares, 0)
        return squares, made if keep else None

    def sum_rows(
        self, kept: Tensor, weights: Tensor, shape: Shape, *, bias: bool, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor | None]:
        # In float64 always: TensorFloat-32 would add up other numbers than those whose norms were taken.
        silent = torch.where((weights != 0)[..., None], kept, 0).double()
        total = torch.bmm(weights.double()[:, None], silent)[:, 0].to(dtype)
        weight, shift = total[:, : shape.rows * shape.columns], total[:, shape.rows * shape.columns :]
        ordered = weight.reshape(len(weight), shape.rows, *shape.kernel, shape.channels).permute(0, 1, 4, 2, 3)
        return ordered, shift if bias else None

    def weighted_sum(
        self, x: Tensor, grad: Tensor, chosen: Tensor | None, weights: Tensor, shape: Shape, *, bias: bool,
        dtype: torch.dtype, squares: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """squares: `[runs, lot]`, squared norms of these as they were measured in another way: none is summed with more."""
        made = self._each(x, grad, chosen, shape, len(weights), bias)
        if squares is not None:
            own = made.double().square().sum(2)
            share = torch.where(own > squares, squares / own, 1).sqrt().float()
            made = torch.where(own.isfinite()[..., None], made * share[..., None], 0)
        return self.sum_rows(made, weights, shape, bias=bias, dtype=dtype)


EXACT = Tensors(torch.float64)
STAND_IN = Tensors(torch.float32)
