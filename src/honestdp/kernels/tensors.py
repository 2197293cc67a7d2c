"""What the GPU kernels compute, in tensor operations: what they are compared with, and what does their work where they differ.

The class of each family is also its interface: its methods are what honestdp.kernels.fused, normalisation and convolution offer,
where shapes and layouts are said. Those of layers come in two precisions: a kernel is compared with float64, float32 stands in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


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


def powers(deviation: Tensor) -> Tensor:
    """`[runs, 1]`: the power of two at or below each deviation, 0 for 0."""
    wide = deviation.double()[:, None]
    mantissa, _ = torch.frexp(wide)
    return torch.where(wide > 0, wide / mantissa / 2, 0)


class Passes:
    """What the kernels of honestdp.kernels.fused do."""

    def gather(self, rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        x = rows.index_select(0, index).float() * scale
        return x, labels.index_select(0, index), torch.linalg.vector_norm(x, dim=1)

    def weigh(self, rows: Tensor, weights: Tensor) -> Tensor:
        return torch.where((weights == 0)[..., None], 0, rows * weights[..., None])

    def widened(self, rows: Tensor, weights: Tensor) -> Tensor:
        return torch.where((weights != 0)[..., None], rows, 0).double()

    def differs(self, one: Tensor, other: Tensor, flag: Tensor) -> None:
        flag.logical_or_((one != other).any())

    def noisy(self, drawn: Tensor, total: Tensor, deviation: Tensor, *, shift: float) -> Tensor:
        whole = powers(deviation) * shift
        return (drawn * deviation.double()[:, None] + total + whole).sub_(whole).float()

    def outer_square_norms(self, left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor:
        widest = max(left.shape[2], 1 if right_is_norms else right.shape[2])
        least = (widest * torch.finfo(torch.float32).tiny) ** 0.5
        one = torch.linalg.vector_norm(left, dim=2).clamp_(min=least)
        other = right if right_is_norms else torch.linalg.vector_norm(right, dim=2)
        both = one * (other if shift else other.clamp(min=least))
        return torch.addcmul(one.square(), both, both) if shift else both.square()


PLAIN = Passes()


@dataclass(frozen=True)
class Norms:
    """The norm of groups of channels; outputs are float32, as the kernels' are."""

    dtype: torch.dtype

    def takes(self, x: Tensor, groups: int) -> bool:
        return True

    def forward(
        self, x: Tensor, gain: Tensor | None, shift: Tensor | None, groups: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        wide = x.to(self.dtype).reshape(len(x), groups, -1)
        mean = wide.mean(2, keepdim=True)
        scale = ((wide - mean).square().mean(2, keepdim=True) + eps).rsqrt()
        out = ((wide - mean) * scale).view(x.shape) * self._each(gain, x, 1)
        stats = [each.expand(-1, -1, x.shape[1] // groups).flatten(1).float() for each in (mean, scale)]
        whole = out if shift is None else out + self._each(shift, x, 0)
        return whole.float().contiguous(memory_format=torch.channels_last), stats[0], stats[1]

    def back(
        self, x: Tensor, grad: Tensor, gain: Tensor | None, means: Tensor, scales: Tensor, groups: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        slopes, mean, scale = grad.to(self.dtype), *(each.to(self.dtype)[..., None, None] for each in (means, scales))
        normal = (x.to(self.dtype) - mean) * scale
        gains, shifts = (slopes * normal).sum((2, 3)), slopes.sum((2, 3))
        slopes = slopes * self._each(gain, x, 1)
        level, along = (
            each.reshape(len(x), groups, -1).mean(2).repeat_interleave(x.shape[1] // groups, 1)[..., None, None]
            for each in (slopes, slopes * normal)
        )
        found = ((slopes - level - normal * along) * scale).float()
        return found.contiguous(memory_format=torch.channels_last), gains.float(), shifts.float()

    def _each(self, value: Tensor | None, x: Tensor, missing: float) -> Tensor:
        """A parameter `[runs, channels]` for every example."""
        if value is None:
            return torch.full((), missing, dtype=self.dtype, device=x.device)
        return value.to(self.dtype).repeat_interleave(len(x) // len(value), 0)[..., None, None]


EXACT_NORMS, NORMS = Norms(torch.float64), Norms(torch.float32)


def unpooled(grad: Tensor, chosen: Tensor, shape: Shape) -> Tensor:
    """The gradient of what went into the pool, `[examples, rows, out_height, out_width]`."""
    height, width, side = *shape.pooled, shape.pool
    parts = torch.arange(side * side, device=grad.device, dtype=chosen.dtype).view(side, 1, side)
    spread = torch.where(chosen[..., :, None, :, None] == parts, grad[..., :, None, :, None], 0)
    whole = grad.new_zeros(*grad.shape[:2], shape.out_height, shape.out_width)
    whole[..., : height * side, : width * side] = spread.reshape(*grad.shape[:2], height * side, width * side)
    return whole


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


@dataclass(frozen=True)
class Convolutions:
    """All that the kernels of convolutions do, in this precision; outputs are float32, as theirs are.

    All runs go in one product with what is seen through each hole of the kernel, copied side by side: slices of all examples at
    once, since torch's own unfold starts a kernel for every example on a GPU, and its convolutions one for every run.
    """

    dtype: torch.dtype

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, *, relu: bool = False,
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
        return (out.relu() if relu else out).float().contiguous(memory_format=torch.channels_last), which

    def unpool(self, grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor:
        return unpooled(grad, chosen, shape).contiguous(memory_format=torch.channels_last)

    def back(
        self, grad: Tensor, chosen: Tensor | None, weight: Tensor, shape: Shape, *, counts: Tensor | None = None
    ) -> Tensor:
        runs, (down, right) = len(weight), shape.padding
        whole = (grad if chosen is None else self.unpool(grad, chosen, shape)).to(self.dtype)
        matrix = weight.to(self.dtype).permute(0, 3, 4, 2, 1).reshape(runs, shape.columns, -1)
        sent = torch.bmm(matrix, _lots(whole, runs).transpose(1, 2).reshape(runs, shape.rows, -1))
        parts = sent.view(runs, -1, shape.channels, len(grad) // runs, shape.out_height, shape.out_width).unbind(1)
        padded = sent.new_zeros(*parts[0].shape[:3], shape.height + 2 * down, shape.width + 2 * right)
        for hole, part in zip(_holes(padded, shape), parts, strict=True):
            hole.add_(part)
        inner = padded[..., down : down + shape.height, right : right + shape.width]
        return inner.transpose(1, 2).flatten(0, 1).float().contiguous(memory_format=torch.channels_last)

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


EXACT, STAND_IN = Convolutions(torch.float64), Convolutions(torch.float32)
