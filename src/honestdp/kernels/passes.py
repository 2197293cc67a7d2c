"""The small kernels, each compared with the tensor operations it stands for before it is used, as honestdp.kernels.tried does it
for convolutions.

The noise of every release goes through one of them, and norms that records are clipped by through another. A compiler makes a
kernel of its own for every width, dtype and alignment, and a fault of its may be in one of them alone. So what is asked for the
first time is first made of a few made-up numbers in both ways. Where the two differ by more than rounding, or a kernel does not
run, tensor operations do it, which is slower and is said loudly. No record is looked at for it, and nothing is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from honestdp.kernels import Kernels
from honestdp.kernels.rounding import beyond, numbers
from honestdp.kernels.trials import Trials, beside, compiled

_ROUNDED = 2.0**-21
"""The share of a number that a rounding or two in float32 may change."""
_ADDED = 2.0**-14
"""The share of a sum of squares that adding it up in float32, in another order, may change: of millions of numbers too."""
_BLOCKS = 4096
"""More numbers than a program holds at a time."""
_DEVIATIONS = (0.3, 1e-3)
_WHOLE = 1.5 * 2.0**52
"""A float64 of this size times a power of two has that power for its last digit: a cell of the grid of noise."""


class Plain:
    """What the kernels of honestdp.kernels.fused do, in tensor operations."""

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
        whole = _powers(deviation) * shift
        return (drawn * deviation.double()[:, None] + total + whole).sub_(whole).float()

    def outer_square_norms(self, left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor:
        widest = max(left.shape[2], 1 if right_is_norms else right.shape[2])
        least = (widest * torch.finfo(torch.float32).tiny) ** 0.5
        one = torch.linalg.vector_norm(left, dim=2).clamp_(min=least)
        other = right if right_is_norms else torch.linalg.vector_norm(right, dim=2)
        both = one * (other if shift else other.clamp(min=least))
        return torch.addcmul(one.square(), both, both) if shift else both.square()


PLAIN = Plain()


class TriedPasses:
    """These kernels, wherever they give what tensor operations give."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._trials = Trials()

    def gather(self, rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        asked = (_wide(rows.shape[1]), scale, *map(_kind, (rows, labels, index)))
        way = self._way("gather", asked, rows.device, lambda way: _gathered(way, rows, labels, index, scale))
        return way.gather(rows, labels, index, scale)

    def weigh(self, rows: Tensor, weights: Tensor) -> Tensor:
        rows, weights = rows.contiguous(), weights.contiguous()  # kernels go by addresses, here and in the others
        way = self._way("weigh", _of_rows(rows, weights), rows.device, lambda way: _weighed(way.weigh, rows, weights))
        return way.weigh(rows, weights)

    def widened(self, rows: Tensor, weights: Tensor) -> Tensor:
        rows, weights = rows.contiguous(), weights.contiguous()
        asked = _of_rows(rows, weights)
        way = self._way("widened", asked, rows.device, lambda way: _weighed(way.widened, rows, weights))
        return way.widened(rows, weights)

    def differs(self, one: Tensor, other: Tensor, flag: Tensor) -> None:
        asked = (_few(one.numel()), *map(_kind, (one, other, flag)))
        self._way("differs", asked, one.device, lambda way: _compared(way, one, other)).differs(one, other, flag)

    def noisy(self, drawn: Tensor, total: Tensor, deviation: Tensor, *, shift: float) -> Tensor:
        asked = (_wide(total.shape[1]), shift, *map(_kind, (drawn, total, deviation)))
        way = self._way("noisy", asked, total.device, lambda way: _noised(way, drawn, total, deviation, shift))
        return way.noisy(drawn, total, deviation, shift=shift)

    def outer_square_norms(self, left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor:
        left, right = left.contiguous(), right.contiguous()
        how = {"right_is_norms": right_is_norms, "shift": shift}
        asked = (*_of_rows(left, right), right.shape[2:], right_is_norms, shift)
        way = self._way("outer_square_norms", asked, left.device, lambda way: _multiplied(way, left, right, how))
        return way.outer_square_norms(left, right, **how)

    def _way(self, name: str, asked: object, device: torch.device, made: Callable[[Any], list[Part]]) -> Kernels:
        """The kernels where this one has given what is right, else tensor operations."""

        def off() -> float:
            with compiled():
                own = made(self._kernels)
            return max(beyond(one, other, most) for (one, _), (other, most) in zip(own, made(PLAIN), strict=True))

        agreed = self._trials.agreed((name, asked), device, off, "the kernel", name)
        return self._kernels if agreed else PLAIN


Part = tuple[Tensor, Any]
"""What was made, and by how much it may be off."""


def _kind(value: Tensor) -> object:
    return value.dtype, beside(value)


def _few(count: int) -> int:
    """Few, of which a compiler makes the same kernel as of so many: one alone and multiples of 16 have kernels of their own."""
    return count if count <= 32 else 16 + count % 16


def _wide(width: int) -> int:
    """The same of a width that is gone through block by block: a model may have more weights than there is room to try with."""
    return width if width <= _BLOCKS else _BLOCKS + width % 16


def _of_rows(rows: Tensor, other: Tensor) -> tuple[object, ...]:
    return _few(rows.shape[0] * rows.shape[1]), rows.shape[2], _kind(rows), _kind(other)


def _like(value: Tensor, size: tuple[int, ...], salt: int, *, whole: bool = False) -> Tensor:
    """Made-up numbers of this dtype that begin as `value` does."""
    made = numbers(value.device, size, salt, whole=whole)
    made = (made if value.is_floating_point() else made * 120 + 120).to(value.dtype)
    room = made.new_empty(made.numel() + beside(value))
    return room[beside(value) :].view(size).copy_(made)


def _gathered(way: Kernels, rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> list[Part]:
    own = _like(rows, (5, _wide(rows.shape[1])), 0), _like(labels, (5,), 1), _like(index, (4,), 2)
    own[2].copy_(torch.tensor([4, 0, 3, 3]))
    x, chosen, norms = way.gather(*own, scale)
    return [(x, _ROUNDED * x.abs()), (chosen, 0.0), (norms, _ADDED * norms)]


def _weighed(made: Callable[[Tensor, Tensor], Tensor], rows: Tensor, weights: Tensor) -> list[Part]:
    count = _few(rows.shape[0] * rows.shape[1])
    own, shares = _like(rows, (1, count, rows.shape[2]), 0), _like(weights, (1, count), 1)
    found = made(own, shares)
    shares[0, -1], own[0, -1] = 0, math.nan  # of weight 0 nothing is left, whatever it is
    return [(each, _ROUNDED * each.abs()) for each in (found, made(own, shares))]


def _compared(way: Kernels, one: Tensor, other: Tensor) -> list[Part]:
    count = _few(one.numel())
    first, second = _like(one, (count,), 0), _like(other, (count,), 0)
    parts: list[Part] = []
    for change, at in ((0, 0), (1, 0), (1, count - 1)):
        second[at] += change
        flag = torch.zeros((), dtype=torch.bool, device=one.device)
        way.differs(first, second, flag)
        second[at] -= change
        parts.append((flag, 0.0))
    return parts


def _powers(deviation: Tensor) -> Tensor:
    """`[runs, 1]`: the power of two at or below each deviation, 0 for 0."""
    wide = deviation.double()[:, None]
    mantissa, _ = torch.frexp(wide)
    return torch.where(wide > 0, wide / mantissa / 2, 0)


def _noised(way: Kernels, drawn: Tensor, total: Tensor, deviation: Tensor, shift: float) -> list[Part]:
    size = (len(_DEVIATIONS), _wide(total.shape[1]))
    own, sums, scales = _like(drawn, size, 0), _like(total, size, 1), _like(deviation, size[:1], 2)
    scales.copy_(torch.tensor(_DEVIATIONS))
    found = way.noisy(own, sums, scales, shift=shift)
    cells = _powers(scales) * shift / _WHOLE
    # The product and the sum may be rounded once and not twice: one cell of the grid apart, but on the grid.
    return [(found, cells + _ROUNDED * found.abs()), ((found.double() / cells).frac(), 0.0)]


def _multiplied(way: Kernels, left: Tensor, right: Tensor, how: dict[str, bool]) -> list[Part]:
    count = _few(left.shape[0] * left.shape[1])
    own, other = _like(left, (1, count, left.shape[2]), 0), _like(right, (1, count, *right.shape[2:]), 1)
    found = way.outer_square_norms(own, other.abs_() if how["right_is_norms"] else other, **how)
    return [(found, _ADDED * found)]
