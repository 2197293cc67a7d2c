"""The paper's trainings as parts: right answers on the test records every 100 steps, for every candidate and repeat.

A part is one optimizer's whole grid on one dataset and model at one noise, so figures share parts: DPAdam's are in figures 4
and 5 alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from honestdp.optimizers import Rule
from honestdp_papers.curves import Plan, accuracies
from honestdp_papers.mohapatra2022.setting import (
    EVERY,
    RELU,
    Pair,
    beside,
    grid,
    is_ours,
    model_of,
    pair_name,
    pairs,
    repeats_of,
)
from honestdp_papers.parts import Arrays, Part, Tell, described

QUICK_STEPS = 2000
"""As few as show the shape: in 300 steps Adam, which moves a weight by at most 0.001 a step, gets nowhere."""


def parts_at(
    optimizers: Sequence[str], noise: float, quick: bool, *, ours: Sequence[str] = (), extra: Sequence[str] = ()
) -> list[Part]:
    """Every optimizer's grid on every dataset and model in the authors' form, at one noise.

    ours, extra: optimizers that are trained in our form too, and optimizers that a figure can do without.
    """
    own = [pair for _, pair in beside(quick)]
    return [
        *(_grid_part(noise, pair, name, quick) for pair in pairs(quick) for name in optimizers),
        *(_grid_part(noise, pair, name, quick, optional=True) for pair in own for name in ours),
        *(_grid_part(noise, pair, name, quick, optional=True) for pair in pairs(quick) for name in extra),
    ]


def _grid_part(noise: float, pair: Pair, optimizer: str, quick: bool, *, optional: bool = False) -> Part:
    name, rules = part_name(noise, pair, optimizer), grid(optimizer, quick, pair[1])
    return training_part(name, pair, rules, noise=noise, quick=quick, optional=optional)


def training_part(
    name: str,
    pair: Pair,
    rules: Sequence[Rule],
    *,
    noise: float,
    quick: bool,
    steps: int | None = None,
    optional: bool = False,
) -> Part:
    """One grid on one dataset and model. The part keeps `right` `[repeats, candidates, looks]` and `tests`."""
    task, kind = pair
    run = task.run(noise=noise, steps=QUICK_STEPS if quick else steps)
    repeats = repeats_of(len(rules), quick)
    plan = Plan(rules=rules, run=run, repeats=repeats, every=EVERY, seed=zlib.crc32(name.encode()))
    identity = {
        "dataset": task.name,
        "model": kind,
        "run": [run.records, run.lot, run.steps, run.noise],
        "candidates": [described(rule) for rule in rules],
        "repeats": plan.repeats,
        "every": plan.every,
        "seed": plan.seed,
    }

    def work(device: str, tell: Tell) -> Arrays:
        dataset = task.dataset
        make = model_of(kind, features=dataset.features, classes=dataset.classes)
        right = accuracies(make, dataset, plan, device=device, tell=tell)
        return {"right": right, "tests": np.array(len(dataset.test_rows)), "every": np.array(plan.every)}

    seconds = 1 + len(rules) * plan.repeats * run.steps * step_cost(pair)
    return Part(name, identity, seconds, work, optional=optional)


def step_cost(pair: Pair) -> float:
    """Seconds of a run's step on a large GPU, roughly: what the time left is reckoned by. Gathering the lot and touching every
    weight.
    """
    features = 202 if "adult" in pair[0].name else 784 if "mnist" in pair[0].name else 5512
    return 4e-6 + 1e-9 * features + (3e-11 * 100 * features if pair[1] in ("TLNN", RELU) else 0)


def part_name(noise: float, pair: Pair, optimizer: str) -> str:
    return f"{'ours/' if is_ours(pair) else ''}sigma{noise:g}/{pair_name(pair)}/{optimizer}"
