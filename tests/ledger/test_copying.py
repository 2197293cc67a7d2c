"""A ledger is moved whole: each entry as it was, verified before and after, never over another; the old file takes no more."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import honestdp
from honestdp import Budget
from honestdp.ledger import Address, BrokenChain, Ledger, LedgerError, Place, ReadOnly, copying
from tests.cli.test_ledger import Terminal
from tests.ledger.postgres_server import ADMIN, Server
from tests.ledger.small_ledger import BUDGET, ledger_of, spending
from tests.tiny_search import WHOLE, clouds, linear

SECRET = "swordfish"


@pytest.fixture
def full(tmp_path: Path) -> Ledger:
    ledger = ledger_of(tmp_path)
    ledger.set_budget("données", Budget(2.0, 1e-7))
    for key in "123":
        ledger.charge("a", spending(), key=key, what="what it was for")
    ledger.charge("données", spending(150.0), key="1", note="a note")
    ledger.resume("a", key="1", token="t1", after="")
    ledger.end("a", key="2")
    return ledger


def test_a_file_goes_to_a_server_and_back(full: Ledger, address: Address, tmp_path: Path) -> None:
    before, head = full.entries(), full.verify()
    done = copying.copy(full.path, address)
    assert (done.head, done.entries, done.datasets) == (head, 8, {"a": 3, "données": 1})
    there = Ledger(address)
    assert there.entries() == before
    assert there.balance("a") == full.balance("a")
    assert there.verify(head=head) == head
    with pytest.raises(ReadOnly, match="read-only"):
        full.charge("a", spending(), key="too late")
    assert not there.charge("a", spending(), key="1").charged
    there.charge("a", spending(), key="4")
    there.resume("a", key="1", token="t2", after="t1")
    back = copying.copy(address, tmp_path / "back.db")
    assert Ledger(tmp_path / "back.db").entries() == there.entries()
    assert not back.closed
    assert copying.copy(full.path, tmp_path / "archive.db").head == head  # one that is read-only may be copied again


def test_a_ledger_is_never_written_over(full: Ledger, address: Address, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other.db")
    Ledger(address).set_budget("b", BUDGET)
    for target in (other.path, address, full.path):
        with pytest.raises(LedgerError, match="never written over"):
            copying.copy(full.path, target)
    assert [len(Ledger(place).entries()) for place in (other.path, address)] == [1, 1]
    assert full.charge("a", spending(), key="still open").charged


def test_a_broken_ledger_is_not_copied(full: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "verify", lambda self, **_: (_ for _ in ()).throw(BrokenChain("broken", entry=1)))
    with pytest.raises(BrokenChain):
        copying.copy(full.path, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_copy_that_lost_something_is_an_error_and_the_old_one_stays_open(
    full: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = copying._write
    monkeypatch.setattr(copying, "_write", lambda ledger, entries: write(ledger, entries[:-1]))
    with pytest.raises(BrokenChain):
        copying.copy(full.path, tmp_path / "new.db")
    assert full.charge("a", spending(), key="still open").charged


def test_a_charge_that_waited_for_the_copy_is_refused(
    full: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had found the file open, and its handle still writes: it must look again when it has the lock."""
    write, charged, waiting = copying._write, [], []

    def charge() -> None:
        try:
            charged.append(full.charge("a", spending(), key="late").charged)
        except ReadOnly:
            charged.append(False)

    def slow(ledger: Ledger, entries: Any) -> None:
        waits = threading.Event()
        connection = full._store._connection

        def opened(begin: str) -> Any:
            if begin == "BEGIN IMMEDIATE":
                waits.set()
            return connection(begin)

        monkeypatch.setattr(full._store, "_connection", opened)
        waiting.append(threading.Thread(target=charge))
        waiting[0].start()
        assert waits.wait(20), "the file was looked at, and the lock is asked for"
        write(ledger, entries)

    monkeypatch.setattr(copying, "_write", slow)
    done = copying.copy(full.path, tmp_path / "new.db")
    waiting[0].join()
    assert charged == [False]
    assert len(full.entries()) == len(Ledger(tmp_path / "new.db").entries()) == done.entries


def test_a_copy_that_was_killed_before_it_closed_the_old_one_is_made_again(
    full: Ledger, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new.db" if isinstance(place, Path) else place
    with monkeypatch.context() as killed:
        killed.setattr(Path, "chmod", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            copying.copy(full.path, target)
    assert Ledger(target).entries() == full.entries()
    done = copying.copy(full.path, target)
    assert (done.closed, done.entries) == (True, 8)
    with pytest.raises(ReadOnly):
        full.charge("a", spending(), key="too late")
    assert Ledger(target).charge("a", spending(), key="4").charged
    with pytest.raises(LedgerError, match="never written over"):
        copying.copy(full.path, target)


def test_by_command_a_team_has_a_ledger(
    full: Ledger, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    (tmp_path / "password").write_text(f"{SECRET}\n")
    name = server.database()
    admin = server.address(name, f"{ADMIN}:{SECRET}").url
    begin = ("init", "--admin", admin, "--role", "passworded")
    first = json.loads(terminal(*begin, "--password-file", "password", "--json"))
    assert first["ledger"] == str(server.address(name, "passworded"))
    monkeypatch.setenv("PGPASSWORD", SECRET)
    empty = f"{first['ledger']}: no dataset has a budget yet; `honestdp ledger set-budget` gives it one"
    assert empty in terminal("show", "--ledger", first["ledger"])
    moved = terminal("copy", str(full.path), first["ledger"])
    assert "a: 3 charges, the same in both" in moved
    assert "is read-only now" in moved
    given = Address(first["ledger"]).url.replace("passworded@", f"passworded:{SECRET}@")
    monkeypatch.setenv("HONESTDP_LEDGER", given)
    run = ("--records", "10", "--lot", "10", "--steps", "1", "--noise", "200")
    shown = terminal("show", "--dataset", "a")
    spent = terminal("spend", "--dataset", "a", *run, "--key", "new")
    intact = terminal("verify")
    assert f"9 entries in {first['ledger']}" in intact
    again = terminal(*begin)
    assert "made" not in again
    code, _, error = terminal.raw("show", "--ledger", given.replace(f"/{name}", "/nowhere"))
    assert (code, error.count("\n")) == (2, 1)
    for text in (str(first), moved, shown, spent, intact, again, error):
        assert SECRET not in text
    assert Address(first["ledger"]).with_password().url == given  # as a search takes it that is resumed by its command


@pytest.fixture
def charged_there(server: Server) -> Iterator[Any]:
    with server.ledger() as address:
        Ledger(address).set_budget("a", Budget(50.0, 1e-5))
        yield Address(address.url.replace("honestdp_ledger@", f"honestdp_ledger:{SECRET}@"))


def test_a_search_is_charged_on_a_server_and_its_files_know_no_password(charged_there: Address, tmp_path: Path) -> None:
    result = honestdp.tune(linear, clouds(), **WHOLE, ledger=charged_there.url, dataset="a", out=tmp_path / "out")
    assert result.balance is not None
    assert [entry.kind for entry in Ledger(charged_there).entries()] == ["budget", "charge", "over"]
    assert result.balance.head == Ledger(charged_there).entries()[1].hash
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in str(result)
