"""A GPU kernel for the way back of a convolution with a stride: positions of the same phase together, without empty products.

With a stride of two every other row and column of a kernel's holes sees a position of the input: of nine products with its
outputs that `_back` of honestdp.kernels.convolution takes, one to four are of numbers and the others of zeros. Positions whose
rows and columns leave the same rest when they are divided by the stride see through the same holes. A program takes such ones
alone, and no others are multiplied.

A transposed convolution is such a way back, with a bias and mostly a ReLU behind it, which are put on before anything is written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from honestdp.kernels import Shape
from honestdp.kernels.hidden import nought
from honestdp.kernels.tiles import phase_tiles, precision, settings


@triton.jit(do_not_specialize=["lot"])
def _phases(
    grad, weight, bias, out, x, counts, lot, g_n, g_c, g_h, g_w, x_n, x_c, x_h, x_w,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, POOL: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FEW: tl.constexpr,
    LINE: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(2).to(tl.int64)
    HIGH: tl.constexpr = (H + SH - 1) // SH
    WIDE: tl.constexpr = (W + SW - 1) // SW
    TURNS: tl.constexpr = (R + BLOCK_K - 1) // BLOCK_K
    hidden = nought(lot)
    # The phases of the same block one after the other: what one has read is in a cache for the next.
    phase, block = tl.program_id(0) % (SH * SW) + hidden, tl.program_id(0) // (SH * SW)
    m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    example, place = m // (HIGH * WIDE), m % (HIGH * WIDE) + hidden
    row, column = place // WIDE, place % WIDE + hidden
    # The first hole of each side that sees this phase, how many do, and which output sees a position through the first.
    top, left = (phase // SW + PH) % SH, (phase % SW + PW) % SW
    down, across = (KH - top + SH - 1) // SH, (KW - left + SW - 1) // SW
    lowest, rightmost = row + (phase // SW + PH) // SH, column + (phase % SW + PW) // SW
    y, z = row * SH + phase // SW, column * SW + phase % SW
    inside, known = (example < lot) & (y < H) & (z < W), n < C
    start = grad + (run * lot + example) * (g_n * LINE)
    K: tl.constexpr = R * KH * KW
    weights = weight + run * K * C + n[None, :] * K
    if FEW:
        parts = tl.zeros([BLOCK_M, BLOCK_N, BLOCK_K], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    wanted = inside[:, None] & known[None, :]
    if block * BLOCK_M // (HIGH * WIDE) < (tl.load(counts + run) if COUNTED else lot):
        for turn in range(0, down * across * TURNS):
            hole, o = turn // TURNS, (turn % TURNS) * BLOCK_K + tl.arange(0, BLOCK_K)
            at_y, at_z = lowest - hole // across, rightmost - hole % across
            seen = inside & (at_y >= 0) & (at_y < OH) & (at_z >= 0) & (at_z < OW)
            tap = (top + hole // across * SH) * KW + left + hole % across * SW
            spots = (start + (at_y * g_h + at_z * g_w) * LINE)[:, None] + (o * g_c)[None, :]
            if R % BLOCK_K == 0:
                values = tl.load(spots, mask=seen[:, None], other=0.0)
            else:
                values = tl.load(spots, mask=seen[:, None] & (o < R)[None, :], other=0.0)
            matrix = tl.load(weights + (tap * R + o)[:, None], mask=(o < R)[:, None] & known[None, :], other=0.0)
            if FEW:  # too few columns for a product of tiles
                parts += values[:, None, :] * tl.trans(matrix)[None, :, :]
            else:
                acc = tl.dot(values, matrix, acc, input_precision=PRECISION)
        if FEW:
            acc = tl.sum(parts, 2)
        if BIAS:
            acc += tl.load(bias + run * C + n, mask=known, other=0.0)[None, :]
        if RELU:  # what is no number stays so
            acc = tl.where(acc <= 0, 0.0, acc)
        if MASKED:  # what the activation before has put to zero sends nothing back
            before = x + (run * lot + example) * x_n + y * x_h + z * x_w
            acc = tl.where(tl.load(before[:, None] + (n * x_c)[None, :], mask=wanted, other=1.0) <= 0, 0.0, acc)
    put = ((run * lot + example) * (H * W) + y * W + z)[:, None] * C + n[None, :]
    tl.store(out + put, acc, mask=wanted)


def takes(shape: Shape) -> bool:
    """Whether a way back has phases: it has a stride. A dilation would leave some of them without a hole of every side."""
    return shape.stride != (1, 1) and shape.dilation == (1, 1) and shape.pool == 1


def back_by_phases(
    grad: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Shape,
    *,
    relu: bool,
    x: Tensor | None,
    counts: Tensor | None,
    tiles: tuple[int, ...] | None = None,
) -> Tensor:
    """As `back` of honestdp.kernels.convolution. tiles: positions, channels, rows, warps, and stages of loads."""
    runs, examples = len(weight), len(grad)
    packed = weight.permute(0, 2, 3, 4, 1).contiguous()
    out = torch.empty(examples, shape.height, shape.width, shape.channels, dtype=torch.float32, device=grad.device)
    m, n, k, warps, stages = tiles or phase_tiles(shape)
    (high, wide), (by, beside) = (shape.height, shape.width), shape.stride
    # Of a multiple of four the compiler knows that numbers lie in lines, which it reads at once.
    apart = grad.stride(0), grad.stride(2), grad.stride(3)
    line = 4 if all(step % 4 == 0 for step in apart) else 1
    positions = examples // runs * triton.cdiv(high, by) * triton.cdiv(wide, beside)
    _phases[(triton.cdiv(positions, m) * by * beside, triton.cdiv(shape.channels, n), runs)](
        grad, packed, packed if bias is None else bias.contiguous(), out, out if x is None else x,
        out.view(torch.int32) if counts is None else counts, examples // runs, apart[0] // line, grad.stride(1),
        apart[1] // line, apart[2] // line, *((0, 0, 0, 0) if x is None else x.stride()), *settings(shape),
        BIAS=bias is not None, RELU=relu, MASKED=x is not None, PRECISION=precision(), BLOCK_M=m, BLOCK_N=n, BLOCK_K=k,
        FEW=n < _PRODUCT, LINE=line, COUNTED=counts is not None, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


_PRODUCT = 16
"""Columns that a product of tiles has at the least."""
