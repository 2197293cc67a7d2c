"""Whether a GPU kernel reads or writes beyond its tensors, in Triton's interpreter on a CPU with guarded memory.

    TRITON_INTERPRET=1 python -m tests.kernels.kernel_bounds               # a few of each, 10 s
    TRITON_INTERPRET=1 python -m tests.kernels.kernel_bounds --many 300    # so many random shapes of every kind

Shapes are drawn: channels and rows beside those that tiles are made for, strides, padding, dilation and pools, tensors that lie
in any way, lots of one and of several, examples without weight. A small network is trained as on a GPU, by its engine, with
lots that are empty, short, and as long as there is room for. Offsets of large populations (more than 2^31 numbers) are looked
at in the programs at the ends of a launch. test_bounds.py runs some of it; what it cannot see is what the compiler makes of a
kernel: for that there is compute-sanitizer on a GPU.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

CHANNELS, ROWS = (1, 2, 3, 5, 8, 16, 17, 32, 48), (1, 3, 8, 16, 20, 32, 33)
_COLUMNS = 300
"""Of a convolution, at most: the interpreter takes a millisecond for each product of two tiles."""


def lying(values: Tensor, dice: random.Random) -> Tensor:
    """The same numbers `[examples, channels, height, width]`, that lie so, channels last, or within a larger tensor."""
    way = dice.randrange(4)
    if way == 0:
        return values.contiguous()
    if way == 1:
        return values.contiguous(memory_format=torch.channels_last)
    if way == 2:
        larger = torch.zeros(*values.shape[:2], values.shape[2] + 1, values.shape[3] + 2)
        larger[..., 1:, 1:-1] = values
        return larger[..., 1:, 1:-1]
    larger = torch.zeros(len(values), *values.shape[2:], values.shape[1] + 3)
    larger[..., 2:-1] = values.permute(0, 2, 3, 1)
    return larger[..., 2:-1].permute(0, 3, 1, 2)


def shape_of(dice: random.Random) -> Any:
    """A convolution that the engine gives to the kernels."""
    from honestdp.kernels import Shape

    while True:
        kernel = dice.choice((1, 2, 3, 3, 4, 5)), dice.choice((1, 2, 3, 3, 4, 5))
        stride, dilation = ((dice.choice((1, 1, 2, 3)), dice.choice((1, 1, 2))) for _ in range(2))
        padding = dice.randrange(kernel[0] + 1), dice.randrange(kernel[1] + 1)
        size = dice.randint(1, 11), dice.randint(1, 11)
        pool = dice.choice((1, 1, 2, 2, 4))
        each = zip(size, kernel, stride, padding, dilation, strict=True)
        out = [(side + 2 * pad - step * (k - 1) - 1) // by + 1 for side, k, by, pad, step in each]
        channels, rows = dice.choice(CHANNELS), dice.choice(ROWS)
        if min(out) >= pool and channels * kernel[0] * kernel[1] <= _COLUMNS:
            return Shape(channels, *size, rows, out[0], out[1], kernel, stride, padding, dilation, pool)


def convolutions(dice: random.Random, module: Any) -> None:
    """All that is made of one convolution. module: honestdp.kernels.convolution, or another with some of its functions."""
    shape, runs, lot = shape_of(dice), dice.randint(1, 3), dice.choice((1, 2, 3))
    maker = torch.Generator().manual_seed(dice.randrange(2**31))
    bias = dice.random() < 0.7
    x = lying(torch.randn(runs * lot, shape.channels, shape.height, shape.width, generator=maker), dice)
    grad = lying(torch.randn(runs * lot, shape.rows, *shape.pooled, generator=maker), dice)
    weight = torch.randn(runs, shape.rows, shape.channels, *shape.kernel, generator=maker)
    weights = torch.rand(runs, lot, generator=maker) * (torch.rand(runs, lot, generator=maker) < 0.7)
    shift = torch.randn(runs, shape.rows, generator=maker) if bias else None
    counts = torch.randint(0, lot + 1, (runs,), generator=maker).int() if dice.random() < 0.6 else None
    chosen = None
    if shape.pool > 1:
        drawn = torch.randint(0, shape.pool**2, (runs * lot, *shape.pooled, shape.rows), generator=maker)
        chosen = drawn.to(torch.uint8).permute(0, 3, 1, 2)
    if hasattr(module, "forward"):
        module.forward(x, weight, shift, shape, relu=dice.random() < 0.5, counts=counts)
        module.back(grad, chosen, weight, shape, counts=counts)
    if hasattr(module, "unpool") and chosen is not None:
        module.unpool(grad, chosen, shape, counts=counts)
    if not hasattr(module, "square_norms"):
        return
    kind: dict[str, Any] = {"bias": bias, "dtype": dice.choice((torch.float32, torch.float64))}
    for keep in (False, True):
        kept = module.square_norms(x, grad, chosen, shape, runs=runs, bias=bias, keep=keep, counts=counts)[1]
        if kept is not None:
            module.sum_rows(kept, weights, shape, **kind)
    module.weighted_sum(x, grad, chosen, weights, shape, **kind)


def taps(dice: random.Random, module: Any) -> None:
    """Gradients of a convolution that are made by its nine taps. module: honestdp.kernels.gradients."""
    from honestdp.kernels.tiles import BY_TAPS, nine_parts

    shape, runs, lot = shape_of(dice), dice.randint(1, 2), dice.choice((1, 2))
    while not nine_parts(shape):
        shape = shape_of(dice)
    x = lying(torch.randn(runs * lot, shape.channels, shape.height, shape.width), dice)
    grad = lying(torch.randn(runs * lot, shape.rows, shape.out_height, shape.out_width), dice)
    counts = torch.randint(0, lot + 1, (runs,)).int() if dice.random() < 0.5 else None
    how = {"runs": runs, "bias": dice.random() < 0.7, "keep": True, "counts": counts}
    module.square_norms(x, grad, None, shape, tiles=(16, 32, 16, 4, 1, BY_TAPS, 1), **how)


def several(dice: random.Random, module: Any) -> None:
    """A convolution of stride 1 and its way back by blocks of positions. module: honestdp.kernels.blocks."""
    from honestdp.kernels import Shape

    runs, lot, (down, right), pool = dice.randint(1, 2), dice.choice((1, 2)), dice.choice(((2, 2), (1, 2), (1, 1))), 1
    sides, pad = (dice.randint(4, 9), dice.randint(4, 9)), (dice.randrange(3), dice.randrange(3))
    if (down, right) == (2, 2) and dice.random() < 0.5:
        pool = 2
    out = [side + 2 * each - 2 for side, each in zip(sides, pad, strict=True)]
    shape = Shape(16, *sides, 16, *out, (3, 3), (1, 1), pad, (1, 1), pool)
    x, grad = lying(torch.randn(runs * lot, 16, *sides), dice), lying(torch.randn(runs * lot, 16, *out), dice)
    weight, shift = torch.randn(runs, 16, 16, 3, 3), torch.randn(runs, 16) if dice.random() < 0.7 else None
    counts = torch.randint(0, lot + 1, (runs,)).int() if dice.random() < 0.5 else None
    wide = dice.choice((16, 32)) if right == 2 else 16
    tiles = (16, 16 * down * right, wide, 1, dice.choice((0, 1, -2)), down, right)
    assert module.takes(shape, tiles, back=False)
    module.product(x, weight, shift, shape, back=False, relu=dice.random() < 0.5, counts=counts, tiles=tiles)
    bare = shape._replace(pool=1)
    module.product(grad, weight, None, bare, back=True, counts=counts, tiles=tiles)


def norms(dice: random.Random, module: Any) -> None:
    """A norm of groups, forward and back."""
    runs, lot, groups, deep = dice.randint(1, 3), dice.choice((1, 2, 5)), dice.choice((1, 2, 4)), dice.choice((1, 2, 8))
    x = torch.randn(runs * lot, groups * deep, dice.randint(1, 9), dice.randint(1, 9))
    x = x.contiguous(memory_format=torch.channels_last)
    assert module.takes(x, groups)
    gain, shift = (torch.randn(runs, groups * deep) if dice.random() < 0.7 else None for _ in range(2))
    _, means, scales = module.forward(x, gain, shift, groups, 1e-5)
    grad = torch.randn(x.shape).contiguous(memory_format=torch.channels_last)
    module.back(x, grad, gain, means, scales, groups)


def passes(dice: random.Random, module: Any) -> None:
    """The kernels of `fused`."""
    records, width, rows = dice.choice((1, 7, 40)), dice.choice((1, 3, 64, 100, 2049)), dice.choice((1, 10, 33, 1030))
    runs, lot = dice.randint(1, 3), dice.choice((1, 2, 5, 17))
    numbers = dice.choice((torch.zeros(records, width, dtype=torch.uint8), torch.randn(records, width)))
    labels = torch.zeros(records, dtype=dice.choice((torch.uint8, torch.int64)))
    index = torch.randint(0, records, (runs * lot,))
    index[-1] = records - 1
    module.gather(numbers, labels, index, 1.0)
    left, right = torch.randn(runs, lot, rows), torch.randn(runs, lot, width)
    module.weigh(left, torch.rand(runs, lot))
    module.widened(left, torch.rand(runs, lot).round())
    for shift in (False, True):
        module.outer_square_norms(left, right, right_is_norms=False, shift=shift)
        module.outer_square_norms(left, right.norm(dim=2), right_is_norms=True, shift=shift)
    module.noisy(torch.randn(runs, width).double(), torch.randn(runs, width), torch.rand(runs), shift=1.0)
    module.differs(left.view(torch.int32), left.view(torch.int32), torch.zeros((), dtype=torch.bool))


def far(module: Any, fused: Any) -> None:
    """Populations of more than 2^31 numbers. What programs at the ends do not touch takes no memory."""
    from honestdp.kernels import Shape

    runs, lot = 3, 3700
    shape = Shape(16, 56, 56, 16, 56, 56, (3, 3), (1, 1), (1, 1), (1, 1), 2)
    spread = shape._replace(pool=1)
    sides = (shape.height, shape.width)
    x, flat = (torch.empty(4 * runs * lot, *sides, 16).permute(0, 3, 1, 2) for _ in range(2))
    grad = torch.empty(4 * runs * lot, *shape.pooled, 16).permute(0, 3, 1, 2)
    chosen = torch.empty(4 * runs * lot, *shape.pooled, 16, dtype=torch.uint8).permute(0, 3, 1, 2)
    assert min(x.numel(), flat.numel()) > 2**31
    weight, shift = torch.empty(4 * runs, 16, 16, 3, 3), torch.empty(4 * runs, 16)
    module.forward(x, weight, shift, shape)
    module.unpool(grad, chosen, shape)
    module.back(flat, None, weight, spread)
    module.back(grad, chosen, weight, shape)
    wide = shape._replace(height=112, width=112, stride=(2, 2), pool=1)  # as far, from an output of a quarter
    module.back(flat[: 3 * runs * lot // 10 * 4], None, weight, wide)
    for keep in (False, True):
        module.square_norms(x, flat, None, spread, runs=4 * runs, bias=True, keep=keep)
    weights = torch.zeros(4 * runs, lot)
    weights[:, :: lot - 1] = 1
    module.weighted_sum(x, flat, None, weights, spread, bias=True, dtype=torch.float64)
    kept = torch.empty(4 * runs, lot, 16 * 145 * 22)
    assert kept.numel() > 2**31
    module.sum_rows(kept, weights, spread._replace(rows=16 * 22), bias=True, dtype=torch.float32)
    fused.weigh(kept, weights)
    fused.widened(kept[:6], weights[:6])
    records = torch.empty(700_000, 3072, dtype=torch.uint8)
    last = torch.tensor([0, len(records) - 1])
    fused.gather(records, torch.empty(len(records), dtype=torch.int64), last, 1.0)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Within, the engine takes the kernels on a CPU too."""
    from honestdp import kernels
    from honestdp.kernels import convolution, fused, normalisation

    with (
        mock.patch.object(kernels, "on", return_value=fused),
        mock.patch.object(kernels, "convolutions", return_value=convolution),
        mock.patch.object(kernels, "normalisations", return_value=normalisation),
    ):
        yield


def trained(number: int) -> None:
    """Train two runs of a small network on a few made-up records, with lots of none to all of them."""
    import honestdp

    body = [nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2)]
    body += [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 2), nn.ReLU()]
    draws = torch.Generator().manual_seed(number)
    x, y = torch.randn(3, 3, 12, 12, generator=draws), torch.arange(3)
    honestdp.train_population(
        [nn.Sequential(*body, nn.Flatten(), nn.Linear(64, 3)) for _ in range(2)], (x, y),
        run=honestdp.Run(records=3, lot=1.5, steps=2, noise=1.0),
        optimizers=[honestdp.optimizers.SGD(lr=0.1, clip=1.0)] * 2, noise_seed=number,
    )  # fmt: skip


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--many", type=int, default=6, help="random shapes of every kind; 6 if left out")
    parser.add_argument("--first", type=int, default=0, help="the number of the first, to go on or to repeat one")
    parser.add_argument("--far", action="store_true", help="offsets of more than 2^31 numbers")
    asked = parser.parse_args(words)
    import triton

    if not triton.knobs.runtime.interpret:
        print("kernel_bounds: error: TRITON_INTERPRET=1 has to be in the environment", file=sys.stderr)
        return 2
    from honestdp.kernels import blocks, convolution, fused, gradients, normalisation

    from .guarded import OutsideError, guarded

    every = {convolutions: convolution, several: blocks, taps: gradients, norms: normalisation, passes: fused}
    jobs: list[tuple[str, Callable[[], None], bool]] = []
    for number in range(asked.first, asked.first + asked.many):
        for what, module in every.items():
            jobs.append((f"{what.__name__} {number}", lambda w=what, m=module, n=number: w(random.Random(n), m), False))
    jobs.append((f"trained {asked.first}", lambda: trained(asked.first), False))
    jobs += [("far", lambda: far(convolution, fused), True)] if asked.far else []
    counts: Counter[str] = Counter()
    for name, job, ends in jobs:
        began = time.perf_counter()
        try:
            with guarded(ends=ends) as launched, as_on_a_gpu():
                job()
        except OutsideError as outside:
            print(f"kernel_bounds: {name}: {outside}", file=sys.stderr)
            return 1
        counts += launched
        if ends:
            print(f"{time.perf_counter() - began:6.1f} s  {name}: {launched.total()} launches", flush=True)
    print("no kernel left its tensors: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
