"""Someone with an SQLite shell: triggers, views, journals, second budgets, damage. A charge is kept, or an error says why not."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from honestdp import Budget
from honestdp.ledger import BrokenChain, Ledger, LedgerError, Locked, NotALedger, ReadOnly
from honestdp.ledger.account import accounts
from honestdp.ledger.chain import COLUMNS, Entry, canonical
from honestdp.ledger.store import Store, Transaction
from tests.ledger.small_ledger import BUDGET, ledger_of, spending

FLIPS = 400


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Every kind of entry."""
    ledger = ledger_of(tmp_path_factory.mktemp("whole"))
    ledger.set_budget("b", BUDGET)
    for key in ("1", "2"):
        ledger.charge("a", spending(), key=key, what="what")
    ledger.resume("a", key="1", token="t", after="")
    ledger.end("a", key="1")
    return ledger.path.read_bytes()


@pytest.fixture
def ledger(tmp_path: Path, written: bytes) -> Ledger:
    path = tmp_path / "ledger.db"
    path.write_bytes(written)
    return Ledger(path, timeout=0.2)


def everything(ledger: Ledger) -> list[Callable[[], Any]]:
    """All that can be asked of a ledger."""
    return [
        ledger.verify,
        ledger.entries,
        ledger.datasets,
        ledger.export,
        lambda: ledger.balance("a"),
        lambda: ledger.charges("a"),
        lambda: ledger.charge("a", spending(), key="new"),
        lambda: ledger.set_budget("new", BUDGET),
        lambda: ledger.resume("a", key="2", token="new", after=""),
        lambda: ledger.end("a", key="2"),
    ]


def shell(ledger: Ledger, *statements: str) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def forged(ledger: Ledger, **columns: str) -> None:
    """An entry with a hash that fits, put at the end by hand."""
    last = ledger.entries()[-1]
    values = {"time": last.time, "dataset": "a", "kind": "budget", "key": "x", "what": "", "content": "{}", **columns}
    entry = Entry(number=last.number + 1, previous=last.hash, **values).sealed()  # type: ignore[arg-type]
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", tuple(entry))


def test_a_second_budget_is_a_broken_chain_for_everyone(ledger: Ledger) -> None:
    head = ledger.verify()
    forged(ledger, content=canonical({"version": 1, "epsilon": 1000.0, "delta": 1e-6}))
    for ask in [*everything(ledger), lambda: ledger.verify(head=head)]:
        with pytest.raises(BrokenChain, match=r"entry 7 is broken: .*a budget is set once"):
            ask()


def test_a_second_budget_equal_to_the_first_is_one_too_many(ledger: Ledger) -> None:
    forged(ledger, content=ledger.entries()[0].content)
    with pytest.raises(BrokenChain, match="a budget is set once"):
        ledger.balance("a")


def test_a_key_charged_twice_is_a_broken_chain(ledger: Ledger) -> None:
    """SQLite's index would refuse it, if nobody had changed the index."""
    charge = ledger.entries()[2]
    shell(ledger, "PRAGMA writable_schema = ON", "DELETE FROM sqlite_master WHERE name = 'entries_are_appended'")
    again = "SELECT 7, time, dataset, kind, key, what, content, previous, hash FROM entries WHERE number = 3"
    with pytest.raises(sqlite3.IntegrityError):
        shell(ledger, f"INSERT INTO entries {again}")
    with pytest.raises(BrokenChain, match="the rules of"):
        ledger.verify()
    with pytest.raises(BrokenChain, match="was charged before"):
        accounts([*ledger_entries(ledger), charge._replace(number=7)])


def ledger_entries(ledger: Ledger) -> list[Entry]:
    with closing(sqlite3.connect(ledger.path)) as connection:
        return [Entry._make(row) for row in connection.execute("SELECT * FROM entries ORDER BY number")]


@pytest.mark.parametrize("name", ["sqliteX", "sqlite1swallow", "SQLITEx", "other", "entries_are_appended2"])
@pytest.mark.parametrize(
    "thing",
    [
        "TRIGGER {} BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
        "TRIGGER {} AFTER INSERT ON entries BEGIN UPDATE sqlite_sequence SET seq = 0; END",
        "TABLE {} (a)",
        "VIEW {} AS SELECT * FROM entries",
        "INDEX {} ON entries (what)",
        "VIRTUAL TABLE {} USING fts3(a)",
    ],
)
def test_anything_more_in_the_file_is_named_at_every_use(ledger: Ledger, name: str, thing: str) -> None:
    before = ledger.entries()
    shell(ledger, "CREATE " + thing.format(name))
    for ask in everything(ledger):
        with pytest.raises(BrokenChain, match=f"rules of .* were changed: .*{name}"):
            ask()
    assert ledger_entries(ledger) == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sqlite_master SET sql = replace(sql, 'never changed', 'seldom changed')",
        "UPDATE sqlite_master SET sql = replace(sql, 'what TEXT NOT NULL', 'what TEXT') WHERE name = 'entries'",
        "UPDATE sqlite_master SET sql = sql || ' ' WHERE name = 'entries_are_not_removed'",
        "UPDATE sqlite_master SET name = 'Entries_are_not_removed' WHERE name = 'entries_are_not_removed'",
        "UPDATE sqlite_master SET tbl_name = 'ENTRIES' WHERE name = 'entries_are_not_removed'",
        "DELETE FROM sqlite_master WHERE name = 'entries_are_not_removed'",
        "DELETE FROM sqlite_master WHERE name LIKE 'sqlite_autoindex%'",
        "DELETE FROM sqlite_master WHERE name = 'sqlite_sequence'",
        "DELETE FROM sqlite_master WHERE name = 'entries'",
        "DELETE FROM sqlite_master",
        "UPDATE sqlite_master SET sql = 'nonsense'",
        "UPDATE sqlite_master SET sql = NULL",
        "UPDATE sqlite_master SET type = 'view' WHERE name = 'entries'",
        "UPDATE sqlite_master SET rootpage = 4711",
        "UPDATE sqlite_master SET rootpage = 2",
        "UPDATE sqlite_master SET name = CAST(x'ff00fe' AS TEXT) WHERE name = 'entries_are_appended'",
        "INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = 'entries_are_appended'",
        "UPDATE sqlite_master SET sql = 'CREATE TABLE entries(number INTEGER PRIMARY KEY AUTOINCREMENT, time, dataset, kind, "
        "key, what, content, previous, hash AS (what))' WHERE name = 'entries'",
    ],
)
def test_a_changed_or_damaged_schema_is_an_error_in_words(ledger: Ledger, change: str) -> None:
    shell(ledger, "PRAGMA writable_schema = ON", change)
    for ask in everything(ledger):
        with pytest.raises(LedgerError):
            ask()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sqlite_sequence SET seq = 5",
        "UPDATE sqlite_sequence SET seq = 7",
        "UPDATE sqlite_sequence SET seq = 'six'",
        "UPDATE sqlite_sequence SET seq = NULL",
        "UPDATE sqlite_sequence SET seq = 6.5",
        "UPDATE sqlite_sequence SET name = 'others'",
        "DELETE FROM sqlite_sequence",
        "INSERT INTO sqlite_sequence VALUES ('entries', 6)",
    ],
)
def test_a_changed_count_is_an_error_in_words(ledger: Ledger, change: str) -> None:
    shell(ledger, change)
    for ask in everything(ledger):
        with pytest.raises(BrokenChain):
            ask()


def test_a_charge_that_is_swallowed_is_no_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where nobody looks at the rules, what was not kept is noticed before the commit."""
    shell(ledger, "CREATE TRIGGER swallow BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END")
    monkeypatch.setattr(Transaction, "_check_schema", lambda self: None)
    with pytest.raises(BrokenChain, match=r"entry 7 was written .* and is not there"):
        ledger.charge("a", spending(), key="new")


def test_a_charge_that_is_changed_on_its_way_is_no_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    shell(
        ledger,
        "DROP TRIGGER entries_are_not_changed",
        "CREATE TRIGGER rewrite AFTER INSERT ON entries BEGIN "
        "UPDATE entries SET content = replace(content, '200.0', '900.0') WHERE number = NEW.number; END",
    )
    monkeypatch.setattr(Transaction, "_check_schema", lambda self: None)
    with pytest.raises(BrokenChain, match=r"entry 7 was written .* and is not there"):
        ledger.charge("a", spending(), key="new")
    assert len(ledger_entries(ledger)) == 6


def test_a_charge_that_is_gone_after_the_commit_is_no_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is put back between the commit and the look at it: a disk that forgets, or a rival with a copy."""
    whole, confirm = ledger.path.read_bytes(), Store._confirm

    def put_back(self: Store, entry: Entry) -> None:
        self.path.write_bytes(whole)
        confirm(self, entry)

    monkeypatch.setattr(Store, "_confirm", put_back)
    with pytest.raises(BrokenChain, match=r"entry 7 was written .* and is not there"):
        ledger.charge("a", spending(), key="new")


def test_a_charge_that_cannot_be_read_back_says_that_it_was_written(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm, rivals = Store._confirm, []

    def locked(self: Store, entry: Entry) -> None:
        rivals.append(sqlite3.connect(self.path, isolation_level=None))
        rivals[0].execute("BEGIN EXCLUSIVE")
        confirm(self, entry)

    monkeypatch.setattr(Store, "_confirm", locked)
    with pytest.raises(Locked, match=r"was written .* try again with the same key"):
        ledger.charge("a", spending(), key="new")
    rivals[0].close()
    monkeypatch.setattr(Store, "_confirm", confirm)
    assert not ledger.charge("a", spending(), key="new").charged


def test_a_write_ahead_log_is_put_back_into_the_file(ledger: Ledger, tmp_path: Path) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    assert ledger.balance("a").charges == 2  # a reader is enough
    assert ledger.path.read_bytes()[18:20] == b"\x01\x01"  # the header's word for a rollback journal
    ledger.charge("a", spending(), key="new")
    copy = Ledger(tmp_path / "copy.db")
    shutil.copyfile(ledger.path, copy.path)
    assert copy.balance("a").charges == 3
    assert [file.name for file in tmp_path.iterdir() if "-" in file.name] == []


def test_entries_left_in_a_write_ahead_log_are_not_lost(ledger: Ledger, tmp_path: Path) -> None:
    """A crash in that mode leaves ledger.db-wal beside the file: it belongs to it."""
    rival = sqlite3.connect(ledger.path, isolation_level=None)
    rival.execute("PRAGMA journal_mode = WAL")
    last = ledger_entries(ledger)[-1]
    entry = last._replace(number=7, kind="charge", key="in the log", previous=last.hash)
    entry = entry._replace(content=canonical(spending().as_dict())).sealed()
    rival.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", tuple(entry))
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in tmp_path.glob("ledger.db*"):
        shutil.copyfile(file, crashed / file.name)
    rival.close()
    assert (crashed / "ledger.db-wal").stat().st_size > 0
    again = Ledger(crashed / "ledger.db")
    assert again.charge("a", spending(), key="new").charges == 4
    assert [file.name for file in crashed.iterdir()] == ["ledger.db"]


def test_a_write_ahead_log_in_use_is_refused_in_words(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as rival:
        rival.execute("PRAGMA journal_mode = WAL")
        rival.execute("SELECT * FROM entries").fetchall()
        for ask in everything(ledger):
            with pytest.raises((Locked, NotALedger)):
                ask()
    assert ledger.charge("a", spending(), key="new").charged


def test_a_switch_while_the_file_is_being_opened_is_noticed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Store._keep_one_file

    def switched(self: Store, connection: sqlite3.Connection) -> None:
        keep(self, connection)
        shell(ledger, "PRAGMA journal_mode = WAL")

    monkeypatch.setattr(Store, "_keep_one_file", switched)
    with pytest.raises(Locked, match="switched to another kind of journal"):
        ledger.charge("a", spending(), key="new")


def test_junk_beside_the_file_does_no_harm(ledger: Ledger) -> None:
    for ending in ("-wal", "-shm", "-journal"):
        ledger.path.with_name(ledger.path.name + ending).write_bytes(b"junk" * 100)
    assert ledger.charge("a", spending(), key="new").charges == 3
    ledger.verify()


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "1e999",
        "NaN",
        '"\\ud800"',
        "1" * 5000,
        '{"version":1,"epsilon":1e999,"delta":1e-6}',
        '{"version":1,"epsilon":' + "9" * 400 + ',"delta":1e-6}',
        '{"version":1,"epsilon":[],"delta":{}}',
        "null",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["budget", "charge", "resume", "over"])
def test_any_content_that_cannot_be_read_is_named(ledger: Ledger, kind: str, content: str) -> None:
    dataset, key = ("c", "") if kind == "budget" else ("a", "2" if kind == "over" else "9")
    forged(ledger, kind=kind, dataset=dataset, key=key, content=content)
    for ask in everything(ledger):
        with pytest.raises(BrokenChain, match=r"entry 7"):
            ask()


def test_numbers_beyond_all_numbers_are_no_crash(ledger: Ledger) -> None:
    huge = spending().as_dict()
    huge["runs"][0]["steps"] = 10**400
    forged(ledger, kind="charge", key="9", content=canonical(huge))
    for ask in (lambda: ledger.charge("a", spending(), key="new"), lambda: ledger.balance("a")):
        with pytest.raises(LedgerError, match="entry 7 cannot be read"):
            ask()


@pytest.mark.slow
def test_flipped_bits_are_an_error_in_words_or_change_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """One to three bits anywhere in the file. An answer is the right one, or an error of ours; never anything else."""
    chance = random.Random(11)
    whole, entries = ledger.path.read_bytes(), ledger.entries()
    damaged = Ledger(tmp_path / "damaged.db", timeout=0.2)
    refused, several = 0, False
    for _ in range(FLIPS):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data)) if chance.random() < 0.5 else chance.randrange(1200)
            data[place] ^= 1 << chance.randrange(8)
        damaged.path.write_bytes(data)
        for ask in (damaged.verify, lambda: damaged.charge("a", spending(), key="new")):
            try:
                ask()
            except LedgerError as error:
                refused += 1
                several = several or "\n" in str(error)
        try:
            found = damaged.entries()
        except LedgerError:
            continue
        finally:
            for ending in ("-wal", "-shm", "-journal"):
                damaged.path.with_name(damaged.path.name + ending).unlink(missing_ok=True)
        assert found[: len(entries)] == entries
    assert refused > FLIPS / 10
    assert not several, "an error is one line"


@pytest.mark.parametrize("size", [0, 1, 15, 16, 99, 100, 512, 1000, 4095, 4096, 4097, 8192])
def test_a_file_cut_anywhere_is_an_error_in_words(ledger: Ledger, size: int) -> None:
    ledger.path.write_bytes(ledger.path.read_bytes()[:size])
    for ask in (ledger.verify, lambda: ledger.charge("a", spending(), key="new"), lambda: ledger.balance("a")):
        with pytest.raises(LedgerError):
            ask()


def test_a_folder_that_may_not_be_entered_is_an_error_in_words(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, **_: Any) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(ReadOnly, match="Permission denied"):
        ledger.balance("a")


def test_entries_known_from_a_moment_ago_are_read_anew_where_the_file_was_replaced(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The charge is built upon what is in the file under the lock, and not upon what was read before it."""
    entries = ledger.entries()
    other = Ledger(tmp_path / "other.db")
    other.set_budget("z", Budget(1.0, 1e-6))
    for number in range(8):
        other.charge("z", spending(), key=str(number))
    with other._store.reading() as transaction:
        assert transaction.entries(known=entries) == other.entries()
