"""Several processes at one ledger, and processes that are killed: what a budget allows is spent once, and nothing comes back."""

from __future__ import annotations

import os
import random
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from honestdp import Budget, Run
from honestdp.ledger import BudgetExceeded, Ledger, Place
from honestdp.ledger.spending import Spending, total_epsilon
from honestdp.selection import Compose
from tests.ledger.small_ledger import FORK, TINY, in_child, ledger_of, spending

DELTA = 1e-6
PROCESSES = 8
ALLOWED = 30
ROUNDS = 120
FEW = 5  # on a server, whose commits do not depend on who is killed
MOST = 3  # charges that a child makes before it is in danger


def test_eight_processes_spend_exactly_what_is_allowed(tmp_path: Path) -> None:
    budget = Budget(total_epsilon([spending()] * ALLOWED, delta=DELTA), DELTA)
    assert total_epsilon([spending()] * (ALLOWED + 1), delta=DELTA) > budget.epsilon
    ledger = ledger_of(tmp_path, budget=budget)  # on a server: test_postgres.py, with kills
    barrier = FORK.Barrier(PROCESSES)

    def hammer(me: int) -> None:
        barrier.wait()
        for attempt in range(ALLOWED + 1):
            try:
                ledger.charge("a", spending(), key=f"{me}-{attempt}")
            except BudgetExceeded:
                return
            (tmp_path / f"acknowledged-{me}-{attempt}").touch()

    children = [in_child(lambda me=me: hammer(me)) for me in range(PROCESSES)]  # type: ignore[misc]
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    keys = [entry.key for entry in ledger.entries("a") if entry.kind == "charge"]
    acknowledged = {file.name.removeprefix("acknowledged-") for file in tmp_path.glob("acknowledged-*")}
    assert len(keys) == ALLOWED
    assert set(keys) == acknowledged
    assert ledger.balance("a").spent <= budget.epsilon
    ledger.verify()


def test_of_two_that_race_for_the_last_one_wins(place: Place) -> None:
    """Two charges of different size, each of which fits alone and neither beside the other."""
    sizes = (spending(), Spending(Compose(candidates=1), ((Run(records=10, lot=10, steps=2, noise=210.0), 1),)))
    most = max(size.epsilon(delta=DELTA) for size in sizes)
    assert total_epsilon(sizes, delta=DELTA) > most
    ledger = Ledger(place)
    for number in range(12 if isinstance(place, Path) else 3):
        dataset = f"race {number}"
        ledger.set_budget(dataset, Budget(most, DELTA))
        barrier = FORK.Barrier(2)
        children = [
            in_child(lambda size=size, dataset=dataset, barrier=barrier: _race(ledger, dataset, size, barrier))  # type: ignore[misc]
            for size in sizes
        ]
        for child in children:
            child.join(300)
        assert sorted(child.exitcode or 0 for child in children) == [0, 3]
        assert len(ledger.entries(dataset)) == 2
    ledger.verify()


def _race(ledger: Ledger, dataset: str, size: Spending, barrier: Barrier) -> None:
    barrier.wait()
    try:
        ledger.charge(dataset, size, key=repr(size))
    except BudgetExceeded:
        os._exit(3)


def test_one_key_from_many_processes_charges_once(place: Place) -> None:
    ledger = ledger_of(place)
    barrier = FORK.Barrier(4)

    def charge() -> None:
        barrier.wait()
        os._exit(10 + ledger.charge("a", spending(), key="the search").charged)

    children = [in_child(charge) for _ in range(4)]
    for child in children:
        child.join(300)
    assert sorted(child.exitcode or 0 for child in children) == [10, 10, 10, 11]
    assert ledger.balance("a").charges == 1


@pytest.mark.kill
def test_killed_at_any_moment_nothing_is_refunded_and_nothing_charged_twice(place: Place, tmp_path: Path) -> None:
    """kill -9 at random moments. What a child was told is charged stays charged; what it was not told is charged at most once.

    A child charges in a loop and notes each key once its charge has returned. The one charge that a kill may leave in
    doubt is then asked for again with its key, as a resumed search does.
    """
    seed = 7
    chance = random.Random(seed)
    ledger = ledger_of(place, budget=Budget(50.0, DELTA))
    notes = tmp_path / "notes"
    notes.touch()
    expected: list[str] = []
    for number in range(ROUNDS if isinstance(place, Path) else FEW):
        for more in range(MOST + 2):  # computed once here, so that a child's time goes into the file
            total_epsilon([spending()] * (len(expected) + more), delta=DELTA)
        size = notes.stat().st_size
        child = in_child(lambda number=number: _charge_until_killed(ledger, notes, number))  # type: ignore[misc]
        charges = chance.randrange(MOST)
        while notes.read_bytes()[size:].count(b"\n") < charges:
            assert child.is_alive()
            time.sleep(1e-3)
        time.sleep(chance.uniform(0, 0.01))
        child.kill()  # type: ignore[attr-defined]
        child.join(300)
        told = [key for key in notes.read_text().split("\n")[:-1] if key.startswith(f"{number}-")]
        in_doubt = f"{number}-{len(told)}"
        written = [entry.key for entry in ledger.entries("a") if entry.kind == "charge"]
        assert written[: len(expected) + len(told)] == expected + told
        assert written[len(expected) + len(told) :] in ([], [in_doubt])
        balance = ledger.charge("a", spending(), key=in_doubt)
        assert balance.charged is (in_doubt not in written)
        expected += [*told, in_doubt]
    assert [entry.key for entry in ledger.entries("a")][1:] == expected
    ledger.verify()


def _charge_until_killed(ledger: Ledger, notes: Path, number: int) -> None:
    with notes.open("a", buffering=1) as file:
        for attempt in range(1000):
            key = f"{number}-{attempt}"
            ledger.charge("a", spending(), key=key)
            file.write(key + "\n")


@pytest.mark.parametrize("children", [3])
def test_processes_that_create_one_ledger_agree(place: Place, children: int) -> None:
    path = place
    barrier = FORK.Barrier(children)

    def begin(name: str) -> None:
        barrier.wait()
        Ledger(path).set_budget(name, Budget(1.0, DELTA))
        Ledger(path).set_budget("shared", Budget(1.0, DELTA))

    started = [in_child(lambda name=f"own {i}": begin(name)) for i in range(children)]  # type: ignore[misc]
    for child in started:
        child.join(300)
        assert child.exitcode == 0
    assert sorted(Ledger(path).datasets()) == [*(f"own {i}" for i in range(children)), "shared"]
    Ledger(path).verify()


def test_the_spending_of_these_tests_is_quick_and_not_nothing() -> None:
    assert TINY.rate == 1
    assert 0 < spending().epsilon(delta=DELTA) < 0.1
