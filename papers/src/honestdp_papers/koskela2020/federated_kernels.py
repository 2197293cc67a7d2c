"""Kernels of the federated network on a GPU, written for Triton: convolutions with their pooling, and the rules' updates.

The supplement's network alone: images of 3 by 32 by 32, two convolutions of 64 channels, each followed by a pool of 3 by 2. A
program of a convolution reads the windows where they lie, so that none are written out. Activations are `[examples, places, 64]`;
examples of one run lie side by side. What a pool picked is kept as one of 9 places. Factors of the
convolutions are kept in half precision, slopes after they were multiplied by `SCALE`; those of dense layers are rounded to TF32:
10 bits either way. Sums are float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

SCALE = tl.constexpr(1024.0)


@triton.jit
def conv1(images, index, weights, out, picked, stride, LOT: tl.constexpr, BLOCK: tl.constexpr):
    """Windows of 27 and a one for the bias, times `[28, 64]`, the largest of 9 and 0: `[examples, 196, 64]`."""
    example = tl.program_id(0).to(tl.int64)
    image = images + tl.load(index + example).to(tl.int64) * 3072
    k, channel = tl.arange(0, 32), tl.arange(0, 64)
    window = (k // 9) * 1024 + (k % 9 // 3) * 32 + k % 3
    first = weights + (example // LOT) * stride
    w = tl.load(first + k[:, None] * 64 + channel[None, :], mask=(k < 28)[:, None], other=0)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < 196
    corner = (place // 14) * 64 + (place % 14) * 2
    best = tl.full([BLOCK, 64], float("-inf"), tl.float32)
    which = tl.zeros([BLOCK, 64], tl.int32)
    for q in tl.static_range(9):
        at = (corner + (q // 3) * 32 + q % 3)[:, None] + window[None, :]
        a = tl.load(image + at, mask=inside[:, None] & (k < 27)[None, :], other=0).to(tl.float32)
        a = tl.where((k == 27)[None, :], 1.0, a)
        value = tl.dot(a.to(tl.float16), w.to(tl.float16))
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        which = tl.where(better, q, which)
    to = (example * 196 + place)[:, None] * 64 + channel[None, :]
    tl.store(out + to, tl.where(best < 0, 0.0, best).to(tl.float16), mask=inside[:, None])
    tl.store(picked + to, which.to(tl.uint8), mask=inside[:, None])


@triton.jit
def conv1_weights(images, index, slopes, picked, out, BLOCK: tl.constexpr):
    """The gradient of the first convolution by one example, `[examples, 28, 64]`."""
    example = tl.program_id(0).to(tl.int64)
    image = images + tl.load(index + example).to(tl.int64) * 3072
    k, channel = tl.arange(0, 32), tl.arange(0, 64)
    window = (k // 9) * 1024 + (k % 9 // 3) * 32 + k % 3
    total = tl.zeros([32, 64], tl.float32)
    for begin in range(0, 196, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        inside = place < 196
        corner = (place // 14) * 64 + (place % 14) * 2
        at = (example * 196 + place)[:, None] * 64 + channel[None, :]
        slope = tl.load(slopes + at, mask=inside[:, None], other=0)
        which = tl.load(picked + at, mask=inside[:, None], other=9).to(tl.int32)
        for q in tl.static_range(9):
            where = (corner + (q // 3) * 32 + q % 3)[None, :] + window[:, None]
            a = tl.load(image + where, mask=inside[None, :] & (k < 27)[:, None], other=0).to(tl.float32)
            a = tl.where((k == 27)[:, None], 1.0, a)
            total += tl.dot(a.to(tl.float16), tl.where(which == q, slope, 0.0).to(tl.float16))
    to = (example * 28 + k)[:, None] * 64 + channel[None, :]
    tl.store(out + to, total / SCALE, mask=(k < 28)[:, None])


@triton.jit
def conv2(hidden, weights, bias, out, stride, LOT: tl.constexpr, BLOCK: tl.constexpr):
    """`[examples, 196, 64]` -> `[examples, 144, 64]`, before the pool. weights: `[9, 64, 64]` of each run, in half precision."""
    run, channel = tl.program_id(0).to(tl.int64), tl.arange(0, 64)
    row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = row < LOT * 144
    example, place = run * LOT + row // 144, row % 144
    corner = example * 196 + (place // 12) * 14 + place % 12
    total = tl.zeros([BLOCK, 64], tl.float32)
    for tap in tl.static_range(9):
        at = (corner + (tap // 3) * 14 + tap % 3)[:, None] * 64 + channel[None, :]
        a = tl.load(hidden + at, mask=inside[:, None], other=0)
        w = tl.load(weights + run * 36864 + tap * 4096 + channel[:, None] * 64 + channel[None, :])
        total += tl.dot(a, w)
    total += tl.load(bias + run * stride + channel)[None, :]
    tl.store(out + (example * 144 + place)[:, None] * 64 + channel[None, :], total, mask=inside[:, None])


@triton.jit
def pool2(values, out, picked):
    """`[examples, 144, 64]` -> the largest of 9 and 0, `[examples, 25, 64]`."""
    example, channel, place = tl.program_id(0).to(tl.int64), tl.arange(0, 64), tl.arange(0, 32)
    inside = (place < 25)[:, None]
    corner = example * 144 + (place // 5) * 24 + (place % 5) * 2
    best = tl.full([32, 64], float("-inf"), tl.float32)
    which = tl.zeros([32, 64], tl.int32)
    for q in tl.static_range(9):
        at = (corner + (q // 3) * 12 + q % 3)[:, None] * 64 + channel[None, :]
        value = tl.load(values + at, mask=inside, other=0)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        which = tl.where(better, q, which)
    to = (example * 25 + place)[:, None] * 64 + channel[None, :]
    tl.store(out + to, tl.where(best < 0, 0.0, best), mask=inside)
    tl.store(picked + to, which.to(tl.uint8), mask=inside)


@triton.jit
def pool2_back(slopes, pooled, picked, out, BLOCK: tl.constexpr):
    """The slope of each place before the pool, `[examples, 144, 64]`, scaled: of up to four windows that may have picked it."""
    example, channel = tl.program_id(0).to(tl.int64), tl.arange(0, 64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < 144
    y, x = place // 12, place % 12
    total = tl.zeros([BLOCK, 64], tl.float32)
    for back in tl.static_range(4):
        down, right = y // 2 - back // 2, x // 2 - back % 2
        dy, dx = y - 2 * down, x - 2 * right
        there = inside & (down >= 0) & (down < 5) & (dy < 3) & (right >= 0) & (right < 5) & (dx < 3)
        at = (example * 25 + down * 5 + right)[:, None] * 64 + channel[None, :]
        which = tl.load(picked + at, mask=there[:, None], other=9).to(tl.int32)
        alive = tl.load(pooled + at, mask=there[:, None], other=0) > 0
        slope = tl.load(slopes + at, mask=there[:, None], other=0)
        total += tl.where((which == (dy * 3 + dx)[:, None]) & alive, slope, 0.0)
    to = (example * 144 + place)[:, None] * 64 + channel[None, :]
    tl.store(out + to, (total * SCALE).to(tl.float16), mask=inside[:, None])


@triton.jit
def conv2_back(slopes, weights, hidden, out, LOT: tl.constexpr, BLOCK: tl.constexpr):
    """The slope of the first hidden layer, `[examples, 196, 64]`, scaled as those it is made of, 0 where the layer was 0."""
    run, channel = tl.program_id(0).to(tl.int64), tl.arange(0, 64)
    row = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = row < LOT * 196
    example, place = run * LOT + row // 196, row % 196
    y, x = place // 14, place % 14
    total = tl.zeros([BLOCK, 64], tl.float32)
    for tap in tl.static_range(9):
        up, left = y - tap // 3, x - tap % 3
        there = inside & (up >= 0) & (up < 12) & (left >= 0) & (left < 12)
        at = (example * 144 + up * 12 + left)[:, None] * 64 + channel[None, :]
        a = tl.load(slopes + at, mask=there[:, None], other=0)
        w = tl.load(weights + run * 36864 + tap * 4096 + channel[:, None] * 64 + channel[None, :])
        total += tl.dot(a, tl.trans(w))
    to = (example * 196 + place)[:, None] * 64 + channel[None, :]
    alive = tl.load(hidden + to, mask=inside[:, None], other=0) > 0
    tl.store(out + to, tl.where(alive, total, 0.0).to(tl.float16), mask=inside[:, None])


@triton.jit
def conv2_weights(hidden, slopes, out, out_bias, stride, LOT: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of one tap of the second convolution, `[9, 64, 64]` of each run, and of its bias."""
    run, tap, channel = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, 64)
    total, bias = tl.zeros([64, 64], tl.float32), tl.zeros([64], tl.float32)
    for begin in range(0, LOT * 144, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        inside = row < LOT * 144
        example, place = run * LOT + row // 144, row % 144
        corner = example * 196 + (place // 12 + tap // 3) * 14 + place % 12 + tap % 3
        a = tl.load(hidden + corner[None, :] * 64 + channel[:, None], mask=inside[None, :], other=0)
        at = (example * 144 + place)[:, None] * 64 + channel[None, :]
        slope = tl.load(slopes + at, mask=inside[:, None], other=0)
        total += tl.dot(a, slope)
        bias += tl.sum(slope.to(tl.float32), 0)
    tl.store(out + run * stride + tap * 4096 + channel[:, None] * 64 + channel[None, :], total / SCALE)
    if tap == 0:
        tl.store(out_bias + run * stride + channel, bias / SCALE)


SGD, FIRST, SECOND, ADAM = (tl.constexpr(number) for number in range(4))
"""How weights move: the two steps of an iteration of ADADP are two ways."""


@triton.jit
def _moved(weights, memory, spread, at, inside, g, rate, mend, WAY: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr,
           XI: tl.constexpr):  # fmt: skip
    """Weights at some places after a gradient there; the squared errors of ADADP's second steps, 0 otherwise.

    memory: where an iteration of ADADP began, or Adam's first moment; spread: its second. mend: 1 - beta^t of both. ADADP's full
    step is as far again beyond the first half one, so it needs no memory of its own.
    """
    w = tl.load(weights + at, mask=inside, other=0)
    squares = tl.zeros_like(w)
    if WAY == SGD:
        w -= rate * g
    elif WAY == FIRST:
        tl.store(memory + at, w, mask=inside)
        w -= rate / 2 * g
    elif WAY == SECOND:
        full = w + (w - tl.load(memory + at, mask=inside, other=0))
        w -= rate / 2 * g
        size = tl.abs(full)
        err = (full - w) / tl.where(size < 1, 1.0, size)
        squares = tl.where(inside, err * err, 0.0)
    else:
        m = BETA1 * tl.load(memory + at, mask=inside, other=0) + (1 - BETA1) * g
        v = BETA2 * tl.load(spread + at, mask=inside, other=0) + (1 - BETA2) * g * g
        tl.store(memory + at, m, mask=inside)
        tl.store(spread + at, v, mask=inside)
        w -= rate * (m / tl.load(mend)) / (tl.sqrt(v / tl.load(mend + 1)) + XI)
    tl.store(weights + at, w, mask=inside)
    return squares


@triton.jit
def move(weights, gradient, memory, spread, rates, mend, errors, stride, parts, numbers, WAY: tl.constexpr, BETA1: tl.constexpr,
         BETA2: tl.constexpr, XI: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The first `numbers` weights of every run, whose gradients are `[runs, stride]` too. errors: `[runs, parts]`."""
    run, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside, at = column < numbers, run * stride + column
    g = tl.load(gradient + at, mask=inside, other=0)
    squares = _moved(weights, memory, spread, at, inside, g, tl.load(rates + run), mend, WAY, BETA1, BETA2, XI)
    if WAY == SECOND:
        tl.store(errors + run * parts + block, tl.sum(squares, 0))


@triton.jit
def move_dense(hidden, slopes, weights, memory, spread, rates, mend, errors, stride, parts, part, offset, LOT: tl.constexpr,
               IN: tl.constexpr, OUT: tl.constexpr, WAY: tl.constexpr, BETA1: tl.constexpr, BETA2: tl.constexpr,
               XI: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """A dense layer `[IN, OUT]` at `offset` of every run, by the product of what it read and its slopes, which is not written."""
    run, down, right = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    i, o, one = down * ROWS + tl.arange(0, ROWS), right * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, 16)
    there = run * LOT + one
    read = tl.load(hidden + there[None, :] * IN + i[:, None], mask=(one < LOT)[None, :] & (i < IN)[:, None], other=0)
    slope = tl.load(slopes + there[:, None] * OUT + o[None, :], mask=(one < LOT)[:, None] & (o < OUT)[None, :], other=0)
    g = tl.dot(read, slope)
    at = run * stride + offset + i[:, None] * OUT + o[None, :]
    inside = (i < IN)[:, None] & (o < OUT)[None, :]
    squares = _moved(weights, memory, spread, at, inside, g, tl.load(rates + run), mend, WAY, BETA1, BETA2, XI)
    if WAY == SECOND:
        block = part + down * tl.num_programs(2) + right
        tl.store(errors + run * parts + block, tl.sum(tl.sum(squares, 1), 0))


@triton.jit
def put_back(weights, memory, kept, stride, BLOCK: tl.constexpr):
    """Where the iteration began, for runs whose steps are not kept."""
    run = tl.program_id(0).to(tl.int64)
    if tl.load(kept + run) == 0:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside, at = column < stride, run * stride + column
        tl.store(weights + at, tl.load(memory + at, mask=inside), mask=inside)
