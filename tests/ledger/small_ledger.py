"""A small ledger, a spending that is quick to compose, and child processes that know all this already."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from honestdp import Budget, Run
from honestdp.ledger import Ledger, Place
from honestdp.ledger.spending import Spending
from honestdp.selection import Compose

TINY = Run(records=10, lot=10, steps=1, noise=200.0)  # rate one: any number of these is one Gaussian
BUDGET = Budget(5.0, 1e-6)

FORK = multiprocessing.get_context(
    "fork"
)  # children begin with everything imported, so that hundreds of them are quick


def spending(noise: float = 200.0) -> Spending:
    return Spending(Compose(candidates=1), ((TINY.with_noise(noise), 1),))


def ledger_of(place: Place, *, timeout: float = 30.0, budget: Budget = BUDGET) -> Ledger:
    """place: of the ledger, or a folder for it."""
    named = place / "ledger.db" if isinstance(place, Path) and place.is_dir() else place
    ledger = Ledger(named, timeout=timeout)
    ledger.set_budget("a", budget)
    return ledger


def in_child(work: Callable[[], object]) -> BaseProcess:
    """The work, begun in a process of its own."""
    child = FORK.Process(target=work)
    child.start()
    return child
