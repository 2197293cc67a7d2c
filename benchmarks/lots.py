"""Lot and steps as the planner chooses them, against 250 lots by 1000 steps: test accuracy at one budget, nothing else changed.

    HONESTDP_DATA=folder python benchmarks/lots.py [--runs 8] [--data digits breast-cancer adult]

Logistic regression, the whole budget in one run on all training records. adam-wosm stands with the best of its four clips, the
same way for both. Prints a line for each dataset, epsilon and optimizer: mean accuracy and its standard error, and records seen.

    HONESTDP_DATA=folder python benchmarks/lots.py --by-steps [--runs 4] [--records 4000] [--hidden 0 32]

Horizon alone, at 125 to 4000 steps, each with the lot that keeps 95 % of the signal, as `chosen_shape` chooses it where steps are
named: how many steps are worth their while. The column of what is chosen where nothing is named is marked.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

import honestdp  # noqa: E402
from honestdp.optimizers import AdamWOSM, Horizon, Rule  # noqa: E402
from honestdp.planner.shapes import chosen_shape  # noqa: E402

DELTA = 1e-5
BEFORE = (250.0, 1000)
STEPS = (125, 250, 500, 1000, 2000, 4000)
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


def dense(features: int, width: int, classes: int) -> torch.nn.Module:
    if not width:
        return torch.nn.Linear(features, classes)
    return torch.nn.Sequential(torch.nn.Linear(features, width), torch.nn.Tanh(), torch.nn.Linear(width, classes))


def by_steps(names: list[str], runs: int, most: int, widths: list[int]) -> None:
    print("data           records hidden epsilon  " + "".join(f"{steps:>6} steps  " for steps in STEPS))
    for name in names:
        data = honestdp.load_dataset(name)
        (x, y), (tested, labels) = ([torch.as_tensor(part) for part in side] for side in (data.train, data.test))
        x, tested = (each.float() / 255 if each.dtype == torch.uint8 else each.float() for each in (x, tested))
        rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:most]
        x, y, tested, labels = x[rows], y[rows], tested[:2000], labels[:2000]
        for width in widths:
            for epsilon in (0.3, 1.0, 3.0):
                budget = honestdp.Budget(epsilon, DELTA)
                line, chosen = f"{name:<14} {len(x):<7} {width:<6} {epsilon:<8g}", chosen_shape(budget, records=len(x))
                for steps in STEPS:
                    lot = chosen_shape(budget, records=len(x), steps=steps).lot
                    run = honestdp.least_noise(budget, records=len(x), lot=lot, steps=steps)
                    models = [partial(dense, data.features, width, data.classes)] * runs
                    how = {"optimizers": [Horizon()] * runs, "compute": honestdp.Compute(device="cpu")}
                    with torch.no_grad():
                        right = [
                            100 * float((each.model(tested).argmax(1) == labels).double().mean())
                            for each in honestdp.train_population(models, (x, y), run=run, **how)
                        ]
                    mark = "*" if steps == chosen.steps else " "
                    line += f" {np.mean(right):>5.1f}+-{np.std(right) / max(1, runs - 1) ** 0.5:<4.1f}{mark}"
                print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--data", nargs="+", default=["digits", "breast-cancer", "adult"])
    parser.add_argument("--by-steps", action="store_true")
    parser.add_argument("--records", type=int, default=4000, help="of each set, with --by-steps")
    parser.add_argument("--hidden", type=int, nargs="+", default=[0, 32], help="widths, with --by-steps; 0: none")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.by_steps:
        by_steps(asked.data, asked.runs, asked.records, asked.hidden)
        return
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
