"""Where training becomes hopeless: accuracy on digits against the noise over the signal, and against the number of steps.

    python benchmarks/prospects.py [--runs 8]

The thresholds of `honestdp.planner.prospects` were read off what this prints. Logistic regression, 650 parameters; chance is 10.
First all training records, then 300 and 100 of them, at epsilon .01 to 3, lot 64, 300 steps, Horizon: r against accuracy.
Then a budget so large that noise does not matter, lot 250, and few steps, for every optimizer at the best of a small grid.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

import honestdp  # noqa: E402
from honestdp.optimizers import ADADP, OSO, SGD, Adam, AdamOSO, AdamWOSM, Horizon, Momentum, Quantile, Rule  # noqa: E402
from honestdp.planner.prospects import noise_to_signal  # noqa: E402

DELTA, PARAMETERS = 1e-5, 650
RULES: dict[str, list[Rule]] = {
    "horizon": [Horizon()],
    "sgd": [SGD(lr=lr, clip=1.0) for lr in (1.0, 4.0)],
    "momentum": [Momentum(lr=lr, clip=1.0, momentum=0.9) for lr in (0.1, 0.5)],
    "adam": [Adam(lr=lr, clip=1.0) for lr in (0.01, 0.05)],
    "adam-wosm": [AdamWOSM(clip=clip) for clip in (0.1, 0.2, 0.5, 1.0)],
    "adadp": [ADADP(clip=clip) for clip in (0.1, 1.0)],
    "oso": [OSO(lr=lr, clip=1.0) for lr in (1.0, 4.0)],
    "adam-oso": [AdamOSO()],
    "quantile": [Quantile(lr=lr) for lr in (1.0, 4.0)],
}


def accuracy(rules: list[Rule], run: honestdp.Run, runs: int) -> float:
    """Of the best of the rules, the mean over its runs, in percent."""
    data = honestdp.load_dataset("digits")
    x, y = (part[: run.records] for part in data.train)
    tested, labels = torch.as_tensor(data.test[0]).float(), torch.as_tensor(data.test[1])
    means = []
    for rule in rules:
        results = honestdp.train_population(
            [lambda: torch.nn.Linear(64, 10)] * runs,
            (x, y),
            run=run,
            optimizers=[rule] * runs,
            compute=honestdp.Compute(device="cpu"),
        )
        with torch.no_grad():
            means.append(np.mean([float((r.model(tested).argmax(1) == labels).double().mean()) for r in results]))
    return 100 * float(max(means))


def main() -> None:
    import logging

    logging.getLogger("honestdp").setLevel(logging.ERROR)  # the warnings that are measured here
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=8)
    runs = parser.parse_args().runs
    print("records  epsilon  noise    r       accuracy, horizon")
    for records in (1437, 300, 100):
        for epsilon in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
            run = honestdp.least_noise(honestdp.Budget(epsilon, DELTA), records=records, lot=64, steps=300)
            ratio = noise_to_signal(run, PARAMETERS)
            print(
                f"{records:<8} {epsilon:<8g} {run.noise:<8.4g} {ratio:<7.2g} {accuracy(RULES['horizon'], run, runs):.1f}",
                flush=True,
            )
    steps = (3, 10, 30, 60, 100, 200, 400)
    print("\noptimizer  " + "".join(f"{each:>7}" for each in steps) + "   steps at epsilon 8")
    for name, rules in RULES.items():
        found = [
            accuracy(rules, honestdp.least_noise(honestdp.Budget(8.0, DELTA), records=1437, lot=250, steps=each), runs)
            for each in steps
        ]
        print(f"{name:<11}" + "".join(f"{each:>7.1f}" for each in found), flush=True)


if __name__ == "__main__":
    main()
