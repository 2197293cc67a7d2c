"""One search under each method: its epsilon at the noise that was used, and the noise that would have met the budget.

The planner lists each random-stopping bound for several laws of the number of runs. A chart of all of them says less than one
of a few, so each method stands here once: random stopping with the law that was used, or was recommended, under all three of
its bounds, and whatever draws its candidates at random with the coverage that the plan asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp_accounting import DpEvent

from honestdp.accounting import quiet
from honestdp.accounting.calibration import OverBudget, epsilon_of, least_noise
from honestdp.budget import Budget
from honestdp.planner.comparison import Plan, label, typical
from honestdp.selection import Selection, catalogue


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A method, what it would have spent on this search, and what it would have needed to stay within the budget.

    method: its name in a chart; selection: its name in the product; words: what it does.
    runs: the mean number of runs, which is public, never the number that was drawn.
    coverage: the chance that a given candidate is run at all.
    epsilon: at the noise of this search.
    noise: the noise per run that meets the budget; None without a budget, or where no noise meets it.
    """

    method: str
    selection: str
    words: str
    accountant: str
    shape: float | str | None
    runs: float
    coverage: float
    leaves: str
    epsilon: float
    noise: float | None
    used: bool = False


def compare(
    plan: Plan,
    *,
    event: DpEvent,
    delta: float,
    selection: Selection,
    noise: float | None = None,
    budget: Budget | None = None,
) -> tuple[Cost, ...]:
    """Every method for one search, one run without any search first, the others from the dearest to the cheapest.

    event: the base run of the search as it was made.
    selection: the one that was used. noise: its noise per run, where that is not the plan's.
    budget: what noises are calibrated to, where the plan was made at a noise and not at a budget.
    """
    given = {} if noise is None else {selection: noise}

    def cost(listed: Selection) -> Cost:
        with quiet():  # what is said of one number belongs into its statement, not into a comparison
            epsilon = epsilon_of(listed, event, delta=delta)
            needed = given.get(listed) or _noise(plan, plan.budget or budget, listed)
        return Cost(
            method=label(listed),
            selection=listed.name,
            words=_words(listed),
            accountant=listed.accountant,
            shape=listed.shape,
            runs=listed.runs,
            coverage=listed.coverage(plan.candidates),
            leaves="the model of the one run" if listed.one_run else listed.leaves,
            epsilon=epsilon,
            noise=needed,
            used=listed == selection,
        )

    if plan.candidates == 1 and selection.one_run:
        return (cost(selection),)
    one = catalogue.one_run()
    others = [
        listed for listed in _methods(plan, selection) if not listed.one_run and label(listed) != label(selection)
    ]
    costs = [cost(listed) for listed in (*others, selection) if listed != one]
    return (cost(one), *sorted(costs, key=lambda other: (-other.epsilon, other.method, other.accountant)))


def _methods(plan: Plan, selection: Selection) -> list[Selection]:
    """Every method once; where one has alternatives, those of the selection that was used, or that was recommended."""
    found = [make(plan.candidates) for make in typical(coverage=plan.coverage).values()]
    used = {type(one): one.alternatives for one in (plan.recommended.selection, selection) if one.alternatives}
    kept = [one for one in found if type(one) not in used]
    return [*kept, *(one for alternatives in used.values() for one in alternatives)]


def _words(selection: Selection) -> str:
    """What a selection does, in a line."""
    if selection.one_run:
        return "no search"
    who = "all may leave" if selection.all_leave else "the winner alone leaves"
    if selection.each_once:
        return f"every candidate once, {who}"
    return f"a secret number of runs, {selection.runs:.4g} on average, {who}"


def _noise(plan: Plan, budget: Budget | None, selection: Selection) -> float | None:
    """The noise that meets the budget, from the plan where it has it; None if there is none, or no budget."""
    if budget is None:
        return None
    for method in (plan.one_run, *plan.methods) if plan.budget is not None else ():
        if method.selection == selection:
            return method.noise
    run = plan.run
    try:
        return least_noise(budget, records=run.records, lot=run.lot, steps=run.steps, selection=selection).noise
    except OverBudget:
        return None
