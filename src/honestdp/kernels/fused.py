"""Our own GPU kernels, written for Triton: several passes over a lot in one.

`gather` fetches records and labels, scales the records and takes their norms while they are in registers.
`outer_square_norms` takes the norms of the two factors of a gradient and multiplies them. `weigh` multiplies rows by their
weights, where a weight of 0 makes zeros of anything; `widened` makes float64 of rows, and the same zeros. `noisy` adds noise to
a sum and rounds it (honestdp.boundary.rounding). `differs` looks for a bit that changed. Sums are float32, as those of the
operations they stand for. NaN stays NaN in a norm: comparisons are written such that it never passes for a small one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_MOST = 2048  # numbers that one program holds at a time
_TOGETHER = 16  # short examples that one program measures: a program for each would take longer to start than to run
_FLAT = 1024  # numbers that one program weighs


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
def _norms(rows, example, inside, width, EXAMPLES: tl.constexpr, BLOCK: tl.constexpr):
    squares = tl.zeros([EXAMPLES, BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        mask = inside[:, None] & (column < width)[None, :]
        values = tl.load(rows + example[:, None] * width + column[None, :], mask=mask, other=0)
        squares += values * values
    return tl.sqrt(tl.sum(squares, 1))


@triton.jit
def _outer(
    left, right, out, examples, left_width, right_width, tiny,
    SHIFT: tl.constexpr, KNOWN: tl.constexpr, EXAMPLES: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64) * EXAMPLES + tl.arange(0, EXAMPLES)
    inside = example < examples
    one = _norms(left, example, inside, left_width, EXAMPLES, LEFT)
    one = tl.where(one < tiny, tiny, one)
    if KNOWN:  # each branch is compiled by itself
        other = tl.load(right + example, mask=inside, other=0)
    else:
        other = _norms(right, example, inside, right_width, EXAMPLES, RIGHT)
    if SHIFT:
        both = one * other
        tl.store(out + example, one * one + both * both, mask=inside)
    else:
        both = one * tl.where(other < tiny, tiny, other)
        tl.store(out + example, both * both, mask=inside)


@triton.jit
def _weigh(rows, weights, out, numbers, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < numbers
    weight = tl.load(weights + place // WIDTH, mask=inside, other=0)
    values = tl.load(rows + place, mask=inside, other=0)
    tl.store(out + place, tl.where(weight == 0, 0.0, values * weight), mask=inside)


@triton.jit
def _widened(rows, weights, out, width, BLOCK: tl.constexpr):
    example = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    known = tl.where(tl.load(weights + example) != 0, width, 0)  # of what has no weight nothing is read
    values = tl.load(rows + example * width + column, mask=column < known, other=0.0)
    tl.store(out + example * width + column, values.to(tl.float64), mask=column < width)


@triton.jit
def _differs(one, other, flag, numbers, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < numbers
    apart = tl.load(one + place, mask=inside, other=0) != tl.load(other + place, mask=inside, other=0)
    if tl.max(apart.to(tl.int32), 0) > 0:
        tl.store(flag, 1)


@triton.jit
def _noisy(drawn, total, deviation, out, width, shift, BLOCK: tl.constexpr):
    run = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    place = run * width + column
    scale = tl.load(deviation + run).to(tl.float64)
    # The power of two at or below the deviation: its exponent bits alone, and 0 for 0.
    power = (scale.to(tl.int64, bitcast=True) & 0x7FF0000000000000).to(tl.float64, bitcast=True)
    whole = power * shift
    values = tl.load(drawn + place, mask=inside, other=0) * scale
    values += tl.load(total + place, mask=inside, other=0).to(tl.float64)
    rounded = (values + whole) - whole
    tl.store(out + place, rounded.to(tl.float32), mask=inside)


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
    _weigh[(triton.cdiv(rows.numel(), _FLAT),)](rows, weights, out, rows.numel(), WIDTH=rows.shape[2], BLOCK=_FLAT)
    return out


def widened(rows: Tensor, weights: Tensor) -> Tensor:
    """rows `[runs, lot, width]` of float32 as float64; zeros where the weight `[runs, lot]` is 0, whatever the row holds."""
    out, (runs, lot, width) = torch.empty_like(rows, dtype=torch.float64), rows.shape
    block = min(_FLAT, triton.next_power_of_2(width))
    _widened[(runs * lot, triton.cdiv(width, block))](rows, weights, out, width, BLOCK=block, num_warps=_warps(block))
    return out


def differs(one: Tensor, other: Tensor, flag: Tensor) -> None:
    """Set the bool `flag` `[]` where two arrays of whole numbers differ anywhere; else leave it as it is."""
    numbers = one.numel()
    _differs[(triton.cdiv(numbers, _FLAT),)](one, other, flag.view(torch.uint8), numbers, BLOCK=_FLAT)


def noisy(drawn: Tensor, total: Tensor, deviation: Tensor, *, shift: float) -> Tensor:
    """total + drawn * deviation, rounded by adding and taking away `shift` times the power of two at or below the deviation.

    drawn `[runs, width]` float64; total `[runs, width]` of either precision; deviation `[runs]` float32 -> `[runs, width]`
    float32.
    """
    out = torch.empty(total.shape, dtype=torch.float32, device=total.device)
    runs, width = total.shape
    _noisy[(runs, triton.cdiv(width, _FLAT))](drawn, total, deviation, out, width, shift, BLOCK=_FLAT)
    return out


def outer_square_norms(left: Tensor, right: Tensor, *, right_is_norms: bool, shift: bool) -> Tensor:
    """The squared norms of left right^T, and with `shift` of (left right^T, left), for every example, `[runs, lot]`.

    left `[runs, lot, rows]`; right `[runs, lot, columns]`, or its norms `[runs, lot]`. All float32 and contiguous.
    """
    runs, lot, rows = left.shape
    columns = 1 if right_is_norms else right.shape[2]
    out = torch.empty(runs, lot, dtype=torch.float32, device=left.device)
    widest = max(rows, columns)
    tiny = (widest * torch.finfo(torch.float32).tiny) ** 0.5  # what numbers too small to square may amount to
    together = min(_TOGETHER, _MOST // _block(widest))
    _outer[(triton.cdiv(runs * lot, together),)](
        left, right, out, runs * lot, rows, columns, tiny,
        SHIFT=shift, KNOWN=right_is_norms, EXAMPLES=together, LEFT=_block(rows), RIGHT=_block(columns),
        num_warps=_warps(widest),
    )  # fmt: skip
    return out
