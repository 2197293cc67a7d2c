"""Where training becomes hopeless: accuracy against the noise over the signal, and against the number of steps.

    HONESTDP_DATA=folder python benchmarks/prospects.py [--runs 4] [--data digits breast-cancer ...]

The thresholds of `honestdp.planner.prospects` were read off what this prints.
First r against accuracy for one to four layers on several sets (those that are found), Horizon: noise is set so that r, by the
weights that count, is .05 to 4. `way` is how far accuracy is on the way from the largest class's part up to what the same run
reaches at r = .05. `all` is the r of the same run by all of its weights, at r = 1.
Then digits at epsilon 8, lot 250, and few steps, for every optimizer at the best of a small grid.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

import honestdp  # noqa: E402
from honestdp.optimizers import (  # noqa: E402
    ADADP,
    OSO,
    SGD,
    Adam,
    AdamOSO,
    AdamWOSM,
    Echo,
    Horizon,
    Momentum,
    Quantile,
    Rule,
)  # fmt: skip
from honestdp.planner.prospects import counting  # noqa: E402

DELTA = 1e-5
RATIOS = (0.05, 0.2, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
SHAPES = {  # data: records, and the widths of hidden layers, lot and steps
    "digits": (
        1437,
        [((), 64, 300), ((), 20, 1000), ((), 250, 60), ((32,), 64, 300), ((128,), 64, 300), ((64,) * 3, 64, 300)],
    ),
    "breast-cancer": (455, [((), 64, 300), ((), 64, 1000), ((32,), 64, 300)]),
    "adult": (4000, [((), 64, 300), ((32,), 64, 300)]),
    "mnist": (4000, [((), 64, 300), ((32,), 64, 200), ((64,) * 3, 64, 200)]),
    "fashion-mnist": (4000, [((), 64, 300)]),
    "enron": (4000, [((), 64, 150)]),
}
RULES: dict[str, list[Rule]] = {
    "horizon": [Horizon()],
    "echo": [Echo()],
    "sgd": [SGD(lr=lr, clip=1.0) for lr in (1.0, 4.0)],
    "momentum": [Momentum(lr=lr, clip=1.0, momentum=0.9) for lr in (0.1, 0.5)],
    "adam": [Adam(lr=lr, clip=1.0) for lr in (0.01, 0.05)],
    "adam-wosm": [AdamWOSM(clip=clip) for clip in (0.1, 0.2, 0.5, 1.0)],
    "adadp": [ADADP(clip=clip) for clip in (0.1, 1.0)],
    "oso": [OSO(lr=lr, clip=1.0) for lr in (1.0, 4.0)],
    "adam-oso": [AdamOSO()],
    "quantile": [Quantile(lr=lr) for lr in (1.0, 4.0)],
}


def loaded(name: str, records: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training records, as many as asked for, and up to 2000 test records; bytes as parts of 255."""
    data = honestdp.load_dataset(name)
    (x, y), (tested, labels) = ([torch.as_tensor(part) for part in side] for side in (data.train, data.test))
    x, tested = (each.float() / 255 if each.dtype == torch.uint8 else each.float() for each in (x, tested))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:records]
    return x[order], y[order], tested[:2000], labels[:2000]


def dense(*widths: int) -> Callable[[], nn.Module]:
    layers = [each for pair in itertools.pairwise(widths) for each in (pair, None)][:-1]
    return lambda: nn.Sequential(*(nn.Tanh() if pair is None else nn.Linear(*pair) for pair in layers))


def accuracies(name: str, model: Callable[[], nn.Module], rules: list[Rule], runs: list[honestdp.Run]) -> list[float]:
    """Of each run, in percent. They are trained together: they differ in their noise alone."""
    x, y, tested, labels = loaded(name, runs[0].records)
    results = honestdp.train_population(
        [model] * len(runs), (x, y), run=runs, optimizers=rules, compute=honestdp.Compute(device="cpu")
    )
    with torch.no_grad():
        return [100 * float((each.model(tested).argmax(1) == labels).double().mean()) for each in results]


def by_noise(names: list[str], repeats: int) -> None:
    print(
        f"{'data':<14} {'hidden':<9} {'lot x steps':<11} {'d':>6} {'all':>5} chance  "
        + "".join(f"r={r:<8g}" for r in RATIOS)
    )
    for name in names:
        try:
            x, y, _, labels = loaded(name, SHAPES[name][0])
        except Exception as trouble:  # data that are not here
            print(f"{name:<14} left out: {trouble}")
            continue
        chance, outputs = 100 * float(labels.bincount().max()) / len(labels), int(y.max()) + 1
        for hidden, lot, steps in SHAPES[name][1]:
            model = dense(x.shape[1], *hidden, outputs)
            shapes = [tuple(weight.shape) for weight in model().parameters()]
            d, every = counting(shapes), sum(map(math.prod, shapes))
            noises = [ratio * lot * math.sqrt(steps / d) for ratio in RATIOS for _ in range(repeats)]
            runs = [honestdp.Run(records=len(x), lot=lot, steps=steps, noise=noise) for noise in noises]
            found = np.reshape(accuracies(name, model, [Horizon()] * len(runs), runs), (-1, repeats)).mean(1)
            way = (found - chance) / (found[0] - chance)
            line = f"{name:<14} {'-'.join(map(str, hidden)) or 'none':<9} {f'{lot} x {steps}':<11} {d:>6} "
            line += f"{(every / d) ** 0.5:>5.2g} "
            line += f"{chance:>5.1f}   " + "".join(
                f"{f'{a:.0f} ({w:.2f})':<10}" for a, w in zip(found, way, strict=True)
            )
            print(line.rstrip(), flush=True)


def by_steps(repeats: int) -> None:
    steps = (3, 10, 30, 60, 100, 200, 400)
    print("\noptimizer  " + "".join(f"{each:>7}" for each in steps) + "   steps at epsilon 8")
    for name, rules in RULES.items():
        line = f"{name:<11}"
        for each in steps:
            run = honestdp.least_noise(honestdp.Budget(8.0, DELTA), records=1437, lot=250, steps=each)
            found = [np.mean(accuracies("digits", dense(64, 10), [rule] * repeats, [run] * repeats)) for rule in rules]
            line += f"{max(found):>7.1f}"
        print(line, flush=True)


def main() -> None:
    logging.getLogger("honestdp").setLevel(logging.ERROR)  # the warnings that are measured here
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--data", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--steps", action="store_true", help="few steps alone")
    asked = parser.parse_args()
    if not asked.steps:
        by_noise(asked.data, asked.runs)
    by_steps(asked.runs)


if __name__ == "__main__":
    main()
