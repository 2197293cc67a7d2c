"""What a client's rounds are charged to: a charge for each, and whether all clients can pay before one of them does."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from honestdp.run import Run

if TYPE_CHECKING:  # the engine alone needs torch and numpy only
    from honestdp.ledger import Balance
    from honestdp.ledger.paying import Books
    from honestdp.ledger.spending import Spending


@dataclass(frozen=True)
class Bill:
    """A round that is to be charged."""

    books: Books
    spending: Spending

    def pay(self, number: int) -> Balance:
        """As a charge of its own, durably."""
        from honestdp.ledger.paying import Payment

        what = f"honestdp federated client, round {number}"
        return Payment.of(self.books, uuid.uuid4().hex).charge(self.spending, what=what, read=False)


def books_of(ledger: Any, dataset: Any, note: Any, noise_seed: int | None) -> Books | None:
    """None where nothing is to be charged."""
    if ledger is None and dataset is None and not note:
        return None
    from honestdp.ledger import paying

    return paying.books_of(ledger, dataset, noise_seed=noise_seed, note=note)


def bill_of(books: Books, run: Run, person: str) -> Bill:
    """For one round of so many steps."""
    from honestdp.ledger.spending import Spending
    from honestdp.selection import Compose

    return Bill(books, Spending(Compose(candidates=1), ((run, 1),), unit=person))


def check_bills(bills: Sequence[Bill]) -> None:
    """The ledgers' refusal where not all of these can be charged now, those to one dataset together. Nothing is charged."""
    from honestdp.ledger import Ledger

    each: dict[tuple[str, str], list[Bill]] = {}
    for bill in bills:
        each.setdefault((str(bill.books.ledger), bill.books.dataset), []).append(bill)
    for group in each.values():
        Ledger(group[0].books.ledger).check(group[0].books.dataset, [bill.spending for bill in group])
