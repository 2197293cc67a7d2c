"""A GPU kernel for convolutions of few channels: several neighbouring positions of the output by one product.

A position of a 3x3 convolution looks at nine places, and its neighbour at six of the same. A product that makes a square of two
by two positions at once looks at sixteen in place of 36, and has four times as many columns: its matrix holds the weight once for
each of the four, shifted, with zeros around it. Where numbers are looked at for longer than they are multiplied, that is quicker.
The way back of a convolution of stride 1 is such a convolution too, of the weight turned round.
A pool of two by two is the largest of four columns, which one thread holds.

Where an example holds what is no number, its neighbouring positions become such too: they take it times 0. No other example does.
Layouts and `counts` are as in honestdp.kernels.convolution.
"""

from __future__ import annotations

from collections import namedtuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from honestdp.kernels import Shape
from honestdp.kernels.hidden import nought
from honestdp.kernels.tiles import BY_BLOCKS, precision

Block = namedtuple("Block", "C H W R OH OW PH PW DOWN RIGHT POOL")
"""A convolution by blocks as one constant of a kernel: channels and sides of what is read and of what is made, the padding, the
sides of a block, and the pool."""


@triton.jit
def _larger(one, first, other, second):
    """The larger of two numbers with its place, the first of equal ones. What is no number is the largest, as torch has it."""
    taken = (other > one) | (other != other) | ((other == one) & (second < first))
    return tl.where(taken, other, one), tl.where(taken, second, first)


@triton.jit
def _visible(top, left, inside, H: tl.constexpr, W: tl.constexpr, HIGH: tl.constexpr, SPAN: tl.constexpr):
    """Which places of the patches lie in the input: one bit for each, row by row, so that a load asks one bit alone."""
    rows, columns = tl.zeros_like(top), tl.zeros_like(left)
    for down in tl.static_range(HIGH):
        rows += tl.where((top + down >= 0) & (top + down < H), 1 << (down * SPAN), 0)
    for right in tl.static_range(SPAN):
        columns += tl.where((left + right >= 0) & (left + right < W), 1 << right, 0)
    return tl.where(inside, rows * columns, 0)


@triton.jit
def _patch(
    base, start, visible, first, close, x_c, x_h, x_w, C: tl.constexpr, SPAN: tl.constexpr, EDGES: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """What the blocks see of channels through the places of their patch, from number `first` of it on."""
    if C % BLOCK_K == 0:
        place = first // C
        c = ((first // BLOCK_K) % (C // BLOCK_K)) * BLOCK_K + tl.arange(0, BLOCK_K) + close
        beside = (place // SPAN) * x_h + (place % SPAN) * x_w + c * x_c
        seen = visible
        if EDGES:
            seen = ((visible >> place) & 1) != 0
        return tl.load(base + (start[:, None] + beside[None, :]), mask=seen[:, None], other=0.0)
    else:
        k = first + tl.arange(0, BLOCK_K)
        places = k // C
        besides = (places // SPAN) * x_h + (places % SPAN) * x_w + (k % C + close) * x_c
        every = visible[:, None]
        if EDGES:
            every = ((visible[:, None] >> places[None, :]) & 1) != 0
        return tl.load(base + (start[:, None] + besides[None, :]), mask=every, other=0.0)


@triton.jit
def _put(acc, out, run, lot, m, first, COLUMNS: tl.constexpr, S: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr):
    """The columns of a product `[m, COLUMNS]` from `first` on to their places."""
    n = first + tl.arange(0, COLUMNS)
    r, down, right = n % S.R, n // (S.RIGHT * S.R), (n // S.R) % S.RIGHT
    hidden = nought(lot)
    m += tl.minimum(lot, 0) * 4  # found once more: else registers hold where to put what is made while it is made
    earliest = tl.program_id(0) * acc.shape[0] // (HIGH * WIDE)
    example, block = m // (HIGH * WIDE), m % (HIGH * WIDE) + hidden
    row, column = (block // WIDE) * S.DOWN, (block % WIDE + hidden) * S.RIGHT
    wanted = (example < lot)[:, None] & (n < S.DOWN * S.RIGHT * S.R)[None, :]
    if S.OH % S.DOWN > 0:
        wanted = wanted & (row[:, None] < S.OH - down[None, :])
    if S.OW % S.RIGHT > 0:
        wanted = wanted & (column[:, None] < S.OW - right[None, :])
    at = ((example - earliest) * (S.OH * S.OW) + row * S.OW + column) * S.R
    put = at[:, None] + ((down * S.OW + right) * S.R + r)[None, :]
    tl.store(out + (run * lot + earliest) * (S.OH * S.OW * S.R) + put, acc, mask=wanted)


@triton.jit(do_not_specialize=["lot"])
def _blocks(
    x, weight, bias, out, chosen, counts, lot, x_n, x_c, x_h, x_w, S: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr, AHEAD: tl.constexpr, CLOSE: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    HIGH: tl.constexpr = S.OH // 2 if S.POOL == 2 else (S.OH + S.DOWN - 1) // S.DOWN
    WIDE: tl.constexpr = S.OW // 2 if S.POOL == 2 else (S.OW + S.RIGHT - 1) // S.RIGHT
    # Whether a block may look beyond the input; what a pool drops is not looked at.
    EDGES: tl.constexpr = (S.PH + S.PW > 0) or (S.POOL == 1 and (S.OH % S.DOWN + S.OW % S.RIGHT > 0))
    SPAN: tl.constexpr = S.RIGHT + 2
    K: tl.constexpr = (S.DOWN + 2) * SPAN * S.C
    N: tl.constexpr = S.DOWN * S.RIGHT * S.R
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.arange(0, N)
    r = n % S.R
    hidden = nought(lot)
    example, block = m // (HIGH * WIDE), m % (HIGH * WIDE) + hidden
    row, column = (block // WIDE) * S.DOWN, (block % WIDE + hidden) * S.RIGHT
    inside = example < lot
    top, left = row - S.PH, column - S.PW
    visible = inside
    if EDGES:
        visible = _visible(top, left, inside, S.H, S.W, S.DOWN + 2, SPAN)
    # Examples of this program from its first on: offsets of half the length, and half as many registers.
    earliest = tl.program_id(0) * BLOCK_M // (HIGH * WIDE)
    base, start = x + (run * lot + earliest) * x_n, (example - earliest) * x_n + top * x_h + left * x_w
    weights = weight + run * K * N + n[None, :] * K
    acc = tl.zeros([BLOCK_M, N], tl.float32)
    close = hidden
    if CLOSE:  # loads ahead of a product that may be of 16 bytes pass by the first cache: 2 numbers are 8
        close = tl.minimum(lot, 0) * 2
    if earliest < (tl.load(counts + run) if COUNTED else lot):
        if AHEAD:  # read through the first cache, one product ahead
            values = _patch(base, start, visible, 0, close, x_c, x_h, x_w, S.C, SPAN, EDGES, BLOCK_K)
            for first in tl.static_range(0, K, BLOCK_K):
                matrix = tl.load(weights + (first + tl.arange(0, BLOCK_K))[:, None])
                now = values
                if first + BLOCK_K < K:
                    values = _patch(
                        base, start, visible, first + BLOCK_K, close, x_c, x_h, x_w, S.C, SPAN, EDGES, BLOCK_K
                    )
                acc = tl.dot(now, matrix, acc, input_precision=PRECISION)
        else:
            for first in range(0, K, BLOCK_K):
                values = _patch(base, start, visible, first + hidden, close, x_c, x_h, x_w, S.C, SPAN, EDGES, BLOCK_K)
                matrix = tl.load(weights + (first + tl.arange(0, BLOCK_K))[:, None])
                acc = tl.dot(values, matrix, acc, input_precision=PRECISION)
        if BIAS:
            acc += tl.load(bias + run * S.R + r)[None, :]
        if RELU:  # what is no number stays so
            acc = tl.where(acc <= 0, 0.0, acc)
    if S.POOL == 2:
        parts = tl.reshape(acc, [BLOCK_M, 4, S.R])
        places = tl.broadcast_to(tl.arange(0, 4)[None, :, None], [BLOCK_M, 4, S.R])
        largest, which = tl.reduce((parts, places), 1, _larger)
        at = (run * lot * (HIGH * WIDE) + m)[:, None] * S.R + tl.arange(0, S.R)[None, :]
        tl.store(out + at, largest, mask=inside[:, None])
        tl.store(chosen + at, which.to(tl.uint8), mask=inside[:, None])
    else:
        HALF: tl.constexpr = S.DOWN * S.RIGHT * S.R // 2
        if S.DOWN * S.RIGHT > 1:  # the halves of the blocks: both at once take more registers than there are
            one, other = tl.split(tl.permute(tl.reshape(acc, [BLOCK_M, 2, HALF]), (0, 2, 1)))
            _put(one, out, run, lot, m, 0, HALF, S, HIGH, WIDE)
            _put(other, out, run, lot, m, HALF, HALF, S, HIGH, WIDE)
        else:
            _put(acc, out, run, lot, m, 0, S.R, S, HIGH, WIDE)


def takes(shape: Shape, tiles: tuple[int, ...], *, back: bool) -> bool:
    """Whether these are tiles of blocks, and a convolution of 3x3 and stride 1 fills them.

    It has no pool, or, forward, one of a block's size.
    """
    if len(tiles) != BY_BLOCKS:
        return False
    _, n, k, _, _, down, right = tiles
    read, made = (shape.rows, shape.channels) if back else (shape.channels, shape.rows)
    plain = shape.kernel == (3, 3) and shape.stride == shape.dilation == (1, 1) and max(shape.padding) <= 2
    pools = shape.pool == 1 or (shape.pool == 2 and (down, right) == (2, 2) and not back)
    places = (down + 2) * (right + 2)  # of each a bit
    fills = made * down * right == n and n & (n - 1) == 0 and (places * read) % k == 0
    return plain and pools and fills and places <= _MOST_PLACES


_MOST_PLACES = 30


def _matrix(weight: Tensor, down: int, right: int) -> Tensor:
    """`[runs, made, 3, 3, read]` for each position of a block: `[runs, down, right, made, down + 2, right + 2, read]`."""
    runs, made, _, _, read = weight.shape
    out = weight.new_zeros(runs, down, right, made, down + 2, right + 2, read)
    for y in range(down):
        for z in range(right):
            out[:, y, z, :, y : y + 3, z : z + 3] = weight
    return out


_MOST_WRITTEN_OUT = 16
"""Products that are written out one after the other: more take the compiler long."""


_FAR = 1 << 31


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: Shape,
    *,
    back: bool,
    relu: bool = False,
    counts: Tensor | None,
    tiles: tuple[int, ...],
) -> tuple[Tensor, Tensor | None]:
    """As `forward`, or with `back` as `back`, of honestdp.kernels.convolution: x is then the gradient of the output.

    tiles: blocks, columns, numbers of a patch, warps, stages of loads (0: one product ahead; below 0: as many, through the
    first cache), height and width of a block.
    """
    m, _, k, warps, stages, down, right = tiles
    if precision() == "tf32x3":  # as launched_tiles of honestdp.kernels.tiles has it
        m, warps = 64, 2
    if x.stride(0) * m >= _FAR:  # a program's offsets have 32 bits
        x = x.contiguous()
    runs, lot = len(weight), len(x) // len(weight)
    if back:
        packed = weight.flip(3, 4).permute(0, 2, 3, 4, 1)
        sizes = (shape.rows, shape.out_height, shape.out_width, shape.channels, shape.height, shape.width)
        padding, pool = (2 - shape.padding[0], 2 - shape.padding[1]), 1
    else:
        packed = weight.permute(0, 1, 3, 4, 2)
        sizes = (shape.channels, shape.height, shape.width, shape.rows, shape.out_height, shape.out_width)
        padding, pool = shape.padding, shape.pool
    made, (height, width) = sizes[3], (size // pool for size in sizes[4:])
    out = torch.empty(len(x), height, width, made, dtype=torch.float32, device=x.device)
    chosen = torch.empty(out.shape, dtype=torch.uint8, device=x.device) if pool > 1 else None
    blocks = lot * -(-height // (1 if pool > 1 else down)) * -(-width // (1 if pool > 1 else right))
    numbers = (down + 2) * (right + 2) * sizes[0] // k
    _blocks[(triton.cdiv(blocks, m), runs)](
        x, _matrix(packed, down, right), out if bias is None else bias.contiguous(), out,
        out.view(torch.uint8) if chosen is None else chosen,
        out.view(torch.int32) if counts is None else counts, lot, *x.stride(),
        Block(*sizes, *padding, down, right, pool), BIAS=bias is not None,
        RELU=relu, PRECISION=precision(), BLOCK_M=m, BLOCK_K=k,
        AHEAD=stages == 0 and numbers <= _MOST_WRITTEN_OUT, CLOSE=stages < 0, COUNTED=counts is not None,
        num_warps=warps, num_stages=max(1, abs(stages)),
    )  # fmt: skip
    return out.permute(0, 3, 1, 2), None if chosen is None else chosen.permute(0, 3, 1, 2)
