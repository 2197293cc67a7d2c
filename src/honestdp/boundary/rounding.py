"""A sum and its noise, added with more digits than leave, and rounded to a public grid.

Floating-point noise betrays what it was added to (Mironov 2012): in float32 a sum plus a normal number takes values that
another sum plus a normal number cannot take, and one look at the last digits tells which of two sums it was, whatever
epsilon says. So noise is drawn and added in float64, and the result is rounded to a multiple of

    grid = 2^k,  2^-13 deviation < grid <= 2^-12 deviation,

of the noise's own deviation, a public number. A cell of the grid holds about 2^40 values of the noise near its centre, so every
multiple is reached from every sum, with the probability that the normal law gives it, very nearly (`noise`). Rounding after
the noise is post-processing: it costs no privacy, and adds less than a part in 10^8 to the variance. Where there is no noise
there is no grid.

What comes after, the conversion to the model's precision included, sees multiples of the grid only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from honestdp import kernels
from honestdp.boundary.noise import NoiseSource
from honestdp.boundary.ranks import ALONE, Ranks

FINENESS = 2.0**-13
_TO_WHOLE = 1.5 * 2.0**52
"""Added to a float64 and taken away again, this times a power of two rounds to multiples of that power."""
_PART = 1 << 15
"""How many numbers are made together on a CPU: what they take stays in the cache. The cut depends on the shape alone, never on
the number of cores, so that a seed gives the same noise on every machine of one kind."""


def grid(deviation: Tensor) -> Tensor:
    """The grid of noise of these deviations, float64; 0 where there is none."""
    mantissa, _ = torch.frexp(deviation.double())
    # A number divided by its own mantissa is a power of two, exactly.
    return torch.where(deviation > 0, deviation.double() / mantissa * FINENESS, 0)


@torch.no_grad()
def noisy(total: Tensor, deviation: Tensor, source: NoiseSource, *, dtype: torch.dtype, ranks: Ranks = ALONE) -> Tensor:
    """total + deviation N(0, I), rounded to the grid: `[runs, width]` of `dtype`.

    total: `[runs, width]`, float32 or float64, private. deviation: `[runs]`, public. ranks: whose totals are added up, each with
    its share of the noise in it, before the sum is rounded.
    """
    if ranks.size > 1:
        return _of_ranks(total, deviation, source, ranks).to(dtype)
    fused = kernels.on(total.device) if dtype == deviation.dtype == torch.float32 else None
    if fused is not None:
        drawn = source.normal(tuple(total.shape))
        return fused.noisy(drawn, total, deviation, shift=2 * FINENESS * _TO_WHOLE)
    shift = grid(deviation) * _TO_WHOLE
    if total.is_cuda:
        drawn = source.normal(tuple(total.shape))
        return drawn.mul_(deviation.double()[:, None]).add_(total).add_(shift[:, None]).sub_(shift[:, None]).to(dtype)
    out = torch.empty(total.shape, dtype=dtype)
    _on_cpu(total.numpy(), deviation.double()[:, None].numpy(), shift[:, None].numpy(), source, out.numpy())
    return out


def _of_ranks(total: Tensor, deviation: Tensor, source: NoiseSource, ranks: Ranks) -> Tensor:
    """The sum of all ranks' totals and of their shares of the noise, rounded: float64, the same on every rank."""
    own, shift = deviation.double()[:, None] * ranks.noise_share(), (grid(deviation) * _TO_WHOLE)[:, None]
    if total.is_cuda:
        drawn = source.normal(tuple(total.shape)).mul_(own).add_(total)
    else:
        drawn = torch.empty(total.shape, dtype=torch.float64)
        _on_cpu(total.numpy(), own.numpy(), torch.zeros_like(shift).numpy(), source, drawn.numpy())
    return ranks.sum_(drawn).add_(shift).sub_(shift)


Numbers = np.ndarray[Any, Any]


def _on_cpu(total: Numbers, deviation: Numbers, shift: Numbers, source: NoiseSource, out: Numbers) -> None:
    runs, width = total.shape
    rows = max(1, _PART // max(1, width))
    for top in range(0, runs, rows):
        some = slice(top, top + rows)
        for left in range(0, width, _PART):
            part = (some, slice(left, left + _PART))
            values = source.normal(out[part].shape).numpy()
            np.multiply(values, deviation[some], out=values)
            np.add(values, total[part], out=values)
            np.add(values, shift[some], out=values)
            np.subtract(values, shift[some], out=out[part], casting="same_kind")
