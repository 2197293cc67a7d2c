"""The statement of a client of a federated averaging, and the charges for its rounds.

All local steps of all its rounds are one composition of Poisson-sampled Gaussians. The server sees the weights after each round
and chooses the weights of the next: adaptive composition, in which the one who asks may be anybody. So the guarantee is local: it
is given by what this client computes, whatever the server and the other clients do.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from honestdp.budget import SEEDED, Accounted, Statement, assumptions, independence
from honestdp.checks import InvalidArgument
from honestdp.plain_words import rounded_up, shown_delta
from honestdp.run import ROW, Run, Unit

if TYPE_CHECKING:  # the engine alone needs torch and numpy only
    from honestdp.ledger import Balance
    from honestdp.ledger.paying import Books
    from honestdp.ledger.spending import Spending

AGAINST = (
    "this client alone, against the server, the other clients and whoever sees a model of any round, whatever "
    "weights they send; "
)
LEAVES = (
    "to the server, this client's weights after each of its rounds and what follows from them, such as its step size; to all "
    "others, the averages that the server makes of them"
)
UNCOVERED = (
    "that this client takes part, when and for how long, and its declared constants (records, lot, steps, noise, clip); the "
    "records of the other clients, each of which has a number of its own: whoever has records at several clients pays all of "
    "these numbers; scores and whatever else is computed from its records outside of these rounds"
)


def epsilon_of(run: Run, rounds: int, delta: float | None) -> float:
    """Of so many rounds of a client together; infinite without noise."""
    return accounted_of(run, rounds, delta).epsilon


def accounted_of(run: Run, rounds: int, delta: float | None) -> Accounted:
    """The same, with the accountant that it comes from."""
    if rounds * run.steps == 0:
        return Accounted(0.0)
    if run.noise == 0:
        return Accounted(math.inf)
    if delta is None:
        raise InvalidArgument("delta", None, "given to the client, for an epsilon or a statement")
    from honestdp.accounting import accounted  # here, so that the engine needs torch and numpy alone

    return accounted(run.with_steps(rounds * run.steps).event, delta=delta)


def in_a_line(run: Run, *, rounds: int, made: int, delta: float | None, seeded: bool) -> str:
    """A client's rounds, and what all of them together are promised; the statement is the whole of it."""
    if run.noise == 0:
        promised = "NOT PRIVATE: without noise"
    elif seeded:
        promised = "NOT PRIVATE: noise_seed was fixed"
    elif delta is None:
        promised = "no epsilon without a delta"
    else:
        promised = f"epsilon {rounded_up(epsilon_of(run, rounds, delta))} at delta {shown_delta(delta)} for all of them"
    return f"AdaptiveClient: {made} of {rounds} rounds made, {promised}"


def promise(
    run: Run,
    *,
    rounds: int,
    made: int,
    delta: float | None,
    strict: bool,
    seeded: bool,
    preprocessing: str,
    balance: Balance | None,
    unit: Unit = ROW,
    asks: str = "",
) -> Statement:
    """The statement of a client whose rounds have these constants. made: how many it has made so far. asks: see `Rule`."""
    epsilon, accountant, warned = accounted_of(run, rounds, delta)
    plural = "s" if rounds != 1 else ""
    return Statement.about(
        unit,
        epsilon=epsilon,
        delta=delta or 0.0,
        records=run.records,
        noiseless="noise 0, the clients' gradients were used as they are, so epsilon is infinite",
        seed=SEEDED if seeded else "",
        accountant=accountant,
        selection="compose",
        how=(
            f"one client of a federated averaging: all steps of its {rounds} round{plural} composed, {run.steps} local steps "
            f"each at noise {run.noise:g} and lots of {run.lot:g} of its {run.records} {unit.plural}; runs made before to choose "
            "these settings are not in it"
        ),
        runs=1,
        leaves=LEAVES,
        basis="adaptive composition of all local steps of all rounds",
        uncovered=UNCOVERED,
        assumptions=(*assumptions(unit), independence(strict=strict)),
        notes=(
            *warned,
            f"{made} of {rounds} rounds were made; all {rounds} are in epsilon, and the client makes no more",
            _books(balance),
        ),
        further=filter(None, [asks]),
        protects=AGAINST + unit.protects,
        preprocessing=preprocessing,
    )


def _books(balance: Balance | None) -> str:
    if balance is None:
        return (
            "no ledger: another federation or training on these records is not in this number, and a client that is set up anew "
            "counts its rounds from 0"
        )
    spent, budget = rounded_up(balance.spent), balance.budget
    return (
        f"every round is charged to {balance.dataset} before its records are read: after {balance.charges} charges its ledger "
        f"has epsilon {spent} spent of {budget.epsilon:g} at delta {shown_delta(budget.delta)}"
    )


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
