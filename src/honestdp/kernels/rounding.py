"""Made-up numbers on which a kernel is compared with tensor operations, and how far off its rounding can then be at most.

Small whole numbers first: their products and the sums of these are whole numbers that TensorFloat-32 and float32 hold without
rounding, in whatever order they are added up. So a kernel gives them to the last bit, or it reads, multiplies or adds up
something else than it should: no tolerance hides a wrong number among thousands of right ones, and no rounding looks like a
fault, however much of a sum cancels. Then numbers with all digits, for what whole ones do not have: there the error of a sum of
products is at most a factor, by the digits of the precision, times the sum of their absolute values, which the same operation
gives of absolute values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from honestdp.kernels import Shape

_WHOLE = 3
"""Made-up whole numbers are at most so large: what is added up of them is far below 2^24, but for squares."""
_EXACT = float(1 << 24)
"""Whole numbers below it are float32 numbers."""
_SQUARES = 2.0**-18
"""Of a sum of squares, none of which cancel, the share that adding them up in float32 may change: some 64 roundings."""
_PRODUCTS = {"highest": 2.0**-18, "high": 2.0**-9 + 2.0**-20}
"""Of a product the share that its factors' digits may change it by. TensorFloat-32 drops all but 10 binary digits of each factor;
"highest" are three such products of parts, without that of the two remainders."""
_ADDED = 2.0**-22
"""The same of one addition to a sum of products in float32, which tensor cores round towards zero."""


def numbers(device: torch.device, size: tuple[int, ...], salt: int, *, whole: bool) -> Tensor:
    """The same ones each time, without a pattern: whole from -3 to 3, or between -1 and 1. salt: others for each."""
    place = torch.arange(torch.Size(size).numel(), dtype=torch.int64, device=device) + (salt << 26)
    mixed = place.add(1).mul(2654435761).bitwise_and(0xFFFFFFFF)
    mixed = mixed.bitwise_xor(mixed >> 15).mul(2246822519).bitwise_and(0xFFFFFFFF)
    mixed = mixed.bitwise_xor(mixed >> 13).view(size)
    return (mixed % (2 * _WHOLE + 1) - _WHOLE).double() if whole else mixed.double() / 2**31 - 1


def share(name: str, shape: Shape | None, precision: str, dtype: torch.dtype | None) -> float:
    """The most that numbers with all digits may be off, as a share of the sum of the products' absolute values.

    name: of the operation; precision: as torch names it; dtype: in which `sum_rows` adds up.
    """
    if shape is None or name == "unpool":  # nothing is multiplied
        return 0.0
    if name == "sum_rows":
        return 2.0**-45 if dtype == torch.float64 else 2.0**-20
    holes = shape.kernel[0] * shape.kernel[1]
    terms = {"forward": holes * shape.channels + 1, "back": holes * shape.rows + 1}
    added = terms.get(name, shape.out_height * shape.out_width) * _ADDED
    return _PRODUCTS.get(precision, _PRODUCTS["high"]) + added


def beyond(made: Tensor, right: Tensor, most: Tensor | float) -> float:
    """How far a number that is off by more than `most`, or is none, is off at the furthest: a share of the largest; else 0."""
    apart = (made.double() - right.double()).abs()
    wrong = ~(apart <= most)
    if not bool(wrong.any()):
        return 0.0
    furthest = float(torch.where(wrong, apart, 0).max() / right.double().abs().max().clamp_min(1e-30))
    return furthest if furthest > 0 else float("inf")


def of_squares(right: Tensor, absolute: Tensor | None, by: float) -> Tensor:
    """How far the squared norms `right` may be off, by Cauchy and Schwarz.

    absolute: the same of absolute values; None where every number is a whole one. by: how far off the numbers may be of which
    these are norms, as a share of those of absolute values.
    """
    right = right.double()
    if absolute is None:
        return torch.where(right < _EXACT, 0, _SQUARES * right)
    spread = absolute.double()
    return 2 * by * (right * spread).sqrt() + by * by * spread + _SQUARES * right
