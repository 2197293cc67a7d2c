"""The GPU kernels of convolutions against tensor operations, and the times of their tiles.

    python benchmarks/convolution_kernels.py [cuda]
    python benchmarks/convolution_kernels.py cuda --tune [A2 R1 ...]      # times by tiles, a line as soon as it is known

On a CPU it needs Triton's interpreter: TRITON_INTERPRET=1. tests/kernels/test_convolution.py runs it so.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

CASES: dict[str, dict[str, Any]] = {
    "one channel": {"size": (1, 8, 9, 5), "kernel": (3, 3)},
    "a pool of two": {"size": (16, 7, 7, 16), "kernel": (3, 3), "pool": 2},
    "padding, channels first": {"size": (16, 7, 7, 8), "kernel": (3, 3), "padding": (1, 1), "last": False},
    "a stride, without bias": {
        "size": (3, 9, 8, 7),
        "kernel": (3, 2),
        "stride": (2, 2),
        "padding": (1, 0),
        "bias": False,
    },
    "dilation": {"size": (16, 9, 9, 16), "kernel": (4, 4), "stride": (2, 2), "dilation": (2, 1), "padding": (2, 1)},
    "a pool of four": {"size": (1, 12, 12, 4), "kernel": (3, 3), "pool": 4, "last": False},
}
"""size: channels, height, width and rows."""


def compare(device: torch.device) -> str:
    """Every kernel against its reference, with all digits and in TensorFloat-32; an AssertionError names the case."""
    for name, case in CASES.items():
        for precision, tolerance in (("highest", 1e-5), ("high", 5e-3)):
            if precision == "high" and device.type == "cpu":
                continue  # the interpreter has one precision
            torch.set_float32_matmul_precision(precision)
            try:
                _compare(name, device, tolerance, **case)
            finally:
                torch.set_float32_matmul_precision("highest")
    return "convolutions with and without a pool, their way back, norms and sums of gradients, kept and made again"


def _compare(
    name: str, device: torch.device, tolerance: float, *, size: tuple[int, ...], kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0), dilation: tuple[int, int] = (1, 1),
    pool: int = 1, last: bool = True, bias: bool = True, runs: int = 2, lot: int = 3,
) -> None:  # fmt: skip
    from tests.kernels import plain_convolution as plain

    from honestdp.kernels import Shape, convolution

    maker = torch.Generator().manual_seed(1)
    channels, height, width, rows = size
    each = zip((height, width), kernel, stride, padding, dilation, strict=True)
    out = [(side + 2 * pad - step * (k - 1) - 1) // by + 1 for side, k, by, pad, step in each]
    shape = Shape(channels, height, width, rows, *out, kernel, stride, padding, dilation, pool)

    def made(*sizes: int) -> Tensor:
        values = torch.randn(sizes, generator=maker)
        return values.contiguous(memory_format=torch.channels_last) if last and len(sizes) == 4 else values

    x, grad = made(runs * lot, channels, height, width), made(runs * lot, rows, *shape.pooled)
    weight, shift = made(runs, rows, channels, *kernel), made(runs, rows) if bias else None
    weights = torch.rand(runs, lot, generator=maker)
    weights[0, 0] = 0

    def near(one: Tensor, other: Tensor, what: str) -> None:
        wrong = (one.cpu().double() - other.double()).abs().max() / other.double().abs().max()
        assert wrong <= tolerance, f"{name}: {what} is off by {wrong:.1e}"

    put = [None if value is None else value.to(device) for value in (x, grad, weight, shift, weights)]
    wanted, which = plain.forward(x, weight, shift, shape)
    found, chosen = convolution.forward(put[0], put[2], put[3], shape)
    near(found, wanted, "forward")
    if which is not None and tolerance < 1e-4:
        assert torch.equal(chosen.cpu(), which), f"{name}: other positions are the largest"
    which = which if chosen is None else chosen.cpu()
    if which is not None:
        near(convolution.unpool(put[1], chosen, shape), plain.unpool(grad, which, shape), "unpool")
    near(convolution.back(put[1], chosen, put[2], shape), plain.back(grad, which, weight, shape), "back")
    squares, _ = plain.square_norms(x, grad, which, shape, runs=runs, bias=bias, keep=False)
    settings = {"bias": bias, "dtype": torch.float64}
    total, moved = plain.weighted_sum(x, grad, which, weights, shape, **settings)
    for keep, dtype in itertools.product((False, True), (torch.float32, torch.float64)):
        own, kept = convolution.square_norms(put[0], put[1], chosen, shape, runs=runs, bias=bias, keep=keep)
        near(own, squares, "square_norms")
        settings["dtype"] = dtype
        if keep:
            sums = convolution.sum_rows(kept, put[4], shape, **settings)
        else:
            sums = convolution.weighted_sum(put[0], put[1], chosen, put[4], shape, **settings)
            _bounds(convolution, put, chosen, shape, own, bias)
        near(sums[0], total, "the sum")
        if bias:
            near(sums[1], moved, "the sum of the bias")


def _bounds(convolution: Any, put: list[Tensor], chosen: Tensor | None, shape: Any, own: Tensor, bias: bool) -> None:
    """What a sum makes again of one example is what was measured of it: the norm of a sum of it alone."""
    alone = torch.zeros_like(put[4])
    alone[:, -1] = 1
    total, moved = convolution.weighted_sum(put[0], put[1], chosen, alone, shape, bias=bias, dtype=torch.float64)
    squares = total.flatten(1).square().sum(1) + (moved.square().sum(1) if bias else 0)
    assert ((squares - own[:, -1]).abs() <= 1e-5 * squares).all(), "the sum has another gradient than the norm"


LAYERS = {
    "A1": (1, 28, 28, 32, 0, 2), "A2": (32, 13, 13, 64, 0, 2), "B2": (16, 26, 26, 16, 0, 2), "B3": (16, 12, 12, 32, 0, 1),
    "B4": (32, 10, 10, 64, 0, 1), "R1": (16, 32, 32, 16, 1, 1), "R2": (32, 16, 16, 32, 1, 1), "R3": (64, 8, 8, 64, 1, 1),
}  # fmt: skip
"""Of the three networks of benchmarks/convolutions.py: channels, height, width, rows, padding, pool; kernels of 3x3."""
PRODUCTS = [(m, k, w, s) for m, w in ((64, 4), (128, 4), (128, 8), (256, 8)) for k in (16, 32, 64) for s in (1, 3)]
GRADIENTS = [
    (k, p, w, s, f)
    for k in (32, 64, 128)
    for p in (32, 64, 128)
    for w, s in ((2, 1), (2, 2), (4, 1), (4, 2))
    for f in (0, 1)
]


def tune(names: list[str], runs: int = 40, lot: int = 329) -> None:
    """Microseconds per run of every kernel by its tiles, the best three, layer by layer."""
    torch.set_float32_matmul_precision("high")
    for name in names:
        for what, times in _times(*LAYERS[name], runs=runs, lot=lot):
            print(name, what, " ".join(f"{time:.1f} {tiles}" for time, tiles in times[:3]), flush=True)


def _times(
    channels: int, height: int, width: int, rows: int, pad: int, pool: int, *, runs: int, lot: int
) -> Iterator[tuple[str, list[tuple[float, tuple[int, ...]]]]]:
    from honestdp.kernels import Shape, convolution
    from honestdp.kernels.tiles import power

    out, settings = (height + 2 * pad - 2, width + 2 * pad - 2), ((3, 3), (1, 1), (pad, pad), (1, 1))
    pooled = Shape(channels, height, width, rows, *out, *settings, pool)
    shape, count = pooled._replace(pool=1), runs * lot
    last = {"memory_format": torch.channels_last}
    x = torch.randn(count, channels, height, width, device="cuda").contiguous(**last)
    grad = torch.randn(count, rows, *out, device="cuda").contiguous(**last)
    weight, shift = torch.randn(runs, rows, channels, 3, 3, device="cuda"), torch.randn(runs, rows, device="cuda")

    def forward(tiles: tuple[int, ...]) -> None:
        convolution.forward(x, weight, shift, pooled, tiles)

    def back(tiles: tuple[int, ...]) -> None:
        convolution.back(grad, None, weight, shape, tiles)

    def norms(tiles: tuple[int, ...]) -> None:
        convolution.square_norms(x, grad, None, shape, runs=runs, bias=True, keep=True, tiles=tiles)

    products = [[(m, power(made, 64), k, w, s) for m, k, w, s in PRODUCTS] for made in (rows, channels)]
    of_gradients = [(power(rows, 64), power(shape.columns, k), p, w, s, f) for k, p, w, s, f in GRADIENTS]
    for job, tries in ((forward, products[0]), (back, products[1]), (norms, of_gradients)):
        yield job.__name__, sorted((_clock(job, tiles) / runs, tiles) for tiles in dict.fromkeys(tries))


def _clock(job: Any, tiles: tuple[int, ...], repeats: int = 4) -> float:
    """Microseconds, or infinitely many where the tiles do not fit."""
    try:
        job(tiles)
    except Exception:
        return float("inf")
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    for _ in range(repeats):
        job(tiles)
    ended.record()
    torch.cuda.synchronize()
    return 1000 * began.elapsed_time(ended) / repeats


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--tune" in words:
        tune(words[words.index("--tune") + 1 :] or list(LAYERS))
    else:
        print(compare(torch.device(words[0] if words else "cpu")))
