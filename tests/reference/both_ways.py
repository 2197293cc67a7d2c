"""One training both ways, with one seed: by the engine, and by `honestdp.reference`, which is what the engine has to equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from honestdp import augment as augmentation
from honestdp import reference
from honestdp.augment import Augmentation
from honestdp.boundary import mechanism
from honestdp.boundary.data import PrivateData
from honestdp.boundary.query import Constants, Query, Release, State, Steps
from honestdp.boundary.sampling import expected_width
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import layout_of, stack
from honestdp.losses import cross_entropy
from honestdp.optimizers import SGD, Rule
from honestdp.reference import Ask, Public, Record
from tests.toy_training import CPU, population_of, toy_data, toy_model

Way = Iterator[Any]
"""A rule by a paper's formula, as a generator: yields (question, weights), is sent the release, and yields the next."""
Formula = Callable[[Tensor], Way]


class ByFormula:
    """Such a rule, as the reference knows one."""

    def __init__(self, formula: Formula, weights: Tensor) -> None:
        self._way = formula(weights)
        self._next, self.weights = next(self._way)

    def ask(self) -> Ask:
        return self._next

    def move(self, weights: Tensor, release: reference.Release) -> Tensor:
        self._next, self.weights = self._way.send(release)
        return self.weights


@dataclass
class Released:
    """Releases of each step, `[runs, d]` and the second answers `[runs, d or 1]`; the final weights, `[runs, d]`."""

    gradients: list[Tensor] = field(default_factory=list)
    seconds: list[Tensor] = field(default_factory=list)
    weights: Tensor = field(default_factory=lambda: torch.zeros(0))

    def step(self, gradient: Tensor, second: Tensor | None) -> None:
        self.gradients.append(gradient.double())
        if second is not None:
            self.seconds.append(second.double().reshape(len(gradient), -1))


@dataclass(frozen=True)
class Recorded:
    """A rule of the engine whose releases are kept."""

    rule: Steps
    kept: Released

    def query(self, state: State, constants: Constants) -> Query:
        return self.rule.query(state, constants)

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        self.kept.step(release.gradient, release.second)
        return self.rule.update(params, state, release, constants)


def sgd(lr: float = 0.5, clip: float = 0.4) -> Formula:
    return lambda weights: _sgd(weights, lr, clip)


def _sgd(weights: Tensor, lr: float, clip: float) -> Way:
    while True:
        release = yield Ask(clip), weights
        weights = weights - lr * release.gradient


@dataclass
class Training:
    """What both are given. rules, formulas: one for each run, the same optimizer; models: the first weights."""

    models: list[nn.Module] = field(default_factory=lambda: [toy_model(seed=1), toy_model(seed=2)])
    data: Any = field(default_factory=toy_data)
    rules: Sequence[Rule] = (SGD(lr=0.5, clip=0.4), SGD(lr=0.2, clip=1.5))
    formulas: Sequence[Formula] = (sgd(), sgd(0.2, 1.5))
    noise: Sequence[float] = (0.7, 1.3)
    lot: float = 20.0
    steps: int = 4
    loss: Any = None
    augment: Augmentation | None = None
    width: int | None = None
    """Of the engine's pieces of a lot, where it is not to be its own."""
    people: Sequence[Record] | None = None
    """The records as the reference has them, where they are not the rows of `data`."""
    cap: int = 1

    def engine(self) -> Released:
        private = PrivateData(self.data).augmented(self.augment)
        numbers: dict[str, Any] = {"lot": self.lot, "steps": self.steps, "noise": self.noise, "loss": self.loss}
        with pytest.MonkeyPatch.context() as patch:
            if self.width is not None:
                patch.setattr(mechanism, "width_of", lambda *shape, **public: self.width)
            population, _ = population_of(self.models, private, self.rules, seed=11, **numbers)
        kept = Released()
        population._steps = Recorded(population._steps, kept)  # type: ignore[assignment]
        while population.step < population.total:
            population.block()
        kept.weights = population.weights().double()
        return kept

    def plain(self) -> Released:
        starts = list(stack(self.models, layout_of(self.models[0]), CPU).double())
        rules = [ByFormula(formula, own) for formula, own in zip(self.formulas, starts, strict=True)]
        records = self.people or [
            [(x.double() if x.is_floating_point() else x, y)] for x, y in zip(*self.data, strict=True)
        ]
        public = Public(records=len(records), lot=self.lot, steps=self.steps, rows=self.cap)
        variants = None
        if self.augment is not None:
            width = self.width or expected_width(records=len(records), rate=public.rate, deviations=5)
            variants = reference.Variants(_one(self.augment), self.augment.draws, width)
        found, releases = reference.train(
            self.models[0], self.loss or cross_entropy, records, public,
            weights=starts, rules=rules, noise=self.noise, seed=Seed.fixed(11), variants=variants,
        )  # fmt: skip
        kept = Released(weights=torch.stack(found))
        for step in releases:
            seconds = [one.second for one in step if one.second is not None]
            kept.step(torch.stack([one.gradient for one in step]), torch.stack(seconds) if seconds else None)
        return kept


def _one(augment: Augmentation) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, u: augmentation.variants(augment, x[None], u[None])[0]


def check(training: Training) -> Released:
    """The engine's releases and weights, which are the reference's: bit by bit in float64, but for what a sum's order rounds."""
    engine, plain = training.engine(), training.plain()
    assert len(engine.gradients) == len(plain.gradients) == training.steps
    assert len(engine.seconds) == len(plain.seconds)
    for step in range(training.steps):
        torch.testing.assert_close(engine.gradients[step], plain.gradients[step], rtol=1e-9, atol=1e-11)
    for step, second in enumerate(plain.seconds):
        torch.testing.assert_close(engine.seconds[step], second, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(engine.weights, plain.weights, rtol=1e-9, atol=1e-11)
    return engine
