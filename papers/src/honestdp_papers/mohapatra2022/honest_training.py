"""The trainings behind `honest`: for every optimizer, all candidates of its grid at the noise of every search.

A search at one budget trains each candidate at the noise that its selection leaves it, so that a grid is trained once for every
selection and epsilon. The noises are calibrated beforehand (`honest_noise`) and read from a file here, for this module needs
torch and numpy alone. The trainings are the product's: a coin for each record puts it on the training or the validation side, the
declared number of training records sets the rate, and the last iterate is what is scored.

A part is one optimizer on one dataset and model. It keeps right answers on the validation side and on the test records,
`[searches, repeats, candidates]`: what a search sees, and what it is judged by.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from honestdp.boundary.data import PrivateData, coins
from honestdp.boundary.intake import take_in
from honestdp.data.named import NamedDataset
from honestdp.gradients.layout import stack
from honestdp.run import Run
from honestdp.search.space import Candidate, Space, space_of
from honestdp.training.chunks import plan_chunks
from honestdp.training.population import Population
from honestdp_papers.curves import Exam, Plan, most_together, placed, population_of, seeded, train_to_the_end
from honestdp_papers.mohapatra2022.setting import LOT, RELU, Pair, Task, model_of, pair_name
from honestdp_papers.parts import Arrays, Part, Tell, described, kept_numbers

STEPS, DELTA, FRACTION = 1000, 1e-6, 0.2
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
NOISES = Path(__file__).with_name("honest_noise.json")
SPLIT_SEED = 2022
_EVERY = 100


@dataclass(frozen=True)
class Search:
    """One cell of the table, but for the model: what is searched, how, and for how much. Horizon's is one run."""

    task: Task
    optimizer: str
    selection: str
    epsilon: float

    @property
    def single(self) -> bool:
        return self.optimizer == SINGLE

    @property
    def fraction(self) -> float:
        """Of the records on the validation side: none where there is nothing to choose."""
        return 0.0 if self.single else FRACTION

    @property
    def space(self) -> Space:
        name = "horizon" if self.single else OPTIMIZERS[self.optimizer]
        return space_of(name, None, lot=LOT, steps=STEPS)

    @property
    def candidates(self) -> list[Candidate]:
        return self.space.candidates()

    @property
    def key(self) -> str:
        """What its price depends on."""
        return f"{self.task.name}/{len(self.candidates)}/{self.selection}/{self.epsilon:g}"

    @property
    def run(self) -> Run:
        """Its trainings, at the noise in the file."""
        (written,) = kept_spending(self)["runs"]
        return Run(**{name: value for name, value in written.items() if name != "candidates"})


def epsilons(quick: bool) -> tuple[float, ...]:
    return EPSILONS[:1] if quick else EPSILONS


def searches(task: Task, optimizer: str, quick: bool) -> list[Search]:
    """Every search of an optimizer's grid: each selection at each epsilon; of Horizon, which has no grid, each epsilon."""
    selections = ("compose",) if optimizer == SINGLE else SELECTIONS
    return [Search(task, optimizer, selection, epsilon) for epsilon in epsilons(quick) for selection in selections]


def kept_spending(search: Search) -> dict[str, Any]:
    """What the search spends, as `honest_noise` wrote it."""
    found: dict[str, Any] = kept_numbers(NOISES)[search.key]
    return found


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


@dataclass(frozen=True)
class Pool:
    """What is trained for one part. runs: one a search, which differ in their noise alone."""

    candidates: list[Candidate]
    runs: list[Run]
    repeats: int
    fraction: float
    seed: int


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
        "searches": [[search.selection, search.epsilon] for search in found],
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
    """Right answers of every training's last weights, on each side, and whether these weights are numbers.

    Every candidate and repeat has initial weights of its own; all that is random in the training is each training's own.
    """
    place, run = placed(device), pool.runs[0]
    held = coins(len(dataset.train_rows), fraction=pool.fraction, seed=SPLIT_SEED)
    sides = {
        "validation": replace(dataset, test_rows=dataset.train_rows[held]),
        "test": replace(dataset, train_rows=dataset.train_rows[~held]),
    }
    training = sides["test"].train
    intake = take_in(
        make(),
        PrivateData(training),
        records=run.records,
        loss=None,
        device=place,
        workers=0,
        by_coin=pool.fraction > 0,
    )
    asked = {name: side for name, side in sides.items() if len(side.test_rows)}
    exams = {name: Exam(intake.question.model, intake.layout, side, place) for name, side in asked.items()}
    each = pool.repeats * len(pool.candidates)
    starts = stack([seeded(make, number) for number in range(each)], intake.layout, place)
    total = len(pool.runs) * each
    rules = [candidate.rule() for candidate in pool.candidates] * (len(pool.runs) * pool.repeats)
    noises = np.repeat([one.noise for one in pool.runs], each)
    found = {name: np.zeros(total, np.uint16) for name in sides} | {"finite": np.zeros(total, bool)}
    plan = Plan(rules, run, pool.repeats, _EVERY, pool.seed)
    chunks = plan_chunks(rules, most_together(dataset, run, place))

    def begun(chunk: list[int]) -> Population:
        first = starts[torch.tensor(chunk) % each]
        return population_of(intake, plan, [rules[i] for i in chunk], first, chunk[0], noises[chunk].tolist())

    measures = {name: exam.right for name, exam in exams.items()}
    train_to_the_end(chunks, begun, measures, found, steps=run.steps, tell=tell)
    shape = (len(pool.runs), pool.repeats, len(pool.candidates))
    sizes = {"held": np.array(int(held.sum())), "tests": np.array(len(dataset.test_rows))}
    return {name: values.reshape(shape) for name, values in found.items()} | sizes
