"""The searches of `records.py`: two ways to search and to train in one budget that has also paid for the mean (`centring.py`).

- `search`: `honestdp.tune` with the whole of what is left. Its winner is the model. Every run has the noise of the search.
- `pilot`: `honestdp.tune` with PILOT of mu^2, each candidate once, a fifth of the records to score them; nothing but the winner's
  optimizer is used. It then trains one run, on all records, with the rest.

Privacy. Everything is a sequence of mechanisms on the same records, each of which may see what the earlier ones released: the
mean, the search, the last run. For every value of what was released before, a search has the profile that its selection gives
(docs/theory.md): taking a fixed mean off is done record by record, and the choice of an optimizer is a public constant then. A
pair that dominates a mechanism for all values of its other input composes with the others by its product (Zhu, Dong & Wang
2022, on adaptive composition). The profile of a search is turned into such a pair by `accounting.discrete.step_of`, from points
on or above it, as the ledger does, and all steps are composed by the PLD accountant. The number of runs, the losers and their
scores stay secret, as in any search.

A record is on the training or on the validation side of a search, by a coin that depends on no data. Given the coin it pays the
search's runs or the search's scores, and everything else on both sides. The hockey-stick divergence is jointly convex, so the
whole costs the larger of the two, each composed by itself. `After` gives `tune` exactly that: the epsilon of a side's event
together with what came before, so that runs and scores are both calibrated to the whole budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent

import honestdp
from honestdp import accounting
from honestdp.accounting.calibration import epsilon_of, least_multiplier, least_noise
from honestdp.accounting.discrete import step_of
from honestdp.accounting.events import steps_of
from honestdp.accounting.pld import dominating_pair
from honestdp.ledger.spending import Spending
from honestdp.planner.comparison import score_noise
from honestdp.planner.shapes import chosen_shape, mu_of, training_records
from honestdp.selection import Profiles, RandomStopping, Winner, count_of
from honestdp.selection.profile import of_pair
from honestdp_papers.records.centring import mean_run

PILOT = 0.1  # of mu^2
PILOT_VALIDATION = 0.2  # a part of the records, all of which train the last run
RULES = 2  # candidates of every search here


def composed(event: DpEvent, profiles: Profiles, *, delta: float) -> accounting.Pair | None:
    """The pair that dominates the event and a search of these profiles, one after the other."""
    return dominating_pair((*steps_of(event), step_of(*profiles)), delta=delta)


@dataclass(frozen=True, kw_only=True)
class After(RandomStopping):
    """Random stopping by the envelope bound, after a run whose result everyone has seen: what both cost together.

    before: that run. `published` is none: the bound of Papernot & Steinke does not have it.
    """

    kind: ClassVar[str] = "random-stopping-after"
    names: ClassVar[tuple[str, ...]] = ("envelope-after",)

    before: honestdp.Run

    @property
    def basis(self) -> str:
        return f"{super().basis}; composed with one Gaussian of noise {self.before.noise:g} before it"

    @property
    def published(self) -> None:
        return None

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        pair = self._composed(event, delta)
        return math.inf if pair is None else pair.worst_epsilon(delta)

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        pair = self._composed(event, delta)
        assert pair is not None
        return of_pair(pair, delta=delta)

    def _composed(self, event: DpEvent, delta: float) -> accounting.Pair | None:
        return composed(self.before.event, super().profiles(event, delta=delta), delta=delta)


def search_after(budget: honestdp.Budget, *, records: int, runs: float) -> After:
    """The selection of a search after the mean of this budget. runs: on average, geometric."""
    return After(count=count_of(runs=runs, shape=1.0), before=mean_run(budget, records))


def pilot_budget(budget: honestdp.Budget) -> honestdp.Budget:
    """Of a pilot: what a Gaussian of PILOT of the budget's mu^2 costs at the same delta, to three digits."""
    gaussian = GaussianDpEvent(1 / (math.sqrt(PILOT) * mu_of(budget)))
    return honestdp.Budget(round(accounting.epsilon(gaussian, delta=budget.delta), 3), budget.delta)


@cache
def pilot_of(budget: honestdp.Budget, *, records: int) -> Spending:
    """What the pilot of this budget spends: runs and scores as `tune` calibrates them, each candidate once."""
    own, selection, training = (
        pilot_budget(budget),
        Winner(candidates=RULES),
        training_records(records, PILOT_VALIDATION),
    )
    shape = chosen_shape(own, records=training, candidates=RULES)
    run = least_noise(own, records=training, lot=shape.lot, steps=shape.steps, selection=selection)
    score, _ = score_noise(selection, epsilon_of(selection, run.event, delta=own.delta), own, sensitivity=1)
    return Spending(selection, ((run, RULES),), score=score, sensitivity=1)


@dataclass(frozen=True)
class _Sides:
    """What an event costs together with a search, on the worse of its two sides: a Spender of the calibration."""

    sides: tuple[Profiles, ...]

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        pairs = [composed(event, profiles, delta=delta) for profiles in self.sides]
        return max(math.inf if pair is None else pair.worst_epsilon(delta) for pair in pairs)


def run_after_pilot(
    budget: honestdp.Budget, *, records: int, lot: float, steps: int, mean: bool = True
) -> honestdp.Run:
    """The last run: mean, pilot and it meet the budget together. mean: whether there is one."""
    pilot = pilot_of(budget, records=records)
    assert pilot.validation is not None
    events = pilot.training, pilot.validation
    sides = _Sides(tuple(pilot.base.profiles(event, delta=budget.delta) for event in events))

    def together(noise: float) -> DpEvent:
        run = honestdp.Run(records=records, lot=lot, steps=steps, noise=noise)
        return ComposedDpEvent([*([mean_run(budget, records).event] if mean else []), run.event])

    noise = least_multiplier(budget, together, sides)
    return honestdp.Run(records=records, lot=lot, steps=steps, noise=noise)


def chosen_by_pilot(
    model: Any, data: Any, *, budget: honestdp.Budget, records: int, rules: Sequence[str], **how: Any
) -> str:
    """The optimizer that a pilot of this budget chooses: nothing else of it is used."""
    expected = pilot_of(budget, records=records)
    ((run, _),) = expected.runs
    how |= {"selection": "winner", "validation": PILOT_VALIDATION, "lot": run.lot, "steps": run.steps}
    found = honestdp.tune(model, data, budget=pilot_budget(budget), optimizer=tuple(rules), **how)
    if (found.run.records, found.run.lot, found.run.steps) != (run.records, run.lot, run.steps):
        raise RuntimeError(f"the pilot ran {found.run}, and {run} was accounted for")
    if found.run.noise < run.noise or found.budget.epsilon > pilot_budget(budget).epsilon:
        raise RuntimeError(f"the pilot had noise {found.run.noise}, and {run.noise} was accounted for")
    if found.budget.delta > budget.delta or len(rules) != RULES:
        raise RuntimeError(
            f"the pilot of {len(rules)} candidates had delta {found.budget.delta}: another was accounted for"
        )
    chosen: str = found.hyperparameters["optimizer"]
    return chosen
