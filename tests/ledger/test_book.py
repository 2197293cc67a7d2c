"""The ledger by itself: budgets, charges, keys, refusals, and what is asked of the file."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from honestdp import Budget, Run
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import (
    BudgetExceeded,
    BudgetFixed,
    KeyReused,
    Ledger,
    LedgerError,
    Locked,
    NoBudget,
    NoLedger,
    NotALedger,
    NotPrivate,
    Place,
    ReadOnly,
    book,
)
from honestdp.ledger.chain import Transaction, canonical
from honestdp.ledger.names import Described
from honestdp.ledger.spending import Spending, total_epsilon
from honestdp.selection import Compose, named
from tests.ledger.small_ledger import BUDGET, TINY, in_child, ledger_of, spending

DELTA = BUDGET.delta


def whole(ledger: Ledger) -> object:
    """All that is kept: of a file its bytes, of a server its entries."""
    return ledger.path.read_bytes() if isinstance(ledger.path, Path) else ledger.entries()


def test_a_charge_is_what_the_composition_says(place: Place) -> None:
    ledger = ledger_of(place)
    other = Spending(named("envelope", runs=4), ((TINY, 1),), score=300.0, sensitivity=1)
    first = ledger.charge("a", spending(), key="1", what="the first")
    second = ledger.charge("a", other, key="2")
    assert (first.before, first.charged, first.charges) == (0.0, True, 1)
    assert first.spent == total_epsilon([spending()], delta=DELTA)
    assert second.before == first.spent
    assert second.spent == total_epsilon([spending(), other], delta=DELTA)
    assert second.left == BUDGET.epsilon - second.spent
    again = Ledger(ledger.path).balance("a")
    assert (again.spent, again.charges, again.head, again.charged) == (second.spent, 2, second.head, False)


def test_datasets_have_budgets_of_their_own(place: Place) -> None:
    ledger = ledger_of(place)
    ledger.set_budget("b", Budget(7.0, 1e-9))
    ledger.charge("a", spending(), key="1")
    ledger.charge("b", spending(), key="1")
    assert ledger.balance("b").spent == total_epsilon([spending()], delta=1e-9)
    assert ledger.datasets() == ["a", "b"]
    assert [entry.dataset for entry in ledger.entries()] == ["a", "b", "a", "b"]
    assert [entry.number for entry in ledger.entries("b")] == [2, 4]


def test_over_budget_is_refused_with_what_is_left_and_charges_nothing(place: Place) -> None:
    ledger = Ledger(place)
    ledger.set_budget("a", Budget(total_epsilon([spending()] * 3, delta=DELTA) * (1 + 1e-9), DELTA))
    for key in "123":
        ledger.charge("a", spending(), key=key)
    before = whole(ledger)
    with pytest.raises(
        BudgetExceeded, match=r"over budget: a may spend .* has spent .* Left is .*; nothing was charged"
    ):
        ledger.charge("a", spending(), key="4")
    assert whole(ledger) == before


def test_a_budget_is_met_exactly_and_not_exceeded_by_a_rounding(place: Place) -> None:
    exact = total_epsilon([spending()], delta=DELTA)
    for name, epsilon in (("enough", exact), ("less", exact * (1 - 1e-12))):
        Ledger(place).set_budget(name, Budget(epsilon, DELTA))
    ledger = Ledger(place)
    assert ledger.charge("enough", spending(), key="1").left == 0
    with pytest.raises(BudgetExceeded):
        ledger.charge("less", spending(), key="1")


def test_a_key_charges_once(place: Place) -> None:
    ledger = ledger_of(place)
    ledger.charge("a", spending(), key="search-0")
    first = ledger.charge("a", spending(), key="search-1")
    ledger.charge("a", spending(), key="search-2")
    if isinstance(ledger.path, Path):
        ledger.path.chmod(0o400)
    again = ledger.charge("a", spending(), key="search-1", what="resumed")
    assert replace(again, charged=True) == first  # the balance of its charge, as it was then
    assert not again.charged
    if isinstance(ledger.path, Path):
        ledger.path.chmod(0o600)
    with pytest.raises(KeyReused, match="search-1"):
        ledger.charge("a", spending(noise=7.0), key="search-1")
    assert len(ledger.entries()) == 4


def test_a_key_is_honoured_when_the_budget_is_spent(place: Place) -> None:
    ledger = Ledger(place)
    ledger.set_budget("a", Budget(total_epsilon([spending()], delta=DELTA), DELTA))
    ledger.charge("a", spending(), key="1")
    assert not ledger.charge("a", spending(), key="1").charged


def test_a_budget_is_set_once(place: Place) -> None:
    ledger = ledger_of(place)
    ledger.set_budget("a", BUDGET)
    assert len(ledger.entries()) == 1
    for other in (Budget(BUDGET.epsilon * 2, DELTA), Budget(BUDGET.epsilon, DELTA * 2)):
        with pytest.raises(BudgetFixed, match="a budget is set once"):
            ledger.set_budget("a", other)
    assert ledger.balance("a").budget == BUDGET


def test_no_budget_names_the_call_that_sets_it(tmp_path: Path) -> None:
    missing = Ledger(tmp_path / "my ledger.db")
    for ledger in (missing, ledger_of(tmp_path)):
        for ask in (partial(ledger.charge, "my data", spending(), key="1"), partial(ledger.balance, "my data")):
            with pytest.raises(NoBudget) as raised:
                ask()
            assert f"Ledger({str(ledger.path)!r}).set_budget('my data', Budget(" in str(raised.value)
            assert (raised.value.dataset, raised.value.ledger) == ("my data", ledger.path)
    assert not missing.path.exists()


def test_what_is_not_private_is_refused(place: Place) -> None:
    ledger = ledger_of(place)
    for selection in (Compose(candidates=1), named("envelope", runs=3)):
        with pytest.raises(NotPrivate, match="infinite"):
            ledger.charge("a", Spending(selection, ((TINY.with_noise(0.0), 1),)), key="1")
    weak = Run(records=10, lot=10, steps=1, noise=0.01)  # losses beyond what the profile of a search can hold
    with pytest.raises((NotPrivate, BudgetExceeded)):
        ledger.charge("a", Spending(named("envelope", runs=3), ((weak, 1),)), key="1")
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "\x1b[31m", "\ud800", "x" * 201])
def test_a_name_is_one_printable_line(place: Place, name: str) -> None:
    ledger = ledger_of(place)
    for refused in (
        lambda: ledger.charge(name, spending(), key="1"),
        lambda: ledger.charge("a", spending(), key=name),
        lambda: ledger.set_budget(name, BUDGET),
    ):
        with pytest.raises(InvalidArgument):
            refused()


@pytest.mark.parametrize("name", ["données été", "日本", "a'b\"c;--", "[bold]", "%s{}"])
def test_any_printable_name_will_do(tmp_path: Path, name: str) -> None:
    file = name.replace("/", "").encode(sys.getfilesystemencoding(), "ignore")  # as far as the locale has the letters
    ledger = Ledger(tmp_path / f"{os.fsdecode(file)}?#.db")
    ledger.set_budget(name, BUDGET)
    ledger.charge(name, spending(), key=name, what=name)
    assert Described.read(ledger.entries(name)[1].what).what == name
    assert ledger.verify() == ledger.balance(name).head


def test_the_file_is_its_owners_alone_and_only_set_budget_creates_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    for ask in (ledger.verify, ledger.entries, ledger.export):
        with pytest.raises(NoLedger, match="does not exist"):
            ask()
    assert not ledger.path.exists()
    before = os.umask(0)
    try:
        ledger.set_budget("a", BUDGET)
    finally:
        os.umask(before)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]


def test_commits_are_synced_with_their_folder(tmp_path: Path) -> None:
    """EXTRA (3): a journal that comes back after a power loss would refund a charge."""
    with ledger_of(tmp_path)._store.writing() as transaction:
        ask = transaction._connection.execute
        assert ask("PRAGMA synchronous").fetchone() == (3,)
        assert ask("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_charge_that_comes_in_between_is_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the last of the budget while this one computes."""
    ledger = Ledger(place)
    ledger.set_budget("a", Budget(total_epsilon([spending()], delta=DELTA), DELTA))
    quote = book._quote
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = quote(*arguments)
        if calls == 1:
            Ledger(ledger.path).charge("a", spending(), key="another's")
        return found

    monkeypatch.setattr(book, "_quote", interrupted)
    with pytest.raises(BudgetExceeded):
        ledger.charge("a", spending(), key="mine")
    assert [entry.key for entry in ledger.entries("a")] == ["", "another's"]


def test_a_charge_that_loses_every_race_still_comes_to_an_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(place)
    read = Ledger._read
    rivals = 0

    def overtaken(self: Ledger, dataset: str) -> Any:
        nonlocal rivals
        found = read(self, dataset)
        with self._store.writing() as transaction:
            rivals += 1
            content = canonical(spending().as_dict())
            transaction.append(dataset=dataset, kind="charge", key=f"rival {rivals}", what="", content=content)
        return found

    monkeypatch.setattr(Ledger, "_read", overtaken)
    balance = ledger.charge("a", spending(), key="mine")
    assert rivals == book.PATIENCE + 1
    assert balance.charges == rivals + 1
    assert balance.spent == total_epsilon([spending()] * (rivals + 1), delta=DELTA)


@pytest.mark.parametrize("patience", [book.PATIENCE, 0])
def test_a_key_that_another_process_charges_meanwhile_charges_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    ledger = ledger_of(place)
    quote, calls = book._quote, 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = quote(*arguments)
        if calls == 1:
            assert Ledger(ledger.path).charge("a", spending(), key="the search").charged
        return found

    monkeypatch.setattr(book, "_quote", interrupted)
    monkeypatch.setattr(book, "PATIENCE", patience)
    assert not ledger.charge("a", spending(), key="the search").charged
    assert ledger.balance("a").charges == 1


def test_a_charge_to_another_dataset_is_no_reason_to_compute_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_of(place)
    ledger.set_budget("b", BUDGET)
    quote, calls = book._quote, 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            Ledger(ledger.path).charge("b", spending(), key="b")
        return quote(*arguments)

    monkeypatch.setattr(book, "_quote", counted)
    ledger.charge("a", spending(), key="a")
    assert calls == 2
    ledger.verify()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_the_commit_it_is_all_or_nothing(place: Place, moment: str) -> None:
    ledger = ledger_of(place)
    ledger.charge("a", spending(), key="1")

    def charge() -> None:
        if moment == "before":
            append = Transaction.append

            def killed(self: Transaction, **columns: Any) -> Any:
                append(self, **columns)
                os.kill(os.getpid(), signal.SIGKILL)

            Transaction.append = killed  # type: ignore[method-assign]
        ledger.charge("a", spending(), key="2")
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(charge).join()
    ledger.verify()
    assert ledger.balance("a").charges == (1 if moment == "before" else 2)
    assert ledger.charge("a", spending(), key="2").charged is (moment == "before")
    assert ledger.balance("a").charges == 2


def test_an_error_after_writing_leaves_the_file_as_it_was(place: Place) -> None:
    ledger = ledger_of(place)

    def write_and_fail() -> None:
        with ledger._store.writing() as transaction:
            transaction.append(dataset="a", kind="charge", key="1", what="", content=canonical(spending().as_dict()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert len(ledger.entries()) == 1


def test_killed_while_the_file_is_half_written_it_is_as_it_was(tmp_path: Path) -> None:
    """Pages already overwritten and the journal still there, as a power loss leaves them."""
    ledger = ledger_of(tmp_path)
    ledger.charge("a", spending(), key="1")
    entries, whole = ledger.entries(), ledger.path.read_bytes()

    def write_in_part() -> None:
        with ledger._store.writing() as transaction:
            transaction._connection.execute("PRAGMA cache_size = 2")  # so that pages reach the disk before the commit
            content = canonical(spending().as_dict())
            for number in range(40):
                transaction.append(dataset="a", kind="charge", key=f"k{number}", what="x" * 900, content=content)
            os.kill(os.getpid(), signal.SIGKILL)

    in_child(write_in_part).join()
    assert ledger.path.with_name("ledger.db-journal").exists()
    assert ledger.path.read_bytes() != whole
    assert ledger.entries() == entries
    assert ledger.charge("a", spending(), key="2").charges == 2
    ledger.verify()


@pytest.mark.slow
def test_a_locked_ledger_says_so_and_is_not_charged(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, timeout=0.2)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for ask in (lambda: ledger.charge("a", spending(), key="1"), ledger.verify, lambda: ledger.set_budget("b", BUDGET)):
        with pytest.raises(Locked, match=r"locked by another process for 0\.2 seconds"):
            ask()
    other.execute("ROLLBACK")
    other.execute("BEGIN IMMEDIATE")  # a writer at work: reading is possible, charging is not
    assert ledger.balance("a").charges == 0
    with pytest.raises(Locked):
        ledger.charge("a", spending(), key="1")
    other.close()
    assert ledger.charge("a", spending(), key="1").charges == 1


def test_a_read_only_ledger_is_read_and_not_charged(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    ledger.path.chmod(0o400)
    assert ledger.balance("a").spent == 0
    for ask in (lambda: ledger.charge("a", spending(), key="1"), lambda: ledger.set_budget("b", BUDGET)):
        with pytest.raises(ReadOnly, match="read-only"):
            ask()
    ledger.path.chmod(0o600)
    assert len(ledger.entries()) == 1


def test_what_is_no_ledger_is_named_and_left_alone(tmp_path: Path) -> None:
    text, database, folder, empty = (tmp_path / name for name in ("notes.txt", "other.db", "folder", "empty.db"))
    text.write_text("these are my notes, not a ledger\n" * 100)
    folder.mkdir()
    empty.touch()
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE entries (number INTEGER)")
    connection.close()
    for path in (text, database, folder):
        before = None if path.is_dir() else path.read_bytes()
        ledger = Ledger(path)
        for ask in (
            lambda ledger=ledger: ledger.charge("a", spending(), key="1"),
            ledger.verify,
            lambda ledger=ledger: ledger.set_budget("a", BUDGET),
        ):
            with pytest.raises(NotALedger, match=str(path)):
                ask()
        assert before is None or path.read_bytes() == before
    with pytest.raises(NotALedger, match="an SQLite file, but not a ledger"):
        Ledger(database).verify()
    with pytest.raises(NotALedger, match="empty"):
        Ledger(empty).verify()
    with pytest.raises(NoBudget):
        Ledger(empty).charge("a", spending(), key="1")
    assert Ledger(empty).set_budget("a", BUDGET).charges == 0
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger(tmp_path / "nowhere" / "ledger.db").set_budget("a", BUDGET)


def test_every_error_is_one_line_for_the_command_line() -> None:
    for error in (Locked, ReadOnly, NoBudget, BudgetExceeded, KeyReused, NotPrivate, NotALedger, NoLedger, BudgetFixed):
        assert issubclass(error, HonestdpError)


def test_an_export_holds_everything(place: Place) -> None:
    ledger = ledger_of(place)
    ledger.set_budget("b", BUDGET)
    ledger.charge("a", spending(), key="1", what="one")
    exported = json.loads(json.dumps(ledger.export()))
    assert exported["head"] == ledger.verify() == exported["entries"][-1]["hash"]
    assert [entry["kind"] for entry in exported["entries"]] == ["budget", "budget", "charge"]
    assert Spending.from_dict(exported["entries"][2]["content"]) == spending()
    assert [balance["dataset"] for balance in exported["balances"]] == ["a", "b"]
    assert [balance["dataset"] for balance in ledger.export(dataset="b")["balances"]] == ["b"]  # type: ignore[attr-defined]


def test_threads_may_share_a_ledger(place: Place) -> None:
    from concurrent.futures import ThreadPoolExecutor

    ledger = ledger_of(place)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda i: ledger.charge("a", spending(), key=str(i)), range(12)))
    assert sorted(balance.charges for balance in done) == list(range(1, 13))
    ledger.verify()
