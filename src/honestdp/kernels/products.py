"""A GPU kernel for the sum of a dense layer's gradients: products of float32 numbers, multiplied and added up in float64.

What an example gives is the outer product of the gradient that its output received and of what the layer read, so the sum over a
lot is one product of two matrices. It has to be made in float64 (honestdp.boundary.release), which a library does of matrices
that are float64 in memory: to convert them there costs as much as half of the product. Here tiles are read as they are, put to
zero where an example has no weight, whatever it holds, converted in registers and multiplied by tensor cores in float64. What
lies behind the last example with a weight, a fifth of a lot, is not multiplied.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TILES = (64, 64, 16, 4, 3)
"""Rows, columns and examples of a tile, warps, and stages of loads: three such programs fit a multiprocessor of an H200."""


@triton.jit(do_not_specialize=["lot", "run_apart"])
def _products(
    left, right, weights, total, lot, run_apart, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    DOWN: tl.constexpr = (ROWS + BLOCK_M - 1) // BLOCK_M
    ACROSS: tl.constexpr = (COLUMNS + BLOCK_N - 1) // BLOCK_N
    run = (tl.program_id(0) // (DOWN * ACROSS)).to(tl.int64)
    tile = tl.program_id(0) % (DOWN * ACROSS)
    # The tiles of the same columns one after the other: what one has read is in a cache for the next.
    row = (tile % DOWN) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = (tile // DOWN) * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = run * lot
    last = 0
    for first in range(0, lot, BLOCK):
        one = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + begin + one, mask=one < lot, other=0.0)
        last = tl.maximum(last, tl.max(tl.where(weight != 0, one + 1, 0), 0))
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float64)
    place = tl.arange(0, BLOCK_K)
    for first in range(0, last, BLOCK_K):
        known, at = place < last - first, begin + first
        counted = tl.load(weights + at + place, mask=known, other=0.0) != 0
        a_wanted = known[:, None] & (row < ROWS)[None, :]
        b_wanted = known[:, None] & (column < COLUMNS)[None, :]
        a = tl.load(left + at * ROWS + (place * ROWS)[:, None] + row[None, :], mask=a_wanted, other=0.0)
        b = tl.load(right + at * COLUMNS + (place * COLUMNS)[:, None] + column[None, :], mask=b_wanted, other=0.0)
        b = tl.where(counted[:, None], b, 0.0)
        acc = tl.dot(tl.trans(a).to(tl.float64), b.to(tl.float64), acc, out_dtype=tl.float64)
    # Of a multiple of two the compiler knows that numbers lie in pairs, which it reads and writes at once.
    spot = total + run * run_apart * PAIRS + (row * COLUMNS)[:, None] + column[None, :]
    inside = (row < ROWS)[:, None] & (column < COLUMNS)[None, :]
    tl.store(spot, tl.load(spot, mask=inside, other=0.0) + acc, mask=inside)


def add_products(
    total: Tensor, left: Tensor, right: Tensor, weights: Tensor, *, tiles: tuple[int, ...] | None = None
) -> None:
    """Add the sum over the lot of left right^T to `total` `[runs, rows, columns]` of float64, whose columns lie side by side.

    left `[runs, lot, rows]` and right `[runs, lot, columns]` of float32, contiguous. An example whose weight `[runs, lot]` is 0
    has zeros on the left, and on the right whatever it holds: it adds nothing.
    """
    (runs, lot, rows), columns = left.shape, right.shape[2]
    m, n, k, warps, stages = tiles or TILES
    apart, pairs = total.stride(0), 2 - total.stride(0) % 2
    _products[(runs * triton.cdiv(rows, m) * triton.cdiv(columns, n),)](
        left, right, weights, total, lot, apart // pairs, ROWS=rows, COLUMNS=columns,
        BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, BLOCK=1024, PAIRS=pairs, num_warps=warps, num_stages=stages,
    )  # fmt: skip
