"""The trainings behind `honest`: every method's grid of k = 7 at the noise that each selection leaves it at one budget.

A part is one method with some seeds under all selections (`honest_search`), and keeps right answers on the validation side and on
the test records, `[selections, seeds, candidates]`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from honestdp import Budget
from honestdp.search.space import space_of
from honestdp_papers import honest_search
from honestdp_papers.curves import Bench, Exam, placed
from honestdp_papers.galli2024.known import QUICK_K
from honestdp_papers.galli2024.setting import (
    AG_NEWS,
    DELTA,
    EVERY,
    METHODS,
    MNIST,
    ONLINE,
    PRINTED_K,
    QUANTILE,
    SEEDS,
    STANDIN,
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
from honestdp_papers.galli2024.training import block_name, seconds_of, seed_blocks, together, with_room
from honestdp_papers.honest_search import Pool, Search, sides_of
from honestdp_papers.parts import Arrays, Part, Tell, described

EPSILON, SPLIT_SEED = 3.0, 2024
NOISES = Path(__file__).with_name("honest_noise.json")
SELECTIONS = ("compose", "winner", "papernot-steinke", "envelope")
ADAM_OSO, AUTOMATIC = "AdamOSO", "AdamWOSM, automatic"
SINGLE = (ADAM_OSO, AUTOMATIC)
"""Ours, with nothing left to search: one run has the whole budget and all records."""
SHOWN = 3
"""Seeds that are trained, of five: a grid is trained four times over here."""


def honest_tasks() -> tuple[Task, ...]:
    """Those whose score is an accuracy."""
    return (MNIST, text_task())


def search_of(task: Task, method: str, selection: str, quick: bool) -> Search:
    """One cell of the table."""
    k, own = QUICK_K if quick else PRINTED_K, sized(task, quick)
    rates, sizes = list(step_sizes(k)), list(clips(k))
    name, dimensions = {
        ONLINE: ("oso", {"lr": rates}),
        WOSM: ("adam-wosm", {"clip": sizes}),
        THRESHOLD: ("sgd", {"lr": rates, "clip": sizes}),
        QUANTILE: ("quantile", {"lr": rates, "quantile": list(quantiles(quick)), "clamped": [False]}),
        ADAM_OSO: ("adam-oso", {"lr": [1e-3]}),
        AUTOMATIC: ("adam-wosm", {"clip": ["auto"]}),
    }[method]
    space = space_of(name, dimensions, lot=own.lot, steps=own.steps)  # type: ignore[arg-type]
    key = f"{'quick' if quick else 'full'}/{task.name}/{len(space.candidates())}/{selection}"
    return Search(method, selection, Budget(EPSILON, DELTA), own.records, space, method in SINGLE, key, NOISES)


def searches(task: Task, method: str, quick: bool) -> list[Search]:
    """Under every selection; a single run under none."""
    return [
        search_of(task, method, selection, quick) for selection in (SELECTIONS[:1] if method in SINGLE else SELECTIONS)
    ]


def every_search() -> Iterator[Search]:
    for quick in (False, True):
        for task in (MNIST, STANDIN, AG_NEWS):
            for method in (*METHODS, *SINGLE):
                yield from searches(task, method, quick)


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
    candidates, runs = found[0].candidates, [one.run for one in found]
    pool = Pool(candidates, runs, len(seeds), found[0].fraction, zlib.crc32(name.encode()))
    identity = {
        "dataset": own.dataset,
        "network": own.make.__name__,
        "records": own.records,
        "runs": [[run.records, run.lot, run.steps, run.noise] for run in runs],
        "candidates": [described(candidate.rule()) for candidate in candidates],
        "fraction": pool.fraction,
        "seeds": [list(seeds), pool.seed, SPLIT_SEED],
    }

    def work(device: str, tell: Tell) -> Arrays:
        return with_room(lambda most: trained(own, pool, seeds, device, tell, most), together(own, placed(device)))

    rules = [candidate.rule() for candidate in candidates] * (len(found) * len(seeds))
    flops = len(rules) * own.steps * own.lot * own.flops
    return Part(name, identity, seconds_of(own, rules, 2), work, flops=flops)


@lru_cache(maxsize=1)
def loaded(task: Task, records: int, fraction: float, place: torch.device) -> tuple[Bench, dict[str, Exam], Arrays]:
    """Both sides: the parts of a task share them."""
    own = records_of(task)
    return sides_of(
        task.make(), own.train, own.test, place, records=records, fraction=fraction, split=SPLIT_SEED, loss=task.loss
    )


def trained(task: Task, pool: Pool, seeds: Sequence[int], device: str, tell: Tell, most: int) -> Arrays:
    """All candidates of a seed begin with the same weights."""
    place = placed(device)
    bench, exams, sizes = loaded(task, pool.runs[0].records, pool.fraction, place)
    starts = bench.starts(task.make, seeds, each=len(pool.candidates))
    return honest_search.trained(pool, bench, exams, starts, every=EVERY, together=most, tell=tell) | sizes
