"""The file of a ledger: SQLite, one file, any number of processes.

A commit has reached the disk when it returns. With a rollback journal, synchronous=EXTRA makes that so: the database is
synced, the journal removed, and the folder synced after, for a journal that came back after a power loss would undo the charge.
Writers take SQLite's lock before they read what they build upon. Triggers refuse to change or remove an entry, or to add one
anywhere but at the end; AUTOINCREMENT remembers how many there ever were.

The file's tables, indices, views and triggers must be exactly ours, by name and by text, at every use. A file that was switched
to a write-ahead log, which would leave a copy of it without its last entries, is switched back.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from honestdp.files import opened
from honestdp.ledger.address import Place
from honestdp.ledger.chain import COLUMNS, Entry
from honestdp.ledger.chain import Transaction as Held
from honestdp.ledger.refusals import BrokenChain, LedgerError, Locked, NoLedger, NotALedger, ReadOnly

if TYPE_CHECKING:
    from honestdp.ledger.postgres import Store as PostgresStore

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
# All of sqlite_master, what SQLite adds by itself included: type, name, table and text.
MASTER = frozenset(
    {
        ("table", "sqlite_sequence", "sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)"),
        ("index", "sqlite_autoindex_entries_1", "entries", None),
        *(("table" if name == "entries" else "trigger", name, "entries", sql) for name, sql in SCHEMA.items()),
    }
)
ROW = f"SELECT {', '.join(COLUMNS)} FROM main.entries"


class Transaction(Held):
    """The file, while it is held."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(path)
        self._connection = connection
        self._path = path

    def check_pages(self) -> None:
        """SQLite's own check of its pages and indices."""
        found = self._connection.execute("PRAGMA main.integrity_check(1)").fetchone()
        if found != ("ok",):
            said = " ".join(str(found[0]).split()) if found else "its pages cannot be checked"
            raise NotALedger(f"{self._path} is damaged: {said}")

    def _begun(self) -> bool:
        application = self._number("PRAGMA main.application_id")
        if application == 0 and not self._number("SELECT count(*) FROM main.sqlite_master"):
            return False
        if application != APPLICATION:
            raise NotALedger(f"{self._path} is an SQLite file, but not a ledger of honestdp")
        version = self._number("PRAGMA main.user_version")
        if version != VERSION:
            raise NotALedger(f"{self._path} has version {version}; this honestdp knows version {VERSION}")
        self._check_schema()
        return True

    def _rows(self, after: int) -> Iterable[Sequence[Any]]:
        return self._connection.execute(f"{ROW} WHERE number > ? ORDER BY number", (after or -(2**63),))

    def _count(self) -> int | None:
        return self._written()

    def _row(self, number: int) -> list[tuple[object, ...]]:
        return self._connection.execute(f"{ROW} WHERE number = ?", (number,)).fetchall()

    def _insert(self, *entries: Entry) -> None:
        statement = f"INSERT INTO main.entries ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
        for entry in entries:
            self._connection.execute(statement, tuple(entry))

    def _now(self) -> str:
        return datetime.now(UTC).isoformat(timespec="seconds")

    def _begin(self) -> None:
        for statement in SCHEMA.values():
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA main.application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA main.user_version = {VERSION}")

    def _check_schema(self) -> None:
        present = self._connection.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master").fetchall()
        changed = {str(row[1]) for row in MASTER ^ set(present)}
        if changed or len(present) != len(MASTER):
            names = ", ".join(sorted(changed)) or "some of them are there twice"
            raise BrokenChain(f"the rules of {self._path} were changed: {names}", entry=0)

    def _written(self) -> int:
        """SQLite's count of the entries that there ever were."""
        found = self._connection.execute("SELECT name, seq FROM main.sqlite_sequence").fetchall()
        if len(found) != 1 or found[0][0] != "entries" or type(found[0][1]) is not int:
            raise BrokenChain(f"the count of the entries of {self._path} was changed", entry=0)
        return int(found[0][1])

    def _number(self, query: str) -> int:
        found = self._connection.execute(query).fetchone()
        if not found or type(found[0]) is not int:
            raise NotALedger(f"{self._path} is damaged: it has no answer to {query}")
        return int(found[0])


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
        with self._connection("BEGIN") as connection:
            yield Transaction(connection, self.path)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """The only writer until the block ends, durably; an exception leaves the file as it was."""
        self._check_file(write=True)
        with self._connection("BEGIN IMMEDIATE") as connection:
            try:
                self._check_file(
                    write=True
                )  # again: a copy may have closed it while this waited, and its handle still writes
                transaction = Transaction(connection, self.path)
                yield transaction
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        if transaction.appended is not None:
            self._confirm(transaction.appended)

    def _confirm(self, entry: Entry) -> None:
        try:
            with self.reading() as again:
                again.check_kept(entry)
        except Locked:
            raise Locked(
                f"entry {entry.number} was written to {self.path}, but another process kept it locked for {self.timeout:g} "
                f"seconds and it could not be read back: try again with the same key"
            ) from None

    def exists(self) -> bool:
        return self.path.exists()

    def create(self) -> None:
        """An empty file that its owner alone can read, unless there is one."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise ReadOnly(f"{self.path} cannot be created: {error.strerror}") from None
        with opened(self.path.parent) as folder:
            os.fsync(folder)

    def _check_file(self, *, write: bool = False) -> None:
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            raise NoLedger(f"{self.path} does not exist: `honestdp ledger set-budget` begins a ledger") from None
        except (OSError, ValueError) as error:
            raise ReadOnly(f"{self.path} cannot be opened: {getattr(error, 'strerror', error)}") from None
        if not stat.S_ISREG(mode):
            raise NotALedger(f"{self.path} is not a file")
        if write and not stat.S_IMODE(mode) & 0o222:
            raise ReadOnly(f"{self.path} is read-only: nothing can be charged to it")

    @contextmanager
    def _connection(self, begin: str) -> Iterator[sqlite3.Connection]:
        self._check_file()
        address = self.path.absolute().as_uri() + "?mode=rw"
        try:
            connection = sqlite3.connect(address, uri=True, timeout=self.timeout, isolation_level=None)
            with closing(connection):
                connection.text_factory = lambda text: text.decode("utf-8", errors="replace")
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("PRAGMA cell_size_check = ON")
                self._keep_one_file(connection)
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA fullfsync = ON")
                connection.execute(begin)
                connection.execute("SELECT 1 FROM main.sqlite_master").fetchone()  # from here on nobody can switch it
                if self._journal(connection) != "delete":
                    raise Locked(f"{self.path} was switched to another kind of journal meanwhile: try again")
                yield connection
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except (MemoryError, UnicodeDecodeError) as error:  # a size that cannot be, a name in SQLite's own error
            raise NotALedger(f"{self.path} is damaged: it holds sizes or names that cannot be") from error

    def _keep_one_file(self, connection: sqlite3.Connection) -> None:
        """A rollback journal, whatever the file was switched to: with a write-ahead log, the last entries are in another file."""
        if self._journal(connection) != "delete" and self._journal(connection, " = DELETE") != "delete":
            raise NotALedger(
                f"{self.path} is kept with a write-ahead log, so that copies of it may be incomplete, and cannot be switched "
                f"back: close every other program that uses it and try again"
            )

    def _journal(self, connection: sqlite3.Connection, change: str = "") -> str:
        found = connection.execute(f"PRAGMA main.journal_mode{change}").fetchone()
        return str(found[0]) if found else ""

    def _translated(self, error: sqlite3.Error) -> LedgerError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            waited = f"{self.path} was locked by another process for {self.timeout:g} seconds"
            return Locked(f"{waited}: nothing was charged, try again")
        if code == sqlite3.SQLITE_READONLY:
            return ReadOnly(f"{self.path} is read-only: nothing can be charged to it")
        if code == sqlite3.SQLITE_NOTADB:
            return NotALedger(f"{self.path} is not a ledger: it is no SQLite file")
        if code == sqlite3.SQLITE_CANTOPEN:
            return ReadOnly(f"{self.path} cannot be opened, or its folder cannot be written")
        said = " ".join(str(error).split())
        return NotALedger(f"{self.path} cannot be read or written as a ledger: {said}")


def store_of(place: Place, *, timeout: float) -> Store | PostgresStore:
    """Of a file, or of a server."""
    if isinstance(place, Path):
        return Store(place, timeout=timeout)
    from honestdp.ledger.postgres import Store as OnServer

    return OnServer(place, timeout=timeout)
