"""The file of a ledger: SQLite, one file, any number of processes.

A commit has reached the disk when it returns. With a rollback journal, synchronous=EXTRA makes that so: the database is
synced, the journal removed, and the folder synced after, for a journal that came back after a power loss would undo the charge.
Writers take SQLite's lock before they read what they build upon. Triggers refuse to change or remove an entry, or to add one
anywhere but at the end; AUTOINCREMENT remembers how many there ever were.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from honestdp.ledger.chain import COLUMNS, GENESIS, Entry, verified
from honestdp.ledger.errors import BrokenChain, LedgerError, Locked, NoLedger, NotALedger, ReadOnly

APPLICATION = 0x68647031  # "hdp1", in the header of the file
VERSION = 1
SCHEMA = {
    "entries": """CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    dataset TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    what TEXT NOT NULL,
    content TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (dataset, kind, key))""",
    "entries_are_not_changed": """CREATE TRIGGER entries_are_not_changed BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never changed'); END""",
    "entries_are_not_removed": """CREATE TRIGGER entries_are_not_removed BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never removed'); END""",
    "entries_are_appended": """CREATE TRIGGER entries_are_appended BEFORE INSERT ON entries
    WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM entries)
    OR EXISTS (SELECT 1 FROM entries WHERE dataset = NEW.dataset AND kind = NEW.kind AND key = NEW.key)
    BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is only ever appended'); END""",
}


class Transaction:
    """What can be done with the file while it is held."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def entries(self) -> list[Entry]:
        """All entries, verified."""
        application = self._number("PRAGMA application_id")
        if application == 0 and not self._number("SELECT count(*) FROM sqlite_master"):
            return []
        if application != APPLICATION:
            raise NotALedger(f"{self._path} is an SQLite file, but not a ledger of honestdp")
        version = self._number("PRAGMA user_version")
        if version != VERSION:
            raise NotALedger(f"{self._path} has version {version}; this honestdp knows version {VERSION}")
        self._check_schema()
        rows = self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM entries ORDER BY number").fetchall()
        written = self._number("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'")
        return verified(rows, written=written)

    def append(self, *, dataset: str, kind: str, key: str, what: str, content: str, time: str | None = None) -> Entry:
        """Adds an entry at the end of the chain, beginning the ledger where there is none. Without a time: now."""
        entries = self.entries()
        if not entries:
            self._begin()
        entry = Entry(
            number=len(entries) + 1,
            time=datetime.now(UTC).isoformat(timespec="seconds") if time is None else time,
            dataset=dataset,
            kind=kind,
            key=key,
            what=what,
            content=content,
            previous=entries[-1].hash if entries else GENESIS,
        ).sealed()
        places = ", ".join("?" * len(COLUMNS))
        self._connection.execute(f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({places})", entry.row())
        return entry

    def check_pages(self) -> None:
        """SQLite's own check of its pages and indices."""
        (found,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise NotALedger(f"{self._path} is damaged: {found}")

    def _begin(self) -> None:
        for statement in SCHEMA.values():
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def _check_schema(self) -> None:
        present = dict(self._connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
        changed = sorted(name for name in {*present, *SCHEMA} if present.get(name) != SCHEMA.get(name))
        if changed:
            raise BrokenChain(f"the rules of {self._path} were changed: {', '.join(changed)}", entry=0)

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])


class Store:
    """The file. Connections are made anew for each use, so that processes and threads share nothing but the file."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        self.path = path
        self.timeout = timeout

    def entries(self) -> list[Entry]:
        with self.reading() as transaction:
            return transaction.entries()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One view of the file, which no writer changes."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            yield Transaction(connection, self.path)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """The only writer until the block ends, durably; an exception leaves the file as it was."""
        if self.path.exists() and not stat.S_IMODE(self.path.stat().st_mode) & 0o222:
            raise ReadOnly(f"{self.path} is read-only: nothing can be charged to it")
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(connection, self.path)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def create(self) -> None:
        """An empty file that its owner alone can read, unless there is one."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise ReadOnly(f"{self.path} cannot be created: {error.strerror}") from None
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise NoLedger(f"{self.path} does not exist: `honestdp ledger set-budget` begins a ledger")
        if not self.path.is_file():
            raise NotALedger(f"{self.path} is not a file")
        address = self.path.absolute().as_uri() + "?mode=rw"
        try:
            connection = sqlite3.connect(address, uri=True, timeout=self.timeout, isolation_level=None)
            with closing(connection):
                connection.text_factory = lambda text: text.decode("utf-8", errors="replace")
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA fullfsync = ON")
                connection.execute("PRAGMA trusted_schema = OFF")
                yield connection
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Locked(
                f"{self.path} was locked by another process for {self.timeout:g} seconds: nothing was charged, try again"
            )
        if code == sqlite3.SQLITE_READONLY:
            return ReadOnly(f"{self.path} is read-only: nothing can be charged to it")
        if code == sqlite3.SQLITE_NOTADB:
            return NotALedger(f"{self.path} is not a ledger: it is no SQLite file")
        if code == sqlite3.SQLITE_CANTOPEN:
            return ReadOnly(f"{self.path} cannot be opened, or its folder cannot be written")
        return NotALedger(f"{self.path} cannot be read or written as a ledger: {error}")
