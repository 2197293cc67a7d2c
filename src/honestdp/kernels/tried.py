"""Kernels of convolutions, each compared with tensor operations at the very shape before it is used there.

A compiler makes another kernel of every shape, precision and layout, and a fault of its may be in one of them alone: an assembler
lost the padding of one convolution's way back (honestdp.kernels.hidden). So what is asked for the first time is first made of
small made-up numbers, by the kernel and by tensor operations. Where the two differ, tensor operations do it, here and from then
on, which is slower and is said loudly. No record is looked at for it, and nothing is drawn.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from honestdp.kernels import Convolutions, Shape, tensors
from honestdp.kernels.agreement import PRECISIONS, numbers, picked
from honestdp.logs import logger

_LOT = 3
"""Made-up examples of a run."""


def _kind(value: object) -> object:
    """What of an argument a compiler makes another kernel for."""
    if isinstance(value, Tensor):
        return value.dtype, value.dim(), value.stride() if value.dim() == 4 else None
    return value


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
        return self._made("square_norms", (x, grad, chosen), (shape,), how, runs=how["runs"])

    def sum_rows(self, kept: Tensor, weights: Tensor, shape: Shape, **how: Any) -> Any:
        return self._made("sum_rows", (kept, weights), (shape,), how, runs=len(weights))

    def weighted_sum(
        self, x: Tensor, grad: Tensor, chosen: Tensor | None, weights: Tensor, shape: Shape, **how: Any
    ) -> Any:
        return self._made("weighted_sum", (x, grad, chosen, weights), (shape,), how, runs=len(weights))

    def _made(
        self, name: str, values: tuple[Any, ...], shape: tuple[Any, ...], how: dict[str, Any], *, runs: int
    ) -> Any:
        settings = tuple((key, _kind(value)) for key, value in sorted(how.items()) if key != "runs")
        asked = (name, shape, *map(_kind, values), settings, runs > 1, torch.get_float32_matmul_precision())
        if asked not in self._agrees and _waits(values[0].device):
            self._agrees[asked] = self._try(name, values, shape, how, runs=min(runs, 2))
        way: Any = self._kernels if self._agrees.get(asked, False) else tensors
        return getattr(way, name)(*values, *shape, **how)

    @torch.no_grad()
    def _try(
        self, name: str, values: tuple[Any, ...], shape: tuple[Any, ...], how: dict[str, Any], *, runs: int
    ) -> bool:
        """Whether the kernel gives what is right of made-up numbers that lie as these do."""
        pool = shape[0].pool if shape else 1
        likes: list[Any] = [
            None if each is None else _like(name, at, each, runs, pool) for at, each in enumerate(values)
        ]
        device, own = values[0].device, dict(how)
        if "x" in own and own["x"] is not None:
            own["x"] = _like("back", 0, own["x"], runs, pool)
        if own.get("counts") is not None:
            own["counts"] = torch.full((runs,), _LOT, dtype=torch.int32, device=device)
        if "runs" in own:
            own["runs"] = runs
        made, right = (getattr(way, name)(*likes, *shape, **own) for way in (self._kernels, tensors))
        most = dict(PRECISIONS).get(torch.get_float32_matmul_precision(), PRECISIONS[-1][1])
        off = 0.0
        if name == "forward" and pool > 1:  # which of a pool's positions: those of which the number is the largest
            before = tensors.forward(likes[0], likes[1], likes[2], shape[0]._replace(pool=1))[0]
            best = picked(before, made[1], shape[0])
            made, right = (made[0], best.relu() if own.get("relu") else best), (right[0], right[0])
        for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (made, right)), strict=True):
            if (one is None) != (other is None) or (one is not None and one.shape != other.shape):
                off = float("inf")
            elif one is not None:
                apart = float((one.double() - other.double()).abs().max() / other.double().abs().max().clamp_min(1e-30))
                off = max(off, apart) if apart == apart else float("inf")
        if off > most:
            said = "%s of %s (%s) is off from tensor operations by %.1e on %s: these are used there, which is slower"
            precision = torch.get_float32_matmul_precision()
            logger("honestdp.kernels").warning(said, name, shape[0] if shape else "a layout", precision, off, device)
        return off <= most


def _like(name: str, at: int, value: Tensor, runs: int, pool: int) -> Tensor:
    """Made-up numbers of as many runs, of `_LOT` examples each, which lie in memory as `value` does."""
    sums = (name, at) in {("sum_rows", 0), ("sum_rows", 1), ("weighted_sum", 3)}
    parameters = (name, at) in {("forward", 1), ("forward", 2), ("back", 2)}
    size = (runs, _LOT, *value.shape[2:]) if sums else (runs if parameters else runs * _LOT, *value.shape[1:])
    if value.dtype == torch.uint8:
        made = torch.arange(torch.Size(size).numel(), device=value.device).mul(7).remainder(pool * pool).view(size)
    else:
        made = numbers(value.device, *size).roll(at)
    made = made.to(value.dtype)
    if value.dim() != 4 or min(value.stride()) < 1:
        return made.contiguous()
    return torch.empty_strided(size, value.stride(), dtype=value.dtype, device=value.device).copy_(made)
