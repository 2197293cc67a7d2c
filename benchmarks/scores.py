"""How long it takes to score one run on 12,000 validation records, by metric.

    OMP_NUM_THREADS=1 python benchmarks/scores.py [--device cuda] [--features 784]

Made-up records, a linear model of ten classes. The least of several repeats, in milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from honestdp.boundary.metrics import Accuracy, ClippedLoss, DeclaredMetric  # noqa: E402
from honestdp.boundary.scores import ScoreDoor  # noqa: E402
from honestdp.losses import cross_entropy  # noqa: E402

RECORDS, CLASSES, REPEATS, RUNS = 12_000, 10, 15, 3


def own_loss(output: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, y, reduction="none")


CASES: dict[str, tuple[Any, Any]] = {
    "accuracy": (cross_entropy, Accuracy()),
    "clipped cross-entropy": (cross_entropy, ClippedLoss(2.0)),
    "clipped own loss, mapped": (own_loss, ClippedLoss(2.0)),
    "own metric, looped": (cross_entropy, DeclaredMetric(lambda out, y: float(out.argmax() == y), low=0, high=1)),
}


def milliseconds(door: ScoreDoor, model: nn.Module) -> float:
    runs = iter(range(10**9))
    door.score(next(runs), model)
    found = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        for _ in range(RUNS):
            door.score(next(runs), model)
        found.append((time.perf_counter() - begun) / RUNS * 1e3)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--features", type=int, default=784)
    given = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, given.features, generator=generator).to(given.device)
    y = torch.randint(CLASSES, (RECORDS,), generator=generator).to(given.device)
    model = nn.Linear(given.features, CLASSES).to(given.device)
    for name, (loss, metric) in CASES.items():
        door = ScoreDoor(x, y, loss=loss, metric=metric, noise=[(0,)] * (1 + REPEATS * RUNS))
        print(f"{name:<28}{milliseconds(door, model):8.2f} ms")


if __name__ == "__main__":
    main()
