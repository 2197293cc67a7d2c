"""One charge, one search: whoever goes on says so in the ledger, an older copy is refused, and an ended search stays ended."""

from __future__ import annotations

import os
import signal
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from honestdp.checks import InvalidArgument
from honestdp.ledger import BrokenChain, KeyEnded, Ledger, Locked, NoCharge, NoLedger, Place, StaleCopy, postgres, store
from honestdp.ledger.account import NOTHING, resume_content, resume_key
from honestdp.ledger.chain import Transaction
from honestdp.ledger.paying import Payment
from tests.ledger.small_ledger import BUDGET, in_child, ledger_of, spending


@pytest.fixture
def ledger(place: Place) -> Ledger:
    ledger = ledger_of(place)
    ledger.charge("a", spending(), key="search")
    return ledger


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


def test_a_search_goes_on_from_token_to_token(ledger: Ledger) -> None:
    ledger.resume("a", key="search", token="t1", after="")
    ledger.resume("a", key="search", token="t2", after="t1")
    assert kinds(ledger) == ["budget", "charge", "resume", "resume"]
    assert [entry.key for entry in ledger.entries()] == ["", "search", "search/1", "search/2"]
    ledger.verify()


def test_a_resume_said_again_is_said_once(ledger: Ledger) -> None:
    """A kill between the folder's note and the ledger's, or after both: the same words are no error."""
    for after in ("", "t1", "whatever"):
        ledger.resume("a", key="search", token="t1", after="" if after == "" else after)
    assert kinds(ledger) == ["budget", "charge", "resume"]


@pytest.mark.parametrize("after", ["", "t0", "t1"])
def test_an_older_copy_is_refused(ledger: Ledger, after: str) -> None:
    ledger.resume("a", key="search", token="t1", after="")
    ledger.resume("a", key="search", token="t2", after="t1")
    with pytest.raises(StaleCopy, match="another copy"):
        ledger.resume("a", key="search", token="mine", after=after)
    assert kinds(ledger).count("resume") == 2


def test_a_first_resume_knows_of_no_token(ledger: Ledger) -> None:
    with pytest.raises(StaleCopy):
        ledger.resume("a", key="search", token="t1", after="t0")


def test_an_old_token_does_not_come_back(ledger: Ledger) -> None:
    ledger.resume("a", key="search", token="t1", after="")
    ledger.resume("a", key="search", token="t2", after="t1")
    with pytest.raises(StaleCopy):
        ledger.resume("a", key="search", token="t1", after="")
    with pytest.raises(InvalidArgument, match="token"):
        ledger.resume("a", key="search", token="t1", after="t2")


def test_of_two_copies_that_race_one_goes_on(ledger: Ledger) -> None:
    def go_on(token: str) -> None:
        try:
            ledger.resume("a", key="search", token=token, after="")
        except StaleCopy:
            os._exit(3)

    children = [in_child(partial(go_on, token)) for token in ("t1", "t2", "t3")]
    for child in children:
        child.join(300)
    assert sorted(child.exitcode or 0 for child in children) == [0, 3, 3]
    assert kinds(ledger).count("resume") == 1


def test_what_is_over_is_over(ledger: Ledger) -> None:
    ledger.resume("a", key="search", token="t1", after="")
    ledger.end("a", key="search")
    ledger.end("a", key="search")
    assert kinds(ledger) == ["budget", "charge", "resume", "over"]
    for token, after in (("t2", "t1"), ("t1", ""), ("t1", "t1")):
        with pytest.raises(KeyEnded, match="is over"):
            ledger.resume("a", key="search", token=token, after=after)
    ledger.verify()


def test_an_ended_key_is_still_known_and_not_charged_again(ledger: Ledger) -> None:
    before = ledger.balance("a")
    ledger.end("a", key="search")
    again = ledger.charge("a", spending(), key="search")
    assert (again.charged, again.spent, again.charges) == (False, before.spent, 1)
    after = ledger.balance("a")
    assert (after.spent, after.charges) == (before.spent, 1)
    assert len(ledger.charges("a")) == 1


def test_only_what_was_charged_to_this_dataset_goes_on(ledger: Ledger, tmp_path: Path) -> None:
    ledger.set_budget("b", BUDGET)
    for dataset, key in (("b", "search"), ("a", "other"), ("nobody", "search")):
        with pytest.raises(NoCharge, match="nothing was charged"):
            ledger.resume(dataset, key=key, token="t1", after="")
        with pytest.raises(NoCharge, match="nothing was charged"):
            ledger.end(dataset, key=key)
    with pytest.raises(NoLedger):
        Ledger(tmp_path / "none.db").end("a", key="search")
    for token in ("", "two\nlines", "x" * 201):
        with pytest.raises(InvalidArgument, match="token"):
            ledger.resume("a", key="search", token=token, after="")


def test_keys_that_look_like_resumes_of_each_other_are_apart(ledger: Ledger) -> None:
    for key in ("search/1", "search/1/2", "search/"):
        ledger.charge("a", spending(), key=key)
    for key in ("search", "search/1", "search/1/2", "search/"):
        for token, after in (("t1", ""), ("t2", "t1")):
            ledger.resume("a", key=key, token=token, after=after)
    ledger.end("a", key="search/1")
    ledger.resume("a", key="search", token="t3", after="t2")
    with pytest.raises(KeyEnded):
        ledger.resume("a", key="search/1", token="t3", after="t2")
    ledger.verify()


def test_the_time_of_an_end_is_that_of_its_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a search with a secret number of runs ended tells how many runs there were."""
    for kind in (store.Transaction, postgres.Transaction):
        monkeypatch.setattr(kind, "_now", lambda self: "2099-01-01T00:00:00+00:00")
    ledger.charge("a", spending(), key="later")
    ledger.resume("a", key="search", token="t1", after="")
    ledger.end("a", key="search")
    times = {entry.key: entry.time for entry in ledger.entries()}
    assert times["later"].startswith("2099")
    assert times["search/1"] == times["search"]
    assert [entry.time for entry in ledger.entries() if entry.key == "search"] == [times["search"]] * 2


@pytest.mark.parametrize("act", ["resume", "end"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_the_commit_it_is_said_or_not(ledger: Ledger, act: str, moment: str) -> None:
    def do() -> None:
        if act == "resume":
            ledger.resume("a", key="search", token="t1", after="")
        else:
            ledger.end("a", key="search")

    def killed() -> None:
        if moment == "before":
            append = Transaction.append

            def appended(self: Transaction, **columns: Any) -> Any:
                append(self, **columns)
                os.kill(os.getpid(), signal.SIGKILL)

            Transaction.append = appended  # type: ignore[method-assign]
        do()
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(killed).join()
    assert len(ledger.entries()) == (2 if moment == "before" else 3)
    do()
    assert len(ledger.entries()) == 3
    ledger.verify()


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ([("resume", "nothing/1", resume_content("nothing", 1, "t"))], "nothing was charged"),
        ([("over", "nothing", NOTHING)], "nothing was charged"),
        ([("over", "search", NOTHING), ("resume", "search/1", resume_content("search", 1, "t"))], "over before"),
        ([("resume", "search/2", resume_content("search", 2, "t"))], "not resume 1"),
        ([("resume", "search/1", resume_content("search", 2, "t"))], "not resume 1"),
        ([("resume", "other/1", resume_content("search", 1, "t"))], "not resume 1"),
        ([("resume", "search/1", '{"version":1}')], "cannot be read"),
        ([("resume", "search/1", '{"charge":"search","count":true,"token":"t","version":1}')], "cannot be read"),
        ([("over", "search", "{}")], "content"),
    ],
)
def test_an_entry_that_cannot_follow_is_named(ledger: Ledger, entries: list[tuple[str, str, str]], wrong: str) -> None:
    for kind, key, content in entries:
        with ledger._store.writing() as transaction:
            last = transaction.append(dataset="a", kind=kind, key=key, what="", content=content)
    for ask in (
        ledger.verify,
        lambda: ledger.balance("a"),
        lambda: ledger.charge("a", spending(), key="n"),
        lambda: ledger.resume("a", key="search", token="n", after=""),
        lambda: ledger.end("a", key="search"),
    ):
        with pytest.raises(BrokenChain, match=wrong) as raised:
            ask()
        assert raised.value.entry == last.number


def test_a_resume_is_the_key_of_no_other_charge() -> None:
    keys = {resume_key(key, count) for key in ("a", "a/1", "a/1/1", "") for count in (1, 2, 11)}
    assert len(keys) == 12


def test_a_ledger_that_locks_after_the_charge_does_not_say_that_nothing_was_charged(tmp_path: Path) -> None:
    account = Payment(ledger_of(tmp_path, timeout=0.2), "a", "search")
    account.ledger.charge("a", spending(), key="search")
    other = sqlite3.connect(account.ledger.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for ask in (account.end, lambda: account.resume({"token": "", "after": ""}, lambda token: None)):
        with pytest.raises(Locked, match=r"nothing more was charged.*What was charged before stays charged"):
            ask()
    other.close()
