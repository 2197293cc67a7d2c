"""Kernels of convolutions, each compared with tensor operations at the very shape before it is used there.

A compiler makes another kernel of every shape, precision and layout, and a fault of its may be in one of them alone: an assembler
lost the padding of one convolution's way back (honestdp.kernels.hidden). So what is asked for the first time is first made of a
few made-up numbers, by the kernel and by tensor operations in float64. Where the two differ by more than rounding can
(honestdp.kernels.rounding), or a kernel does not run, tensor operations in float32 do it, here and from then on, which is slower
and is said loudly. No record is looked at for it, and nothing is drawn.

A norm and the sum must be of the same numbers: a gradient whose terms cancel in TensorFloat-32 does not in all digits, and so the
norm of the one bounds nothing of the other. So what tensor operations have measured is kept for the sum, and what a kernel has
measured they sum with its norm at most.

What a kernel is compiled for is what it is asked by here: shape and settings; dtype, sizes, strides and the begin of a tensor;
whether there are several runs; the precision of products. The size of a lot is none of it (do_not_specialize).

So the trial of a model takes tensor operations (`by_tensor_operations`), and a training compiles no kernel that its steps do not
use. The trial establishes that the layers, linked as they are, give autograd's gradients if each operation gives what it is to
give. That a kernel gives it is found here, in the precision and the layout and with all else that a step asks with: a pool, a
ReLU, the channels first, members of lots, several runs. A graph is captured after a rehearsal of the same steps, in which
everything was asked for once (honestdp.boundary.capture); what was not is not in it, and that is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor

from honestdp.kernels import Convolutions, Shape
from honestdp.kernels.rounding import beyond, numbers, of_squares, share
from honestdp.kernels.tensors import EXACT, STAND_IN
from honestdp.kernels.trials import Trials, agrees, beside, compiled

_LOT = 3
"""Made-up examples of a run. Where members are counted all are; then, of numbers with all digits, one fewer of the first run."""
_SUMMED = 40
"""The same for the sum of gradients that were kept, which takes a few at a time and reads ahead."""
_BY_TENSORS: ContextVar[bool] = ContextVar("by_tensor_operations", default=False)


@contextmanager
def by_tensor_operations() -> Iterator[None]:
    """Within, tensor operations do what kernels would, so that none is compiled."""
    token = _BY_TENSORS.set(True)
    try:
        yield
    finally:
        _BY_TENSORS.reset(token)


def _kind(value: object) -> object:
    """What of an argument a compiler makes another kernel for. What has other dimensions than four is made contiguous first."""
    if not isinstance(value, Tensor):
        return value
    return value.dtype, value.dim(), (value.shape[1:], value.stride()) if value.dim() == 4 else None, beside(value)


class Tried:
    """These kernels, wherever they give what tensor operations give."""

    def __init__(self, kernels: Convolutions) -> None:
        self._kernels = kernels
        self._trials = Trials()

    def works(self, device: torch.device) -> bool:
        """Whether a small convolution in TensorFloat-32, as steps take it, compiles and agrees; else none is worth a try."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            x = torch.empty(6, 6, 6, 16, device=device).permute(0, 3, 1, 2)
            weight, bias = torch.empty(2, 16, 16, 3, 3, device=device), torch.empty(2, 16, device=device)
            counts = torch.empty(2, dtype=torch.int32, device=device)
            shape = Shape(16, 6, 6, 16, 4, 4, (3, 3), (1, 1), (0, 0), (1, 1))
            how = {"relu": True, "first": True, "counts": counts}  # of these tensors only how they lie is read
            off = partial(self._furthest, "forward", (x, weight, bias), (shape,), how, 2)
            return agrees(device, off, *_words("forward", (shape,)))
        finally:
            torch.set_float32_matmul_precision(before)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, **how: Any) -> Any:
        return self._made("forward", (x, weight, bias), (shape,), how, runs=len(weight))

    def channels_last(self, grad: Tensor, after: Tensor | None, *, counts: Tensor | None = None) -> Any:
        runs = 1 if counts is None else len(counts)
        return self._made("channels_last", (grad, after), (), {"counts": counts}, runs=runs)

    def unpool(self, grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Any:
        runs = 1 if counts is None else len(counts)
        return self._made("unpool", (grad, chosen), (shape,), {"counts": counts}, runs=runs)

    def back(self, grad: Tensor, chosen: Tensor | None, weight: Tensor, shape: Shape, **how: Any) -> Any:
        return self._made("back", (grad, chosen, weight), (shape,), how, runs=len(weight))

    def square_norms(self, x: Tensor, grad: Tensor, chosen: Tensor | None, shape: Shape, **how: Any) -> Any:
        """By tensor operations the gradients are kept, asked for or not."""
        values = (x, grad, chosen)
        if self._agreed("square_norms", values, (shape,), how, runs=how["runs"]):
            return self._kernels.square_norms(*values, shape, **how)
        return STAND_IN.square_norms(*values, shape, **how | {"keep": True})

    def sum_rows(self, kept: Tensor, weights: Tensor, shape: Shape, **how: Any) -> Any:
        return self._made("sum_rows", (kept, weights), (shape,), how, runs=len(weights))

    def weighted_sum(
        self,
        x: Tensor,
        grad: Tensor,
        chosen: Tensor | None,
        weights: Tensor,
        shape: Shape,
        *,
        squares: Tensor | None = None,
        **how: Any,
    ) -> Any:
        values = (x, grad, chosen, weights)
        if self._agreed("weighted_sum", values, (shape,), how, runs=len(weights)):
            return self._kernels.weighted_sum(*values, shape, **how)
        return STAND_IN.weighted_sum(*values, shape, squares=squares, **how)

    def _made(
        self, name: str, values: tuple[Any, ...], shape: tuple[Any, ...], how: dict[str, Any], *, runs: int
    ) -> Any:
        way: Any = self._kernels if self._agreed(name, values, shape, how, runs=runs) else STAND_IN
        return getattr(way, name)(*values, *shape, **how)

    def _agreed(
        self, name: str, values: tuple[Any, ...], shape: tuple[Any, ...], how: dict[str, Any], *, runs: int
    ) -> bool:
        """Whether the kernel has given what is right."""
        if _BY_TENSORS.get():
            return False
        settings = tuple((key, _kind(value)) for key, value in sorted(how.items()) if key != "runs")
        asked = (name, shape, *map(_kind, values), settings, runs > 1, torch.get_float32_matmul_precision())
        off = partial(self._furthest, name, values, shape, how, min(runs, 2))
        return self._trials.agreed(asked, values[0].device, off, *_words(name, shape))

    def _furthest(
        self, name: str, values: tuple[Any, ...], shape: tuple[Any, ...], how: dict[str, Any], runs: int
    ) -> float:
        """How far the kernel is off of made-up numbers that lie as these do: whole ones, and others where those are right."""
        pool, device = shape[0].pool if shape else 1, values[0].device
        for whole in (True, False):
            likes: list[Any] = [
                None if each is None else _like(name, at, each, runs, pool, whole) for at, each in enumerate(values)
            ]
            if name == "sum_rows" and whole:  # what has no weight may be no number
                likes[0].masked_fill_((likes[1] == 0)[..., None], math.nan)
            own = dict(how)
            if own.get("x") is not None:
                own["x"] = _like(name, len(values), own["x"], runs, pool, whole)
            if isinstance(own.get("bias"), Tensor):
                own["bias"] = _like("forward", 2, own["bias"], runs, pool, whole)
            if own.get("counts") is not None:
                own["counts"] = torch.tensor([_LOT - 1 + whole, _LOT][:runs], dtype=torch.int32, device=device)
            if "runs" in own:
                own["runs"] = runs
            with compiled():
                made = _parts(getattr(self._kernels, name)(*likes, *shape, **own))
            off = self._off(name, made, likes, shape, own, whole)
            if off != 0:
                return off
        return 0.0

    def _off(
        self, name: str, made: list[Any], likes: list[Any], shape: tuple[Any, ...], own: dict[str, Any], whole: bool
    ) -> float:
        """How far the kernel is off where it is by more than its rounding, as a share of the largest number; else 0."""
        right = _parts(getattr(EXACT, name)(*likes, *shape, **own))
        precision, wide = torch.get_float32_matmul_precision(), own.get("dtype")
        by = 0.0 if whole else share(name, shape[0] if shape else None, precision, wide)
        sizes = [None if each is None else each.abs() for each in likes]
        large = own | {"bias": own["bias"].abs()} if isinstance(own.get("bias"), Tensor) else own
        absolute: list[Any] = [None] * len(right) if by == 0 else _parts(getattr(EXACT, name)(*sizes, *shape, **large))
        if name == "forward" and right[1] is not None and made[1] is not None:
            # Which of a pool's positions: one of which the number is the largest, but for the rounding of both.
            x, weight, bias = likes
            best = picked(EXACT.forward(x, weight, bias, shape[0]._replace(pool=1))[0], made[1], shape[0])
            made[1], right[1] = best.relu() if own.get("relu") else best, right[0]
            absolute[1] = None if by == 0 else 2 * absolute[0]
        off = 0.0
        for at, (one, other, size) in enumerate(zip(made, right, absolute, strict=True)):
            if (one is None) != (other is None) or (one is not None and one.shape != other.shape):
                return float("inf")
            if one is not None and other is not None:
                most = 0.0 if size is None else by * size.double()
                squares = name == "square_norms" and at == 0
                most = of_squares(other, size, by) if squares else most
                off = max(off, beyond(_counted(one, other, own.get("counts")), other, most))
        return off


def _words(name: str, shape: tuple[Any, ...]) -> tuple[object, ...]:
    return f"{name} of", shape[0] if shape else "a layout", f"({torch.get_float32_matmul_precision()})"


def _counted(made: Tensor, right: Tensor, counts: Tensor | None) -> Tensor:
    """What was made, but what is right where it is of an example that is not counted: that may be anything."""
    if counts is None:
        return made
    wanted = (torch.arange(_LOT, device=counts.device) < counts[:, None]).flatten()
    rows = (len(wanted), -1)
    return torch.where(wanted[:, None], made.reshape(rows), right.reshape(rows).to(made.dtype)).view(made.shape)


def picked(before: Tensor, chosen: Tensor, shape: Shape) -> Tensor:
    """Of an output before its pool the numbers at the chosen positions."""
    side, (height, width) = shape.pool, shape.pooled
    part = chosen.long()
    rows = torch.arange(height, device=part.device)[:, None] * side + part // side
    index = rows * shape.out_width + torch.arange(width, device=part.device) * side + part % side
    return before.flatten(2).gather(2, index.flatten(2)).view(chosen.shape)


def _parts(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def _like(name: str, at: int, value: Tensor, runs: int, pool: int, whole: bool) -> Tensor:
    """Made-up numbers of as many runs, of a few examples each, which lie in memory as `value` does."""
    sums = (name, at) in {("sum_rows", 0), ("sum_rows", 1), ("weighted_sum", 3)}
    parameters = (name, at) in {("forward", 1), ("forward", 2), ("back", 2)}
    lot = _SUMMED if name == "sum_rows" else _LOT
    size = (runs, lot, *value.shape[2:]) if sums else (runs if parameters else runs * lot, *value.shape[1:])
    stride = value.stride() if value.dim() == 4 else torch.empty(size, device="meta").stride()
    room = 1 + sum((count - 1) * step for count, step in zip(size, stride, strict=True)) + beside(value)
    apart = min(stride) > 0  # else one number stands for several
    made = numbers(value.device, size if apart else (room,), at, whole=whole or value.dtype == torch.uint8)
    made = (made.remainder(pool * pool) if value.dtype == torch.uint8 else made).to(value.dtype)
    lying = (made.new_empty(room) if apart else made).as_strided(size, stride, beside(value))
    return lying.copy_(made) if apart else lying
