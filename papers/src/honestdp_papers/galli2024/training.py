"""The paper's trainings as parts: what the test set says every 50 steps, for every candidate, and clip and step size there.

A part is one method's grid on one task at one granularity, at all epsilons and with as many seeds as are quickly trained
together. Runs of one part train together, each at the noise of its epsilon, with lots and noise of its own. All methods of a seed
begin with the same weights. Figures and tables share parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from honestdp import optimizers
from honestdp.boundary.capture import free_captured
from honestdp.optimizers import Rule
from honestdp.training.chunks import plan_chunks
from honestdp_papers.curves import Bench, Exam, Measure, placed, state_of
from honestdp_papers.galli2024.known import granularities, noise_of
from honestdp_papers.galli2024.setting import (
    EVERY,
    METHODS,
    MNIST,
    NODP,
    NODP_ADAM,
    ONLINE,
    QUANTILE,
    SEEDS,
    THRESHOLD,
    WOSM,
    Task,
    candidates,
    records_of,
    sized,
    step_sizes,
)
from honestdp_papers.parts import Arrays, Part, Tell, described

UNCLIPPED = 1e6
"""A clip that no gradient reaches: without noise, plain SGD."""
PART_RUNS = 200
"""Runs of a part, at most, but for a single seed's: one population of a large GPU, so that little is lost where it stops."""
TOGETHER = {"cuda": 200, "cpu": 12}
"""Runs of a population of images, at most: 0.22 GiB each, and fewer than 2^31 numbers of a layer."""
WORDS_TOGETHER = {"cuda": 280, "cpu": 84}
LARGE = 1e8
"""FLOP of a record from which on a network is taken in parts and populations of its own."""
PREPARED, BEGUN = 1.0, 1.0
"""Seconds of a part and of a population on a large GPU, to try the model and to capture its steps; the first of a process takes
15 more, to compile."""
REHEARSED = 16
"""Steps of a population that are made before the first one, to capture them."""


def rule_of(method: str, values: tuple[float, ...]) -> Rule:
    """A candidate of a method; its numbers as `candidates` lists them."""
    if method == ONLINE:
        return optimizers.OSO(lr=values[0])
    if method == WOSM:
        return optimizers.AdamWOSM(clip=values[0])
    if method == THRESHOLD:
        return optimizers.SGD(lr=values[0], clip=values[1])
    if method == QUANTILE:  # the clamp of the released fraction would cap the swings that the paper blames
        return optimizers.Quantile(lr=values[0], quantile=values[1], clamped=False)
    if method == NODP_ADAM:
        return optimizers.Adam(lr=values[0], clip=UNCLIPPED)
    assert method == NODP, method
    return optimizers.SGD(lr=values[0], clip=UNCLIPPED)


@dataclass(frozen=True)
class Grid:
    """Runs that are trained on one task with each of some seeds. noises: one a run."""

    task: Task
    rules: Sequence[Rule]
    noises: Sequence[float]
    seeds: Sequence[int]


def seed_blocks(task: Task, runs: int, quick: bool, seeds: int = SEEDS) -> list[tuple[int, ...]]:
    """Seeds that are trained in one part, of `runs` each: all of words, and of images as many as there are runs for a part.

    By numbers of runs alone, so that another estimate of what a training takes makes no other parts.
    """
    if quick:
        return [(0,)]
    most = 1 if task.flops > LARGE else PART_RUNS // runs if task.image else seeds
    count = -(-seeds // max(1, most))
    each = -(-seeds // count)
    return [tuple(range(first, min(first + each, seeds))) for first in range(0, seeds, each)]


def block_name(seeds: Sequence[int]) -> str:
    return f"seed{seeds[0]}" if len(seeds) == 1 else f"seeds{seeds[0]}-{seeds[-1]}"


@dataclass(frozen=True)
class Block:
    """What of a method's grid is trained in one part."""

    name: str
    seeds: tuple[int, ...]
    epsilons: tuple[float, ...]


def method_blocks(task: Task, method: str, k: int, quick: bool) -> list[Block]:
    """The parts of a method's grid at every epsilon and seed. Of the network that takes longest each epsilon is one."""
    apart = task.flops > LARGE
    each = [(epsilon,) for epsilon in task.epsilons] if apart else [task.epsilons]
    runs = len(candidates(method, k, quick)) * len(each[0])
    return [
        Block(part_name(task, k, seeds, method, f"/eps{epsilons[0]:g}" if apart else ""), seeds, epsilons)
        for seeds in seed_blocks(task, runs, quick)
        for epsilons in each
    ]


def plain_blocks(task: Task, k: int, quick: bool) -> list[Block]:
    """Those without privacy: SGD and Adam."""
    return [Block(part_name(task, k, seeds, NODP), seeds, ()) for seeds in seed_blocks(task, 2 * k, quick)]


def part_name(task: Task, k: int, seeds: Sequence[int], method: str, at: str = "") -> str:
    return f"{task.name}/k{k}/{block_name(seeds)}/{method}{at}"


def method_parts(task: Task, method: str, k: int, quick: bool) -> list[Part]:
    """A method's grid at every epsilon and seed."""
    own = sized(task, quick)
    rules, found = [rule_of(method, values) for values in candidates(method, k, quick)], []
    for block in method_blocks(own, method, k, quick):
        noises = [noise_of(own, epsilon, len(rules), quick) for epsilon in block.epsilons for _ in rules]
        found.append(grid_part(block.name, Grid(own, rules * len(block.epsilons), noises, block.seeds)))
    return found


def plain_parts(task: Task, quick: bool) -> list[Part]:
    """Without privacy: SGD and Adam at k = 7 step sizes."""
    own, k = sized(task, quick), 3 if quick else 7
    rules = [rule_of(method, (lr,)) for method in (NODP, NODP_ADAM) for lr in step_sizes(k)]
    return [
        grid_part(block.name, Grid(own, rules, [0.0] * len(rules), block.seeds))
        for block in plain_blocks(own, k, quick)
    ]


def parts_at(task: Task, ks: Sequence[int], quick: bool) -> list[Part]:
    """Every method at some granularities, and no privacy: k = 7 and the first seeds come first."""
    each = [part for k in ks for method in METHODS for part in method_parts(task, method, k, quick)]

    def place(part: Part) -> tuple[bool, str, str]:
        _, k, block, *_ = part.name.split("/")
        return k != "k7", k, block.removeprefix("seeds").removeprefix("seed")[0]

    return sorted([*each, *plain_parts(task, quick)], key=place)


def task_parts(task: Task, quick: bool) -> list[Part]:
    return parts_at(task, granularities(quick), quick)


def grid_part(name: str, grid: Grid, *, optional: bool = False) -> Part:
    """The part keeps `right` (answers, of `tests`) or `error`, and `clip` and `lr` where the rule moves them, each `[seeds, runs,
    looks]`, and `looks`.
    """
    seed, task = zlib.crc32(name.encode()), grid.task
    network = task.make.__name__
    identity = {
        "dataset": task.dataset,
        "network": network,
        "run": [task.records, task.lot, task.steps],
        "tests": task.tests,
        "noises": [round(noise, 12) for noise in grid.noises],
        "candidates": [described(rule) for rule in grid.rules],
        "seeds": list(grid.seeds),
        "every": EVERY,
        "seed": seed,
    }

    if task.pixels != MNIST.pixels:
        identity["pixels"] = task.pixels

    def work(device: str, tell: Tell) -> Arrays:
        return with_room(lambda most: trained(grid, seed, device, tell, most), together(task, placed(device)))

    runs = len(grid.rules) * len(grid.seeds)
    flops = runs * (task.steps * task.lot + len(task.looks) * task.tests / 3) * task.flops
    rules = list(grid.rules) * len(grid.seeds)
    return Part(name, identity, seconds_of(task, rules, len(task.looks)), work, optional=optional, flops=flops)


def seconds_of(task: Task, rules: Sequence[Rule], looks: int) -> float:
    """What it takes to train these runs and to look at them so often, on a large GPU, roughly."""
    populations = len(plan_chunks(rules, together(task, torch.device("cuda"))))
    steps = len(rules) * (task.steps + REHEARSED) * task.price
    return PREPARED + populations * BEGUN + steps + len(rules) * looks * task.look


def together(task: Task, place: torch.device) -> int:
    """Runs of a population, at most."""
    if not task.image:
        return WORDS_TOGETHER[place.type]
    most = TOGETHER[place.type]
    return max(1, most // 5) if task.flops > LARGE else most


def with_room(work: Callable[[int], Arrays], most: int) -> Arrays:
    """Work with populations of at most so many runs, and of half as many wherever a GPU has no room for them."""
    while True:
        try:
            return work(most)
        except torch.OutOfMemoryError:
            if most == 1:
                raise
        most //= 2
        free_captured()
        torch.cuda.empty_cache()


@lru_cache(maxsize=1)
def loaded(task: Task, place: torch.device) -> tuple[Bench, Exam]:
    """Records and test records on the device, and a model that was tried with them: the parts of a task share them."""
    own = records_of(task)
    bench = Bench(task.make(), own.train, place, records=task.records, loss=task.loss)
    return bench, bench.exam(*own.test, error=task.error)


def trained(grid: Grid, seed: int, device: str, tell: Tell, most: int) -> Arrays:
    """Train every run of a grid with each seed, at most so many together, and look at all of them at the looks."""
    task = grid.task
    bench, exam = loaded(task, placed(device))
    measured = "error" if task.error else "right"
    measures: dict[str, Measure] = {measured: exam, "clip": state_of("clip"), "lr": state_of("lr")}
    how: dict[str, Any] = {"noises": grid.noises, "seed": seed, "every": EVERY, "together": most, "tell": tell}
    found = bench.grid(task.make, task.run(0.0), grid.rules, grid.seeds, measures, task.looks, **how)
    kept = {name: values for name, values in found.items() if name == measured or values.any()}
    return kept | {"tests": np.array(task.tests), "looks": np.array(task.looks)}
