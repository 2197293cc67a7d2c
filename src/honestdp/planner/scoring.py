"""The noise of scores: the least with which the validation side of a search costs no more than its training side.

A record is on one side. Given that it is a validation record, the scores alone depend on it, and the selection among them costs
what it costs for training runs: so the scores' noise is calibrated with the same selection to what the runs spend.
"""

from __future__ import annotations

from dp_accounting import ComposedDpEvent, DpEvent

from honestdp.accounting import DiscreteGaussianDpEvent, PureDpEvent
from honestdp.accounting.calibration import OverBudget, least_multiplier
from honestdp.budget import Budget
from honestdp.selection import Selection

SHARE = 0.5  # of the private choice's precision that the chosen run's score gets, in `compose`
MOST_SCALE = 2e5  # of a score's noise: more says nothing of any number of records, and its law fills the memory
_WAY_OUT = "raise epsilon or delta, or ask for fewer candidates"


def score_noise(selection: Selection, spent: float, budget: Budget, *, sensitivity: int) -> tuple[float, float | None]:
    """(multiplier, epsilon of the choice): the validation side costs what the training side costs, or less.

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
