"""The paper's trainings as parts: what the test set says every 50 steps, for every candidate, and clip and step size there.

A part is one method's grid on one task at one granularity and one seed, at all epsilons (Online, AdamWOSM) or at one
(FixedThreshold, FixedQuantile, which have more candidates). Runs of one part train together, each at the noise of its epsilon,
with lots and noise of its own. All methods of a seed begin with the same weights. Figures and tables share parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp import optimizers
from honestdp.boundary.capture import free_captured
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import Intake, take_in
from honestdp.boundary.query import Constants
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.optimizers.rule import Rule, stack_rules
from honestdp.training.chunks import plan_chunks
from honestdp.training.population import Population
from honestdp_papers.curves import placed, seeded
from honestdp_papers.galli2024.noise import granularities, noise_of
from honestdp_papers.galli2024.setting import (
    EVERY,
    METHODS,
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
from honestdp_papers.parts import Array, Arrays, Part, Tell, described

UNCLIPPED = 1e6
"""A clip that no gradient reaches: without noise, plain SGD."""
TOGETHER = {"cuda": 40, "cpu": 12}
"""Runs of a population of convolutions, at most; seven times as many of words."""
_ROOM = {"cuda": 1 << 28, "cpu": 1 << 24}
"""Numbers that an evaluation may hold at once."""
PREPARED = 6.0
"""Seconds until the first step of a part, and a part of what looking takes, on a large GPU."""


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


def seed_blocks(task: Task, quick: bool) -> list[tuple[int, ...]]:
    """Seeds that are trained in one part: one by one where a training takes long."""
    if quick:
        return [(0,)]
    return [(seed,) for seed in range(SEEDS)] if task.image else [tuple(range(SEEDS))]


def block_name(seeds: Sequence[int]) -> str:
    return f"seed{seeds[0]}" if len(seeds) == 1 else f"seeds{seeds[0]}-{seeds[-1]}"


def epsilon_blocks(task: Task, method: str, quick: bool) -> list[tuple[float, ...]]:
    """Epsilons that are trained in one part."""
    apart = method in (THRESHOLD, QUANTILE) and task.image and not quick
    return [(epsilon,) for epsilon in task.epsilons] if apart else [task.epsilons]


def part_name(task: Task, k: int, seeds: Sequence[int], method: str, epsilons: Sequence[float] = ()) -> str:
    at = f"/eps{epsilons[0]:g}" if len(epsilons) == 1 else ""
    return f"{task.name}/k{k}/{block_name(seeds)}/{method}{at}"


def method_parts(task: Task, method: str, k: int, quick: bool) -> list[Part]:
    """A method's grid at every epsilon and seed."""
    own = sized(task, quick)
    rules, found = [rule_of(method, values) for values in candidates(method, k, quick)], []
    for seeds in seed_blocks(own, quick):
        for epsilons in epsilon_blocks(own, method, quick):
            noises = [noise_of(own, epsilon, len(rules), quick) for epsilon in epsilons for _ in rules]
            grid = Grid(own, rules * len(epsilons), noises, seeds)
            found.append(grid_part(part_name(own, k, seeds, method, epsilons), grid))
    return found


def plain_parts(task: Task, quick: bool) -> list[Part]:
    """Without privacy: SGD and Adam at k = 7 step sizes."""
    own, k = sized(task, quick), 3 if quick else 7
    found = []
    for seeds in seed_blocks(own, quick):
        rules = [rule_of(method, (lr,)) for method in (NODP, NODP_ADAM) for lr in step_sizes(k)]
        found.append(grid_part(part_name(own, k, seeds, NODP), Grid(own, rules, [0.0] * len(rules), seeds)))
    return found


def parts_at(task: Task, ks: Sequence[int], quick: bool) -> list[Part]:
    """Every method at some granularities, and no privacy: k = 7 and the first seed come first."""
    each = [part for k in ks for method in METHODS for part in method_parts(task, method, k, quick)]
    return sorted(
        [*each, *plain_parts(task, quick)], key=lambda part: (part.name.split("/")[1] != "k7", part.name.split("/")[2])
    )


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

    def work(device: str, tell: Tell) -> Arrays:
        return with_room(lambda most: trained(grid, seed, device, tell, most), together(task, placed(device)))

    runs = len(grid.rules) * len(grid.seeds)
    flops = runs * (task.steps * task.lot + len(task.looks) * task.tests / 3) * task.flops
    seconds = PREPARED + runs * (task.steps * task.price + len(task.looks) * task.price * task.tests / task.lot / 3)
    return Part(name, identity, seconds, work, __name__, optional, flops)


def together(task: Task, place: torch.device) -> int:
    """Runs of a population, at most."""
    most = TOGETHER[place.type]
    return most * 7 if not task.image else max(1, most // 8) if task.flops > 1e8 else most


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


def trained(grid: Grid, seed: int, device: str, tell: Tell, most: int) -> Arrays:
    """Train every run of a grid with each seed, at most so many together, and look at all of them at the looks."""
    place, task = placed(device), grid.task
    private = PrivateData(records_of(task).train)
    intake = take_in(task.make(), private, records=task.records, loss=task.loss, device=place, workers=0)
    exam = Exam(task, intake, place, records_of(task).test)
    initial = stack([seeded(task.make, one) for one in grid.seeds], intake.layout, place)
    rules, noises = list(grid.rules) * len(grid.seeds), np.tile(grid.noises, len(grid.seeds))
    starts = initial.repeat_interleave(len(grid.rules), dim=0)
    shape = (len(rules), len(task.looks))
    found = {exam.name: np.zeros(shape, exam.dtype)} | {name: np.zeros(shape, np.float32) for name in ("clip", "lr")}
    chunks = plan_chunks(rules, most)
    for number, chunk in enumerate(chunks):
        begun, own = starts[torch.tensor(chunk)], Seed.fixed(seed).child(chunk[0])
        population = population_of(intake, task, [rules[i] for i in chunk], noises[chunk], begun, own)
        for look, step in enumerate(task.looks):
            while population.step < step:
                population.block()
            found[exam.name][chunk, look] = exam.measured(population.weights())
            for name in ("clip", "lr"):
                if name in population.state:
                    found[name][chunk, look] = population.state[name].cpu().numpy()
            tell((number + (look + 1) / len(task.looks)) / len(chunks))
        del population
        free_captured()
    kept = {
        name: values.reshape(len(grid.seeds), len(grid.rules), -1) for name, values in found.items() if values.any()
    }
    kept.setdefault(exam.name, found[exam.name].reshape(len(grid.seeds), len(grid.rules), -1))
    return kept | {"tests": np.array(task.tests), "looks": np.array(task.looks)}


def population_of(
    intake: Intake, task: Task, rules: list[Rule], noises: Array, starts: Tensor, seed: Seed, *, pause: int = EVERY
) -> Population:
    """Runs before their first step, each with a noise of its own, in blocks that end where they are looked at."""
    place = starts.device
    noise = torch.tensor(noises, dtype=intake.dtype, device=place)
    factors = torch.ones(task.steps, dtype=intake.dtype, device=place)
    constants = Constants(task.records, task.lot, task.steps, noise, intake.layout, factors)
    mechanism = intake.mechanism(constants, seed=seed, secure=False, pause=pause)
    return Population(mechanism, stack_rules(rules, dtype=intake.dtype, device=place), starts)


class Exam:
    """Test records on the device, and what a population makes of them: right answers, or the mean squared error."""

    def __init__(self, task: Task, intake: Intake, place: torch.device, records: tuple[Tensor, Tensor]) -> None:
        self._model, self._layout, self._task = intake.question.model, intake.layout, task
        self._x, self._y = (part.to(place) for part in records)
        self._some = max(1, _ROOM[place.type] // _widest(self._model, self._x[:1]))
        self.name = "error" if task.error else "right"
        self.dtype = np.float32 if task.error else np.uint16

    @torch.no_grad()
    def measured(self, weights: Tensor) -> Array:
        """weights `[runs, d]` -> `[runs]`. Words take all runs in one product; convolutions run by run, which is faster than
        grouped ones.
        """
        if self._task.image:
            each = ({name: view[0] for name, view in self._layout.views(one[None]).items()} for one in weights)
            totals = torch.stack([self._total(partial(self._outputs, parameters)) for parameters in each])
        else:
            several = torch.func.vmap(self._outputs, (0, None))
            pieces = torch.split(weights, max(1, self._some // len(self._y)))
            totals = torch.cat([self._total(partial(several, self._layout.views(some))) for some in pieces])
        found: Array = (totals / len(self._y) if self._task.error else totals).cpu().numpy().astype(self.dtype)
        return found

    def _outputs(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = functional_call(self._model, parameters, (x,))
        return found

    def _total(self, outputs: Callable[[Tensor], Tensor]) -> Tensor:
        parts = []
        for x, y in zip(torch.split(self._x, self._some), torch.split(self._y, self._some), strict=True):
            answers = outputs(x)
            if self._task.error:
                parts.append((answers - y).square().flatten(1).mean(dim=1).double().sum())
            else:
                parts.append((answers.argmax(dim=-1) == y).sum(dim=-1))
        return torch.stack(parts).sum(dim=0)


def _widest(model: nn.Module, x: Tensor) -> int:
    """Numbers of the widest layer of an example's way through the model."""
    shown = [x.numel()]
    hooks = [layer.register_forward_hook(lambda _m, _i, out: shown.append(out.numel())) for layer in model.modules()]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return max(shown)
