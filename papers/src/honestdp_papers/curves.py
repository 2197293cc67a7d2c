"""Trains populations for the papers' experiments and measures their test accuracy every few steps.

The runs are the product's own (mechanism, rules, population); what is added is a look at the weights between blocks of
steps. Looking draws nothing from any generator, so the runs are the same as without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.boundary.capture import free_captured
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import Intake, take_in
from honestdp.boundary.query import Constants
from honestdp.boundary.records import prepared
from honestdp.boundary.seed import Seed
from honestdp.data.named import Array, NamedDataset
from honestdp.gradients.layout import Layout, stack
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp.run import Run
from honestdp.training.chunks import plan_chunks
from honestdp.training.population import Population
from honestdp_papers.parts import Arrays, Tell

_EVALUATED = 1 << 27
"""Numbers of a hidden layer that an evaluation may hold at once on a GPU; a sixteenth of it on a CPU."""
_LOTS = {"cuda": 1 << 30, "cpu": 1 << 25}
"""Bytes of a step's examples that are gathered at once, over all runs of a chunk: what the engine takes in one piece on a GPU,
and what stays in a CPU's cache."""
_TOGETHER = 280
"""Runs of a chunk at most: among more of them, too often some run's lot is larger than the captured shape."""


@dataclass(frozen=True)
class Plan:
    """A population to be looked at every `every` steps.

    rules: one a candidate. repeats: how often each is run, every time from initial weights and randomness of its own.
    """

    rules: Sequence[Rule]
    run: Run
    repeats: int
    every: int
    seed: int


def accuracies(
    make: Callable[[], nn.Module], dataset: NamedDataset, plan: Plan, *, device: str, tell: Tell = lambda done: None
) -> Array:
    """Right answers on the test records, `[repeats, candidates, looks]`, as whole numbers.

    make: makes a model with fresh initial weights from torch's generator; each repeat has its own seed.
    """
    place = placed(device)
    intake = take_in(make(), PrivateData(dataset.train), records=plan.run.records, loss=None, device=place, workers=0)
    initial = stack([seeded(make, repeat) for repeat in range(plan.repeats)], intake.layout, place)
    rules = [rule for _ in range(plan.repeats) for rule in plan.rules]
    starts = initial.repeat_interleave(len(plan.rules), dim=0)
    test = Exam(intake.question.model, intake.layout, dataset, place)
    looks = plan.run.steps // plan.every
    found = np.empty((len(rules), looks), np.uint16)
    chunks = plan_chunks(rules, most_together(dataset, plan.run, place))
    for number, chunk in enumerate(chunks):
        population = population_of(intake, plan, [rules[i] for i in chunk], starts[torch.tensor(chunk)], chunk[0])
        for look in range(looks):
            while population.step < (look + 1) * plan.every:
                population.block()
            found[chunk, look] = test.right(population.weights())
            tell((number + (look + 1) / looks) / len(chunks))
        del population
        free_captured()
    return found.reshape(plan.repeats, len(plan.rules), looks)


def placed(device: str) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else torch.device(device)


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def population_of(
    intake: Intake, plan: Plan, rules: list[Rule], starts: Tensor, number: int, noises: Sequence[float] | None = None
) -> Population:
    """Runs of one kind of rule before their first step, in blocks that end where they are looked at.

    noises: one a run, where they are not all the plan's.
    """
    each = [plan.run.noise] * len(rules) if noises is None else noises
    noise = torch.tensor(each, dtype=intake.dtype, device=starts.device)
    factors = torch.ones(plan.run.steps, dtype=intake.dtype, device=starts.device)
    constants = Constants(plan.run.records, plan.run.lot, plan.run.steps, noise, intake.layout, factors)
    mechanism = intake.mechanism(constants, seed=Seed.fixed(plan.seed).child(number), secure=False, pause=plan.every)
    return Population(mechanism, stack_rules(rules, dtype=intake.dtype, device=starts.device), starts)


def most_together(dataset: NamedDataset, run: Run, place: torch.device) -> int:
    """As many runs as have room for their lots at once."""
    widest = run.lot + 5 * run.lot**0.5 + 2
    return max(1, min(_TOGETHER, int(_LOTS[place.type] // (4 * dataset.features * widest))))


class Exam:
    """The test records on the device, and how many of them a population answers rightly."""

    def __init__(self, model: nn.Module, layout: Layout, dataset: NamedDataset, place: torch.device) -> None:
        x, y = dataset.test
        self._model, self._layout = model, layout
        self._x = prepared(torch.from_numpy(x).to(place), torch.float32)
        self._y = torch.from_numpy(y.astype(np.int64)).to(place)
        widest = max((shape[0] for shape in layout.shapes), default=1)
        room = _EVALUATED if place.type == "cuda" else _EVALUATED >> 4
        self._together = max(1, room // (len(self._y) * widest))

    @torch.no_grad()
    def right(self, weights: Tensor) -> Array:
        """weights `[runs, d]` -> right answers `[runs]`."""
        counts = []
        for some in torch.split(weights, self._together):
            outputs = torch.func.vmap(self._outputs)(self._layout.views(some))
            counts.append((outputs.argmax(dim=-1) == self._y).sum(dim=-1))
        return torch.cat(counts).cpu().numpy().astype(np.uint16)

    def _outputs(self, parameters: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(self._model, parameters, (self._x,))
        return found


def train_to_the_end(
    chunks: Sequence[list[int]],
    begun: Callable[[list[int]], Population],
    measures: Mapping[str, Callable[[Tensor], Array]],
    found: Arrays,
    *,
    steps: int,
    tell: Tell,
) -> None:
    """Train chunk by chunk and put into `found` what each measure makes of the last weights, and whether they are `finite`."""
    for number, chunk in enumerate(chunks):
        population = begun(chunk)
        while population.step < steps:
            population.block()
            tell((number + population.step / steps) / len(chunks))
        weights = population.weights()
        found["finite"][chunk] = torch.isfinite(weights).all(dim=1).cpu().numpy()
        for name, measure in measures.items():
            found[name][chunk] = measure(weights)
        del population, weights
        free_captured()
