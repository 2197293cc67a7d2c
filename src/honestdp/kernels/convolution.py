"""GPU kernels for convolutions of a population, without windows: products that read the input through the kernel's holes.

`forward` multiplies what each position sees of the input by its run's weight, and may take the largest of every pool of positions
at once, so that what is dropped is never written. `back` is the same product the other way; `unpool` spreads the gradient of an
output over its pool. Norms and sums of the gradients of examples are in honestdp.kernels.gradients.

Values lie channels last: `[examples, height, width, channels]`, the examples of all runs one after the other. An input may lie in
any way. Products are taken in TensorFloat-32 where torch is told so, else with three such products, which is float32 but for its
last digits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from honestdp.kernels import Shape, blocks
from honestdp.kernels.blocks import _larger
from honestdp.kernels.gradients import square_norms, sum_rows, weighted_sum
from honestdp.kernels.hidden import nought
from honestdp.kernels.tiles import block_tiles, launched_tiles, one_position, precision, settings

__all__ = ["back", "forward", "square_norms", "sum_rows", "unpool", "weighted_sum"]


@triton.jit
def _window(start, top, left, inside, tap, c, x_c, x_h, x_w, S: tl.constexpr):
    """What the positions see of channels `c` through one hole of the kernel, `tap`."""
    down, right = (tap // S.KW) * S.DH, (tap % S.KW) * S.DW
    seen = inside
    if S.PH + S.PW > 0:
        seen = seen & (top + down >= 0) & (top + down < S.H) & (left + right >= 0) & (left + right < S.W)
    return tl.load(start[:, None] + (down * x_h + right * x_w + c * x_c)[None, :], mask=seen[:, None], other=0.0)


@triton.jit(do_not_specialize=["lot"])
def _forward(
    x, weight, bias, out, chosen, counts, lot, x_n, x_c, x_h, x_w, S: tl.constexpr, BIAS: tl.constexpr,
    RELU: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr, CLOSE: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(2).to(tl.int64)
    PARTS: tl.constexpr = S.POOL * S.POOL
    within = tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if S.POOL == 2:  # four rows of a product that one thread holds: 8 apart, and half a tile apart
        part = (within // 8) % 2 + 2 * (within // (BLOCK_M // 2))
        pool = tl.program_id(0) * (BLOCK_M // 4) + within % 8 + 8 * ((within % (BLOCK_M // 2)) // 16)
    else:  # the positions of a pool one after the other
        part = within % PARTS
        pool = tl.program_id(0) * (BLOCK_M // PARTS) + within // PARTS
    hidden = nought(lot)
    example, place = pool // (S.OH * S.OW), pool % (S.OH * S.OW) + hidden
    inside, known = example < lot, n < S.R
    top = ((place // S.OW) * S.POOL + part // S.POOL) * S.SH - S.PH
    left = ((place % S.OW + hidden) * S.POOL + part % S.POOL) * S.SW - S.PW
    K: tl.constexpr = S.C * S.KH * S.KW
    start = x + (run * lot + example) * x_n + top * x_h + left * x_w
    weights = weight + run * K * S.R + n[None, :] * K
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if tl.program_id(0) * (BLOCK_M // PARTS) // (S.OH * S.OW) < (tl.load(counts + run) if COUNTED else lot):
        if AHEAD:  # read through the first cache, where a number's other looks find it, one product ahead
            c = tl.arange(0, BLOCK_K)
            values = _window(start, top, left, inside, 0, c, x_c, x_h, x_w, S)
            for first in tl.static_range(0, K, BLOCK_K):
                matrix = tl.load(weights + (first + c)[:, None], mask=known[None, :], other=0.0)
                now = values
                if first + BLOCK_K < K:
                    tap, beyond = (first + BLOCK_K) // S.C, (first + BLOCK_K) % S.C + c
                    values = _window(start, top, left, inside, tap, beyond, x_c, x_h, x_w, S)
                acc = tl.dot(now, matrix, acc, input_precision=PRECISION)
        else:
            close = hidden
            if CLOSE:  # as in honestdp.kernels.blocks
                close = tl.minimum(lot, 0) * 2
            for first in range(0, K, BLOCK_K):
                k = first + tl.arange(0, BLOCK_K)
                if S.C % BLOCK_K == 0:
                    # Written such that the compiler sees loads of 16 bytes: of first % C it does not.
                    c = ((first // BLOCK_K) % (S.C // BLOCK_K)) * BLOCK_K + tl.arange(0, BLOCK_K) + close
                    tap = (first + hidden) // S.C
                    values = _window(start, top, left, inside, tap, c, x_c, x_h, x_w, S)
                else:
                    tap, c = (k + hidden) // S.C, (k + hidden) % S.C
                    down, right = (tap // S.KW) * S.DH, (tap % S.KW) * S.DW
                    seen = inside[:, None] & (k < K)[None, :]
                    if S.PH + S.PW > 0:
                        y, z = top[:, None] + down[None, :], left[:, None] + right[None, :]
                        seen = seen & (y >= 0) & (y < S.H) & (z >= 0) & (z < S.W)
                    beside = down * x_h + right * x_w + c * x_c
                    values = tl.load(start[:, None] + beside[None, :], mask=seen, other=0.0)
                matrix = tl.load(weights + k[:, None], mask=(k < K)[:, None] & known[None, :], other=0.0)
                acc = tl.dot(values, matrix, acc, input_precision=PRECISION)
        if BIAS:
            acc += tl.load(bias + run * S.R + n, mask=known, other=0.0)[None, :]
        if RELU:  # what is no number stays so
            acc = tl.where(acc <= 0, 0.0, acc)
    pools = tl.program_id(0) * (BLOCK_M // PARTS) + tl.arange(0, BLOCK_M // PARTS)
    at = (run * lot * (S.OH * S.OW) + pools)[:, None] * S.R + n[None, :]
    wanted = (pools < lot * (S.OH * S.OW))[:, None] & known[None, :]
    if S.POOL > 1:
        if S.POOL == 2:
            parts = tl.reshape(acc, [2, BLOCK_M // 32, 2, 8, BLOCK_N])
            places = 2 * tl.arange(0, 2)[:, None, None, None, None] + tl.arange(0, 2)[None, None, :, None, None]
            one, which = tl.reduce((parts, tl.broadcast_to(places, [2, BLOCK_M // 32, 2, 8, BLOCK_N])), 2, _larger)
            one, which = tl.reduce((one, which), 0, _larger)
            largest = tl.reshape(one, [BLOCK_M // 4, BLOCK_N])
            which = tl.reshape(which, [BLOCK_M // 4, BLOCK_N])
        else:
            parts = tl.reshape(acc, [BLOCK_M // PARTS, PARTS, BLOCK_N])
            places = tl.broadcast_to(tl.arange(0, PARTS)[None, :, None], [BLOCK_M // PARTS, PARTS, BLOCK_N])
            largest, which = tl.reduce((parts, places), 1, _larger)
        tl.store(out + at, largest, mask=wanted)
        tl.store(chosen + at, which.to(tl.uint8), mask=wanted)
    else:
        tl.store(out + at, acc, mask=wanted)


@triton.jit
def _received(start, picks, row, column, inside, tap, o, g_c, g_h, g_w, S: tl.constexpr):
    """The gradients of the outputs that saw these places through `tap`. row, column, inside: `[places, 1]`; tap, o: `[1, k]`."""
    y, z = row - (tap // S.KW) * S.DH, column - (tap % S.KW) * S.DW
    seen = inside & (y >= 0) & (z >= 0)
    if S.SH * S.SW > 1:
        seen = seen & (y % S.SH == 0) & (z % S.SW == 0)
        y, z = y // S.SH, z // S.SW
    seen = seen & (y < S.OH * S.POOL) & (z < S.OW * S.POOL)
    part = (y % S.POOL) * S.POOL + z % S.POOL
    y, z = y // S.POOL, z // S.POOL
    values = tl.load(start[:, None] + (y * g_h + z * g_w) + o * g_c, mask=seen, other=0.0)
    if S.POOL > 1:
        picked = tl.load(picks[:, None] + (y * S.OW + z) * S.R + o, mask=seen, other=255)
        values = tl.where(picked.to(tl.int32) == part, values, 0.0)
    return values


@triton.jit(do_not_specialize=["lot"])
def _back(
    grad, chosen, weight, out, counts, lot, g_n, g_c, g_h, g_w, S: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    hidden = nought(lot)
    example, place = m // (S.H * S.W), m % (S.H * S.W) + hidden
    row, column = (place // S.W + S.PH)[:, None], (place % S.W + hidden + S.PW)[:, None]
    inside, known = example < lot, n < S.C
    seen = inside[:, None]
    K: tl.constexpr = S.R * S.KH * S.KW
    start = grad + (run * lot + example) * g_n
    picks = chosen + (run * lot + example) * (S.OH * S.OW * S.R)
    weights = weight + run * K * S.C + n[None, :] * K
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    wanted = inside[:, None] & known[None, :]
    if tl.program_id(0) * BLOCK_M // (S.H * S.W) < (tl.load(counts + run) if COUNTED else lot):
        if AHEAD:
            o = tl.arange(0, BLOCK_K)
            values = _received(start, picks, row, column, seen, 0, o[None, :], g_c, g_h, g_w, S)
            for first in tl.static_range(0, K, BLOCK_K):
                matrix = tl.load(weights + (first + o)[:, None], mask=known[None, :], other=0.0)
                now = values
                if first + BLOCK_K < K:
                    tap, channels = (first + BLOCK_K) // S.R, (first + BLOCK_K) % S.R + o
                    values = _received(start, picks, row, column, seen, tap, channels[None, :], g_c, g_h, g_w, S)
                acc = tl.dot(now, matrix, acc, input_precision=PRECISION)
        else:
            for first in range(0, K, BLOCK_K):
                k = first + tl.arange(0, BLOCK_K)
                if S.R % BLOCK_K == 0:  # one tap of the kernel: its place for every m
                    o = ((first // BLOCK_K) % (S.R // BLOCK_K)) * BLOCK_K + tl.arange(0, BLOCK_K)
                    tap = (first + hidden) // S.R
                    values = _received(start, picks, row, column, seen, tap, o[None, :], g_c, g_h, g_w, S)
                else:
                    every = seen & (k < K)[None, :]
                    tap, o = ((k + hidden) // S.R)[None, :], ((k + hidden) % S.R)[None, :]
                    values = _received(start, picks, row, column, every, tap, o, g_c, g_h, g_w, S)
                matrix = tl.load(weights + k[:, None], mask=(k < K)[:, None] & known[None, :], other=0.0)
                acc = tl.dot(values, matrix, acc, input_precision=PRECISION)
    tl.store(out + (run * lot * (S.H * S.W) + m)[:, None] * S.C + n[None, :], acc, mask=wanted)


@triton.jit(do_not_specialize=["lot", "examples"])
def _unpool(
    grad, chosen, out, counts, lot, examples, g_n, g_c, g_h, g_w, R: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, POOL: tl.constexpr, COUNTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < examples.to(tl.int64) * (R * H * W)
    o, place = (at % R).to(tl.int32), at // R
    column, above = (place % W).to(tl.int32), place // W
    row, example = (above % H).to(tl.int32), above // H
    y, z = row // POOL, column // POOL
    seen = inside & (y < OH) & (z < OW)
    if COUNTED:  # the others are zeros, and nothing is read of them
        seen = seen & (example % lot < tl.load(counts + example // lot, mask=inside, other=0))
    picked = tl.load(chosen + (example * (OH * OW) + y * OW + z) * R + o, mask=seen, other=255).to(tl.int32)
    values = tl.load(grad + example * g_n + o * g_c + y * g_h + z * g_w, mask=seen, other=0.0)
    mine = seen & (picked == (row % POOL) * POOL + column % POOL)
    tl.store(out + at, tl.where(mine, values, 0.0), mask=inside)


_MOST_WRITTEN_OUT = 9
"""Products that are written out one after the other: more take the compiler long."""


def _ahead(stages: int, read: int, k: int, shape: Shape) -> bool:
    """Whether what a product reads is read one product ahead; `read` channels at a time through every hole of the kernel."""
    return stages == 0 and read % k == 0 and shape.kernel[0] * shape.kernel[1] * read // k <= _MOST_WRITTEN_OUT


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Shape,
    *,
    relu: bool = False,
    counts: Tensor | None = None,
    tiles: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """x `[examples, channels, height, width]`; weight `[runs, rows, channels, *kernel]`; bias `[runs, rows]`.

    The output `[examples, rows, height, width]`, channels last in memory, and of a pool which position was the largest.
    relu: whether what is below zero becomes zero.
    counts: `[runs]` int32, how many examples of each run are wanted; those behind them are zeros, or what they would be.
    """
    several = tiles or block_tiles(shape, back=False)
    if blocks.takes(shape, several, back=False):
        return blocks.product(x, weight, bias, shape, back=False, relu=relu, counts=counts, tiles=several)
    runs, examples, (height, width) = len(weight), len(x), shape.pooled
    packed = weight.permute(0, 1, 3, 4, 2).contiguous()
    last = (examples, height, width, shape.rows)
    out = torch.empty(last, dtype=torch.float32, device=x.device)
    chosen = torch.empty(last, dtype=torch.uint8, device=x.device) if shape.pool > 1 else None
    m, n, k, warps, stages = one_position(tiles) or launched_tiles(shape, back=False)
    grid = (triton.cdiv(examples // runs * height * width * shape.pool**2, m), triton.cdiv(shape.rows, n), runs)
    _forward[grid](
        x, packed, packed if bias is None else bias.contiguous(), out, out.view(torch.uint8) if chosen is None else chosen,
        out.view(torch.int32) if counts is None else counts, examples // runs, *x.stride(), settings(shape),
        BIAS=bias is not None, RELU=relu, PRECISION=precision(), BLOCK_M=m, BLOCK_N=n, BLOCK_K=k,
        AHEAD=_ahead(stages, shape.channels, k, shape), CLOSE=stages < 0, COUNTED=counts is not None,
        num_warps=warps, num_stages=max(1, abs(stages)),
    )  # fmt: skip
    return out.permute(0, 3, 1, 2), None if chosen is None else chosen.permute(0, 3, 1, 2)


def back(
    grad: Tensor,
    chosen: Tensor | None,
    weight: Tensor,
    shape: Shape,
    *,
    counts: Tensor | None = None,
    tiles: tuple[int, ...] | None = None,
) -> Tensor:
    """The gradient of the input `[examples, channels, height, width]` from that of the output, as `forward` gives it.

    counts: as for `forward`.
    """
    several = tiles or block_tiles(shape, back=True)
    if chosen is None and blocks.takes(shape, several, back=True):
        return blocks.product(grad, weight, None, shape, back=True, counts=counts, tiles=several)[0]
    runs, examples = len(weight), len(grad)
    packed = weight.permute(0, 2, 3, 4, 1).contiguous()
    out = torch.empty(examples, shape.height, shape.width, shape.channels, dtype=torch.float32, device=grad.device)
    m, n, k, warps, stages = one_position(tiles) or launched_tiles(shape, back=True)
    grid = (triton.cdiv(examples // runs * shape.height * shape.width, m), triton.cdiv(shape.channels, n), runs)
    _back[grid](
        grad, out.view(torch.uint8) if chosen is None else chosen, packed, out,
        out.view(torch.int32) if counts is None else counts, examples // runs, *grad.stride(),
        settings(shape), PRECISION=precision(),
        BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, AHEAD=_ahead(stages, shape.rows, k, shape), COUNTED=counts is not None,
        num_warps=warps, num_stages=max(1, abs(stages)),
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


def unpool(grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor:
    """The gradient of the output before its pool, `[examples, rows, out_height, out_width]`, from that of the pool's.

    counts: as for `forward`; the others are zeros.
    """
    out = torch.empty(len(grad), shape.out_height, shape.out_width, shape.rows, dtype=torch.float32, device=grad.device)
    sizes = (shape.rows, *shape.pooled, shape.out_height, shape.out_width, shape.pool)
    wanted, lot = (out.view(torch.int32), 1) if counts is None else (counts, len(grad) // len(counts))
    _unpool[(triton.cdiv(out.numel(), 1024),)](
        grad, chosen, out, wanted, lot, len(grad), *grad.stride(), *sizes, COUNTED=counts is not None, BLOCK=1024
    )
    return out.permute(0, 3, 1, 2)
