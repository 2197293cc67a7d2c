"""Which model `honestdp tune FILE` takes by default: test accuracy on Adult of logistic regression and one hidden layer.

    HONESTDP_DATA=../shared/data python benchmarks/table_models.py --repeats 3

Each cell is the mean over repeats of a whole `tune` by its default optimizer, echo, at delta 1e-6, with a fifth of the records
withheld for its score.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import honestdp

DELTA = 1e-6


def models(features: int) -> dict[str, Callable[[], nn.Module]]:
    def hidden(width: int) -> Callable[[], nn.Module]:
        return lambda: nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 2))

    return {"logistic": lambda: nn.Linear(features, 2), "hidden:16": hidden(16), "hidden:64": hidden(64)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    data = honestdp.load_dataset("adult")
    (x, y), (unseen, labels) = data.train, data.test
    for epsilon in (0.3, 1.0, 3.0):
        for name, model in models(x.shape[1]).items():
            budget, begun = honestdp.Budget(epsilon, DELTA), time.perf_counter()
            rights = []
            for _ in range(repeats):
                result = honestdp.tune(model, (x, y), budget=budget)
                with torch.no_grad():
                    found = result.model(torch.as_tensor(unseen)).argmax(1)
                rights.append(float((found == torch.as_tensor(labels)).float().mean()))
            seconds = (time.perf_counter() - begun) / repeats
            spread = statistics.stdev(rights) if repeats > 1 else 0.0
            print(f"{epsilon:<5g}{name:<12}{statistics.mean(rights):.4f} +- {spread:.4f}  {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
