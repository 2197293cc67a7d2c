"""Several passes over a lot in one kernel each, written for Triton.

`gather` fetches records and labels, scales the records and takes their norms while they are in registers.
`outer_square_norms` takes the norms of the two factors of a gradient and multiplies them. `weigh` multiplies rows by their
weights, where a weight of 0 makes zeros of anything. Sums are float32, as those of the operations they stand for.
What is not a number stays so in a norm: comparisons are written such that it never passes for a small one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_MOST = 2048  # numbers that one program holds at a time


@triton.jit
def _gather(rows, labels, index, out, chosen, norms, width, scale, BLOCK: tl.constexpr):
    example = tl.program_id(0).to(tl.int64)
    row = tl.load(index + example)
    tl.store(chosen + example, tl.load(labels + row))
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < width
        values = tl.load(rows + row * width + column, mask=inside, other=0).to(tl.float32) * scale
        tl.store(out + example * width + column, values, mask=inside)
        squares += values * values
    tl.store(norms + example, tl.sqrt(tl.sum(squares, 0)))


@triton.jit
def _norm(rows, example, width, BLOCK: tl.constexpr):
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(rows + example * width + column, mask=column < width, other=0)
        squares += values * values
    return tl.sqrt(tl.sum(squares, 0))


@triton.jit
def _outer(
    left, right, out, left_width, right_width, tiny,
    SHIFT: tl.constexpr, KNOWN: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    one = _norm(left, example, left_width, LEFT)
    one = tl.where(one < tiny, tiny, one)
    if KNOWN:  # noqa: SIM108 (each branch is compiled by itself)
        other = tl.load(right + example)
    else:
        other = _norm(right, example, right_width, RIGHT)
    if SHIFT:
        both = one * other
        tl.store(out + example, one * one + both * both)
    else:
        both = one * tl.where(other < tiny, tiny, other)
        tl.store(out + example, both * both)


@triton.jit
def _weigh(rows, weights, out, width, BLOCK: tl.constexpr):
    example = tl.program_id(0).to(tl.int64)
    weight = tl.load(weights + example)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < width
        values = tl.load(rows + example * width + column, mask=inside, other=0)
        tl.store(out + example * width + column, tl.where(weight == 0, 0.0, values * weight), mask=inside)


def _block(width: int) -> int:
    return min(_MOST, triton.next_power_of_2(width))


def _warps(width: int) -> int:
    """Threads are to have several numbers each: a program of few numbers is best run by one warp."""
    return 1 if width <= 128 else 2 if width <= 512 else 4


def gather(rows: Tensor, labels: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The rows and labels of the numbers `index` `[examples]`.

    rows `[N, width]` of any real dtype; labels `[N]` -> the rows times `scale` `[examples, width]` in float32, their labels
    `[examples]` and their norms `[examples]`.
    """
    examples, width = len(index), rows.shape[1]
    out = torch.empty(examples, width, dtype=torch.float32, device=rows.device)
    chosen = torch.empty(examples, dtype=labels.dtype, device=rows.device)
    norms = torch.empty(examples, dtype=torch.float32, device=rows.device)
    block = _block(width)
    _gather[(examples,)](
        rows, labels, index, out, chosen, norms, width, scale, BLOCK=block, num_warps=_warps(width)
    )  # fmt: skip
    return out, chosen, norms


def weigh(rows: Tensor, weights: Tensor) -> Tensor:
    """rows `[runs, lot, width]` times weights `[runs, lot]`; zeros where the weight is 0, whatever the row holds. float32."""
    out = torch.empty_like(rows)
    width = rows.shape[2]
    _weigh[(weights.numel(),)](rows, weights, out, width, BLOCK=_block(width), num_warps=_warps(width))
    return out


def outer_square_norms(left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor:
    """The squared norms of left right^T, and with `shift` of (left right^T, left), for every example, `[runs, lot]`.

    left `[runs, lot, rows]`; right `[runs, lot, columns]`, or its norms `[runs, lot]`. All float32 and contiguous.
    """
    runs, lot, rows = left.shape
    columns = 1 if right_is_norms else right.shape[2]
    out = torch.empty(runs, lot, dtype=torch.float32, device=left.device)
    tiny = torch.finfo(torch.float32).tiny ** 0.5
    _outer[(runs * lot,)](
        left, right, out, rows, columns, tiny,
        SHIFT=shift, KNOWN=right_is_norms, LEFT=_block(rows), RIGHT=_block(columns),
        num_warps=_warps(max(rows, columns)),
    )  # fmt: skip
    return out
