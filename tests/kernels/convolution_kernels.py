"""The GPU kernels of convolutions against tensor operations, and the times of their tiles.

    python -m tests.kernels.convolution_kernels [cuda] [--share 0/8]         # of the cases, every eighth from the first
    python -m tests.kernels.convolution_kernels cuda --tune [A2 R1:norms ...] [--json tiles.json]  # a line as soon as it is known
    python -m tests.kernels.convolution_kernels cuda --compile 0/8 [A2 ...]  # every eighth kernel; then --tune A2 compiled

Times are microseconds a run of 40 runs with room for 329 examples each; beside them the TFLOP/s, and the time that the numbers
which must be read and written take at 4 TB/s. All tiles are compiled first, by as many processes as there are cores.
On a CPU it needs Triton's interpreter: TRITON_INTERPRET=1. test_convolution.py runs it so.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CASES: dict[str, dict[str, Any]] = {
    "one channel": {"size": (1, 8, 9, 5), "kernel": (3, 3)},
    "a pool of two": {"size": (16, 7, 7, 16), "kernel": (3, 3), "pool": 2},
    "one product ahead": {
        "size": (16, 7, 7, 16),
        "kernel": (3, 3),
        "pool": 2,
        "products": (64, 16, 16, 4, 0),
        "gradients": (16, 32, 16, 4, 1, 0, 5),
    },
    "padding, one product ahead": {
        "size": (16, 5, 6, 16),
        "kernel": (3, 3),
        "padding": (1, 1),
        "products": (32, 16, 16, 4, 0),
        "gradients": (16, 64, 16, 4, 1, 1, 3),
    },
    "nine at once": {"size": (16, 7, 7, 16), "kernel": (3, 3), "pool": 2, "kept": (16, 16, 16, 1, 1, 2, 1)},
    "nine at once, padding and stride": {
        "size": (32, 7, 8, 24),
        "kernel": (3, 3),
        "padding": (1, 1),
        "stride": (2, 1),
        "bias": False,
        "kept": (16, 16, 32, 1, 1, 2, 1),
    },
    "four positions at once, a pool": {
        "size": (16, 8, 9, 16),
        "kernel": (3, 3),
        "pool": 2,
        "products": (64, 64, 16, 4, 0, 2, 2),
    },
    "two positions at once, padding": {
        "size": (16, 6, 7, 16),
        "kernel": (3, 3),
        "padding": (1, 1),
        "products": (64, 32, 32, 4, 2, 1, 2),
    },
    "one position, through the first cache": {
        "size": (16, 6, 7, 16),
        "kernel": (3, 3),
        "padding": (2, 1),
        "products": (64, 16, 16, 4, -3, 1, 1),
    },
    "many channels, through the first cache": {
        "size": (64, 4, 4, 16),
        "kernel": (3, 3),
        "products": (64, 16, 32, 4, -2),
    },
    "padding, channels first": {"size": (16, 7, 7, 8), "kernel": (3, 3), "padding": (1, 1), "last": False},
    "a stride, without bias": {
        "size": (3, 9, 8, 7),
        "kernel": (3, 2),
        "stride": (2, 2),
        "padding": (1, 0),
        "bias": False,
    },
    "a stride, one channel": {"size": (1, 7, 6, 8), "kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)},
    "a stride, two channels, rows beside a tile": {
        "size": (2, 6, 8, 20),
        "kernel": (2, 3),
        "stride": (3, 2),
        "padding": (0, 2),
        "last": False,
    },
    "dilation": {"size": (16, 9, 9, 16), "kernel": (4, 4), "stride": (2, 2), "dilation": (2, 1), "padding": (2, 1)},
    "a pool of four": {"size": (1, 12, 12, 4), "kernel": (3, 3), "pool": 4, "last": False},
    "dilation of three": {
        "size": (16, 8, 9, 32),
        "kernel": (3, 3),
        "stride": (2, 1),
        "dilation": (3, 3),
        "padding": (3, 2),
    },
    "dilation and a pool": {"size": (3, 9, 9, 8), "kernel": (3, 3), "dilation": (2, 2), "padding": (2, 2), "pool": 2},
    "five by five": {"size": (8, 7, 7, 16), "kernel": (5, 5), "stride": (2, 2), "padding": (2, 2)},
    "one by one": {"size": (32, 5, 5, 16), "kernel": (1, 1)},
    "as an autoencoder's": {"size": (32, 7, 7, 16), "kernel": (4, 4), "stride": (2, 2), "padding": (1, 1)},
    "one tall and one wide": {"size": (16, 6, 8, 16), "kernel": (1, 5), "stride": (1, 2), "padding": (0, 2), "pool": 2},
    "64 rows": {"size": (32, 4, 5, 64), "kernel": (3, 3), "padding": (1, 1)},
}
"""size: channels, height, width and rows; products, gradients and kept: tiles, where not the usual ones."""


def compare(device: torch.device, share: int = 0, of: int = 1) -> str:
    """Every kernel against its reference, with all digits and in TensorFloat-32; an AssertionError names all that are off.

    share: of the cases, in each precision one, every `of`-th.
    """
    off = [] if share else _as_the_engine_checks_them(device)
    # The interpreter has one precision.
    precisions = (("highest", 1e-5), ("high", 5e-3))[: 1 if device.type == "cpu" else 2]
    for name, (precision, tolerance) in list(itertools.product(CASES, precisions))[share::of]:
        torch.set_float32_matmul_precision(precision)
        try:
            found = _compare(device, tolerance, **CASES[name])
            off += [f"{name} ({precision}): {each}" for each in found]
        except Exception as trouble:  # a kernel that does not compile: the other cases are still told
            off.append(f"{name} ({precision}): {type(trouble).__name__}: {trouble}")
        finally:
            torch.set_float32_matmul_precision("highest")
    assert not off, "\n".join([f"{len(off)} are off", *off])
    return (
        "convolutions with and without a pool, their way back, norms and sums of gradients, kept and made again; "
        "GroupNorm"
    )


def _as_the_engine_checks_them(device: torch.device) -> list[str]:
    """A small convolution and a norm of groups, forward and back."""
    from honestdp.kernels import Shape, convolution, normalisation
    from honestdp.kernels.checked import CheckedConvolutions, CheckedNorms

    x = torch.zeros(6, 16, 6, 6, device=device).contiguous(memory_format=torch.channels_last)
    gain, means = torch.zeros(2, 16, device=device), torch.zeros(6, 16, device=device)
    weight, shape = (
        torch.zeros(2, 16, 16, 3, 3, device=device),
        Shape(16, 6, 6, 16, 4, 4, (3, 3), (1, 1), (0, 0), (1, 1)),
    )
    counts = torch.zeros(2, dtype=torch.int32, device=device)
    settings = {"relu": True, "counts": counts}
    agrees = {
        "a small convolution": CheckedConvolutions(convolution)._agrees("forward", (x, weight, gain, shape), settings),
        "a norm": CheckedNorms(normalisation)._agrees("forward", (x, gain, gain, 4, 1e-5), {}),
        "its way back": CheckedNorms(normalisation)._agrees("back", (x, x, gain, means, means, 4), {}),
    }
    return [f"as the engine checks them: {name}" for name, right in agrees.items() if not right]


def _compare(
    device: torch.device, tolerance: float, *, size: tuple[int, ...], kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0), dilation: tuple[int, int] = (1, 1),
    pool: int = 1, last: bool = True, bias: bool = True, runs: int = 2, lot: int = 3,
    products: tuple[int, ...] | None = None, gradients: tuple[int, ...] | None = None, kept: tuple[int, ...] | None = None,
) -> list[str]:  # fmt: skip
    """What is off, and how far."""
    from honestdp.kernels import Shape, convolution

    from . import plain_convolution as plain

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

    off: list[str] = []

    def check(right: bool, what: str) -> None:
        off.extend([] if right else [what])

    def near(one: Tensor, other: Tensor, what: str) -> None:
        apart = (one.cpu().double() - other.double()).abs()
        wrong, many = (apart.max() / other.double().abs().max()).item(), (~(apart <= 1e-4 * other.abs().max())).sum()
        check(wrong <= tolerance, f"{what} is off by {wrong:.1e} ({many} of {apart.numel()} numbers)")

    put = [None if value is None else value.to(device) for value in (x, grad, weight, shift, weights)]
    after = plain.forward(x, weight, shift, shape, relu=True)[0]
    made = convolution.forward(put[0], put[2], put[3], shape, relu=True, tiles=products)[0]
    near(made, after, "forward with ReLU")
    check(made.is_contiguous(memory_format=torch.channels_last), "forward: another layout")
    wanted, which = plain.forward(x, weight, shift, shape)
    found, chosen = convolution.forward(put[0], put[2], put[3], shape, tiles=products)
    near(found, wanted, "forward")
    if which is not None and tolerance < 1e-4:
        check(torch.equal(chosen.cpu(), which), "other positions are the largest")
    which = which if chosen is None else chosen.cpu()
    if which is not None:
        near(convolution.unpool(put[1], chosen, shape), plain.unpool(grad, which, shape), "unpool")
    back = convolution.back(put[1], chosen, put[2], shape, tiles=products)
    near(back, plain.back(grad, which, weight, shape), "back")
    none = put[1].clone()
    none[1] = float("nan")
    others = convolution.back(none, chosen, put[2], shape, tiles=products).isfinite().flatten(1).all(1)
    check(others.tolist().count(False) == 1 and not others[1], "back: what is no number reaches another example")
    squares, _ = plain.square_norms(x, grad, which, shape, runs=runs, bias=bias, keep=False)
    settings = {"bias": bias, "dtype": torch.float64}
    total, moved = plain.weighted_sum(x, grad, which, weights, shape, **settings)
    slopes, picks, bare = put[1], chosen, shape
    if kept is not None and chosen is not None:  # of a gradient that was spread out
        slopes, picks, bare = convolution.unpool(slopes, chosen, shape), None, shape._replace(pool=1)
    for keep, dtype in itertools.product((False, True), (torch.float32, torch.float64)):
        tiles = kept if keep and kept is not None else gradients
        own, rows = convolution.square_norms(put[0], slopes, picks, bare, runs=runs, bias=bias, keep=keep, tiles=tiles)
        near(own, squares, f"square_norms{', kept' * keep}")
        settings["dtype"] = dtype
        if keep:
            sums = convolution.sum_rows(rows, put[4], shape, **settings)
        else:
            sums = convolution.weighted_sum(put[0], put[1], chosen, put[4], shape, **settings)
            off += _bounds(convolution, put, chosen, shape, own, bias)
        near(sums[0], total, f"the sum{' of what was kept' * keep}, {dtype}")
        if bias:
            near(sums[1], moved, "the sum of the bias")
    if products is not None or kept is not None or stride != (1, 1) or device.type != "cpu":
        off += _padded(convolution, put, chosen, shape, products, kept or gradients)
    return list(dict.fromkeys(off))


def _padded(
    convolution: Any, put: list[Tensor], chosen: Tensor | None, shape: Any, products: Any, gradients: Any
) -> list[str]:
    """Examples behind those that are wanted change nothing of these, whatever they hold, and have norms of 0."""
    x, grad, weight, shift, weights = put
    runs, lot = weights.shape
    counts = torch.tensor([lot - 1, *[1] * (runs - 1)], dtype=torch.int32, device=x.device)
    wanted = (torch.arange(lot, device=x.device) < counts[:, None]).flatten()
    bare = shape._replace(pool=1)
    flat = grad if chosen is None else convolution.unpool(grad, chosen, shape)
    spoilt = [torch.where(wanted.view(-1, 1, 1, 1), value, torch.nan) for value in (x, grad, flat)]
    how = {"runs": runs, "bias": shift is not None, "keep": True, "tiles": gradients}
    made = [
        [
            convolution.forward(x, weight, shift, shape, tiles=products, **few)[0],
            convolution.back(grad, chosen, weight, shape, tiles=products, **few),
            convolution.back(flat, None, weight, bare, tiles=products, **few),
            *([] if chosen is None else [convolution.unpool(grad, chosen, shape, **few)]),
            *(part.flatten(0, 1) for part in convolution.square_norms(x, flat, None, bare, **how, **few)),
            *(part.flatten(0, 1) for part in convolution.square_norms(x, grad, chosen, shape, **how, **few)),
        ]
        for (x, grad, flat), few in (([*put[:2], flat], {}), (spoilt, {"counts": counts}))
    ]
    found = []
    for at, (one, other) in enumerate(zip(*made, strict=True)):
        off = (one - other)[wanted].abs().max() / one[wanted].abs().max()
        if not off <= 1e-5:  # NaN is not <= anything
            found.append(f"what is not wanted changes the others by {off:.1e} (result {at})")
    if any(norms[~wanted].any() for norms in (made[1][-2], made[1][-4])):
        found.append("the norm of what is not wanted")
    return found


def _bounds(
    convolution: Any, put: list[Tensor], chosen: Tensor | None, shape: Any, own: Tensor, bias: bool
) -> list[str]:
    """What a sum makes again of one example is what was measured of it: the norm of a sum of it alone."""
    alone = torch.zeros_like(put[4])
    alone[:, -1] = 1
    total, moved = convolution.weighted_sum(put[0], put[1], chosen, alone, shape, bias=bias, dtype=torch.float64)
    squares = total.flatten(1).square().sum(1) + (moved.square().sum(1) if bias else 0)
    same = ((squares - own[:, -1]).abs() <= 1e-5 * squares).all()
    return [] if same else ["the sum has another gradient than the norm"]


LAYERS = {
    "A1": (1, 28, 28, 32, 0, 2), "A2": (32, 13, 13, 64, 0, 2), "B1": (1, 28, 28, 16, 0, 1), "B2": (16, 26, 26, 16, 0, 2),
    "B3": (16, 12, 12, 32, 0, 1), "B4": (32, 10, 10, 64, 0, 1), "R1": (16, 32, 32, 16, 1, 1),
    "R2": (32, 16, 16, 32, 1, 1), "R3": (64, 8, 8, 64, 1, 1),
}  # fmt: skip
"""Of the three networks of benchmarks/convolutions.py: channels, height, width, rows, padding, pool; kernels of 3x3."""
RUNS, LOT = 40, 329
Tiles = tuple[int, ...]


def product_tries(read: int, made: int) -> list[Tiles]:
    """Tiles of forward and back: one product ahead (0), none of the loads ahead, two and three, these through the first cache
    too (below 0, forward); several positions at once."""
    from honestdp.kernels.tiles import power

    n, k = power(made, 64), min(32, power(read, 64))
    ahead = [(64, k, 4, 0), (128, k, 4, 0), (128, k, 8, 0), (256, k, 8, 0)] if 16 <= read <= 32 else []
    plain = [(128, k, 4, 1), (128, k, 4, 2), (128, k, 4, 3), (128, k, 4, 4), (256, k, 8, 3), (128, k, 8, 3)]
    plain += [(128, k, 4, -2), (128, k, 4, -3)]
    small = [(64, k, 4, 3), (64, k, 4, 2), (64, k, 2, 3), (32, k, 1, 3)]
    several = block_tries(read, made) if read >= 16 else []
    return [*((m, n, *rest) for m, *rest in [*ahead, *plain, *small]), *several]


def block_tries(read: int, made: int) -> list[Tiles]:
    """Of several positions at once; the last two are the sides of a block."""
    tries: list[Tiles] = []
    for down, right in ((2, 2), (1, 2), (1, 1)):
        n, numbers = made * down * right, (down + 2) * (right + 2) * read
        k = next(k for k in (32, 16) if numbers % k == 0)
        if n > 128 or n & (n - 1):
            continue
        few = [(64, k, 4, 3), (128, k, 8, 3), (128, k, 8, 2)]
        few += [(128, k, 4, 2), (128, k, 4, 3), (256, k, 8, 2)] if n <= 64 else []
        few += [(128, 64, 4, 2)] if n <= 64 and numbers % 64 == 0 else []
        tries += [(m, n, kk, w, way * s, down, right) for m, kk, w, s in few for way in (1, -1)]
    return list(dict.fromkeys(tries))


def gradient_tries(rows: int, columns: int) -> list[Tiles]:
    """Of gradients: nine parts of 16 or 32 channels at once, where there are such; else a tile of columns a program, or all of
    them; the last two ways round.
    """
    from honestdp.kernels.tiles import power

    tries: list[Tiles] = []
    if columns % 144 == 0:
        each = ((32, 1, 2), (32, 1, 3), (64, 1, 2), (16, 1, 2), (16, 1, 3), (32, 2, 2), (64, 2, 2))
        most = power(rows, 64)
        sides = [(o, *rest) for o in {most, max(16, most // 2)} for rest in each]
        tries = [(o, 16, p, w, s, 2, 1) for o, p, w, s in sides if o <= 32 * w]  # what one warp's registers hold
        wide = ((32, 2), (32, 3), (16, 3)) if columns % 288 == 0 else ()
        return tries + [(min(32, most), 32, p, 2, s, 2, 1) for p, s in wide]
    if columns <= 16:  # little to multiply: by a warp alone, which waits for no other
        tries = [(power(rows, 64), 16, p, w, s, 0, 1) for p, w in ((32, 1), (64, 1), (128, 2)) for s in (2, 3)]
    for k, p, w, s, f in (
        (32, 64, 2, 2, 0), (32, 64, 2, 1, 0), (64, 64, 4, 1, 0), (64, 64, 4, 1, 1), (128, 32, 4, 1, 1), (128, 64, 8, 1, 0),
        (256, 32, 4, 1, 1), (256, 32, 8, 1, 0),
    ):  # fmt: skip
        k = power(columns, k)
        turns = -(-columns // k)
        tries += [(power(rows, 64), k, p, w, s, f, t) for t in {1, turns if s == 1 else 1}]
    return list(dict.fromkeys(tries))


def _jobs(name: str, *, runs: int, lot: int) -> Iterator[tuple[str, Any, list[Tiles], float, float]]:
    """Of a layer: what is done, by what, its tiles, the FLOP and the bytes."""
    from honestdp.kernels import Shape, convolution

    channels, height, width, rows, pad, pool = LAYERS[name]
    out, settings = (height + 2 * pad - 2, width + 2 * pad - 2), ((3, 3), (1, 1), (pad, pad), (1, 1))
    pooled = Shape(channels, height, width, rows, *out, *settings, pool)
    shape, count, last = pooled._replace(pool=1), runs * lot, {"memory_format": torch.channels_last}
    x = torch.randn(count, channels, height, width, device="cuda").contiguous(**last)
    grad = torch.randn(count, rows, *out, device="cuda").contiguous(**last)
    weight, shift = torch.randn(runs, rows, channels, 3, 3, device="cuda"), torch.randn(runs, rows, device="cuda")

    def forward(tiles: Tiles | None) -> None:
        convolution.forward(x, weight, shift, pooled, relu=True, tiles=tiles)

    def back(tiles: Tiles | None) -> None:
        convolution.back(grad, None, weight, shape, tiles=tiles)

    def norms(tiles: Tiles | None) -> None:
        convolution.square_norms(x, grad, None, shape, runs=runs, bias=True, keep=True, tiles=tiles)

    flop = 2.0 * lot * out[0] * out[1] * rows * shape.columns
    read, written = (4.0 * lot * channels * height * width, 4.0 * lot * rows * out[0] * out[1])
    yield "forward", forward, product_tries(channels, rows), flop, read + written * (1.25 / pool**2 if pool > 1 else 1)
    if channels > 1:
        yield "back", back, product_tries(rows, channels), flop, 2 * read + written
    kept = 4.0 * lot * rows * shape.columns
    if channels >= 16 or pool == 1:
        yield "norms", norms, gradient_tries(rows, shape.columns), flop, read + written + kept
    if pool > 1:  # the gradient picked in every read, as the engine does below 16 channels, in place of spread out once
        grad = grad[..., : pooled.pooled[0], : pooled.pooled[1]].contiguous(**last)
        chosen = torch.randint(0, 4, grad.shape, dtype=torch.uint8, device="cuda").contiguous(**last)

        def back_of_pool(tiles: Tiles | None) -> None:
            convolution.back(grad, chosen, weight, pooled, tiles=tiles)

        def norms_of_pool(tiles: Tiles | None) -> None:
            convolution.square_norms(x, grad, chosen, pooled, runs=runs, bias=True, keep=True, tiles=tiles)

        small, picked = written / pool**2 * 1.25, "norms" if channels < 16 else "norms-of-pool"
        yield picked, norms_of_pool, gradient_tries(rows, shape.columns), flop, read + small + kept
        if channels > 1:
            yield "back-of-pool", back_of_pool, product_tries(rows, channels), flop, 2 * read + small


WHAT = ("forward", "back", "norms", "norms-of-pool", "back-of-pool")


def _chosen(words: list[str], *, runs: int) -> Iterator[tuple[str, str, Any, list[Tiles], float, float]]:
    """The jobs of the layers that are named, all where none is; of what is done likewise, or as R1:norms of one layer."""
    names = [word for word in words if word.split(":")[0] in LAYERS] or list(LAYERS)
    wanted = [word for word in words if word in WHAT] or WHAT
    for name, alone in ((word.split(":")[0], word.split(":")[1:]) for word in names):
        for what, job, tries, flop, size in _jobs(name, runs=runs, lot=LOT):
            if what in (alone or wanted):
                yield name, what, job, tries, flop, size


def _compile(words: list[str], share: int, of: int) -> None:
    """Compile every `of`-th kernel: what is compiled is kept on the disk, where others find it."""
    torch.set_float32_matmul_precision("high")
    number = 0
    for _, _, job, tries, _, _ in _chosen(words, runs=1):
        for tiles in [None, *tries]:
            number += 1
            if number % of == share:
                with contextlib.suppress(Exception):  # tiles that do not fit
                    job(tiles)


def tune(words: list[str], json_file: str | None) -> None:
    """Microseconds per run of every kernel by its tiles, those in use and the best four, layer by layer."""
    torch.set_float32_matmul_precision("high")
    of = 0 if "compiled" in words else max(1, (os.cpu_count() or 2) - 1)
    began = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.convolution_kernels", "cuda", "--compile"]
    workers = [subprocess.Popen([*command, f"{share}/{of}", *words]) for share in range(of)]
    for worker in workers:
        worker.wait()
    print(f"compiled in {time.perf_counter() - began:.0f} s", flush=True)
    found: dict[str, Any] = {}
    for name, what, job, tries, flop, size in _chosen(words, runs=RUNS):
        usual = _clock(job, None) / RUNS
        times = sorted((_clock(job, tiles) / RUNS, tiles) for tiles in tries)
        best = " ".join(f"{t:.1f} {list(tiles)}" for t, tiles in times[:4])
        rate, floor = flop / times[0][0] / 1e6, size / 4e6
        print(
            f"{name} {what}: {usual:.1f} now; {best.replace(', ', ' ')}; {rate:.0f} TF, memory {floor:.1f}", flush=True
        )
        found[f"{name} {what}"] = {"now": usual, "memory": floor, "TFLOP/s": rate, "times": times}
        if json_file is not None:  # as it goes: what is stopped leaves what it has found
            Path(json_file).write_text(json.dumps(found) + "\n")


def _clock(job: Any, tiles: Tiles | None, repeats: int = 4) -> float:
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


def main(words: list[str]) -> None:
    json_file = None
    if "--json" in words:
        at = words.index("--json")
        json_file = words[at + 1]
        words = words[:at] + words[at + 2 :]
    if "--compile" in words:
        share, of = words[words.index("--compile") + 1].split("/")
        _compile(words[words.index("--compile") + 2 :], int(share), int(of))
    elif "--tune" in words:
        tune(words[words.index("--tune") + 1 :], json_file)
    else:
        share, of = words[words.index("--share") + 1].split("/") if "--share" in words else ("0", "1")
        named = [word for word in words[:1] if word != "--share"]
        print(compare(torch.device(named[0] if named else "cpu"), int(share), int(of)))


if __name__ == "__main__":
    main(sys.argv[1:])
