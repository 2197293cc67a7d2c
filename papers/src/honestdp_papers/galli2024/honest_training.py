"""The trainings behind `honest`: every method's grid of k = 7 at the noise that each selection leaves it at one budget.

The noises are those of the product's own design of a search (`honest_noise`), read from a file here, for this module needs torch
and numpy alone. A coin for each record puts it on the training or the validation side; the last iterate is what is scored. A part
is one method with some seeds under all selections, and keeps right answers on the validation side and on the test records,
`[selections, seeds, candidates]`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from honestdp.boundary.data import PrivateData, coins
from honestdp.boundary.intake import Intake, take_in
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.run import Run
from honestdp.search.space import Candidate, Space, space_of
from honestdp.training.chunks import plan_chunks
from honestdp.training.population import Population
from honestdp_papers.curves import placed, seeded, train_to_the_end
from honestdp_papers.galli2024.exam import Exam
from honestdp_papers.galli2024.noise import QUICK_K
from honestdp_papers.galli2024.setting import (
    METHODS,
    MNIST,
    ONLINE,
    PRINTED_K,
    QUANTILE,
    SEEDS,
    THRESHOLD,
    WOSM,
    Task,
    clips,
    quantiles,
    records_of,
    sized,
    step_sizes,
    text_task,
)
from honestdp_papers.galli2024.training import (
    block_name,
    population_of,
    seconds_of,
    seed_blocks,
    together,
    with_room,
)
from honestdp_papers.parts import Arrays, Part, Tell, described, kept_numbers

EPSILON, FRACTION, SPLIT_SEED = 3.0, 0.2, 2024
SELECTIONS = ("compose", "winner", "papernot-steinke", "envelope")
ADAM_OSO, AUTOMATIC = "AdamOSO", "AdamWOSM, automatic"
SINGLE = (ADAM_OSO, AUTOMATIC)
"""Ours, with nothing left to search: one run has the whole budget and all records."""
NOISES = Path(__file__).with_name("honest_noise.json")
SHOWN = 3
"""Seeds that are trained, of five: a grid is trained four times over here."""


def honest_tasks() -> tuple[Task, ...]:
    """Those whose score is an accuracy."""
    return (MNIST, text_task())


@dataclass(frozen=True)
class Search:
    """One cell of the table: what is searched, how, on what."""

    task: Task
    method: str
    selection: str
    quick: bool

    @property
    def single(self) -> bool:
        return self.method in SINGLE

    @property
    def fraction(self) -> float:
        """Of the records on the validation side: none where there is nothing to choose."""
        return 0.0 if self.single else FRACTION

    @property
    def space(self) -> Space:
        k, task = QUICK_K if self.quick else PRINTED_K, sized(self.task, self.quick)
        rates, sizes = list(step_sizes(k)), list(clips(k))
        name, dimensions = {
            ONLINE: ("oso", {"lr": rates}),
            WOSM: ("adam-wosm", {"clip": sizes}),
            THRESHOLD: ("sgd", {"lr": rates, "clip": sizes}),
            QUANTILE: ("quantile", {"lr": rates, "quantile": list(quantiles(self.quick)), "clamped": [False]}),
            ADAM_OSO: ("adam-oso", {"lr": [1e-3]}),
            AUTOMATIC: ("adam-wosm", {"clip": ["auto"]}),
        }[self.method]
        return space_of(name, dimensions, lot=task.lot, steps=task.steps)  # type: ignore[arg-type]

    @property
    def candidates(self) -> list[Candidate]:
        return self.space.candidates()

    @property
    def key(self) -> str:
        """What its price depends on."""
        size = "quick" if self.quick else "full"
        return f"{size}/{self.task.name}/{len(self.candidates)}/{self.selection}"

    @property
    def run(self) -> Run:
        (written,) = kept_spending(self)["runs"]
        return Run(**{name: value for name, value in written.items() if name != "candidates"})


def searches(task: Task, method: str, quick: bool) -> list[Search]:
    """Under every selection; a single run under none."""
    return [
        Search(task, method, selection, quick) for selection in (SELECTIONS[:1] if method in SINGLE else SELECTIONS)
    ]


def kept_spending(search: Search) -> dict[str, Any]:
    """What the search spends, as `honest_noise` wrote it."""
    found: dict[str, Any] = kept_numbers(NOISES)[search.key]
    return found


def blocks(task: Task, method: str, quick: bool) -> list[tuple[int, ...]]:
    """Seeds that are trained in one part."""
    found = searches(task, method, quick)
    return seed_blocks(task, len(found) * len(found[0].candidates), quick, SHOWN if task.image else SEEDS)


def pool_name(task: Task, method: str, seeds: Sequence[int]) -> str:
    return f"honest/{task.name}/{block_name(seeds)}/{method.replace(', ', '-')}"


def parts_of(quick: bool) -> list[Part]:
    every = [
        (task, method, seeds)
        for task in honest_tasks()
        for method in (*METHODS, *SINGLE)
        for seeds in blocks(task, method, quick)
    ]
    return [_part(task, method, seeds, quick) for task, method, seeds in every]


def _part(task: Task, method: str, seeds: tuple[int, ...], quick: bool) -> Part:
    name, found, own = pool_name(task, method, seeds), searches(task, method, quick), sized(task, quick)
    candidates, seed = found[0].candidates, zlib.crc32(name.encode())
    identity = {
        "dataset": own.dataset,
        "network": own.make.__name__,
        "records": own.records,
        "runs": [[one.run.records, one.run.lot, one.run.steps, one.run.noise] for one in found],
        "candidates": [described(candidate.rule()) for candidate in candidates],
        "fraction": found[0].fraction,
        "seeds": [list(seeds), seed, SPLIT_SEED],
    }

    def work(device: str, tell: Tell) -> Arrays:
        return with_room(
            lambda most: trained(own, found, seeds, seed, device, tell, most), together(own, placed(device))
        )

    rules = [candidate.rule() for candidate in candidates] * (len(found) * len(seeds))
    return Part(
        name,
        identity,
        seconds_of(own, rules, 2),
        work,
        flops=len(rules) * own.steps * own.lot * own.flops,
    )


@lru_cache(maxsize=1)
def taken_in(
    task: Task, records: int, fraction: float, place: torch.device
) -> tuple[Intake, dict[str, Exam], int, int]:
    """The training side on the device with a model that was tried on it, both sides to score, and the sizes of these: the parts
    of a task share them.
    """
    (x, y), test = records_of(task).train, records_of(task).test
    held = torch.from_numpy(coins(len(x), fraction=fraction, seed=SPLIT_SEED))
    private = PrivateData((x[~held], y[~held]))
    intake = take_in(
        task.make(), private, records=records, loss=task.loss, device=place, workers=0, by_coin=fraction > 0
    )
    sides = {"validation": (x[held], y[held]), "test": test}
    exams = {name: Exam(task, intake, place, pair) for name, pair in sides.items() if len(pair[0])}
    return intake, exams, int(held.sum()), len(test[0])


def trained(
    task: Task, found: list[Search], seeds: Sequence[int], seed: int, device: str, tell: Tell, most: int
) -> Arrays:
    """Right answers of the last weights on each side, and whether these weights are numbers."""
    place, run = placed(device), found[0].run
    intake, exams, held, tests = taken_in(task, run.records, found[0].fraction, place)
    candidates = [candidate.rule() for candidate in found[0].candidates]
    each = len(seeds) * len(candidates)
    starts = stack([seeded(task.make, one) for one in seeds], intake.layout, place)
    starts = starts.repeat_interleave(len(candidates), dim=0)
    rules, noises = candidates * (len(found) * len(seeds)), np.repeat([one.run.noise for one in found], each)
    total = len(rules)
    kept = {name: np.zeros(total, np.uint16) for name in ("validation", "test")} | {"finite": np.zeros(total, bool)}
    side = replace(task, records=run.records)
    chunks = plan_chunks(rules, most)

    def begun(chunk: list[int]) -> Population:
        own, first = Seed.fixed(seed).child(chunk[0]), starts[torch.tensor(chunk) % each]
        return population_of(intake, side, [rules[i] for i in chunk], noises[chunk], first, own)

    measures = {name: exam.measured for name, exam in exams.items()}
    train_to_the_end(chunks, begun, measures, kept, steps=run.steps, tell=tell)
    shape = (len(found), len(seeds), len(candidates))
    sizes = {"held": np.array(held), "tests": np.array(tests)}
    return {name: values.reshape(shape) for name, values in kept.items()} | sizes
