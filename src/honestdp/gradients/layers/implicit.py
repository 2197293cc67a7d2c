"""Convolutions without windows: products that read the input through the kernel, by kernels of a GPU.

Windows are as many times the input as they overlap, nine times for the usual kernel, and to write, keep and read them takes
longer than the products that they are for (docs/notes/convolution.md). A norm and the sum are of the same numbers: gradients are
kept between the two, or made again by the same operations in the same order.

A lot is as wide as lots may become, and what is behind its last member is padding, a fifth of it: nothing is multiplied for that
(`members`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp import kernels
from honestdp.kernels.tensors import Convolutions, Shape, unpooled


@dataclass(frozen=True)
class _Members:
    """Which examples are members of a lot: `present` `[runs, lot]` is not 0."""

    present: Tensor

    @cached_property
    def counts(self) -> Tensor:
        """`[runs]` int32: the examples of each run up to its last member."""
        places = torch.arange(1, self.present.shape[1] + 1, device=self.present.device, dtype=torch.int32)
        return torch.where(self.present != 0, places, 0).amax(1)


_MEMBERS: ContextVar[_Members | None] = ContextVar("members", default=None)


@contextmanager
def members(present: Tensor | None) -> Iterator[None]:
    """Within, convolutions need not be made for the examples `[runs, lot]` behind the last of a run of which `present` is not 0.

    What stands for them is zeros or what they would be, as it comes: they are to get weight 0, whatever they hold.
    """
    token = _MEMBERS.set(None if present is None else _Members(present))
    try:
        yield
    finally:
        _MEMBERS.reset(token)


def _counts(examples: int, runs: int) -> Tensor | None:
    """How many examples of each run are to be made, where these are those of the lot."""
    found = _MEMBERS.get()
    known = found is not None and (examples, runs) == (found.present.numel(), len(found.present))
    return found.counts if found is not None and known else None


@dataclass(frozen=True)
class Implicit:
    """A convolution that the kernels take, and the kernels. counts: how many examples of each run they are to take, or all."""

    kernels: Convolutions
    shape: Shape
    counts: Tensor | None = None

    @staticmethod
    def of(x: Tensor, weight: Tensor, settings: Sequence[tuple[int, ...]], *, pool: int = 1) -> Implicit | None:
        """For x `[examples, channels, height, width]` and weight `[runs, rows, channels, *kernel]`, where there are kernels.

        settings: kernel, stride, padding and dilation. None where a kernel is larger than what it is to see.
        """
        if x.dim() != 4 or x.dtype != torch.float32 or weight.dtype != torch.float32:
            return None
        found = kernels.convolutions(x.device)
        if found is None:
            return None
        kernel, stride, padding, dilation = ((size[0], size[1]) for size in settings)
        _, channels, high, wide = x.shape
        each = zip((high, wide), kernel, stride, padding, dilation, strict=True)
        height, width = ((size + 2 * pad - step * (k - 1) - 1) // by + 1 for size, k, by, pad, step in each)
        if height < pool or width < pool:
            return None
        shape = Shape(channels, high, wide, weight.shape[1], height, width, kernel, stride, padding, dilation, pool)
        return Implicit(found, shape, _counts(len(x), len(weight)))

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """`[examples, rows, height, width]`, through a ReLU if so said, and of a pool which of its positions was the largest."""
        return self.kernels.forward(x, weight, bias, self.shape, relu=relu, counts=self.counts)

    def back(self, grad: Tensor, chosen: Tensor | None, weight: Tensor) -> Tensor:
        """The gradient of the input from that of the output."""
        return self.kernels.back(grad, chosen, weight, self.shape, counts=self.counts)

    def spread(self, chosen: Tensor) -> Callable[[Tensor], Tensor]:
        """From the gradient of what the pool gave that of what went into it."""
        return lambda grad: self.kernels.unpool(grad, chosen, self.shape, counts=self.counts)

    def without_pool(self) -> Implicit:
        return replace(self, shape=self.shape._replace(pool=1))


class Tracked(torch.autograd.Function):
    """The convolution of every run as an operation of autograd, whose gradient goes to `x` alone. The pool is 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: Implicit) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.how = how
        return how.forward(x, weight, bias)[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None]:
        (weight,) = ctx.saved_tensors
        return ctx.how.back(grads[0], None, weight) if ctx.needs_input_grad[0] else None, None, None, None


_KEPT = 1 << 16
"""Gradients of examples are kept between their norm and their sum where they are at most so many numbers: to write and read a
number takes as long as to multiply some 40 times, and products are of 32 or 64 positions at least (docs/notes/convolution.md)."""


@dataclass(frozen=True)
class Convolved:
    """The gradients of a convolution's weight, and with `shift` of its bias, by its input and the gradient of its output.

    x: `[examples, channels, height, width]`; grad: `[examples, rows, ...]`, of the pooled output where there is a pool; chosen:
    which position each of these came from. runs: how many; parameter: the shape of the weight.
    """

    how: Implicit
    x: Tensor
    grad: Tensor
    chosen: Tensor | None
    runs: int
    parameter: tuple[int, ...]
    shift: bool

    @cached_property
    def _measured(self) -> tuple[Tensor, Tensor | None]:
        """The squared norms, and the gradients where they are kept."""
        shape = self.how.shape
        keep = shape.rows * shape.columns <= _KEPT
        arguments = (self.x, self.grad, self.chosen, shape)
        settings: dict[str, Any] = {"runs": self.runs, "bias": self.shift, "keep": keep, "counts": self.how.counts}
        return self.how.kernels.square_norms(*arguments, **settings)

    def square_norms(self) -> Tensor:
        return self._measured[0]

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        # Nothing is silenced beforehand: the kernels do not look at an example of weight 0.
        (squares, kept), shape, dtype = self._measured, self.how.shape, totals[0].dtype
        if kept is not None:
            total, shift = self.how.kernels.sum_rows(kept, weights, shape, bias=self.shift, dtype=dtype)
        else:
            arguments = (self.x, self.grad, self.chosen, weights, shape)
            total, shift = self.how.kernels.weighted_sum(*arguments, bias=self.shift, dtype=dtype, squares=squares)
        totals[0].add_(total)
        if shift is not None:
            totals[1].add_(shift)

    def dense(self) -> tuple[Tensor, ...]:
        shape, grad = self.how.shape, self.grad
        if self.chosen is not None:
            grad = unpooled(grad, self.chosen, shape)
        settings = {"stride": shape.stride, "padding": shape.padding, "dilation": shape.dilation}
        windows = F.unfold(self.x, shape.kernel, **settings)
        made = torch.matmul(grad.flatten(2), windows.mT).view(self.runs, -1, *self.parameter)
        return (made, grad.sum((2, 3)).view(self.runs, -1, shape.rows)) if self.shift else (made,)
