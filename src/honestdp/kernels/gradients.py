"""GPU kernels for the gradients of a convolution's examples: their norms, and their weighted sum.

A gradient is made tile by tile in registers, a product over the positions of what its row received and what its column saw there.
For the norm the squares of a tile are summed; the tile may be kept for the sum. Where it is not, the sum makes it again, from the
same numbers with the same operations in the same order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from honestdp.kernels import Shape
from honestdp.kernels.hidden import nought
from honestdp.kernels.taps import programs, square_norms_by_taps
from honestdp.kernels.tiles import BY_TAPS, Tile, gradient_tiles, kept_tiles, nine_parts, precision, settings

_SHARE = 32
"""Examples of a run that one program makes and adds up."""
SUMMED = (8, 128, 256, 4, 3)
"""Gradients of a run that one program reads at a time, and that it adds up in all; numbers of each, warps, stages of loads."""


@triton.jit
def _gradient(x, grad, picks, hidden, o, k, x_c, x_h, x_w, g_c, g_h, g_w, S: tl.constexpr, T: tl.constexpr):
    """A tile of one example's gradient, [T.O, T.K] (with T.FLIP its transpose), and what its bias receives, [T.O].

    x, grad, picks: of that example. hidden: `nought`.
    """
    K: tl.constexpr = S.C * S.KH * S.KW
    POSITIONS: tl.constexpr = S.OH * S.POOL * S.OW * S.POOL
    tap, c = (k + hidden) // S.C, (k + hidden) % S.C
    down, right = (tap // S.KW) * S.DH - S.PH, (tap % S.KW) * S.DW - S.PW
    beside = down * x_h + right * x_w + c * x_c
    acc = tl.zeros([T.K, T.O] if T.FLIP else [T.O, T.K], tl.float32)
    summed = tl.zeros([T.O], tl.float32)
    for first in range(0, POSITIONS, T.P):
        place = first + tl.arange(0, T.P)
        row, column = (place + hidden) // (S.OW * S.POOL), (place + hidden) % (S.OW * S.POOL) + hidden
        inside = place < POSITIONS
        wanted = inside[:, None] & (o < S.R)[None, :]
        places = (row // S.POOL) * g_h + (column // S.POOL) * g_w
        slopes = tl.load(grad + places[:, None] + (o * g_c)[None, :], mask=wanted, other=0.0)
        if S.POOL > 1:
            at = ((row // S.POOL) * S.OW + column // S.POOL) * S.R
            picked = tl.load(picks + at[:, None] + o[None, :], mask=wanted, other=255)
            part = (row % S.POOL) * S.POOL + column % S.POOL
            slopes = tl.where(picked.to(tl.int32) == part[:, None], slopes, 0.0)
        seen = inside[:, None] & (k < K)[None, :]
        if S.PH + S.PW > 0:
            y, z = (row * S.SH)[:, None] + down[None, :], (column * S.SW)[:, None] + right[None, :]
            seen = seen & (y >= 0) & (y < S.H) & (z >= 0) & (z < S.W)
        values = tl.load(x + (row * S.SH * x_h + column * S.SW * x_w)[:, None] + beside[None, :], mask=seen, other=0.0)
        if T.FLIP:
            acc = tl.dot(tl.trans(values), slopes, acc, input_precision=T.PRECISION)
        else:
            acc = tl.dot(tl.trans(slopes), values, acc, input_precision=T.PRECISION)
        summed += tl.sum(slopes, 0)
    return acc, summed


@triton.jit(do_not_specialize=["lot"])
def _square_norms(
    x, grad, chosen, out, kept, counts, lot, x_n, x_c, x_h, x_w, g_n, g_c, g_h, g_w, S: tl.constexpr,
    T: tl.constexpr, BIAS: tl.constexpr, TURNS: tl.constexpr, KEEP: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = S.C * S.KH * S.KW
    ACROSS: tl.constexpr = (S.R + T.O - 1) // T.O
    DOWN: tl.constexpr = (K + T.K * TURNS - 1) // (T.K * TURNS)
    # The tiles of an example one after the other: what one has read is in a cache for the next.
    example = (tl.program_id(0) // (ACROSS * DOWN)).to(tl.int64)
    tile = tl.program_id(0) % (ACROSS * DOWN)
    o = (tile // DOWN) * T.O + tl.arange(0, T.O)
    row = kept + example * (S.R * K + (S.R if BIAS else 0))
    square = 0.0
    if example % lot < (tl.load(counts + example // lot) if COUNTED else lot):
        for turn in range(TURNS):
            first = (tile % DOWN) * TURNS + turn
            k = first * T.K + tl.arange(0, T.K)
            mine, received = x + example * x_n, grad + example * g_n
            picks = chosen + example * (S.OH * S.OW * S.R)
            acc, summed = _gradient(mine, received, picks, nought(lot), o, k, x_c, x_h, x_w, g_c, g_h, g_w, S, T)
            if KEEP:
                if T.FLIP:
                    tl.store(row + o[None, :] * K + k[:, None], acc, mask=(o < S.R)[None, :] & (k < K)[:, None])
                else:
                    tl.store(row + o[:, None] * K + k[None, :], acc, mask=(o < S.R)[:, None] & (k < K)[None, :])
            square += tl.sum(tl.sum(acc * acc, 1), 0)
            if BIAS:  # noqa: SIM102
                if first == 0:
                    square += tl.sum(summed * summed, 0)
                    if KEEP:
                        tl.store(row + S.R * K + o, summed, mask=o < S.R)
    tl.store(out + tl.program_id(0), square)


@triton.jit(do_not_specialize=["lot", "splits"])
def _weighted_sum(
    x, grad, chosen, weights, out, shift, lot, splits, x_n, x_c, x_h, x_w, g_n, g_c, g_h, g_w, S: tl.constexpr,
    T: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    K: tl.constexpr = S.C * S.KH * S.KW
    ACROSS: tl.constexpr = (S.R + T.O - 1) // T.O
    DOWN: tl.constexpr = (K + T.K - 1) // T.K
    share, tile = tl.program_id(0) // (ACROSS * DOWN), tl.program_id(0) % (ACROSS * DOWN)
    run, split = share // splits, share % splits
    o = (tile // DOWN) * T.O + tl.arange(0, T.O)
    k = (tile % DOWN) * T.K + tl.arange(0, T.K)
    total = tl.zeros([T.K, T.O] if T.FLIP else [T.O, T.K], WIDE)
    shifts = tl.zeros([T.O], WIDE)
    for turn in range(SHARE):
        one = split * SHARE + turn
        example = run.to(tl.int64) * lot + one
        weight = tl.load(weights + example, mask=one < lot, other=0.0)
        if weight != 0:  # what has no weight is not looked at, whatever it holds
            mine, received = x + example * x_n, grad + example * g_n
            picks = chosen + example * (S.OH * S.OW * S.R)
            acc, summed = _gradient(mine, received, picks, nought(lot), o, k, x_c, x_h, x_w, g_c, g_h, g_w, S, T)
            total += acc.to(WIDE) * weight.to(WIDE)
            shifts += summed.to(WIDE) * weight.to(WIDE)
    at = share.to(tl.int64) * S.R + o
    if T.FLIP:
        tl.store(out + at[None, :] * K + k[:, None], total, mask=(o < S.R)[None, :] & (k < K)[:, None])
    else:
        tl.store(out + at[:, None] * K + k[None, :], total, mask=(o < S.R)[:, None] & (k < K)[None, :])
    if BIAS:  # noqa: SIM102
        if tile % DOWN == 0:
            tl.store(shift + at, shifts, mask=o < S.R)


@triton.jit(do_not_specialize=["lot", "splits"])
def _sum_rows(
    rows, weights, out, lot, splits, width, WIDE: tl.constexpr, TOGETHER: tl.constexpr, SHARE: tl.constexpr,
    BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    # The columns of the same rows one after the other: programs that run at once read memory that lies together.
    across = (width + BLOCK - 1) // BLOCK
    share = tl.program_id(0) // across
    run, split = (share // splits).to(tl.int64), share % splits
    column = (tl.program_id(0) % across) * BLOCK + tl.arange(0, BLOCK)
    known = column < width
    begin, most = run * lot + split * SHARE, lot - split * SHARE
    place = tl.arange(0, SHARE)
    counted = tl.load(weights + begin + place, mask=place < most, other=0.0) != 0
    last = tl.max(tl.where(counted, place + 1, 0), 0)  # what is behind it is not read
    total = tl.zeros([TOGETHER, BLOCK], WIDE)
    for first in tl.range(0, last, TOGETHER, num_stages=STAGES):
        one = first + tl.arange(0, TOGETHER)
        inside = one < last
        # No load waits for another: what has no weight is read, and is not looked at, whatever it holds.
        weight = tl.load(weights + begin + one, mask=inside, other=0.0)
        at = rows + (begin + one)[:, None] * width + column[None, :]
        values = tl.load(at, mask=inside[:, None] & known[None, :], other=0.0)
        values = tl.where((weight != 0)[:, None], values, 0.0)
        total += values.to(WIDE) * weight.to(WIDE)[:, None]
    tl.store(out + share.to(tl.int64) * width + column, tl.sum(total, 0), mask=known)


def _width(shape: Shape, bias: bool) -> int:
    return shape.rows * (shape.columns + int(bias))


def square_norms(
    x: Tensor,
    grad: Tensor,
    chosen: Tensor | None,
    shape: Shape,
    *,
    runs: int,
    bias: bool,
    keep: bool,
    counts: Tensor | None = None,
    tiles: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`[runs, lot]`: the squared norm of every example's gradient of the weight, and of the bias with `bias`.

    With `keep` also these gradients, `[runs, lot, numbers]`, as `sum_rows` takes them.
    counts: `[runs]`, how many examples of each run are wanted; the norms of the others are 0, and what is kept of them anything.
    """
    o, k, p, warps, stages, flip, turns = tiles or (kept_tiles(shape) if keep else gradient_tiles(shape))
    by_taps = flip == BY_TAPS and keep and nine_parts(shape)
    each = programs(shape, o, k) if by_taps else triton.cdiv(shape.rows, o) * triton.cdiv(shape.columns, k * turns)
    out = torch.empty(len(x), each, dtype=torch.float32, device=x.device)
    kept = torch.empty(len(x), _width(shape, bias), dtype=torch.float32, device=x.device) if keep else None
    if by_taps and kept is not None:
        own = (o, k, p, warps, stages)
        square_norms_by_taps(x, grad, shape, out, kept, runs=runs, bias=bias, counts=counts, tiles=own)
        return out.sum(1).view(runs, -1), kept.view(runs, -1, kept.shape[1])
    _square_norms[(len(x) * each,)](
        x, grad, out.view(torch.uint8) if chosen is None else chosen, out, out if kept is None else kept,
        out.view(torch.int32) if counts is None else counts, len(x) // runs, *x.stride(), *grad.stride(), settings(shape),
        Tile(precision(), o, k, p, flip == 1), BIAS=bias, TURNS=turns, KEEP=keep,
        COUNTED=counts is not None, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out.sum(1).view(runs, -1), None if kept is None else kept.view(runs, -1, kept.shape[1])


def sum_rows(
    kept: Tensor,
    weights: Tensor,
    shape: Shape,
    *,
    bias: bool,
    dtype: torch.dtype,
    tiles: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The same as `weighted_sum` of gradients that were kept, in this precision."""
    (runs, lot, width), (together, share, most, warps, stages) = kept.shape, tiles or SUMMED
    splits, block = triton.cdiv(lot, share), min(most, triton.next_power_of_2(width))
    parts = torch.empty(runs, splits, width, dtype=dtype, device=kept.device)
    _sum_rows[(runs * splits * triton.cdiv(width, block),)](
        kept, weights.contiguous(), parts, lot, splits, width, WIDE=_wide(dtype), TOGETHER=together, SHARE=share,
        BLOCK=block, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    out = parts.sum(1)
    return _parameters(out[:, : shape.rows * shape.columns], out[:, shape.rows * shape.columns :], shape, bias)


def weighted_sum(
    x: Tensor,
    grad: Tensor,
    chosen: Tensor | None,
    weights: Tensor,
    shape: Shape,
    *,
    bias: bool,
    dtype: torch.dtype,
    tiles: tuple[int, ...] | None = None,
    share: int = _SHARE,
) -> tuple[Tensor, Tensor | None]:
    """The sum of the examples' gradients times `weights` `[runs, lot]`: `[runs, rows, channels, *kernel]` and `[runs, rows]`."""
    (runs, lot), (o, k, p, warps, stages, flip, _) = weights.shape, tiles or gradient_tiles(shape)
    splits = triton.cdiv(lot, share)
    grid = (runs * splits * triton.cdiv(shape.rows, o) * triton.cdiv(shape.columns, k),)
    out = torch.empty(runs, splits, shape.rows, shape.columns, dtype=dtype, device=x.device)
    shift = torch.empty(runs, splits, shape.rows, dtype=dtype, device=x.device) if bias else out
    _weighted_sum[grid](
        x, grad, out.view(torch.uint8) if chosen is None else chosen, weights.contiguous(), out, shift,
        lot, splits, *x.stride(), *grad.stride(), settings(shape), Tile(precision(), o, k, p, flip == 1), BIAS=bias,
        WIDE=_wide(dtype), SHARE=share, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return _parameters(out.sum(1), shift.sum(1), shape, bias)


def _wide(dtype: torch.dtype) -> tl.dtype:
    return tl.float64 if dtype == torch.float64 else tl.float32


def _parameters(weight: Tensor, shift: Tensor, shape: Shape, bias: bool) -> tuple[Tensor, Tensor | None]:
    """A sum with the channels last, `[runs, rows * columns]`, in the order of the weight."""
    ordered = weight.reshape(len(weight), shape.rows, *shape.kernel, shape.channels).permute(0, 1, 4, 2, 3)
    return ordered, shift if bias else None
