"""A GPU kernel for norms of 3x3 convolutions: all nine parts of a gradient from one look at what its rows received.

A gradient of honestdp.kernels.gradients is divided up by its columns, and every tile of them reads anew what its rows received.
Here that is read once for a block of positions; what the columns saw through each of the nine holes is nearly the same numbers,
which the first cache holds. The gradients are always kept: the sum is made of the numbers that were squared here.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from honestdp.kernels import Shape
from honestdp.kernels.hidden import nought
from honestdp.kernels.tiles import precision, settings


@triton.jit
def _part(
    acc, slopes, x, row, column, inside, c, x_c, x_h, x_w, TAP: tl.constexpr, S: tl.constexpr, PRECISION: tl.constexpr
):
    """`acc` and the product of what the rows received with what they saw through one hole."""
    y, z = row * S.SH + (TAP // 3) * S.DH - S.PH, column * S.SW + (TAP % 3) * S.DW - S.PW
    seen = inside
    if S.PH + S.PW > 0:
        seen = seen & (y >= 0) & (y < S.H) & (z >= 0) & (z < S.W)
    values = tl.load(
        x + (y * x_h + z * x_w)[:, None] + (c * x_c)[None, :], mask=seen[:, None] & (c < S.C)[None, :], other=0.0
    )
    return tl.dot(slopes, values, acc, input_precision=PRECISION)


@triton.jit
def _keep(kept, acc, o, c, TAP: tl.constexpr, S: tl.constexpr):
    """The sum of the squares of a part, which is written to its place in the gradient."""
    at = kept + o[:, None] * (9 * S.C) + (TAP * S.C + c)[None, :]
    tl.store(at, acc, mask=(o < S.R)[:, None] & (c < S.C)[None, :])
    return tl.sum(tl.sum(acc * acc, 1), 0)


@triton.jit(do_not_specialize=["lot"])
def _nine(
    x, grad, out, kept, counts, lot, x_n, x_c, x_h, x_w, g_n, g_c, g_h, g_w, S: tl.constexpr, BIAS: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    DOWN: tl.constexpr = (S.C + BLOCK_C - 1) // BLOCK_C
    EACH: tl.constexpr = ((S.R + BLOCK_O - 1) // BLOCK_O) * DOWN
    example = (tl.program_id(0) // EACH).to(tl.int64)
    tile = tl.program_id(0) % EACH
    o = (tile // DOWN) * BLOCK_O + tl.arange(0, BLOCK_O)
    c = (tile % DOWN) * BLOCK_C + tl.arange(0, BLOCK_C)
    square, hidden = 0.0, nought(lot)
    if example % lot < (tl.load(counts + example // lot) if COUNTED else lot):
        mine, received = x + example * x_n, grad + example * g_n
        a0 = tl.zeros([BLOCK_O, BLOCK_C], tl.float32)
        a1, a2, a3, a4, a5, a6, a7, a8 = a0, a0, a0, a0, a0, a0, a0, a0
        summed = tl.zeros([BLOCK_O], tl.float32)
        for first in range(0, S.OH * S.OW, BLOCK_P):
            place = first + tl.arange(0, BLOCK_P)
            row, column, inside = place // S.OW + hidden, place % S.OW + hidden, place < S.OH * S.OW
            wanted = inside[:, None] & (o < S.R)[None, :]
            slopes = tl.load(
                received + (row * g_h + column * g_w)[:, None] + (o * g_c)[None, :], mask=wanted, other=0.0
            )
            left = tl.trans(slopes)
            a0 = _part(a0, left, mine, row, column, inside, c, x_c, x_h, x_w, 0, S, PRECISION)
            a1 = _part(a1, left, mine, row, column, inside, c, x_c, x_h, x_w, 1, S, PRECISION)
            a2 = _part(a2, left, mine, row, column, inside, c, x_c, x_h, x_w, 2, S, PRECISION)
            a3 = _part(a3, left, mine, row, column, inside, c, x_c, x_h, x_w, 3, S, PRECISION)
            a4 = _part(a4, left, mine, row, column, inside, c, x_c, x_h, x_w, 4, S, PRECISION)
            a5 = _part(a5, left, mine, row, column, inside, c, x_c, x_h, x_w, 5, S, PRECISION)
            a6 = _part(a6, left, mine, row, column, inside, c, x_c, x_h, x_w, 6, S, PRECISION)
            a7 = _part(a7, left, mine, row, column, inside, c, x_c, x_h, x_w, 7, S, PRECISION)
            a8 = _part(a8, left, mine, row, column, inside, c, x_c, x_h, x_w, 8, S, PRECISION)
            summed += tl.sum(slopes, 0)
        own = kept + example * (S.R * S.C * 9 + (S.R if BIAS else 0))
        square += _keep(own, a0, o, c, 0, S) + _keep(own, a1, o, c, 1, S) + _keep(own, a2, o, c, 2, S)
        square += _keep(own, a3, o, c, 3, S) + _keep(own, a4, o, c, 4, S) + _keep(own, a5, o, c, 5, S)
        square += _keep(own, a6, o, c, 6, S) + _keep(own, a7, o, c, 7, S) + _keep(own, a8, o, c, 8, S)
        if BIAS:  # noqa: SIM102
            if tile % DOWN == 0:
                square += tl.sum(summed * summed, 0)
                tl.store(own + S.R * S.C * 9 + o, summed, mask=o < S.R)
    tl.store(out + tl.program_id(0), square)


def programs(shape: Shape, o: int, c: int) -> int:
    """Of one example."""
    return triton.cdiv(shape.rows, o) * triton.cdiv(shape.channels, c)


def square_norms_by_taps(
    x: Tensor,
    grad: Tensor,
    shape: Shape,
    out: Tensor,
    kept: Tensor,
    *,
    runs: int,
    bias: bool,
    counts: Tensor | None,
    tiles: tuple[int, ...],
) -> None:
    """Fill `out` `[examples, programs]` with squared norms, whose sum is an example's, and `kept` with the gradients.

    tiles: rows, channels, positions, warps, and stages of loads.
    """
    o, c, p, warps, stages = tiles
    _nine[(len(x) * programs(shape, o, c),)](
        x, grad, out, kept, out.view(torch.int32) if counts is None else counts, len(x) // runs, *x.stride(), *grad.stride(),
        settings(shape), BIAS=bias, PRECISION=precision(), BLOCK_O=o, BLOCK_C=c, BLOCK_P=p, COUNTED=counts is not None,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
