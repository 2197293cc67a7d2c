"""Long ledgers: what older entries come to is remembered under the hash of the last one, and believed no more than the chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from honestdp import Budget
from honestdp.ledger import (
    BrokenChain,
    BudgetExceeded,
    KeyReused,
    Ledger,
    LedgerError,
    LookAlike,
    Misremembered,
    OtherUnit,
    Place,
    past,
    remembered,
)
from honestdp.ledger.account import accounts
from honestdp.ledger.past import Entries, Past, past_of
from honestdp.ledger.spending import Spending, total_epsilon
from honestdp.ledger.transaction import Transaction
from honestdp.selection import Compose
from tests.ledger.small_ledger import BUDGET, TINY, ledger_of, spending

DELTA = 1e-6


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve entries are many."""
    for name, value in (("LEAST", 8), ("RECENT", 3), ("STEP", 4)):
        monkeypatch.setattr(past, name, value)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After which entry rows were read, for every reading."""
    seen: list[int] = []
    verified = Transaction._verified

    def noted(self: Transaction, known: Sequence[Any], *, recent: bool) -> Any:
        found = verified(self, known, recent=recent)
        seen.append(0 if found.past is None else found.past.number)
        return found

    monkeypatch.setattr(Transaction, "_verified", noted)
    return seen


def long_ledger(place: Place, count: int = 12, **settings: Any) -> Ledger:
    ledger = ledger_of(place, **settings)
    for number in range(count):
        ledger.charge("a", spending(200.0 + number % 2), key=f"k{number}")
    return ledger


def test_a_long_ledger_says_what_a_short_one_says(place: Place, short: None, rows: list[int]) -> None:
    ledger = long_ledger(place, 14)
    assert max(rows) > 0, "no past was used"
    known = ledger.balance("a")
    with remembered.nothing():
        assert Ledger(ledger.path).balance("a") == known
    assert known.spent == total_epsilon([spending(200.0 + n % 2) for n in range(14)], delta=DELTA)
    assert known.charges == 14
    assert [charge.entry.key for charge in ledger.charges("a")] == [f"k{n}" for n in range(14)]
    assert ledger.verify() == known.head


def test_a_charge_reads_the_recent_entries_alone(tmp_path: Path, short: None, rows: list[int]) -> None:
    ledger = long_ledger(tmp_path, 40)
    del rows[:]
    balance = ledger.charge("a", spending(), key="new")
    assert balance.charges == 41
    assert all(balance.entry - after <= past.RECENT + past.STEP + 1 for after in rows)  # type: ignore[operator]
    del rows[:]
    ledger.verify()
    ledger.charges("a")
    assert set(rows) == {0}, "what is verified or shown is read from the beginning"


def test_an_old_key_is_found_and_charges_nothing(place: Place, short: None) -> None:
    ledger = long_ledger(place)
    again = ledger.charge("a", spending(200.0), key="k0")
    assert (again.charged, again.charges, again.entry) == (False, 1, 2)
    with pytest.raises(KeyReused):
        ledger.charge("a", spending(7.0), key="k1")
    recent = ledger.charge("a", spending(201.0), key="k11")
    assert (recent.charged, recent.charges) == (False, 12)
    ledger.resume("a", key="k0", token="t1", after="")  # of a search that was charged long ago
    ledger.end("a", key="k0")
    for number in range(9):
        ledger.charge("a", spending(), key=f"more {number}")
    assert ledger.balance("a").charges == 21
    ledger.verify()


def test_a_budget_is_kept_across_the_past(tmp_path: Path, short: None) -> None:
    budget = Budget(total_epsilon([spending()] * 15, delta=DELTA), DELTA)
    ledger = ledger_of(tmp_path, budget=budget)
    for number in range(15):
        ledger.charge("a", spending(), key=str(number))
    with pytest.raises(BudgetExceeded):
        ledger.charge("a", spending(), key="one more")
    with pytest.raises(OtherUnit):
        ledger.charge("a", Spending(Compose(candidates=1), ((TINY, 1),), unit="patient"), key="people")
    with pytest.raises(LookAlike):
        ledger.set_budget("A", BUDGET)
    assert ledger.set_budget("a", budget).charges == 15
    assert len(ledger.entries()) == 16


def test_whose_record_it_is_is_known_from_the_past_alone(tmp_path: Path, short: None) -> None:
    """The recent charges are another dataset's: rows are still not added to people."""
    ledger = ledger_of(tmp_path)
    people = Spending(Compose(candidates=1), ((TINY, 1),), unit="patient")
    for key in "12":
        ledger.charge("a", people, key=key)
    ledger.set_budget("b", BUDGET)
    for number in range(14):
        ledger.charge("b", spending(), key=str(number))
    known = past.recalled(ledger.entries()[0].hash)
    assert known is not None
    assert known.number > 4, "what was charged to a is past"
    with pytest.raises(OtherUnit, match="patient"):
        ledger.charge("a", spending(), key="3")
    balance = ledger.charge("a", people, key="3")
    assert (balance.unit, balance.charges) == ("patient", 3)


def test_a_past_of_another_chain_is_not_used(tmp_path: Path, short: None, rows: list[int]) -> None:
    """A backup from before, put back: its beginning is the same, and the entry that was remembered is gone."""
    ledger = ledger_of(tmp_path)
    assert isinstance(ledger.path, Path)
    backup = ledger.path.read_bytes()
    for number in range(12):
        ledger.charge("a", spending(), key=str(number))
    first = ledger.entries()[0].hash
    old = past.recalled(first)
    assert old is not None
    ledger.path.write_bytes(backup)
    for number in range(12):
        assert ledger.charge("a", spending(190.0), key=f"other {number}").charges == number + 1
    remembered.keep(f"past {first}", old.to_bytes())
    assert ledger.balance("a").spent == total_epsilon([spending(190.0)] * 12, delta=DELTA)
    ledger.verify()


def test_what_is_remembered_wrongly_is_found_by_verify(tmp_path: Path, short: None) -> None:
    ledger = long_ledger(tmp_path)
    first = ledger.entries()[0].hash
    known = past.recalled(first)
    assert known is not None
    lied = Past(known.number, known.head, known.budgets, {"a": {}}, known.keys)  # type: ignore[dict-item]
    remembered.keep(f"past {first}", lied.to_bytes())
    with pytest.raises(Misremembered, match="remove that folder"):
        ledger.verify()
    remembered.keep(f"past {first}", b"damaged")
    assert ledger.balance("a").charges == 12
    ledger.verify()


def test_a_broken_entry_is_named_where_it_is_read(tmp_path: Path, short: None) -> None:
    """In the recent part by every charge; before it by whoever reads everything."""
    import sqlite3
    from contextlib import closing

    for number, words in ((14, "entry 14 is broken"), (3, "entry 3 is broken")):
        ledger = long_ledger(tmp_path / f"{number}.db", 14)
        ledger.balance("a")
        with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
            rules = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = 'entries_are_not_changed'"
            ).fetchone()
            connection.execute("DROP TRIGGER entries_are_not_changed")
            connection.execute("UPDATE entries SET key = 'mine' WHERE number = ?", (number,))
            connection.execute(rules[0])
        with pytest.raises(BrokenChain, match=words):
            ledger.verify()
        if number == 14:
            with pytest.raises(BrokenChain, match=words):
                ledger.charge("a", spending(), key="new")
        else:  # a key that was put into an old entry buys nothing
            with pytest.raises(LedgerError):
                ledger.charge("a", spending(), key="mine")


def test_a_past_is_what_its_entries_come_to_step_by_step(tmp_path: Path) -> None:
    ledger = long_ledger(tmp_path)
    entries = Entries(ledger.entries())
    at_once = past_of(entries, 11)
    half = past_of(entries, 6)
    in_two = past_of(Entries(entries[6:], half), 5)
    read = Past.from_bytes(in_two.to_bytes())
    assert read is not None
    assert at_once.to_bytes() == in_two.to_bytes() == read.to_bytes()
    assert all(at_once.may_have("a", f"k{number}") for number in range(10))
    assert not at_once.may_have("a", "k11")
    assert not at_once.may_have("b", "k0")
    whole, later = accounts(entries)["a"], accounts(Entries(entries[11:], at_once))["a"]
    assert (whole.spendings(), whole.count, whole.unit, whole.budget) == (
        later.spendings(),
        later.count,
        later.unit,
        later.budget,
    )
