"""The planner: what a search would cost under every selection, side by side, before a single record is read.

Methods are compared twice. At equal runs, each makes as many runs, on average, as there are candidates. At equal coverage,
random stopping makes as many as it takes for any given candidate to be drawn with the asked probability; composition and the
winner-only grid run every candidate, so that their coverage is 1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting import AccountingWarning, FallBack, quiet
from honestdp.accounting.calibration import OverBudget, Start, least_noise
from honestdp.accounting.once import epsilon_of
from honestdp.accounting.pld import comparing
from honestdp.budget import Budget, Statement
from honestdp.run import Run
from honestdp.selection import Selection, catalogue
from honestdp.selection.contract import ONE_RUN_LEAVES

ROUNDS = 3  # of comparing methods for a search, each at the noise of the one found best before
NEARLY = 1.02  # a cost this close to the least is as good, if it takes fewer runs
MOST_CANDIDATES = 4096  # beyond which crossovers are not looked for


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


class Crossover(NamedTuple):
    """From `candidates` on, `cheaper` costs less than `dearer`."""

    cheaper: str
    dearer: str
    candidates: int


@dataclass(frozen=True)
class Plan:
    """Every method for one setting.

    run: what one run with the whole budget to itself would be; every method's own run differs in its noise alone.
    budget: what the noises were calibrated to, where they were.
    unreachable: methods that no noise brings within the budget.
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

    def run_of(self, method: Method) -> Run:
        return replace(self.run, noise=method.noise)


def statement(selection: Selection, run: Run | DpEvent, *, delta: float) -> Statement:
    """What the selection guarantees for this base run, with the notes that belong to this number and no other."""
    event = run.event if isinstance(run, Run) else run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AccountingWarning)
        epsilon = epsilon_of(selection, event, delta=delta)
    notes = [*dict.fromkeys(str(warning.message) for warning in caught)]
    fell_back = any(issubclass(warning.category, FallBack) for warning in caught)
    published, other = None, selection.published
    if other is not None and math.isfinite(epsilon) and not selection.one_run:
        with quiet():
            published = (other.basis, epsilon_of(other, event, delta=delta))
    by_other = other is not None and (fell_back or (published is not None and epsilon == published[1]))
    return Statement(
        epsilon=epsilon,
        delta=delta,
        accountant="rdp" if fell_back else selection.accountant,
        selection=selection.name,
        how=selection.how,
        runs=selection.runs,
        leaves=ONE_RUN_LEAVES if selection.one_run else selection.leaves,
        basis=other.basis if other is not None and by_other else selection.basis,
        published=published,
        notes=(*notes, *selection.notes(event, delta=delta)),
    )


def plan(
    *,
    records: int,
    lot: float,
    steps: int,
    delta: float,
    candidates: int,
    noise: float | None = None,
    epsilon: float | None = None,
    coverage: float = 0.9,
    max_runs: float | None = None,
    published: bool = False,
    eligible: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Plan:
    """Every method at the given noise, or the noise of every method at the given epsilon, and a recommendation.

    records, lot, steps: of one run; see `Run`.
    delta: of the whole search. candidates: how many there are.
    noise, epsilon: one of them: compare epsilons at this noise, or the noises that meet this epsilon.
    coverage: the chance that a given candidate is run at all, for selections that draw them.
    max_runs: the most runs, on average, that can be afforded.
    published: recommend published bounds alone.
    eligible: leave out the methods that cannot be recommended, such as those of too little coverage.
    progress: called with how many methods are done, and of how many.

    Returns a Plan: the methods, the recommended one, and why.
    Raises OverBudget where no method meets the epsilon, and InvalidArgument.

    >>> import honestdp
    >>> plan = honestdp.plan(records=60_000, lot=250, steps=100, delta=1e-6, candidates=4, noise=4.0)
    >>> print(plan.reason)
    the least epsilon of all methods with a coverage of at least 0.9...
    """
    if (noise is None) == (epsilon is None):
        raise checks.InvalidArgument("noise", noise, "given, or epsilon in its place, and not both")
    checks.whole(least=1, most=checks.MOST, candidates=candidates)
    checks.probability(coverage=coverage, delta=delta)
    if max_runs is not None and not (math.isfinite(max_runs) and max_runs >= 1):
        raise checks.InvalidArgument("max_runs", max_runs, "a finite number of at least 1")
    if noise == 0:
        raise checks.InvalidArgument("noise", noise, "above 0, since without noise every method's epsilon is infinite")
    budget = None if epsilon is None else Budget(epsilon, delta)
    given = Run(records=records, lot=lot, steps=steps, noise=1.0 if noise is None else noise)
    limits = _Limits(coverage, max_runs, published)
    mean_runs = min(candidates, max_runs or math.inf)
    listed = catalogue.variants(candidates=candidates, coverage=coverage, mean_runs=mean_runs)
    if eligible:
        listed = _eligible(listed, candidates, limits)
    listed.insert(0, ("all", catalogue.one_run()))
    methods: list[Method] = []
    unreachable: list[str] = []
    with quiet():  # what accountants say of one number belongs into its statement, not into a comparison
        noises = _Noises(given, budget)
        for done, (equal, selection) in enumerate(listed):
            progress(done, len(listed))
            try:
                spent, run = noises.of(equal, selection, delta)
            except OverBudget:
                if done == 0:
                    raise
                unreachable.append(f"{selection.name} ({selection.accountant}), {selection.how}")
            else:
                methods.append(Method(selection, selection.coverage(candidates), equal, spent, run.noise))
    progress(len(listed), len(listed))
    one, *methods = methods
    best, reason = _recommend(methods, limits, by_noise=budget is not None)
    if budget is not None:
        with quiet():
            place, (spent, run) = methods.index(best), noises.of(best.equal, best.selection, delta, finely=True)
        best = methods[place] = replace(best, epsilon=spent, noise=run.noise)
    base = replace(given, noise=one.noise)
    return Plan(base, budget, delta, candidates, coverage, one, tuple(methods), best, reason, tuple(unreachable))


@dataclass
class _Noises:
    """The epsilon of each method at the given noise, or the noise that meets the budget.

    Noises that meet a budget are found on wider grids, which ask for up to half a percent more; `finely` on the usual ones.
    Each calibration begins where that of a like method ended: the same bound on the same footing, moved as
    the last one on that footing moved from its own like, or else the one before.
    """

    given: Run
    budget: Budget | None
    ends: dict[tuple[str, str, str], Start] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)

    def of(self, equal: str, selection: Selection, delta: float, *, finely: bool = False) -> tuple[float, Run]:
        run = self.given
        if self.budget is None:
            return epsilon_of(selection, run.event, delta=delta), run
        like = (equal, selection.name, selection.accountant)
        before = self.ends.get(like)
        start = replace(before or next(reversed(self.ends.values()), Start()))
        if before is not None and not finely:
            start.log_noise += self.moved.get(equal, 0.0)
        tried: dict[DpEvent, float] = {}
        with nullcontext() if finely else comparing():
            lot, steps, remembering = run.lot, run.steps, Remembering(selection, tried)
            run = least_noise(
                self.budget, records=run.records, lot=lot, steps=steps, selection=remembering, start=start
            )
        self.ends[like] = start
        self.moved[equal] = 0.0 if before is None else start.log_noise - before.log_noise
        return tried[run.event], run


@dataclass(eq=False)
class Remembering:
    """A selection's epsilons, kept as they are computed; equal to no other, for those of a comparison may be coarse."""

    selection: Selection
    tried: dict[DpEvent, float]

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        self.tried[event] = self.selection.epsilon(event, delta=delta)
        return self.tried[event]


def plan_within(budget: Budget, *, records: int, lot: float, steps: int, candidates: int, **limits: Any) -> Plan:
    """The plan of a search: at the noise with which what it recommends meets the budget, of what may be recommended.

    Methods are compared at one noise, then again at the noise of the one found best. limits: see `plan`.
    """
    selection = catalogue.named("compose", candidates=candidates)
    run: dict[str, Any] = {"records": records, "lot": lot, "steps": steps}
    for _ in range(ROUNDS):
        noise = least_noise(budget, **run, selection=selection).noise
        compared = plan(**run, candidates=candidates, delta=budget.delta, noise=noise, eligible=True, **limits)
        before, selection = selection, compared.recommended.selection
        if selection == before:
            break
    return compared


class _Limits(NamedTuple):  # of what may be recommended; see `plan`
    coverage: float
    max_runs: float | None
    published: bool


def _eligible(listed: list[tuple[str, Selection]], candidates: int, limits: _Limits) -> list[tuple[str, Selection]]:
    """What may be recommended, told without any accounting; for one candidate a single run, for there is nothing to choose."""
    if candidates == 1:
        return [("all", catalogue.one_run())]
    unpriced = [Method(method, method.coverage(candidates), equal, math.nan, math.nan) for equal, method in listed]
    return [(method.equal, method.selection) for method in _covering(unpriced, limits)[0]]


def _covering(methods: list[Method], limits: _Limits) -> tuple[list[Method], float]:
    """The methods that are allowed, affordable and cover enough, or as much as can be had; and the most that can be had."""
    coverage, max_runs, published = limits
    allowed = [m for m in methods if not published or m.selection.published is None]
    affordable = [m for m in allowed if max_runs is None or m.selection.runs <= max_runs * (1 + 1e-9)]
    if not affordable:
        raise OverBudget("no method meets this budget: raise epsilon or delta, or ask for fewer steps or candidates")
    most = max(m.coverage for m in affordable)
    enough = coverage - 1e-9 if most >= coverage - 1e-9 else most / 2
    return [m for m in affordable if m.coverage >= enough], most


def _recommend(methods: list[Method], limits: _Limits, *, by_noise: bool) -> tuple[Method, str]:
    covering, most = _covering(methods, limits)
    coverage, what = limits.coverage, "noise" if by_noise else "epsilon"
    limit = "" if limits.max_runs is None else f" within {limits.max_runs:g} runs on average"
    reason = f"the least {what} of all methods with a coverage of at least {coverage:g}{limit}"
    if most < coverage - 1e-9:
        enough = f"half of the most, {most:.2g}, or more"
        reason = f"no method has a coverage of {coverage:g}{limit}; the least {what} of those with {enough}"

    def cost(method: Method) -> float:
        return method.noise if by_noise else method.epsilon

    least = min(cost(m) for m in covering)
    best = min((m for m in covering if cost(m) <= least * NEARLY), key=lambda m: (m.selection.runs, cost(m)))
    if cost(best) > least:
        reason += f", or within {NEARLY - 1:.0%} of it with the fewest runs"
    if best.coverage < 1:
        reason += f"; it makes {best.selection.runs:.4g} runs on average, which cost compute and not privacy"
    return best, reason


def crossovers(run: Run, *, delta: float, coverage: float) -> list[Crossover]:
    """From how many candidates on one method costs less than another, at one noise."""
    lines = {line.name: line for line in catalogue.series(coverage=coverage)}

    @cache
    def epsilon(name: str, candidates: int) -> float:
        return lines[name].make(candidates).epsilon(run.event, delta=delta)

    def crossing(cheaper: str, dearer: str) -> int | None:
        return _first(lambda candidates: epsilon(cheaper, candidates) < epsilon(dearer, candidates))

    with comparing():
        firsts = [(name, dearer, crossing(name, dearer)) for name in lines for dearer in lines[name].undercuts]
    return [Crossover(cheaper, dearer, first) for cheaper, dearer, first in firsts if first is not None]


def _first(holds: Callable[[int], bool]) -> int | None:
    """The least number of candidates from which on something holds that, once true, stays true."""
    low, high = 1, 2
    while not holds(high):
        low, high = high, 2 * high
        if high > MOST_CANDIDATES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
