"""Trains populations for the papers' experiments and measures them between steps.

The runs are the product's own (mechanism, rules, population); what is added is a look at the weights between blocks of
steps. Looking draws nothing from any generator, so the runs are the same as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from honestdp import Run
from honestdp.boundary.capture import free_captured
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.query import Constants
from honestdp.boundary.records import prepared
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import Layout, stack
from honestdp.losses import Loss
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp.optimizers.schedules import factors
from honestdp.training.chunks import plan_chunks
from honestdp.training.population import Population
from honestdp_papers.parts import Array, Arrays, Tell

Measure = Callable[[Population], Array]
"""One number of every run of a population, `[runs]`."""
_ROOM = {"cuda": 1 << 28, "cpu": 1 << 23}
"""Numbers of the widest layer that an evaluation may hold at once."""


def placed(device: str) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else torch.device(device)


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The model with initial weights that follow from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class Bench:
    """Records on a device and a model that was tried with them: populations of runs are made, trained and looked at here.

    by_coin: whether a coin has put each record on the training side.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        place: torch.device,
        *,
        records: int,
        loss: Loss | None = None,
        by_coin: bool = False,
    ) -> None:
        private = data if isinstance(data, PrivateData) else PrivateData(data)
        self.intake = take_in(model, private, records=records, loss=loss, device=place, workers=0, by_coin=by_coin)
        self.layout, self.place = self.intake.layout, place

    def starts(self, make: Callable[[], nn.Module], seeds: Iterable[int], *, each: int = 1) -> Tensor:
        """The initial weights of a model for each seed, one after the other, every one so often, `[runs, d]`."""
        models = [seeded(make, seed) for seed in seeds]
        return stack(models, self.layout, self.place).repeat_interleave(each, dim=0)

    def exam(self, x: Tensor, y: Tensor, *, error: bool = False) -> Exam:
        model = self.intake.vetted.model
        return Exam(model, self.layout, x.to(self.place), y.to(self.place), error=error)

    def population(
        self,
        run: Run,
        rules: Sequence[Rule],
        starts: Tensor,
        seed: Seed,
        *,
        every: int,
        noises: Sequence[float] | Array | None = None,
        schedule: str = "constant",
    ) -> Population:
        """Runs of one kind of rule before their first step, in blocks that end where they are looked at, every so many steps.

        noises: one a run, where they are not all the run's.
        """
        number = {"dtype": self.intake.dtype, "device": starts.device}
        noise = torch.tensor([run.noise] * len(rules) if noises is None else noises, **number)  # type: ignore[arg-type]
        paces = torch.tensor(factors(schedule, run), **number)  # type: ignore[arg-type]
        constants = Constants(run.records, run.lot, run.steps, noise, self.layout, paces)
        mechanism = self.intake.mechanism(constants, seed=seed, secure=False, pause=every)
        return Population(mechanism, stack_rules(list(rules), dtype=self.intake.dtype, device=starts.device), starts)

    def trained(
        self,
        run: Run,
        rules: Sequence[Rule],
        starts: Tensor,
        measures: Mapping[str, Measure],
        looks: Sequence[int],
        *,
        seed: int,
        every: int,
        together: int,
        tell: Tell,
        noises: Array | None = None,
        schedule: str = "constant",
    ) -> Arrays:
        """Train all runs, chunk by chunk, and return what each measure made of them, `[runs, looks]`.

        Args:
            run: of all; their noises may be others.
            rules: of every run; a chunk has rules of one kind.
            starts: initial weights of every run.
            measures: by name.
            looks: the steps after which all runs are measured; training ends with the last.
            seed: of all draws, with the number of a chunk's first run.
            every: steps of a block.
            together: runs of a chunk, at most.
            tell: called with the fraction that is done.
            noises: of every run, where they are not all the run's.
            schedule: of the step sizes.
        """
        found: Arrays = {}
        chunks = plan_chunks(rules, together)
        for number, chunk in enumerate(chunks):
            own, some, first = Seed.fixed(seed).child(chunk[0]), [rules[i] for i in chunk], starts[torch.tensor(chunk)]
            noise = None if noises is None else noises[chunk]
            population = self.population(run, some, first, own, every=every, noises=noise, schedule=schedule)
            for look, step in enumerate(looks):
                while population.step < step:
                    population.block()
                    tell((number + population.step / looks[-1]) / len(chunks))
                for name, measure in measures.items():
                    values = measure(population)
                    if name not in found:
                        found[name] = np.zeros((len(rules), len(looks)), values.dtype)
                    found[name][chunk, look] = values
            del population
            free_captured()
        return found

    def grid(
        self,
        make: Callable[[], nn.Module],
        run: Run,
        rules: Sequence[Rule],
        seeds: Sequence[int],
        measures: Mapping[str, Measure],
        looks: Sequence[int],
        *,
        noises: Sequence[float] | None = None,
        **how: Any,
    ) -> Arrays:
        """Train every rule from the initial weights of every seed, which all rules share, `[seeds, rules, looks]`.

        noises: one a rule, where they are not all the run's. how: see `trained`.
        """
        starts = self.starts(make, seeds, each=len(rules))
        own = None if noises is None else np.tile(noises, len(seeds))
        found = self.trained(run, list(rules) * len(seeds), starts, measures, looks, noises=own, **how)
        return {name: values.reshape(len(seeds), len(rules), -1) for name, values in found.items()}


def state_of(name: str) -> Measure:
    """Measures a number that the rule keeps of every run; 0 where it keeps none."""

    def measure(population: Population) -> Array:
        if name not in population.state:
            return np.zeros(len(population.weights()), np.float32)
        kept: Array = population.state[name].cpu().numpy().astype(np.float32)
        return kept

    return measure


def finite(population: Population) -> Array:
    """Measures whether all weights of a run are numbers."""
    found: Array = torch.isfinite(population.weights()).all(dim=1).cpu().numpy()
    return found


class Exam:
    """Test records on the device, and how many of them every run answers rightly, or its mean squared error.

    x: bytes, half precision or floats; y: classes, or what an error is taken from.
    """

    def __init__(self, model: nn.Module, layout: Layout, x: Tensor, y: Tensor, *, error: bool = False) -> None:
        self._model, self._layout, self._x, self._y, self._error = model, layout, x, y, error
        self._rows = max(1, _ROOM[x.device.type] // _widest(model, x[:1]))
        convolves = any(isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) for layer in model.modules())
        self.together = 1 if convolves else max(1, self._rows // len(y))
        """Runs in one product. Convolutions go run by run, which is faster than grouped ones."""

    @torch.no_grad()
    def measured(self, weights: Tensor) -> Array:
        """weights `[runs, d]` -> `[runs]`."""
        totals = torch.cat([self._total(some) for some in torch.split(weights, self.together)])
        found: Array = (totals / len(self._y) if self._error else totals).cpu().numpy()
        return found.astype(np.float32 if self._error else np.uint16)

    def __call__(self, population: Population) -> Array:
        return self.measured(population.weights())

    def _total(self, weights: Tensor) -> Tensor:
        views, parts = self._layout.views(weights), []
        for x, y in zip(torch.split(self._x, self._rows), torch.split(self._y, self._rows), strict=True):
            read = prepared(x, weights.dtype)
            answers = vmap(lambda own, read=read: functional_call(self._model, own, (read,)))(views)
            if self._error:
                parts.append((answers - y).square().flatten(2).mean(dim=2).double().sum(dim=1))
            else:
                parts.append((answers.argmax(dim=-1) == y).sum(dim=-1))
        return torch.stack(parts).sum(dim=0)


def _widest(model: nn.Module, x: Tensor) -> int:
    """Numbers of the widest layer's output for one example."""
    shown = [1]
    hooks = [layer.register_forward_hook(lambda _m, _i, out: shown.append(out.numel())) for layer in model.modules()]
    with torch.no_grad():
        model(prepared(x, next(model.parameters()).dtype))
    for hook in hooks:
        hook.remove()
    return max(shown)
