"""The planner: what a search would cost under every selection, side by side, before a single record is read.

Methods are compared twice. At equal runs, each makes as many runs, on average, as there are candidates. At equal coverage,
random stopping makes as many as it takes for any given candidate to be drawn with the asked probability; composition and the
winner-only grid run every candidate, so that their coverage is 1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from dp_accounting import DpEvent
from scipy import optimize

from honestdp import checks
from honestdp.accounting import AccountingWarning, FallBack
from honestdp.accounting.calibration import OverBudget, least_noise
from honestdp.accounting.once import epsilon_of
from honestdp.budget import Budget, Statement
from honestdp.run import Run
from honestdp.selection import BOUNDS, Compose, LiuTalwar, RandomStopping, Selection, Winner
from honestdp.selection.counts import TruncatedNegativeBinomial, count_of
from honestdp.selection.counts import coverage as drawn

SHAPES: tuple[float | str, ...] = (0.0, 0.5, 1.0, 2.0, "poisson")
MOST_RUNS = 1e6  # mean runs beyond which a method is not worth listing
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
        return shape_of(self.selection)


@dataclass(frozen=True)
class Crossover:
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


def shape_of(selection: Selection) -> float | str | None:
    """The shape of a random-stopping count."""
    if isinstance(selection, RandomStopping):
        return selection.count.shape if isinstance(selection.count, TruncatedNegativeBinomial) else "poisson"
    return None


def statement(selection: Selection, run: Run | DpEvent, *, delta: float) -> Statement:
    """What the selection guarantees for this base run, with the notes that belong to this number and no other."""
    event = run.event if isinstance(run, Run) else run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AccountingWarning)
        epsilon = epsilon_of(selection, event, delta=delta)
    notes = [*dict.fromkeys(str(warning.message) for warning in caught)]
    fell_back = any(issubclass(warning.category, FallBack) for warning in caught)
    published, other = None, selection.published
    if other is not None and math.isfinite(epsilon) and not is_one_run(selection):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccountingWarning)
            published = (other.basis, epsilon_of(other, event, delta=delta))
    if isinstance(selection, LiuTalwar) and selection.gamma == 1:
        one = Compose(candidates=1, accountant=selection.accountant).epsilon(event, delta=delta)
        notes.append(
            f"at gamma 1 the search is one run, whose own cost is epsilon {one:.4g}: the theorem is not tight there"
        )
    basis = (
        other.basis if other is not None and (fell_back or (published and epsilon == published[1])) else selection.basis
    )
    return Statement(
        epsilon=epsilon,
        delta=delta,
        accountant="rdp" if fell_back else selection.accountant,
        selection=selection.name,
        how=_in_words(selection),
        runs=selection.runs,
        leaves="the model of the one run, and everything computed from it"
        if is_one_run(selection)
        else selection.leaves,
        basis=basis,
        published=published,
        notes=tuple(notes),
    )


def is_one_run(selection: Selection) -> bool:
    """Whether the search is a single run for sure, and not only on average."""
    if isinstance(selection, RandomStopping):
        return selection.count.always_one
    return selection.runs == 1


def _in_words(selection: Selection) -> str:
    runs = f"{selection.runs:g}" if selection.runs == int(selection.runs) else f"{selection.runs:.4g}"
    if selection.name in ("compose", "winner"):
        return "one run" if selection.runs == 1 else f"{runs} runs, every candidate once"
    if selection.name == "liu-talwar":
        return f"a secret number of runs, {runs} on average, ended by a coin and a hard stop"
    shape = shape_of(selection)
    law = {0.0: "logarithmic", 1.0: "geometric", "poisson": "Poisson", None: ""}.get(
        shape, f"negative binomial of shape {shape}"
    )
    return f"a secret number of runs, {law}, {runs} on average"


def mean_for_coverage(wanted: float, *, candidates: int, shape: float | str) -> float | None:
    """The mean number of runs at which a given candidate is drawn with probability `wanted`; None if beyond reach."""
    checks.probability(coverage=wanted)
    least = 1e-9 if isinstance(shape, str) else 1.0

    def lacking(log_mean: float) -> float:
        return wanted - drawn(count_of(runs=math.exp(log_mean), shape=shape), candidates)

    low, high = math.log(least), math.log(MOST_RUNS)
    if lacking(high) > 0:
        return None
    if lacking(low) <= 0:
        return least
    mean = math.exp(optimize.brentq(lacking, low, high, xtol=1e-12, rtol=1e-12))
    return mean * (1 + 1e-9)  # on the side where the coverage is reached


def selections(candidates: int, wanted: float, mean_runs: float) -> Iterator[tuple[str, Selection]]:
    """Every selection worth comparing, with the footing it is on: all candidates, equal runs or equal coverage."""
    for accountant in ("moments", "rdp", "pld"):
        yield "all", Compose(candidates=candidates, accountant=accountant)
    yield "all", Winner(candidates=candidates)
    geometric = mean_for_coverage(wanted, candidates=candidates, shape=1.0)
    for equal, mean in (("runs", mean_runs), ("coverage", geometric)):
        if mean is not None:
            for accountant in ("moments", "rdp"):
                yield equal, LiuTalwar(gamma=1 / mean, accountant=accountant)
    for shape in SHAPES:
        reached = mean_for_coverage(wanted, candidates=candidates, shape=shape)
        for equal, mean in (("runs", mean_runs), ("coverage", reached)):
            if mean is not None:
                for bound in BOUNDS:
                    yield equal, RandomStopping(count=count_of(runs=mean, shape=shape), bound=bound)


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

    max_runs: the most runs, on average, that can be afforded.
    published: recommend published bounds alone.
    eligible: leave out the methods that cannot be recommended, such as those of too little coverage.
    progress: called with how many methods are done, and of how many.
    """
    if (noise is None) == (epsilon is None):
        raise checks.InvalidArgument("noise", noise, "given, or --epsilon in its place, and not both")
    checks.whole(least=1, most=checks.MOST, candidates=candidates)
    checks.probability(coverage=coverage, delta=delta)
    if max_runs is not None and not (math.isfinite(max_runs) and max_runs >= 1):
        raise checks.InvalidArgument("max_runs", max_runs, "a finite number of at least 1")
    if noise == 0:
        raise checks.InvalidArgument("noise", noise, "above 0, since without noise every method's epsilon is infinite")
    budget = None if epsilon is None else Budget(epsilon, delta)
    given = Run(records=records, lot=lot, steps=steps, noise=1.0 if noise is None else noise)

    def method(equal: str, selection: Selection) -> Method:
        run = given
        with warnings.catch_warnings():  # what is said of one number belongs into its statement, not into a comparison
            warnings.simplefilter("ignore", AccountingWarning)
            if budget is not None:
                run = least_noise(budget, records=records, lot=lot, steps=steps, selection=selection)
            spent = epsilon_of(selection, run.event, delta=delta)
        return Method(selection, selection.coverage(candidates), equal, spent, run.noise)

    one = method("all", Compose(candidates=1))
    listed = [*selections(candidates, coverage, min(candidates, max_runs or math.inf))]
    if eligible:
        listed = _eligible(listed, candidates, coverage, max_runs, published)
    methods, unreachable = [], []
    for done, (equal, selection) in enumerate(listed):
        progress(done, len(listed))
        try:
            methods.append(method(equal, selection))
        except OverBudget:
            unreachable.append(f"{selection.name} ({selection.accountant}), {_in_words(selection)}")
    progress(len(listed), len(listed))
    best, reason = _recommend(methods, coverage, max_runs, published, by_noise=budget is not None)
    base = replace(given, noise=one.noise)
    return Plan(base, budget, delta, candidates, coverage, one, tuple(methods), best, reason, tuple(unreachable))


def plan_within(
    budget: Budget,
    *,
    records: int,
    lot: float,
    steps: int,
    candidates: int,
    coverage: float,
    max_runs: float | None,
    published: bool,
) -> Plan:
    """The plan of a search: at the noise with which what it recommends meets the budget, of what may be recommended.

    Methods are compared at one noise, then again at the noise of the one found best.
    """
    selection: Selection = Compose(candidates=candidates)
    for _ in range(ROUNDS):
        run = least_noise(budget, records=records, lot=lot, steps=steps, selection=selection)
        compared = plan(
            records=records,
            lot=lot,
            steps=steps,
            delta=budget.delta,
            candidates=candidates,
            noise=run.noise,
            coverage=coverage,
            max_runs=max_runs,
            published=published,
            eligible=True,
        )
        settled, selection = compared.recommended.selection == selection, compared.recommended.selection
        if settled:
            break
    return compared


def _eligible(
    listed: list[tuple[str, Selection]], candidates: int, coverage: float, max_runs: float | None, published: bool
) -> list[tuple[str, Selection]]:
    """What may be recommended, told without any accounting; for one candidate a single run, for there is nothing to choose."""
    if candidates == 1:
        return [("all", Compose(candidates=1))]
    unpriced = [
        Method(selection, selection.coverage(candidates), equal, math.nan, math.nan) for equal, selection in listed
    ]
    return [(method.equal, method.selection) for method in _covering(unpriced, coverage, max_runs, published)[0]]


def _covering(
    methods: list[Method], coverage: float, max_runs: float | None, published: bool
) -> tuple[list[Method], float]:
    """The methods that are allowed, affordable and cover enough, or as much as can be had; and the most that can be had."""
    allowed = [m for m in methods if not published or m.selection.published is None]
    affordable = [m for m in allowed if max_runs is None or m.selection.runs <= max_runs * (1 + 1e-9)]
    if not affordable:
        raise OverBudget("no method meets this budget: raise epsilon or delta, or ask for fewer steps or candidates")
    most = max(m.coverage for m in affordable)
    enough = coverage - 1e-9 if most >= coverage - 1e-9 else most / 2
    return [m for m in affordable if m.coverage >= enough], most


def _recommend(
    methods: list[Method], coverage: float, max_runs: float | None, published: bool, *, by_noise: bool
) -> tuple[Method, str]:
    covering, most = _covering(methods, coverage, max_runs, published)
    what = "noise" if by_noise else "epsilon"
    limit = "" if max_runs is None else f" within {max_runs:g} runs on average"
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

    def random_stopping(k: int) -> Selection:
        mean = mean_for_coverage(coverage, candidates=k, shape=1.0)
        return RandomStopping(count=count_of(runs=mean or MOST_RUNS, shape=1.0))

    makers: dict[str, Callable[[int], Selection]] = {
        "compose (moments)": lambda k: Compose(candidates=k, accountant="moments"),
        "compose (pld)": lambda k: Compose(candidates=k),
        "winner": lambda k: Winner(candidates=k),
        "liu-talwar (moments, gamma = 1/candidates)": lambda k: LiuTalwar(gamma=1 / k, accountant="moments"),
        f"envelope (geometric, coverage {coverage:g})": random_stopping,
    }

    def less(cheaper: str, dearer: str, k: int) -> bool:
        first, second = (makers[name](k).epsilon(run.event, delta=delta) for name in (cheaper, dearer))
        return first < second

    moments, pld, winner, liu_talwar, envelope = makers
    found = []
    for cheaper, dearer in ((liu_talwar, moments), (winner, pld), (envelope, pld), (envelope, winner)):
        at = _first(partial(less, cheaper, dearer))
        if at is not None:
            found.append(Crossover(cheaper, dearer, at))
    return found


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
