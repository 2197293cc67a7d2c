"""What limits an untuned run of the records: lot and steps, the scale of Horizon's step, its clip, averaging. Opens no test set.

    HONESTDP_DATA=folder python benchmarks/records_limits.py --device cuda [--data mnist ...] [--models linear] [--epsilon 3]

Trains on all but the last 10,000 training images and scores on those. It explains and chooses nothing: a constant read off these
numbers would be tuned on the data, outside of the budget. Every lot and number of steps is one population: scales times clips,
decaying and averaged. Each run is a line of `--out`. `--data digits` is for trying it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from honestdp.boundary.query import Constants, Query
from honestdp.optimizers.horizon import Horizon
from honestdp.optimizers.rule import Number, State
from quietly import quietly
from records import DATA, DELTA, MODELS, PUBLISHED, accuracy, honestdp, loaded, seeded

HELD_OUT = {"digits": 400}  # others 10,000
SHAPES = {
    "linear": [(2900, 500), (2900, 1000), (1024, 2400), (4096, 2000), (8192, 1000)],
    "published-cnn": [(2900, 1000), (1024, 2400)],
    "digits": [(64, 100)],
}
SCALES, CLIPS = (0.35, 0.7, 1.4, 2.8, 5.6, 11.0), (1.0, 4.0)


@dataclass(frozen=True)
class Varied(Horizon, name="varied-horizon"):
    """Horizon at another clip, with a step that is as long in units of it, times a scale."""

    scale: Number = 1.0
    threshold: Number = 1.0

    def query(self, state: State, constants: Constants) -> Query:
        return Query(clip=torch.ones_like(constants.noise) * self.threshold)

    def _eta(self, constants: Constants) -> Tensor:
        return super()._eta(constants) * self.scale / self.threshold


def shape(asked: argparse.Namespace, name: str, kind: str, sides: Any, lot: float, steps: int) -> list[dict[str, Any]]:
    x, y = sides[0]
    edge = len(x) - HELD_OUT.get(name, 10_000)
    kept, scored = (x[:edge], y[:edge]), (x[edge:], y[edge:])
    budget = honestdp.Budget(asked.epsilon, DELTA)
    run = honestdp.least_noise(budget, records=len(kept[0]), lot=lot, steps=steps)
    clips = CLIPS if kind == "linear" else CLIPS[:1]
    rules = [
        Varied(average=average, scale=scale, threshold=clip)
        for average in (False, True)
        for clip in (clips if not average else clips[:1])
        for scale in SCALES
    ]
    make = partial(MODELS[kind], *x.shape[1:])
    models: list[Module] = [seeded(make, 0) for _ in rules]
    began = time.perf_counter()
    how = {"compute": honestdp.Compute(device=asked.device)}
    results = honestdp.train_population(models, kept, run=run, optimizers=rules, delta=DELTA, **how)
    seconds = round(time.perf_counter() - began, 1)
    told = {"data": name, "model": kind, "epsilon": asked.epsilon, "lot": lot, "steps": steps, "noise": run.noise}
    return [
        {**told, **rule.numbers, "accuracy": accuracy(result.model, *scored), "seconds": seconds}
        for rule, result in zip(rules, results, strict=True)
    ]


def told(found: list[dict[str, Any]]) -> None:
    first = found[0]
    print(
        f"{first['data']} {first['model']}, {first['lot']} x {first['steps']}, {first['seconds']} s for {len(found)} runs"
    )
    for average, clip in dict.fromkeys((each["average"], each["threshold"]) for each in found):
        row = [each for each in found if (each["average"], each["threshold"]) == (average, clip)]
        words = f"{'averaged' if average else 'decaying'}, clip {clip:g}"
        print(f"  {words:18}", *(f"{each['scale']:g}: {each['accuracy']:.2f}" for each in row), flush=True)


@quietly()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist", "cifar10"], choices=list(DATA))
    parser.add_argument("--models", nargs="+", default=["linear"], choices=list(MODELS))
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="lines are added here")
    asked = parser.parse_args()
    for name in asked.data:
        sides = loaded(name, asked.device)
        for kind in (each for each in asked.models if (name, each) in PUBLISHED or name == "digits"):
            for lot, steps in SHAPES.get(name, SHAPES[kind]):
                told(found := shape(asked, name, kind, sides, lot, steps))
                if asked.out is not None:
                    with asked.out.open("a") as file:
                        file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    main()
