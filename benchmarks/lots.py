"""Lot and steps as the planner chooses them, against 250 lots by 1000 steps: test accuracy at one budget, nothing else changed.

    HONESTDP_DATA=folder python benchmarks/lots.py [--runs 8] [--data digits breast-cancer adult]

Logistic regression, the whole budget in one run on all training records. adam-wosm stands with the best of its four clips, the
same way for both. Prints a line for each dataset, epsilon and optimizer: mean accuracy and its standard error, and records seen.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

import honestdp  # noqa: E402
from honestdp.optimizers import AdamWOSM, Horizon, Rule  # noqa: E402
from honestdp.planner.shapes import chosen_shape  # noqa: E402

DELTA = 1e-5
BEFORE = (250.0, 1000)
RULES: dict[str, list[Rule]] = {"horizon": [Horizon()], "adam-wosm": [AdamWOSM(clip=c) for c in (0.1, 0.2, 0.5, 1.0)]}


def accuracy(
    data: honestdp.data.named.NamedDataset, rules: list[Rule], run: honestdp.Run, runs: int
) -> tuple[float, float]:
    """Of the best of the rules: the mean, and its standard error."""
    x, y = (torch.as_tensor(part) for part in data.test)
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    means = []
    for rule in rules:
        results = honestdp.train_population(
            [lambda: torch.nn.Linear(data.features, data.classes)] * runs,
            data.train,
            run=run,
            optimizers=[rule] * runs,
            compute=honestdp.Compute(device="cpu"),
        )
        with torch.no_grad():
            right = [float((result.model(x).argmax(1) == y).double().mean()) for result in results]
        means.append((100 * float(np.mean(right)), 100 * float(np.std(right)) / max(1, runs - 1) ** 0.5))
    return max(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--data", nargs="+", default=["digits", "breast-cancer", "adult"])
    asked = parser.parse_args()
    print(
        "data            epsilon  optimizer   lot x steps     seen   accuracy      |  lot x steps     seen   accuracy"
    )
    for name in asked.data:
        data = honestdp.load_dataset(name)
        records = len(data.train_rows)
        for epsilon in (1.0, 3.0):
            budget = honestdp.Budget(epsilon, DELTA)
            chosen = chosen_shape(budget, records=records)
            for optimizer, rules in RULES.items():
                line = f"{name:<15} {epsilon:<8g} {optimizer:<11}"
                for lot, steps in ((chosen.lot, chosen.steps), (min(BEFORE[0], records / 4), BEFORE[1])):
                    run = honestdp.least_noise(budget, records=records, lot=lot, steps=steps)
                    mean, error = accuracy(data, rules, run, asked.runs)
                    line += f" {lot:>5g} x {steps:<5} {lot * steps:>8g}   {mean:.2f} +- {error:.2f}  |"
                print(line.rstrip(" |"), flush=True)


if __name__ == "__main__":
    main()
