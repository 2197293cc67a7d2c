"""What was written is what is read, or it is named: every column, every place, every rule of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from honestdp.ledger import BrokenChain, Ledger, LedgerError, NotALedger
from honestdp.ledger.chain import COLUMNS, GENESIS, Entry, canonical
from honestdp.ledger.store import SCHEMA
from tests.ledger.small_ledger import BUDGET, ledger_of, spending


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Six entries: two budgets and four charges."""
    ledger = ledger_of(tmp_path_factory.mktemp("whole"))
    ledger.set_budget("b", BUDGET)
    for number in range(4):
        ledger.charge("ab"[number % 2], spending(), key=f"key {number}", what=f"what {number}")
    return ledger.path.read_bytes()


@pytest.fixture
def ledger(tmp_path: Path, written: bytes) -> Ledger:
    path = tmp_path / "ledger.db"
    path.write_bytes(written)
    return Ledger(path)


@contextmanager
def unguarded(ledger: Ledger) -> Iterator[sqlite3.Connection]:
    """The file with its triggers away, and back again as they were: what a patient forger would do."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        triggers = {name: sql for name, sql in SCHEMA.items() if name != "entries"}
        for name in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for sql in triggers.values():
            connection.execute(sql)


@pytest.mark.parametrize("number", [1, 4, 6])
@pytest.mark.parametrize("column", COLUMNS[1:])
def test_a_changed_column_is_named(ledger: Ledger, column: str, number: int) -> None:
    with unguarded(ledger) as connection:
        connection.execute(f"UPDATE entries SET {column} = {column} || ' ' WHERE number = ?", (number,))
    for ask in (
        ledger.verify,
        ledger.entries,
        lambda: ledger.balance("a"),
        lambda: ledger.charge("a", spending(), key="n"),
    ):
        with pytest.raises(BrokenChain, match=f"entry {number} is broken") as raised:
            ask()
        assert raised.value.entry == number


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_changed_number_is_named(ledger: Ledger, number: int) -> None:
    with unguarded(ledger) as connection:
        connection.execute("UPDATE entries SET number = number + 100 WHERE number = ?", (number,))
    with pytest.raises(BrokenChain, match=f"entry {number} is missing"):
        ledger.verify()


@pytest.mark.parametrize("value", [b"\xff\xfe", 7, 1.5])
def test_a_value_of_another_type_is_named(ledger: Ledger, value: object) -> None:
    with unguarded(ledger) as connection:
        connection.execute("UPDATE entries SET what = CAST(? AS BLOB) WHERE number = 3", (value,))
    with pytest.raises(BrokenChain, match="entry 3 is broken"):
        ledger.verify()


def test_text_that_is_no_unicode_is_named(ledger: Ledger) -> None:
    with unguarded(ledger) as connection:
        connection.execute("UPDATE entries SET what = CAST(x'ff' AS TEXT) WHERE number = 3")
    with pytest.raises(BrokenChain, match="entry 3 is broken"):
        ledger.verify()


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_removed_entry_is_named(ledger: Ledger, number: int) -> None:
    with unguarded(ledger) as connection:
        connection.execute("DELETE FROM entries WHERE number = ?", (number,))
    with pytest.raises(BrokenChain, match=f"entry {number} is missing"):
        ledger.verify()


def test_a_removed_end_is_named(ledger: Ledger) -> None:
    with unguarded(ledger) as connection:
        connection.execute("DELETE FROM entries WHERE number >= 5")
    with pytest.raises(BrokenChain, match="entry 5 is missing: 6 entries were written and 4 are there"):
        ledger.verify()


def test_a_well_made_cut_is_seen_with_the_head_alone(ledger: Ledger) -> None:
    """Whoever also puts back the count of entries is seen by nobody who has not kept the head."""
    head, earlier = ledger.verify(), ledger.entries()[2].hash
    with unguarded(ledger) as connection:
        connection.execute("DELETE FROM entries WHERE number = 6")
        connection.execute("UPDATE sqlite_sequence SET seq = 5")
    ledger.verify()
    ledger.verify(head=earlier)
    with pytest.raises(BrokenChain, match="cut off"):
        ledger.verify(head=head)


def test_a_head_stays_valid_while_the_ledger_grows(ledger: Ledger) -> None:
    head = ledger.verify()
    ledger.charge("a", spending(), key="more")
    assert ledger.verify(head=head) != head


@pytest.mark.parametrize("seal", [False, True])
def test_an_entry_of_someone_elses_is_named(ledger: Ledger, seal: bool) -> None:
    """Swapped entries, and one that is sealed anew but does not follow from the one before."""
    entries = ledger.entries()
    forged = entries[3]._replace(content=entries[3].content.replace("200.0", "900.0"))
    forged = forged.sealed() if seal else forged
    with unguarded(ledger) as connection:
        connection.execute("UPDATE entries SET content = ?, hash = ? WHERE number = 4", (forged.content, forged.hash))
    with pytest.raises(BrokenChain) as raised:
        ledger.verify()
    assert raised.value.entry == (5 if seal else 4)


def test_the_triggers_refuse_every_change(ledger: Ledger) -> None:
    before = ledger.entries()
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        rest = "what, content, previous, hash FROM entries WHERE number = 3"
        for statement in (
            "UPDATE entries SET what = 'nothing' WHERE number = 3",
            "DELETE FROM entries WHERE number = 6",
            "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE number = 3",
            f"REPLACE INTO entries SELECT 7, time, dataset, kind, key, {rest}",
            f"INSERT INTO entries SELECT 9, time, dataset, kind, 'new', {rest}",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="an entry of a ledger is"):
                connection.execute(statement)
    assert ledger.entries() == before


@pytest.mark.parametrize("name", [name for name in SCHEMA if name != "entries"])
def test_a_missing_trigger_is_named(ledger: Ledger, name: str) -> None:
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute(f"DROP TRIGGER {name}")
        connection.commit()
    for ask in (ledger.verify, lambda: ledger.charge("a", spending(), key="n")):
        with pytest.raises(BrokenChain, match=f"rules of .* were changed: {name}"):
            ask()


@pytest.mark.parametrize(
    ("kind", "dataset", "content", "wrong"),
    [
        ("charge", "nobody", canonical(spending().as_dict()), "without a budget"),
        ("gift", "a", "{}", "its kind is 'gift'"),
        ("charge", "a", '{"version":2}', "newer honestdp"),
        ("charge", "a", "[1]", "cannot be read"),
        ("budget", "c", '{"delta":2.0,"epsilon":1.0,"version":1}', "cannot be read"),
        ("budget", "c", "nonsense", "cannot be read"),
    ],
)
def test_an_entry_that_follows_but_makes_no_sense_is_named(
    ledger: Ledger, kind: str, dataset: str, content: str, wrong: str
) -> None:
    with ledger._store.writing() as transaction:
        transaction.append(dataset=dataset, kind=kind, key="x", what="", content=content)
    with pytest.raises(BrokenChain, match=wrong) as raised:
        ledger.verify()
    assert raised.value.entry == 7


def test_a_file_of_another_version_is_refused(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
    with pytest.raises(NotALedger, match="version 2"):
        ledger.charge("a", spending(), key="n")


def test_damaged_bytes_never_pass_and_never_crash(ledger: Ledger, tmp_path: Path) -> None:
    """Every place of the file where entries, indices and headers live, overwritten: an error of ours, or nothing was lost."""
    whole, entries = ledger.path.read_bytes(), ledger.entries()
    damaged = Ledger(tmp_path / "damaged.db")
    refused = 0
    for start in range(0, len(whole), 127):
        damaged.path.write_bytes(whole[:start] + b"\x5a" * 32 + whole[start + 32 :])
        try:
            damaged.verify()
        except LedgerError:
            refused += 1
            with pytest.raises(LedgerError):
                damaged.verify()
        else:
            assert damaged.entries() == entries
    assert refused > 20


def test_a_truncated_file_is_refused(ledger: Ledger) -> None:
    whole = ledger.path.read_bytes()
    for size in (100, 4096, len(whole) // 2, len(whole) - 4096):
        ledger.path.write_bytes(whole[:size])
        with pytest.raises(LedgerError):
            ledger.verify()
        with pytest.raises(LedgerError):
            ledger.charge("a", spending(), key="n")


def test_the_hash_is_over_every_column() -> None:
    entry = Entry(number=1, time="t", dataset="d", kind="k", key="y", what="w", content="c", previous=GENESIS).sealed()
    for column in COLUMNS[:-1]:
        changed = 2 if column == "number" else "other"
        assert entry._replace(**{column: changed}).digest() != entry.hash
