"""Measure what `make demo` ends with: test accuracy on digits, whose test records are public, in the mean of ten runs each.

    python benchmarks/demo.py [--runs 10]

The demo makes two trainings at the same epsilon: one run with nothing to tune (the default), and a search for the learning
rate of plain SGD, which has no default worth naming. The third kind of row is what one of those rates, taken unseen, would
have had at that epsilon: what the search adds is its winner beside the mean of these.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from typing import Any

import torch

import honestdp

RATES = [0.1, 0.5, 2.0, 10.0]
BUDGET = honestdp.Budget(epsilon=3.0, delta=1e-5)


def accuracies(runs: int, **settings: Any) -> list[float]:
    """Train `runs` times by `tune`; give the test accuracy of each, in percent."""
    digits = honestdp.load_dataset("digits")
    x, y = (torch.as_tensor(part) for part in digits.test)
    found = []
    for _ in range(runs):
        result = honestdp.tune(lambda: torch.nn.Linear(64, 10), digits.train, budget=BUDGET, **settings)
        found.append(100 * (result.model(x).argmax(1) == y).double().mean().item())
    return found


def show(name: str, found: list[float], seconds: float) -> None:
    error = statistics.stdev(found) / len(found) ** 0.5
    print(
        f"{name:28} {statistics.mean(found):5.1f} +- {error:.1f}   {min(found):5.1f} to {max(found):5.1f}"
        f"   {seconds / len(found):5.1f} s each",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    logging.disable(logging.WARNING)
    shape: dict[str, Any] = {"lot": 256, "steps": 300}
    ways: dict[str, dict[str, Any]] = {
        "the default": {},
        "the default, 256 x 300": shape,
        "search for SGD's rate": shape | {"optimizer": "sgd", "space": {"lr": RATES, "clip": [0.3]}},
    }
    for rate in RATES:
        ways[f"SGD, rate {rate:g}"] = shape | {"optimizer": honestdp.optimizers.SGD(lr=rate, clip=0.3)}
    unseen: list[float] = []
    print(f"digits, epsilon {BUDGET.epsilon:g}, delta {BUDGET.delta:g}: test accuracy, %, of {runs} runs each")
    for name, settings in ways.items():
        began = time.perf_counter()
        found = accuracies(runs, **settings)
        show(name, found, time.perf_counter() - began)
        if name.startswith("SGD"):
            unseen.append(statistics.mean(found))
    print(f"{'a rate taken unseen, mean':28} {statistics.mean(unseen):5.1f}")


if __name__ == "__main__":
    main()
