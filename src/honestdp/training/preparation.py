"""What was done to the records beforehand, as a statement says it, and what of the budget it has cost already.

A table says both by itself: how each row is encoded, and the epsilon of bounds that were learnt privately. That epsilon was
charged when they were learnt. Learning is (e1, 0) private and training (e2, delta) private on the same records, whatever was
learnt, so that both together are (e1 + e2, delta) private: a budget that is for everything leaves e - e1 to the runs, and a
statement says the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from honestdp.boundary.data import PrivateData
from honestdp.budget import Budget, Statement, prepared
from honestdp.checks import InvalidArgument
from honestdp.plain_words import rounded_up
from honestdp.run import Unit

_ROUNDING = 1e-12  # the sum of what is left and what is spent is not above the whole, whatever is rounded


@dataclass(frozen=True)
class Preparation:
    """words: for the statement. spent: epsilon, before the runs. declared: whether the data themselves declare N."""

    words: str
    spent: float = 0.0
    declared: bool = False

    def left(self, budget: Any) -> Any:
        """What a budget leaves to the runs. What is no budget is somebody else's to refuse."""
        if not self.spent or not isinstance(budget, Budget):
            return budget
        epsilon = (budget.epsilon - self.spent) * (1 - _ROUNDING)
        if epsilon <= 0:
            wanted = f"above {self.spent:g}, which was spent to learn the bounds of the table"
            raise InvalidArgument("budget.epsilon", budget.epsilon, wanted)
        return Budget(epsilon, budget.delta)


def preparation(data: PrivateData, preprocessing: object) -> Preparation:
    """Of these data. preprocessing: the user's words on what was done before that; none where they say nothing."""
    words, known = prepared(preprocessing, data.augment), data.known
    if known is None:
        return Preparation(words)
    both = known.preprocessing if preprocessing is None else f"{prepared(preprocessing)}; {known.preprocessing}"
    return Preparation(prepared(both, data.augment), known.spent, known.declared)


def with_learning(made: Statement, spent: float, unit: Unit) -> Statement:
    """The statement of everything, from that of the runs alone. spent: epsilon of the bounds and categories that were learnt."""
    if not spent:
        return made
    cost = f"epsilon {rounded_up(spent)} was spent to learn bounds or categories of columns privately"
    rest = f"epsilon {rounded_up(made.epsilon)} for everything after, added to it"
    one_more = (
        f"{made.protects}. To learn bounds one row of a person was used, chosen by another coin: it may be one more"
    )
    return replace(
        made,
        epsilon=made.epsilon + spent,
        published=made.published and (made.published[0], made.published[1] + spent),
        leaves=f"{made.leaves}; and the bounds or categories that were learnt",
        protects=one_more if unit.person and made.protects else made.protects,
        notes=(*made.notes, f"{cost}, and {rest}; a ledger has it if it was learnt with that ledger"),
    )
