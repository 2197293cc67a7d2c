"""Large ledgers: 100,000 charges of one kind, and 1,000 kinds. Times are of the processor, with room for slow ones."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from honestdp import Budget, Run
from honestdp.ledger import Ledger
from honestdp.ledger.chain import COLUMNS, Entry, canonical
from honestdp.ledger.spending import Spending
from honestdp.selection import Compose


def kind(number: int) -> Spending:
    return Spending(Compose(candidates=1), ((Run(records=1000, lot=10, steps=2, noise=200.0 + number), 1),))


def ledger_with(path: Path, kinds: list[int]) -> Ledger:
    """The ledger that one charge of each of these kinds would have made."""
    ledger = Ledger(path)
    ledger.set_budget("a", Budget(50.0, 1e-6))
    last = ledger.entries()[-1]
    contents = {number: canonical(kind(number).as_dict()) for number in set(kinds)}
    rows = []
    for number, one in enumerate(kinds, start=2):
        last = Entry(number, last.time, "a", "charge", str(number), "", contents[one], last.hash).sealed()
        rows.append(tuple(last))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", rows)
    return ledger


def seconds_of_a_charge(ledger: Ledger, number: int) -> float:
    began = time.process_time()
    ledger.charge("a", kind(number), key=f"new {number}")
    return time.process_time() - began


def test_one_more_of_100_000_alike_charges_takes_less_than_10_seconds(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path / "ledger.db", [0] * 100_000)
    assert seconds_of_a_charge(ledger, 0) < 10
    assert ledger.balance("a").charges == 100_001


def test_one_more_of_1000_kinds_takes_less_than_2_seconds(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path / "ledger.db", list(range(1000)))
    ledger.balance("a")  # composes all of them, once in a process
    assert seconds_of_a_charge(ledger, 1000) < 2
    assert seconds_of_a_charge(ledger, 3) < 2
