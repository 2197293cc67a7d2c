"""Measure what `make demo` and the first examples of README and quick start end with: accuracy on the public test digits.

    OMP_NUM_THREADS=1 python benchmarks/demo.py [--runs 10] [--json results/demo.json]

All ways have one epsilon. The default is one training with nothing to tune. The search is for the step size of plain SGD, which
has no default; what it adds is the accuracy of its winner less the mean accuracy of its candidates, each as the only training
at that epsilon: what a step size that is chosen without looking has.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import honestdp

RATES = [0.1, 0.5, 2.0, 10.0]
BUDGET = honestdp.Budget(epsilon=3.0, delta=1e-5)
SHAPE: dict[str, Any] = {"lot": 256, "steps": 300}
UNSEEN = "a rate chosen without looking"


def ways() -> dict[str, Callable[[], torch.nn.Module]]:
    """Trainings by the name of the row, each of which returns a model."""
    train = honestdp.load_dataset("digits").train

    def tuned(**settings: Any) -> torch.nn.Module:
        return honestdp.tune(lambda: torch.nn.Linear(64, 10), train, budget=BUDGET, **settings).model

    named = {
        "tune, the default": tuned,
        "train, the default": lambda: honestdp.train(torch.nn.Linear(64, 10), train, budget=BUDGET).model,
        "search for SGD's rate": partial(tuned, **SHAPE, optimizer="sgd", space={"lr": RATES, "clip": [0.3]}),
    }
    rules = {f"SGD, rate {rate:g}": honestdp.optimizers.SGD(lr=rate, clip=0.3) for rate in RATES}
    return named | {name: partial(tuned, **SHAPE, optimizer=rule) for name, rule in rules.items()}


def accuracies(make: Callable[[], torch.nn.Module], runs: int) -> list[float]:
    """Test accuracies of `runs` models, in percent."""
    x, y = (torch.as_tensor(part) for part in honestdp.load_dataset("digits").test)
    return [100 * (make()(x).argmax(1) == y).double().mean().item() for _ in range(runs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", type=Path, help="the file to write the accuracies to")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"digits, epsilon {BUDGET.epsilon:g}, delta {BUDGET.delta:g}: test accuracy, %, of {asked.runs} runs each")
    measured: dict[str, list[float]] = {}
    for name, make in ways().items():
        began = time.perf_counter()
        each = measured[name] = accuracies(make, asked.runs)
        seconds = (time.perf_counter() - began) / asked.runs
        error = statistics.stdev(each) / asked.runs**0.5
        mean = f"{statistics.mean(each):5.1f} +- {error:.1f}"
        print(f"{name:30} {mean}   {min(each):5.1f} to {max(each):5.1f}   {seconds:5.1f} s each", flush=True)
    unseen = statistics.mean(statistics.mean(each) for name, each in measured.items() if name.startswith("SGD"))
    print(f"{UNSEEN:30} {unseen:5.1f}")
    if asked.json:
        rows = {name: [round(value, 2) for value in each] for name, each in measured.items()}
        means = {name: round(statistics.mean(each), 2) for name, each in measured.items()} | {UNSEEN: round(unseen, 2)}
        asked.json.write_text(json.dumps({"means": means, "accuracies": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
