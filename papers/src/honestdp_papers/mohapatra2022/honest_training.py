"""The trainings behind `honest`: for every optimizer, all candidates of its grid at the noise of every search (`honest_search`).

A part is one optimizer on one dataset and model.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from honestdp import Budget
from honestdp.data.named import NamedDataset
from honestdp.search.space import space_of
from honestdp_papers import honest_search
from honestdp_papers.curves import placed
from honestdp_papers.honest_search import Pool, Search, sides_of
from honestdp_papers.mohapatra2022.setting import LOT, RELU, Pair, Task, model_of, pair_name
from honestdp_papers.mohapatra2022.training import most_together
from honestdp_papers.parts import Arrays, Part, Tell, described

STEPS, DELTA = 1000, 1e-6
EPSILONS = (1.0, 3.0)
SELECTIONS = ("compose", "winner", "liu-talwar", "papernot-steinke", "envelope")
OPTIMIZERS = {"DPSGD": "sgd", "DPMomentum": "momentum", "DPAdam": "adam", "DPAdamWOSM": "adam-wosm", "ADADP": "adadp"}
"""The paper's names, and the product's: the grids of Table 3 are its own."""
SINGLE = "Horizon"
MNIST, ADULT = (
    Task("mnist", "MNIST", 60000, STEPS, DELTA),
    Task("adult", "Adult (104)", 36177, STEPS, DELTA),
)
TASKS = (MNIST, ADULT)
SPLIT_SEED = 2022
NOISES = Path(__file__).with_name("honest_noise.json")
_EVERY = 100


def search_of(task: Task, optimizer: str, selection: str, epsilon: float) -> Search:
    """One cell of the table, but for the model. Horizon's is one run."""
    single = optimizer == SINGLE
    space = space_of("horizon" if single else OPTIMIZERS[optimizer], None, lot=LOT, steps=STEPS)
    key = f"{task.name}/{len(space.candidates())}/{selection}/{epsilon:g}"
    return Search(optimizer, selection, Budget(epsilon, DELTA), task.records, space, single, key, NOISES)


def every_search() -> Iterator[Search]:
    """Every search of the full table, but for the model, on which no price depends."""
    for task in TASKS:
        for optimizer in (*OPTIMIZERS, SINGLE):
            yield from searches(task, optimizer, quick=False)


def epsilons(quick: bool) -> tuple[float, ...]:
    return EPSILONS[:1] if quick else EPSILONS


def searches(task: Task, optimizer: str, quick: bool) -> list[Search]:
    """Every search of an optimizer's grid: each selection at each epsilon; of Horizon, which has no grid, each epsilon."""
    selections = ("compose",) if optimizer == SINGLE else SELECTIONS
    return [search_of(task, optimizer, selection, epsilon) for epsilon in epsilons(quick) for selection in selections]


def pairs(quick: bool) -> list[Pair]:
    """Datasets and models, those with plain Adult's 104 columns; quickly, the one that two cores train in minutes."""
    return [(ADULT, "LR")] if quick else [(MNIST, "LR"), (MNIST, RELU), (ADULT, "LR")]


def repeats_of(candidates: int, quick: bool) -> int:
    """How many independent trainings of a candidate are kept, for searches to be drawn from: fewer in a large grid."""
    if quick:
        return 1 if candidates > 4 else 4
    return {1: 20, 4: 20, 40: 6, 280: 2}[candidates]


def parts(quick: bool) -> list[Part]:
    return [pool_part(pair, optimizer, quick) for pair in pairs(quick) for optimizer in (*OPTIMIZERS, SINGLE)]


def pool_name(pair: Pair, optimizer: str) -> str:
    return f"honest/{pair_name(pair)}/{optimizer}"


def pool_part(pair: Pair, optimizer: str, quick: bool) -> Part:
    task, kind = pair
    name, found = pool_name(pair, optimizer), searches(task, optimizer, quick)
    candidates = found[0].candidates
    pool = Pool(
        candidates=candidates,
        runs=[search.run for search in found],
        repeats=repeats_of(len(candidates), quick),
        fraction=found[0].fraction,
        seed=zlib.crc32(name.encode()),
    )
    identity = {
        "dataset": task.name,
        "model": kind,
        "searches": [[search.selection, search.budget.epsilon] for search in found],
        "runs": [[run.records, run.lot, run.steps, run.noise] for run in pool.runs],
        "candidates": [described(candidate.rule()) for candidate in candidates],
        "repeats": pool.repeats,
        "fraction": pool.fraction,
        "seeds": [pool.seed, SPLIT_SEED],
    }

    def work(device: str, tell: Tell) -> Arrays:
        dataset = task.dataset
        make = model_of(kind, features=dataset.features, classes=dataset.classes)
        return trained(make, dataset, pool, device=device, tell=tell)

    trainings = len(pool.runs) * pool.repeats * len(candidates)
    return Part(name, identity, trainings * STEPS * (8e-6 if kind == RELU else 5e-6), work)


def trained(make: Callable[[], nn.Module], dataset: NamedDataset, pool: Pool, *, device: str, tell: Tell) -> Arrays:
    """Every candidate and repeat has initial weights of its own; all that is random in the training is each training's own."""
    place, run = placed(device), pool.runs[0]
    train, test = (
        (torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))) for x, y in (dataset.train, dataset.test)
    )
    bench, exams, sizes = sides_of(
        make(), train, test, place, records=run.records, fraction=pool.fraction, split=SPLIT_SEED
    )
    starts = bench.starts(make, range(pool.repeats * len(pool.candidates)))
    most = most_together(dataset, run, place)
    return honest_search.trained(pool, bench, exams, starts, every=_EVERY, together=most, tell=tell) | sizes
