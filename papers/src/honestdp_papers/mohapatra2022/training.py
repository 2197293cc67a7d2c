"""The paper's trainings as parts: right answers on the test records every 100 steps, for every candidate and repeat.

A part is one optimizer's whole grid on one dataset and model at one noise, so figures share parts: DPAdam's are in
figures 4 and 5 alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from honestdp import Run
from honestdp.data.named import NamedDataset
from honestdp.optimizers import Rule
from honestdp_papers.claims import UNKNOWN, accuracy
from honestdp_papers.curves import Bench, placed
from honestdp_papers.forms import GISETTE_STANDIN
from honestdp_papers.mohapatra2022.setting import (
    EVERY,
    MORE_REPEATS,
    RELU,
    REPEATS,
    Pair,
    beside,
    grid,
    is_ours,
    model_of,
    pair_name,
    pairs,
    repeats_of,
)
from honestdp_papers.parts import Array, Arrays, Finished, Part, Tell, described

QUICK_STEPS = 2000
"""As few as show the shape: in 300 steps Adam, which moves a weight by at most 0.001 a step, gets nowhere."""
_LOTS = {"cuda": 1 << 30, "cpu": 1 << 25}
"""Bytes of a step's examples that are gathered at once, over all runs of a chunk: what the engine takes in one piece on a GPU,
and what stays in a CPU's cache."""
_TOGETHER = 280
"""Runs of a chunk at most: among more of them, too often some run's lot is larger than the captured shape."""


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
    repeats, seed = repeats_of(len(rules), quick), zlib.crc32(name.encode())
    identity = {
        "dataset": task.name,
        "model": kind,
        "run": [run.records, run.lot, run.steps, run.noise],
        "candidates": [described(rule) for rule in rules],
        "repeats": repeats,
        "every": EVERY,
        "seed": seed,
    }

    def work(device: str, tell: Tell) -> Arrays:
        dataset = task.dataset
        make = model_of(kind, features=dataset.features, classes=dataset.classes)
        right = right_answers(make, dataset, rules, run, repeats=repeats, seed=seed, device=device, tell=tell)
        return {"right": right, "tests": np.array(len(dataset.test_rows)), "every": np.array(EVERY)}

    seconds = 1 + len(rules) * repeats * run.steps * step_cost(pair)
    return Part(name, identity, seconds, work, optional=optional)


def right_answers(
    make: Callable[[], nn.Module],
    dataset: NamedDataset,
    rules: Sequence[Rule],
    run: Run,
    *,
    repeats: int,
    seed: int,
    device: str,
    tell: Tell = lambda done: None,
    every: int = EVERY,
) -> Array:
    """Right answers on the test records, `[repeats, candidates, looks]`.

    make: makes a model with fresh initial weights from torch's generator; each repeat has its own, which all candidates share.
    """
    place, (x, y) = placed(device), dataset.test
    bench = Bench(make(), dataset.train, place, records=run.records)
    measures = {"right": bench.exam(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)))}
    looks, most = range(every, run.steps + 1, every), most_together(dataset, run, place)
    found = bench.grid(
        make, run, rules, range(repeats), measures, looks, seed=seed, every=every, together=most, tell=tell
    )
    return found["right"]


def most_together(dataset: NamedDataset, run: Run, place: torch.device) -> int:
    """As many runs as have room for their lots at once."""
    widest = run.lot + 5 * run.lot**0.5 + 2
    return max(1, min(_TOGETHER, int(_LOTS[place.type] // (4 * dataset.features * widest))))


def step_cost(pair: Pair) -> float:
    """Seconds of a run's step on a large GPU, roughly: what the time left is reckoned by. Gathering the lot and touching every
    weight.
    """
    features = 202 if "adult" in pair[0].name else 784 if "mnist" in pair[0].name else 5512
    return 4e-6 + 1e-9 * features + (3e-11 * 100 * features if pair[1] in ("TLNN", RELU) else 0)


def part_name(noise: float, pair: Pair, optimizer: str) -> str:
    return f"{'ours/' if is_ours(pair) else ''}sigma{noise:g}/{pair_name(pair)}/{optimizer}"


def mean_accuracy(parts: Finished, name: str) -> Array:
    """Accuracies in per cent, averaged over the repeats, `[candidates, looks]`."""
    mean: Array = accuracy(parts, name).mean(axis=0)
    return mean


def trained_notes(quick: bool) -> list[str]:
    """What is to be said of every figure made from trainings."""
    notes = [
        (
            f"Test-set accuracies of {UNKNOWN}: evaluation on public data, covered by no budget."
            if quick
            else f"Test-set accuracies, averaged over {REPEATS} trainings of each candidate ({MORE_REPEATS} where a grid has 4): "
            "evaluation on public data, covered by no budget. ± is one standard error."
        ),
    ]
    notes += sorted({f"{task.title}: {GISETTE_STANDIN}." for task, _ in pairs(quick) if "stand-in" in task.title})
    if quick:
        left = ", ".join(
            f"{task.title} with {model}" for task, model in pairs(False) if (task, model) not in pairs(True)
        )
        notes.append(f"Quick version: {QUICK_STEPS} steps and a few candidates; left out: {left}.")
    return notes


def looks(parts: Finished, name: str) -> Array:
    """The steps at which a part was looked at, `[looks]`."""
    kept = parts[name]
    return (np.arange(kept["right"].shape[2]) + 1) * int(kept["every"])
