"""The paper's trainings as parts: accuracy on the test records every 100 steps, for every candidate and repeat.

A part is one optimizer's whole grid on one dataset and model at one noise, so figures share parts: DPAdam's are in figures 4
and 5 alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from honestdp.data.datasets.gisette import STANDIN
from honestdp.optimizers import Rule
from honestdp_papers.curves import Plan, accuracies
from honestdp_papers.mohapatra2022.setting import EVERY, REPEATS, Pair, grid, model_of, pair_name, pairs
from honestdp_papers.parts import Array, Arrays, Part, Tell
from honestdp_papers.registry import Finished

QUICK_STEPS = 2000
"""As few as show the shape: in 300 steps Adam, which moves a weight by at most 0.001 a step, gets nowhere."""


def parts_at(optimizers: Sequence[str], noise: float, quick: bool) -> list[Part]:
    """Every optimizer's grid on every dataset and model, at one noise."""
    return [
        training_part(part_name(noise, pair, name), pair, grid(name, quick), noise=noise, quick=quick)
        for pair in pairs(quick)
        for name in optimizers
    ]


def training_part(
    name: str, pair: Pair, rules: Sequence[Rule], *, noise: float, quick: bool, steps: int | None = None
) -> Part:
    """One grid on one dataset and model. The part keeps `right` `[repeats, candidates, looks]` and `tests`."""
    task, kind = pair
    run = task.run(noise=noise, steps=QUICK_STEPS if quick else steps)
    plan = Plan(
        rules=rules,
        run=run,
        repeats=1 if quick else REPEATS,
        every=EVERY,
        seed=zlib.crc32(name.encode()),
    )
    identity = {
        "dataset": task.name,
        "model": kind,
        "run": [run.records, run.lot, run.steps, run.noise],
        "candidates": [repr(rule) for rule in rules],
        "repeats": plan.repeats,
        "every": plan.every,
        "seed": plan.seed,
    }

    def work(device: str, tell: Tell) -> Arrays:
        dataset = task.dataset
        make = model_of(kind, features=dataset.features, classes=dataset.classes)
        right = accuracies(make, dataset, plan, device=device, tell=tell)
        return {"right": right, "tests": np.array(len(dataset.test_rows)), "every": np.array(plan.every)}

    return Part(name, identity, len(rules) * plan.repeats * run.steps * _cost(pair), work)


def _cost(pair: Pair) -> float:
    """Seconds of a run's step on a large GPU, roughly: what the time left is reckoned by. Gathering the lot and touching every
    weight.
    """
    features = {"adult-202": 202, "enron": 5512, "gisette-standin": 5000, "mnist": 784}[pair[0].name]
    return 4e-6 + 1e-9 * features + (3e-11 * 100 * features if pair[1] == "TLNN" else 0)


def part_name(noise: float, pair: Pair, optimizer: str) -> str:
    return f"sigma{noise:g}/{pair_name(pair)}/{optimizer}"


def mean_accuracy(parts: Finished, name: str) -> Array:
    """Accuracies in per cent, averaged over the repeats, `[candidates, looks]`."""
    kept = parts[name]
    found: Array = 100 * kept["right"].astype(float).mean(axis=0) / float(kept["tests"])
    return found


def trained_notes(quick: bool) -> list[str]:
    """What is to be said of every figure made from trainings."""
    notes = ["Test-set accuracies, repeats averaged: evaluation on public data, covered by no budget."]
    notes += sorted({f"{task.title}: {STANDIN}." for task, _ in pairs(quick) if "stand-in" in task.title})
    notes.append("Adult (202): the paper's columns, 6 numbers and 98 of one-hot codes appended twice.")
    if quick:
        left = ", ".join(
            f"{task.title} with {model}" for task, model in pairs(False) if (task, model) not in pairs(True)
        )
        notes.append(
            f"Quick version: {QUICK_STEPS} steps, one repeat, a few candidates of each large grid; left out: {left}."
        )
    return notes


def looks(parts: Finished, name: str) -> Array:
    """The steps at which a part was looked at, `[looks]`."""
    kept = parts[name]
    return (np.arange(kept["right"].shape[2]) + 1) * int(kept["every"])
