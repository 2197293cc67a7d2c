"""A GPU kernel for the norms of gradients that are sums over few positions: by Gram matrices in float64, made in registers.

honestdp.gradients.forms has the formula, and says why it has to be float64. With tensor operations both factors are converted in
memory first, which takes several times as long as to read them once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TOGETHER = 512
"""Products of two positions' numbers that one warp makes at a time."""


@triton.jit
def _gram(values, width, POSITIONS: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """`[PADDED, PADDED]`: the products of the positions' numbers with each other; of those that are none, zeros."""
    t = tl.arange(0, PADDED)
    one, other, places = t[:, None, None], t[None, :, None], tl.arange(0, BLOCK)[None, None, :]
    total = tl.zeros([PADDED, PADDED, BLOCK], tl.float64)
    for first in range(0, width, BLOCK):
        at = first + places
        left = tl.load(values + one * width + at, mask=(one < POSITIONS) & (at < width), other=0.0)
        right = tl.load(values + other * width + at, mask=(other < POSITIONS) & (at < width), other=0.0)
        total += left.to(tl.float64) * right.to(tl.float64)
    return tl.sum(total, 2)


@triton.jit
def _square_norms(
    left, right, out, rows, columns, slack, SHIFT: tl.constexpr, POSITIONS: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    one = _gram(left + example * (POSITIONS * rows), rows, POSITIONS, PADDED, BLOCK)
    other = _gram(right + example * (POSITIONS * columns), columns, POSITIONS, PADDED, BLOCK)
    if SHIFT:
        other += 1.0
    total = tl.sum(tl.sum(one * other, 1), 0)
    same = tl.arange(0, PADDED)[:, None] == tl.arange(0, PADDED)[None, :]
    terms = tl.sqrt(tl.where(same, one, 0.0)) * tl.sqrt(tl.where(same, other, 0.0))
    # What is no number stays so: it is not below 0.
    norm = tl.sqrt(tl.where(total < 0, 0.0, total)) + slack * tl.sum(tl.sum(terms, 1), 0)
    tl.store(out + example, (norm * norm).to(tl.float32))


def gram_square_norms(left: Tensor, right: Tensor, *, shift: bool, slack: float) -> Tensor:
    """`[runs, lot]`: (|sum_t left_t right_t^T| + slack sum_t |left_t| |right_t|)^2 of every example; shift: as if `right` had one
    more column, of ones.

    left `[runs, lot, positions, rows]`, right `[runs, lot, positions, columns]`, float32 and contiguous.
    """
    runs, lot, positions, rows = left.shape
    out = torch.empty(runs, lot, dtype=torch.float32, device=left.device)
    padded = triton.next_power_of_2(positions)
    _square_norms[(runs * lot,)](
        left, right, out, rows, right.shape[3], slack, SHIFT=shift, POSITIONS=positions, PADDED=padded,
        BLOCK=max(1, _TOGETHER // padded**2), num_warps=1,
    )  # fmt: skip
    return out
