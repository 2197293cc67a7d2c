"""The public side of a search: candidates, selection, noise and price, all fixed before a record is read.

A record is on the training side with probability 1 - f and on the validation side with probability f, by a coin that depends on
no data. Given its side, only the runs or only the scores depend on it, so that the search costs a record

    max( selection(one run), selection(one score) ),

the selection's cost being monotone in its base's privacy curve (hockey-stick divergences are jointly convex, so the coin itself
costs nothing). The noise of the runs is the least that meets the budget; the noise of the scores is the least whose side costs
no more than the runs'. The rate of a lot is L / N_train with N_train = (1 - f) N, a declared number: how many records the coin
put there is not used.

Where candidates differ in lot or steps, each (lot, steps) has noise of its own, and the base run is the worst of them.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting import AccountingWarning, WorstOfDpEvent
from honestdp.accounting.calibration import epsilon_of, least_multiplier, least_noise
from honestdp.boundary.metrics import Metric
from honestdp.budget import Budget
from honestdp.ledger.spending import Spending
from honestdp.planner.comparison import Plan, plan, plan_within, score_noise, standard
from honestdp.planner.shapes import training_records
from honestdp.run import ROW, Run, Unit
from honestdp.search.space import Candidate, Space
from honestdp.selection import Selection, catalogue
from honestdp.selection.counts import mean_for_coverage

Shape = tuple[float, int]  # lot and steps, which the price of a run depends on besides its noise
DRAWN = 64  # candidates that a random search amounts to, unless told


@dataclass(frozen=True, kw_only=True)
class Request:
    """The public arguments that a design is a function of.

    fraction: of the records, for validation. drawn: how many draws a random search amounts to. shaped: how lot and steps were
    chosen, where they were. spent: epsilon that was spent to learn how to encode, besides the budget. unit: whose record it is.
    The others: see `tune`.
    """

    budget: Budget
    records: int
    fraction: float
    space: Space
    selection: str | Selection
    coverage: float = 0.9
    max_runs: float | None = None
    published: bool = False
    drawn: int | None = None
    space_seed: int = 0
    metric: Metric | None
    shaped: str = ""
    spent: float = 0.0
    unit: Unit = ROW


@dataclass(frozen=True, kw_only=True)
class Design:
    """Everything public about a search.

    records: N, declared, of both sides. fraction: f, of the validation side; 0 where nothing is scored.
    candidates: the grid, or the draws of a random search that runs each of them once; empty where every run draws its own.
    count: how many candidates there are, or how many draws a random search amounts to.
    runs: one for each (lot, steps). multiplier: s of the scores. choice: epsilon of the private choice among composed runs.
    shaped: how lot and steps were chosen, where they were not named. spent, unit: see `Request`.
    """

    budget: Budget
    records: int
    fraction: float
    space: Space
    candidates: tuple[Candidate, ...]
    count: int
    selection: Selection
    reason: str
    runs: tuple[Run, ...]
    metric: Metric | None
    multiplier: float | None = None
    choice: float | None = None
    chosen_from: Plan | None = None
    shaped: str = ""
    spent: float = 0.0
    unit: Unit = ROW

    @property
    def whole(self) -> Budget:
        """The budget with what was spent beforehand."""
        return Budget(round(self.budget.epsilon + self.spent, 9), self.budget.delta)

    @property
    def validation_records(self) -> float:
        return self.fraction * self.records

    def run_of(self, candidate: Candidate) -> Run:
        return next(run for run in self.runs if (run.lot, run.steps) == (candidate.lot, candidate.steps))

    @property
    def base(self) -> DpEvent:
        """What one run is, at worst."""
        return _base(self.runs)

    @property
    def spending(self) -> Spending:
        counts = dict.fromkeys(self.runs, 0)
        for candidate in self.candidates:
            counts[self.run_of(candidate)] += 1
        each = tuple((run, max(1, count)) for run, count in counts.items())
        sensitivity = 1 if self.metric is None else self.metric.sensitivity
        return Spending(
            self.selection,
            each,
            score=self.multiplier,
            choice=self.choice,
            sensitivity=sensitivity,
            unit=self.unit.person,
        )

    def plan(self) -> Plan:
        """What the selection was chosen from; where it was asked for, what would have been, at the noise of the first run."""
        return self._compared if self.chosen_from is None else self.chosen_from

    @cached_property
    def _compared(self) -> Plan:
        first = vars(self.runs[0])
        return plan(**first, validation=0, delta=self.budget.delta, candidates=self.count, eligible=True)


def design(request: Request) -> Design:
    """Choose the selection where it is left open, and calibrate the noise of runs and scores to the budget."""
    budget, space, fraction, selection = request.budget, request.space, request.fraction, request.selection
    checks.whole(least=1, records=request.records)
    training = training_records(request.records, fraction)
    candidates = tuple(space.candidates()) if space.finite else ()
    if request.drawn is not None and space.finite:
        wanted = f"left out for a grid: this one has {len(candidates)}"
        raise checks.InvalidArgument("candidates", request.drawn, wanted)
    drawn = DRAWN if request.drawn is None else request.drawn
    checks.whole(least=1, candidates=drawn)
    count = len(candidates) if space.finite else drawn
    if count > 1 and fraction == 0:
        raise checks.InvalidArgument("validation", fraction, "above 0: a search needs records to score its runs by")
    shapes = space.shapes()
    for lot, steps in shapes:
        if lot > training:
            wanted = f"at most {training}, the declared number of training records"
            raise checks.InvalidArgument("lot", lot, wanted)
        Run(records=training, lot=lot, steps=steps, noise=1.0)  # refuses what no run can have
    reason, chosen_from = "it was asked for", None
    if isinstance(selection, str):
        with warnings.catch_warnings(action="ignore", category=AccountingWarning):
            selection, reason, chosen_from = _chosen(request, selection, training, shapes, count)
    if selection.alike and count > 1:
        wanted = "not for identical candidates: those of a space differ, and the winner's hyperparameters leave"
        raise checks.InvalidArgument("selection", selection, wanted)
    if selection.each_once and not space.finite:
        generator = np.random.default_rng(request.space_seed)
        candidates = tuple(space.draw(generator) for _ in range(round(selection.runs)))
    elif selection.each_once and selection.runs != count:
        raise checks.InvalidArgument("selection", selection, f"of {count} candidates, as the space has")
    multiplier = choice = None
    with warnings.catch_warnings(action="ignore", category=AccountingWarning):
        runs = _calibrated(budget, training, shapes, selection)
        spent = epsilon_of(selection, _base(runs), delta=budget.delta)
        if fraction > 0 and request.metric is not None:
            multiplier, choice = score_noise(selection, spent, budget, sensitivity=request.metric.sensitivity)
    return Design(
        budget=budget,
        records=request.records,
        fraction=fraction,
        space=space,
        candidates=candidates,
        count=count,
        selection=selection,
        reason=reason,
        runs=runs,
        metric=request.metric if multiplier is not None else None,
        multiplier=multiplier,
        choice=choice,
        chosen_from=chosen_from,
        shaped=request.shaped,
        spent=request.spent,
        unit=request.unit,
    )


def _chosen(
    request: Request, name: str, training: int, shapes: list[Shape], count: int
) -> tuple[Selection, str, Plan | None]:
    """The selection, why it is taken, and the plan that recommends it."""
    checks.one_of(("auto", *catalogue.names()), selection=name)
    coverage, max_runs = request.coverage, request.max_runs
    checks.probability(coverage=coverage)
    if max_runs is not None and not (math.isfinite(max_runs) and max_runs >= 1):
        raise checks.InvalidArgument("max_runs", max_runs, "a finite number of at least 1")
    if count == 1:
        return catalogue.one_run(), "there is one candidate, so there is nothing to search", None
    if name == "auto":
        lot, steps = max(shapes, key=lambda shape: shape[0] * math.sqrt(shape[1]))
        compared = plan_within(
            request.budget,
            records=training,
            lot=lot,
            steps=steps,
            candidates=count,
            coverage=coverage,
            max_runs=max_runs,
            published=request.published,
        )
        return compared.recommended.selection, compared.reason, compared
    known = catalogue.class_of(name)
    if known.each_once and max_runs is not None and max_runs < count:
        raise checks.InvalidArgument("max_runs", max_runs, f"at least {count} for {name}, which runs every candidate")
    if not known.each_once and mean_for_coverage(coverage, candidates=count, shape=1.0) is None:
        raise checks.InvalidArgument("coverage", coverage, f"less, since {count} candidates need too many runs for it")
    chosen = standard(name, candidates=count, coverage=coverage, max_runs=max_runs)
    if request.published and chosen.published is not None:
        wanted = f"left out with {chosen.name}, which rests on a proof of our own; {chosen.published.name} is published"
        raise checks.InvalidArgument("published", True, wanted)
    return chosen, "it was asked for", None


def _base(runs: tuple[Run, ...]) -> DpEvent:
    events = tuple(run.event for run in runs)
    return events[0] if len(events) == 1 else WorstOfDpEvent(events)


def _calibrated(budget: Budget, training: int, shapes: list[Shape], selection: Selection) -> tuple[Run, ...]:
    """The least noise of a run; of several shapes, noises at which one run of each costs the same, and their least multiple."""
    lot, steps = shapes[0]
    first = least_noise(budget, records=training, lot=lot, steps=steps, selection=selection)
    if len(shapes) == 1:
        return (first,)
    one, delta = catalogue.one_run(), budget.delta / max(1.0, selection.runs)
    alike = Budget(epsilon_of(one, first.event, delta=delta), delta)
    others = [least_noise(alike, records=training, lot=lot, steps=steps, selection=one) for lot, steps in shapes[1:]]
    runs = (first, *others)

    def louder(factor: float) -> tuple[Run, ...]:
        return tuple(run.with_noise(factor * run.noise) for run in runs)

    return louder(least_multiplier(budget, lambda factor: _base(louder(factor)), selection))
