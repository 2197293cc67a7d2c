"""Sums of gradients on a GPU: of a dense layer in float64, and of gradients that were kept; checked, and timed by their tiles.

    python benchmarks/sums.py [--check] [--json sums.json]

The layers are those of the network of 551322 parameters, 40 runs with lots of about 512 and room for 627. Times are microseconds
a run. What the engine takes now stands first; a tile that does better goes into `TILES` of kernels/products.py or `SUMMED` of
kernels/gradients.py. "widened" is what a dense layer's sum was before: a pass that converts, and a library's product.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src"), str(Path(__file__).resolve().parent)]

RUNS, LOT, ROOM = 40, 512, 627
APART = 551_324
"""Numbers from one run's sum to the next."""
PRODUCTS = (
    (64, 64, 16, 4, 2), (64, 64, 16, 4, 4), (64, 64, 32, 4, 2), (64, 64, 32, 4, 3), (128, 64, 16, 8, 3), (64, 128, 16, 8, 3),
    (128, 128, 16, 8, 2), (128, 128, 16, 8, 3), (64, 32, 16, 2, 3), (32, 64, 16, 2, 3),
)  # fmt: skip
"""Rows, columns and examples of a tile, warps, stages."""
KEPT = (
    (8, 128, 256, 4, 4), (8, 128, 512, 4, 3), (4, 128, 512, 4, 4), (16, 128, 256, 4, 3), (8, 64, 256, 4, 3), (8, 128, 256, 2, 3),
    (4, 128, 256, 2, 4), (8, 256, 256, 4, 3), (8, 128, 1024, 8, 3),
)  # fmt: skip
"""Gradients at a time and in all, numbers of each, warps, stages."""
LAYERS = {"B2": (16, 16), "B3": (16, 32), "B4": (32, 64)}
"""Channels and rows, of 3x3."""


def timed(step: Callable[[], object]) -> float:
    """Microseconds a run: the least of several rounds of 20, captured, so that the host's time is not in it."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            step()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / 20 / RUNS


def lots(device: torch.device) -> Tensor:
    """Weights of lots of about the expected size: `[runs, room]`, 0 behind the last member."""
    maker = torch.Generator().manual_seed(1)
    members = torch.normal(LOT, LOT**0.5, (RUNS, 1), generator=maker).round()
    weights = torch.rand(RUNS, ROOM, generator=maker) + 0.1
    return torch.where(torch.arange(ROOM) < members, weights, 0).to(device)


def dense(weights: Tensor, rows: int = 128, columns: int = 4096) -> dict[str, float]:
    from honestdp.kernels import fused, products

    device = weights.device
    left = fused.weigh(torch.randn(RUNS, ROOM, rows, device=device), weights)
    right = torch.randn(RUNS, ROOM, columns, device=device)
    right[weights == 0] = torch.nan
    room = torch.zeros(RUNS, APART, dtype=torch.float64, device=device)
    total = room[:, 4 : 4 + rows * columns].view(RUNS, rows, columns)

    def before() -> None:
        total.baddbmm_(left.mT.double(), fused.widened(right, weights))

    before()
    wanted = total.clone()
    ways: dict[str, Callable[[], object]] = {}
    for tiles in dict.fromkeys((products.TILES, *PRODUCTS)):
        ways[str(tiles)] = lambda tiles=tiles: products.add_products(total, left, right, weights, tiles=tiles)
    return measured("dense", {**ways, "widened": before}, lambda way: made(way, room, total), wanted)


def kept(name: str, weights: Tensor) -> dict[str, float]:
    from honestdp.kernels import Shape, gradients

    channels, rows = LAYERS[name]
    shape = Shape(channels, 3, 3, rows, 1, 1, (3, 3), (1, 1), (0, 0), (1, 1))
    numbers = torch.randn(RUNS, ROOM, rows * (9 * channels + 1), device=weights.device)
    numbers[weights == 0] = torch.nan
    ways: dict[str, Callable[[], Any]] = {}
    for tiles in dict.fromkeys((gradients.SUMMED, *KEPT)):
        ways[str(tiles)] = lambda tiles=tiles: gradients.sum_rows(
            numbers, weights, shape, bias=True, dtype=torch.float64, tiles=tiles
        )
    silent = torch.where((weights != 0)[..., None], numbers, 0)
    wanted = torch.stack([w.double() @ each.double() for w, each in zip(weights, silent, strict=True)])
    wanted = wanted[:, : 9 * channels * rows].view(RUNS, rows, 3, 3, channels).permute(0, 1, 4, 2, 3)
    return measured(name, ways, lambda way: way()[0], wanted)


def made(way: Callable[[], object], room: Tensor, total: Tensor) -> Tensor:
    room.zero_()
    way()
    return total.clone()


def measured(
    what: str, ways: dict[str, Callable[[], object]], once: Callable[[Any], Tensor], wanted: Tensor
) -> dict[str, float]:
    """Each way checked and timed; infinite where it does not run or gives something else."""
    found: dict[str, float] = {}
    for name, way in ways.items():
        try:
            off = float((once(way) - wanted).abs().max() / wanted.abs().max())
            found[name] = timed(way) if off < 1e-13 else float("inf")
            said = f"off by {off:.0e}"
        except Exception as trouble:  # a tile may want more than there is
            found[name], said = float("inf"), f"{type(trouble).__name__}: {str(trouble)[:80]}"
        print(f"{what:6} {name:24} {found[name]:7.2f} us a run, {said}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="what the engine takes alone, of many shapes, without times"
    )
    parser.add_argument("--json", type=Path, help="write the times there")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("sums: error: there is no GPU", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    if asked.check:
        from kernels import compare

        print(compare(device))
        return 0
    weights = lots(device)
    found = {"dense": dense(weights)} | {name: kept(name, weights) for name in LAYERS}
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    first = {what: next(iter(times.values())) for what, times in found.items()}
    return int(max(first.values()) == float("inf"))


if __name__ == "__main__":
    sys.exit(main())
