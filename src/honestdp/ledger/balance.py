"""`Balance`: a dataset's budget, what is spent of it and what is left."""

from __future__ import annotations

from dataclasses import dataclass

from honestdp.budget import Budget, number


@dataclass(frozen=True)
class Balance:
    """Where a dataset stands.

    before, spent: epsilon at the budget's delta, before a charge and after it; without a charge the two are one.
    charges: how many there are, this one included. entry: the number of this charge in the ledger, which counts every entry of
        every dataset; of the last entry, where there was no charge. None where an earlier version wrote no number.
    head: the hash of that entry, which shows later if the ledger was cut off.
    unit: what the charges tell people apart by, such as a column; empty where they are for single rows.
    charged: whether this call wrote an entry. A key that was already charged writes none, and gives the balance of its charge,
        as it was then.
    """

    dataset: str
    budget: Budget
    before: float
    spent: float
    charges: int
    charged: bool
    head: str
    entry: int | None = None
    unit: str = ""

    @property
    def left(self) -> float:
        """The budget's epsilon less what is spent. Charges do not add up: together they spend less than their sum."""
        return max(0.0, self.budget.epsilon - self.spent)

    def as_dict(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "before": number(self.before),
            "spent": number(self.spent),
            "left": self.left,
            "charges": self.charges,
            "charged": self.charged,
            "head": self.head,
            "entry": self.entry,
            "unit": self.unit,
        }


def dear_by_delta(delta: float | None, budget: Budget, *, charged: bool = False) -> str:
    """The way out, where what was made for one delta is priced at a smaller one: it then costs more than it was made for.

    charged: it stays charged, and what is told is for the next time.
    """
    if delta is None or delta <= budget.delta:
        return ""
    way_out = "the next time is the one to ask for" if charged else "the way out is to ask for"
    return (
        f"made for delta {delta:g}, it costs more at the ledger's, {budget.delta:g}: {way_out} delta {budget.delta:g}"
    )
