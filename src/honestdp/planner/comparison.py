"""`plan`: what a search would cost under every selection, side by side, and which to take, before a single record is read.

Methods are compared twice. At equal runs, each makes as many runs, on average, as there are candidates. At equal coverage,
random stopping makes as many as it takes for any given candidate to be drawn with the asked probability; composition and the
winner-only grid run every candidate, so that their coverage is 1.

A plan at a budget recommends what `tune` would take, at exactly its noise: both ask `plan_within` for the selection and
`least_noise` for the noise, of the training records that a split leaves. The other methods' noises are only compared; they come
from wider grids and are up to 0.7 % larger than need be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from dp_accounting import ComposedDpEvent, DpEvent

from honestdp import checks
from honestdp.accounting import DiscreteGaussianDpEvent, PureDpEvent, quiet
from honestdp.accounting.calibration import OverBudget, epsilon_of, first_above_one, least_multiplier, least_noise, once
from honestdp.accounting.pld import comparing
from honestdp.budget import Budget
from honestdp.notebook import Rows, Shown
from honestdp.plain_words import rounded_up, shown_delta
from honestdp.planner.prospects import Scoring, prospects
from honestdp.planner.shapes import Chosen, chosen_shape, training_records
from honestdp.run import MOST_NOISE, ROW, Run, Unit
from honestdp.selection import Selection, catalogue, named
from honestdp.selection.contract import ONE_RUN_LEAVES
from honestdp.selection.counts import MOST_RUNS, mean_for_coverage

ROUNDS = 3  # of comparing methods for a search, each at the noise of the one found best before
GUESS = 2.0  # times the noise of one run alone: about what a search needs
FAR = 1.5  # times the least epsilon: what costs so much at one noise is not the best at another one nearby
Progress = Callable[[int, int], None]
NEARLY = 1.02  # a cost this close to the least is as good, if it takes fewer runs
SHARE = 0.5  # of the private choice's precision that the chosen run's score gets, in `compose`
MOST_SCALE = 2e5  # of a score's noise: more says nothing of any number of records, and its law fills the memory
_WAY_OUT = "raise epsilon or delta, or ask for fewer candidates"


@dataclass(frozen=True)
class Method:
    """One way to search: either the epsilon at the run's noise, or the noise that meets the budget."""

    selection: Selection
    coverage: float
    equal: str
    epsilon: float
    noise: float

    @property
    def shape(self) -> float | str | None:
        return self.selection.shape


class Limits(NamedTuple):
    """Of what may be recommended; see `plan`."""

    coverage: float
    max_runs: float | None
    published: bool


def eligible(listed: list[tuple[str, Selection]], candidates: int, limits: Limits) -> list[tuple[str, Selection]]:
    """What may be recommended, told without any accounting; for one candidate a single run, for there is nothing to choose."""
    if candidates == 1:
        return [("all", catalogue.one_run())]
    unpriced = [Method(method, method.coverage(candidates), equal, math.nan, math.nan) for equal, method in listed]
    return [(method.equal, method.selection) for method in _covering(unpriced, limits)[0]]


def _covering(methods: list[Method], limits: Limits) -> tuple[list[Method], float]:
    """The methods that are allowed, affordable and cover enough, or as much as can be had; and the most that can be had."""
    coverage, max_runs, published = limits
    allowed = [m for m in methods if not published or m.selection.published is None]
    affordable = [m for m in allowed if max_runs is None or m.selection.runs <= max_runs * (1 + 1e-9)]
    if not affordable:
        raise OverBudget("no method meets this budget: raise epsilon or delta, or ask for fewer steps or candidates")
    most = max(m.coverage for m in affordable)
    enough = coverage - 1e-9 if most >= coverage - 1e-9 else most / 2
    return [m for m in affordable if m.coverage >= enough], most


def recommend(methods: list[Method], limits: Limits) -> tuple[Method, str]:
    """The method to take, by its epsilon at one noise, and why."""
    covering, most = _covering(methods, limits)
    coverage = limits.coverage
    limit = "" if limits.max_runs is None else f" within {limits.max_runs:g} runs on average"
    reason = f"the least epsilon of all methods with a coverage of at least {coverage:g}{limit}"
    if most < coverage - 1e-9:
        enough = f"half of the most, {most:.2g}, or more"
        reason = f"no method has a coverage of {coverage:g}{limit}; the least epsilon of those with {enough}"
    least = min(m.epsilon for m in covering)
    best = min((m for m in covering if m.epsilon <= least * NEARLY), key=lambda m: (m.selection.runs, m.epsilon))
    if best.epsilon > least:
        reason += f", or within {NEARLY - 1:.0%} of it with the fewest runs"
    if best.coverage < 1:
        reason += f"; it makes {best.selection.runs:.4g} runs on average, which cost compute and not privacy"
    return best, reason


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Every method for one setting.

    run: what one run with the whole budget to itself would be; every method's own run differs in its noise alone. Its records
        are those that train.
    budget: what the noises were calibrated to, where they were.
    unreachable: methods that no noise brings within the budget.
    records, validation: all records, and the fraction of them that scores the runs.
    shape: lot and steps, and how they were chosen where they were not named.
    score: the noise of a count of right answers, of one record's size; None without a budget or without validation records.
    warnings: what is hopeless in this plan, and the way out, a sentence each; often none.
    unit: whose record is protected; with a person, `records` counts people.
    """

    run: Run
    budget: Budget | None
    delta: float
    candidates: int
    coverage: float
    one_run: Method
    methods: tuple[Method, ...]
    recommended: Method
    reason: str
    unreachable: tuple[str, ...] = ()
    records: int = 0
    validation: float = 0.0
    shape: Chosen | None = None
    score: float | None = None
    warnings: tuple[str, ...] = ()
    unit: Unit = ROW

    def run_of(self, method: Method) -> Run:
        return replace(self.run, noise=method.noise)

    def _title(self) -> str:
        many = "1 candidate" if self.candidates == 1 else f"{self.candidates} candidates"
        return f"{many}, {self.records or self.run.records} {self.unit.plural}, lot {self.run.lot:g}, {self.run.steps} steps"

    def _rows(self) -> Rows:
        best = self.recommended
        how = "one run" if best.selection.one_run else f"{best.selection.name} ({best.selection.accountant})"
        runs = "" if best.selection.one_run else f", {best.selection.runs:.5g} runs, coverage {best.coverage:.2g}"
        cost = f"{rounded_up(best.epsilon)} at delta {shown_delta(self.delta)}, {self.unit.relation}"
        rows = [
            ("recommended", f"{how}{runs}, noise {rounded_up(best.noise)}"),
            ("epsilon", f"{cost}; may leave: {ONE_RUN_LEAVES if best.selection.one_run else best.selection.leaves}"),
            ("why", self.reason),
        ]
        if self.shape is not None and self.shape.how:
            rows.append(("lot, steps", self.shape.how))
        if len(self.methods) > 1:
            rows.append(("others", f"{len(self.methods) - 1} more in .methods"))
        return [*rows, *(("WARNING", sentence) for sentence in self.warnings)]


@once()
def plan(
    *,
    records: int,
    delta: float,
    candidates: int,
    lot: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
    validation: float = 0.2,
    coverage: float = 0.9,
    max_runs: float | None = None,
    published: bool = False,
    parameters: int | None = None,
    eligible: bool = False,
    progress: Progress = lambda done, total: None,
) -> Plan:
    """A recommendation, and every method at the given noise, or the noise of every method at the given epsilon.

    records: N, of which `validation` is the fraction that scores the runs and trains none, as in `tune`.
    delta: of the whole search. candidates: how many there are.
    lot, steps, epochs: of one run. What is left out is chosen from the budget and the number of records (`planner.shapes`).
    noise, epsilon: one of them: compare epsilons at this noise, or the noises that meet this epsilon.
    coverage: the chance that a given candidate is run at all, for selections that draw them.
    max_runs: the most runs, on average, that can be afforded.
    published: recommend published bounds alone.
    parameters: of a linear model between the same inputs and outputs, to tell whether noise would drown the model's gradients;
        hidden layers, which add signal as they add weights, do not count.
    eligible: leave out the methods that cannot be recommended; at an epsilon, all but the recommended one, which is quicker.
    progress: called with how many methods are done, and of how many.

    Returns a Plan: the recommended method and why, the other methods, and warnings of what would be hopeless.
    Raises OverBudget where no method meets the epsilon, and InvalidArgument.

    >>> import honestdp
    >>> plan = honestdp.plan(records=60_000, delta=1e-6, candidates=4, epsilon=1.0, eligible=True)
    >>> plan.run.lot, plan.run.steps
    (270.0, 2000)
    >>> print(plan.reason)
    the least epsilon of all methods with a coverage of at least 0.9...
    """
    if (noise is None) == (epsilon is None):
        raise checks.InvalidArgument("noise", noise, "given, or epsilon in its place, and not both")
    checks.whole(least=1, most=checks.MOST, records=records)
    checks.whole(least=1, most=checks.MOST, candidates=candidates)
    checks.probability(coverage=coverage, delta=delta)
    if max_runs is not None and not (math.isfinite(max_runs) and max_runs >= 1):
        raise checks.InvalidArgument("max_runs", max_runs, "a finite number of at least 1")
    if parameters is not None:
        checks.whole(least=1, most=checks.MOST, parameters=parameters)
    if noise == 0:
        raise checks.InvalidArgument("noise", noise, "above 0, since without noise every method's epsilon is infinite")
    budget = None if epsilon is None else Budget(epsilon, delta)
    training = training_records(records, validation)
    shape = chosen_shape(budget, records=training, candidates=candidates, lot=lot, steps=steps, epochs=epochs)
    given = Run(records=training, lot=shape.lot, steps=shape.steps, noise=1.0 if noise is None else noise)
    limits = Limits(coverage, max_runs, published)
    if budget is None:
        made = _compared(given, delta, candidates, limits, _listed(candidates, limits, eligible), progress)
    else:
        made = _calibrated(given, budget, candidates, limits, progress, brief=eligible)
    made = replace(made, records=records, validation=validation, shape=shape)
    return _with_prospects(made, parameters)


def plan_within(
    budget: Budget,
    *,
    records: int,
    lot: float,
    steps: int,
    candidates: int,
    coverage: float = 0.9,
    max_runs: float | None = None,
    published: bool = False,
) -> Plan:
    """The plan of a search: at the noise with which what it recommends meets the budget, of what may be recommended.

    Methods are compared at about the noise that a search needs, then those that came near again at the noise of the one found
    best. records: those that train. The others: see `plan`.
    """
    selection, limits = catalogue.one_run(), Limits(coverage, max_runs, published)
    listed = _listed(candidates, limits, only_eligible=True)
    for number in range(ROUNDS):
        run = least_noise(budget, records=records, lot=lot, steps=steps, selection=selection)
        run = run if number else run.with_noise(min(GUESS * run.noise, MOST_NOISE))
        compared = _compared(run, budget.delta, candidates, limits, listed)
        before, selection = selection, compared.recommended.selection
        if selection == before:
            break
        if compared.recommended.coverage >= coverage - 1e-9:
            near = FAR * compared.recommended.epsilon
            listed = [(method.equal, method.selection) for method in compared.methods if method.epsilon <= near]
    return compared


def _compared(
    run: Run,
    delta: float,
    candidates: int,
    limits: Limits,
    listed: list[tuple[str, Selection]],
    progress: Progress = lambda done, total: None,
) -> Plan:
    """The epsilon of each listed method at the run's noise."""
    methods = []
    with quiet():  # what accountants say of one number belongs into its statement, not into a comparison
        for done, (equal, selection) in enumerate([("all", catalogue.one_run()), *listed]):
            progress(done, len(listed) + 1)
            spent = epsilon_of(selection, run.event, delta=delta)
            methods.append(Method(selection, selection.coverage(candidates), equal, spent, run.noise))
    progress(len(listed) + 1, len(listed) + 1)
    one, *methods = methods
    best, reason = recommend(methods, limits)
    return Plan(run, None, delta, candidates, limits.coverage, one, tuple(methods), best, reason)


def _calibrated(
    given: Run, budget: Budget, candidates: int, limits: Limits, progress: Progress, *, brief: bool
) -> Plan:
    """Every method's noise at the budget, and of the recommended one the very noise that a search would have."""
    shape: dict[str, Any] = {"records": given.records, "lot": given.lot, "steps": given.steps}
    listed = [] if brief else _listed(candidates, limits, False)
    total = len(listed) + 2
    progress(0, total)
    with quiet():
        alone = least_noise(budget, **shape, selection=catalogue.one_run())
        one = _method("all", catalogue.one_run(), alone, budget.delta, candidates)
        if candidates == 1:
            reason = "there is one candidate, so there is nothing to search"
            return Plan(alone, budget, budget.delta, 1, limits.coverage, one, (one,), one, reason)
        chosen = plan_within(budget, **shape, candidates=candidates, **limits._asdict())
        best = chosen.recommended
        run = least_noise(budget, **shape, selection=best.selection)
        best = _method(best.equal, best.selection, run, budget.delta, candidates)
        methods, unreachable = [] if listed else [best], []
        near = best.noise
        for done, (equal, selection) in enumerate(listed):
            progress(done + 2, total)
            if (equal, selection) == (best.equal, best.selection):
                methods.append(best)
                continue
            try:
                with comparing():
                    run = least_noise(budget, **shape, selection=selection, start=near)
                    methods.append(_method(equal, selection, run, budget.delta, candidates))
            except OverBudget:
                unreachable.append(f"{selection.name} ({selection.accountant}), {selection.how}")
            else:
                near = run.noise
    progress(total, total)
    return Plan(
        alone,
        budget,
        budget.delta,
        candidates,
        limits.coverage,
        one,
        tuple(methods),
        best,
        chosen.reason,
        tuple(unreachable),
    )


def _listed(candidates: int, limits: Limits, only_eligible: bool) -> list[tuple[str, Selection]]:
    if candidates == 1:  # one run: there is nothing to choose
        return [("all", catalogue.one_run())]
    mean_runs = min(candidates, limits.max_runs or math.inf)
    listed = _variants(candidates=candidates, coverage=limits.coverage, mean_runs=mean_runs)
    return eligible(listed, candidates, limits) if only_eligible else listed


def _variants(*, candidates: int, coverage: float, mean_runs: float) -> list[tuple[str, Selection]]:
    """Every selection worth comparing, with its footing: "all" candidates, equal "runs" or equal "coverage"."""
    found: list[tuple[str, Selection]] = []
    for known, names in catalogue.classes().items():
        for settings in known.variants:
            if known.each_once:
                found += [("all", named(name, candidates=candidates, **settings)) for name in names]
                continue
            reached = mean_for_coverage(coverage, candidates=candidates, shape=settings.get("shape", 1.0))
            for footing, mean in (("runs", mean_runs), ("coverage", reached)):
                if mean is not None:
                    found += [(footing, named(name, runs=mean, **settings)) for name in names]
    return found


def standard(
    name: str, *, candidates: int, coverage: float, max_runs: float | None = None, accountant: str | None = None
) -> Selection:
    """The selection of this name for so many candidates: each once, or as many runs as the coverage takes."""
    if catalogue.class_of(name).each_once:
        return named(name, candidates=candidates, accountant=accountant)
    mean = mean_for_coverage(coverage, candidates=candidates, shape=1.0) or MOST_RUNS
    return named(name, runs=mean if max_runs is None else min(mean, max_runs), accountant=accountant)


def typical(*, coverage: float) -> dict[str, Callable[[int], Selection]]:
    """The few selections that stand where every method stands once, by label: each for any number of candidates."""

    def line(name: str, settings: Mapping[str, Any]) -> Callable[[int], Selection]:
        return lambda candidates: standard(name, candidates=candidates, coverage=coverage, **settings)

    lines = [
        line(name, settings)
        for known, names in catalogue.classes().items()
        for name in names
        for settings in known.typical
    ]
    return {label(make(2)): make for make in lines}


def label(selection: Selection) -> str:
    """The name of a selection in a table or a chart where every method stands once."""
    if selection.one_run:
        return "one run"
    return f"{selection.name}, {selection.accountant}" if len(selection.typical) > 1 else selection.name


def _method(equal: str, selection: Selection, run: Run, delta: float, candidates: int) -> Method:
    spent = epsilon_of(selection, run.event, delta=delta)
    return Method(selection, selection.coverage(candidates), equal, spent, run.noise)


def score_noise(selection: Selection, spent: float, budget: Budget, *, sensitivity: int) -> tuple[float, float | None]:
    """(multiplier, epsilon of the choice): the validation side costs what the training side costs, or less.

    A record is on one side. Given that it is a validation record, the scores alone depend on it, and the selection among them
    costs what it costs for training runs: so the scores' noise is calibrated with the same selection to what the runs spend.

    spent: by the training side. sensitivity: of a score, in whole numbers.
    """
    if spent <= 0:
        raise OverBudget(f"no noise of scores meets this budget: {_WAY_OUT}")
    aim = Budget(spent, budget.delta)
    if selection.all_leave and not selection.one_run:

        def both(scale: float) -> DpEvent:
            return ComposedDpEvent([PureDpEvent(1 / scale), _score(scale / SHARE, sensitivity)])

        scale = least_multiplier(aim, both, selection.base.by_profile)
        return scale / SHARE, 1 / scale
    return least_multiplier(aim, lambda s: _score(s, sensitivity), selection), None


def _score(multiplier: float, sensitivity: int) -> DpEvent:
    if multiplier * sensitivity > MOST_SCALE:
        raise OverBudget(f"no noise of scores up to {MOST_SCALE:g} meets this budget: {_WAY_OUT}")
    return DiscreteGaussianDpEvent(multiplier, sensitivity)


def _with_prospects(made: Plan, parameters: int | None) -> Plan:
    """The plan with what would be hopeless in it; scores are taken to be counts of right answers, as in `tune`."""
    run, scoring = made.run_of(made.recommended), None
    if made.budget is not None and made.validation > 0:
        with quiet():
            noise, _ = score_noise(made.recommended.selection, made.recommended.epsilon, made.budget, sensitivity=1)
        made = replace(made, score=noise)
        scoring = Scoring(noise=noise, records=made.validation * made.records, candidates=made.candidates)
    return replace(made, warnings=tuple(prospects(run, parameters=parameters, scoring=scoring)))


MOST_CANDIDATES = 4096  # beyond which crossovers are not looked for


class Crossover(NamedTuple):
    """From `candidates` on, `cheaper` costs less than `dearer`."""

    cheaper: str
    dearer: str
    candidates: int


def crossovers(run: Run, *, delta: float, coverage: float) -> list[Crossover]:
    """From how many candidates on each method costs less than the composition of all of them, at one noise."""
    lines = typical(coverage=coverage)
    dearer = next(name for name, make in lines.items() if make(2).all_leave and make(2).accountant == "pld")

    @cache
    def epsilon(name: str, candidates: int) -> float:
        return lines[name](candidates).epsilon(run.event, delta=delta)

    def crossing(cheaper: str) -> int | None:
        return first_above_one(lambda k: epsilon(cheaper, k) < epsilon(dearer, k), most=MOST_CANDIDATES)

    with comparing(), quiet():
        firsts = [(name, crossing(name)) for name, make in lines.items() if not make(2).all_leave]
    return [Crossover(cheaper, dearer, first) for cheaper, first in firsts if first is not None]
