"""Kernels of convolutions, each compared with tensor operations at the very shape before it is used there.

A compiler makes another kernel of every shape, precision and layout, and a fault of its may be in one of them alone: an assembler
lost the padding of one convolution's way back (honestdp.kernels.hidden). So what is asked for the first time is first made of a
few made-up numbers, by the kernel and by tensor operations in float64. Where the two differ by more than rounding can
(honestdp.kernels.rounding), or a kernel does not run, tensor operations in float32 do it, here and from then on, which is slower
and is said loudly. No record is looked at for it, and nothing is drawn.

A norm and the sum must be of the same numbers: a gradient whose terms cancel in TensorFloat-32 does not in all digits, and so the
norm of the one bounds nothing of the other. So what tensor operations have measured is kept for the sum, and what a kernel has
measured they sum with its norm at most.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from honestdp.kernels import Convolutions, Shape
from honestdp.kernels.agreement import picked
from honestdp.kernels.rounding import beyond, numbers, of_squares, share
from honestdp.kernels.tensors import EXACT, STAND_IN
from honestdp.logs import logger

_LOT = 3
"""Made-up examples of a run."""


def _kind(value: object) -> object:
    """What of an argument a compiler makes another kernel for."""
    if isinstance(value, Tensor):
        return value.dtype, value.dim(), value.stride() if value.dim() == 4 else None, _beside(value)
    return value


def _beside(value: Tensor) -> int:
    """Numbers by which it begins beside a place that a kernel may read by whole lines: such a one is another kernel."""
    return value.data_ptr() % 16 // value.element_size()


def _waits(device: torch.device) -> bool:
    """Whether a number can be read from the device now: not while a graph is captured, nor while waiting is an error."""
    waiting_is_an_error = 2
    return device.type != "cuda" or not (
        torch.cuda.is_current_stream_capturing() or torch.cuda.get_sync_debug_mode() == waiting_is_an_error
    )


class Tried:
    """These kernels, wherever they give what tensor operations give."""

    def __init__(self, kernels: Convolutions) -> None:
        self._kernels = kernels
        self._agrees: dict[object, bool] = {}

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
        """Whether the kernel has given what is right; where that cannot be asked now, it has not."""
        settings = tuple((key, _kind(value)) for key, value in sorted(how.items()) if key != "runs")
        asked = (name, shape, *map(_kind, values), settings, runs > 1, torch.get_float32_matmul_precision())
        if asked not in self._agrees and _waits(values[0].device):
            self._agrees[asked] = self._try(name, values, shape, how, runs=min(runs, 2))
        return self._agrees.get(asked, False)

    @torch.no_grad()
    def _try(
        self, name: str, values: tuple[Any, ...], shape: tuple[Any, ...], how: dict[str, Any], *, runs: int
    ) -> bool:
        """Whether the kernel gives what is right of made-up numbers that lie as these do: whole ones, then others."""
        pool, device = shape[0].pool if shape else 1, values[0].device
        for whole in (True, False):
            likes = [
                None if each is None else _like(name, at, each, runs, pool, whole) for at, each in enumerate(values)
            ]
            own = dict(how)
            if own.get("x") is not None:
                own["x"] = _like(name, len(values), own["x"], runs, pool, whole)
            if own.get("counts") is not None:
                own["counts"] = torch.full((runs,), _LOT, dtype=torch.int32, device=device)
            if "runs" in own:
                own["runs"] = runs
            try:
                off = self._off(name, likes, shape, own, whole)
            except torch.OutOfMemoryError:
                raise
            except Exception as trouble:  # the compiler's, of made-up numbers: what a step needs is there without it
                _say(name, shape, f"does not run ({type(trouble).__name__})", device)
                return False
            if off > 0:
                _say(name, shape, f"is off from tensor operations by {off:.1e}", device)
                return False
        return True

    def _off(self, name: str, likes: list[Any], shape: tuple[Any, ...], own: dict[str, Any], whole: bool) -> float:
        """How far the kernel is off where it is by more than its rounding, as a share of the largest number; else 0."""
        made, right = (_parts(getattr(way, name)(*likes, *shape, **own)) for way in (self._kernels, EXACT))
        precision, wide = torch.get_float32_matmul_precision(), own.get("dtype")
        by = 0.0 if whole else share(name, shape[0] if shape else None, precision, wide)
        sizes = [None if each is None else each.abs() for each in likes]
        absolute: list[Any] = [None] * len(right) if by == 0 else _parts(getattr(EXACT, name)(*sizes, *shape, **own))
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
                off = max(off, beyond(one, other, of_squares(other, size, by) if squares else most))
        return off


def _say(name: str, shape: tuple[Any, ...], what: str, device: torch.device) -> None:
    said, precision = "%s of %s (%s) %s on %s: tensor operations do it, slower", torch.get_float32_matmul_precision()
    logger("honestdp.kernels").warning(said, name, shape[0] if shape else "a layout", precision, what, device)


def _parts(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def _like(name: str, at: int, value: Tensor, runs: int, pool: int, whole: bool) -> Tensor:
    """Made-up numbers of as many runs, of `_LOT` examples each, which lie in memory as `value` does."""
    sums = (name, at) in {("sum_rows", 0), ("sum_rows", 1), ("weighted_sum", 3)}
    parameters = (name, at) in {("forward", 1), ("forward", 2), ("back", 2)}
    size = (runs, _LOT, *value.shape[2:]) if sums else (runs if parameters else runs * _LOT, *value.shape[1:])
    made = numbers(value.device, size, at, whole=whole or value.dtype == torch.uint8)
    made = (made.remainder(pool * pool) if value.dtype == torch.uint8 else made).to(value.dtype).contiguous()
    stride = made.stride() if value.dim() != 4 or min(value.stride()) < 1 else value.stride()
    room = 1 + sum((count - 1) * step for count, step in zip(size, stride, strict=True)) + _beside(value)
    return made.new_empty(room).as_strided(size, stride, _beside(value)).copy_(made)
