"""A ledger on a PostgreSQL server: one for a team, on any number of machines.

A writer takes a lock that all writers take, so that they queue and do not collide, and then a serializable transaction; what is
right does not rest on the lock. It rests on the transaction, on the entry's number and on its key: the database takes each of
them once, so that two writers that believed the same chain cannot both have followed it.

A client that loses its server at the commit does not know whether it has charged. It asks by a new connection: the entry by its
own contents and the transaction by its number. There, it is charged; not there and not under way, nothing was, and the call
begins anew; no answer until the timeout, the entry counts as written (`InDoubt`) and nothing may be trained: the key finds out.

Entries carry the server's time. A commit is on the server's disk, and on those standbys that it waits for, when it returns;
a server that was told not to wait for disks (fsync off) is refused.
"""

from __future__ import annotations

import math
import os
import random
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from threading import Timer
from typing import Any
from urllib.parse import unquote

from honestdp.ledger import errors
from honestdp.ledger import postgres_rules as rules
from honestdp.ledger.address import Address
from honestdp.ledger.chain import COLUMNS, Entry, verified
from honestdp.ledger.transaction import Transaction as Held

APART = 300.0  # seconds between this machine's clock and the server's, beyond which nothing is charged
LOCK = 0x68647031  # "hdp1": the lock of all writers of a database's ledger
IDLE = 120  # seconds after which the server ends a session that is lost, and frees its lock
LEAST_PATIENCE = 5.0  # seconds to find out about a commit, however short the timeout
ROW = f"SELECT {', '.join(COLUMNS)} FROM ONLY {rules.TABLE}"
_INSERT = f"INSERT INTO {rules.TABLE} ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
_SESSION = """SELECT pg_catalog.set_config(name, value, false) FROM (VALUES
    ('search_path', 'pg_catalog'), ('lock_timeout', %(wait)s), ('statement_timeout', %(longest)s), ('TimeZone', 'UTC'),
    ('idle_in_transaction_session_timeout', %(idle)s), ('idle_session_timeout', %(idle)s),
    ('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit')
        OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local']) THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END)
) AS settings (name, value)"""


class Connection:
    """A connection whose every answer comes within the timeout, or not at all."""

    def __init__(self, connection: Any, *, longest: float) -> None:
        self._connection = connection
        self._longest = longest

    def execute(self, query: str, values: Any = None) -> Any:
        """A proxy, or a network, that swallows what is sent gives no error of its own: the socket is shut after a while."""
        limit = Timer(self._longest, self._shut)
        limit.daemon = True
        limit.start()
        try:
            return self._connection.execute(query, values)
        finally:
            limit.cancel()

    def many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(query, rows)

    def hashed(self, password: str, role: str) -> str:
        """As the server keeps it: what is said to the server may be logged."""
        return str(
            self._connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        )

    @property
    def version(self) -> int:
        return int(self._connection.info.server_version) // 10000

    def close(self) -> None:
        self._connection.close()

    def _shut(self) -> None:
        with suppress(Exception), socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def connected(address: Address, *, timeout: float) -> Connection:
    """A new connection, settled so that nothing of the role's or the database's own settings changes what is asked."""
    driver = _driver()
    patience = max(2, math.ceil(timeout))
    how = {"connect_timeout": patience, "application_name": "honestdp", "client_encoding": "utf8"}
    alive = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    if not _read_alike(driver, address):  # libpq's words would repeat parts of the address, which may be a password's
        raise errors.Unreachable(
            f"{address} is no address that PostgreSQL's library can read: write postgresql://USER@HOST:PORT/DATABASE, and the "
            f"password in ~/.pgpass, or in the address with %40 for @ and the like for every special character"
        )
    try:
        raw = driver.connect(address.url, autocommit=True, prepare_threshold=None, **how, **alive)
    except driver.Error as error:
        raise errors.Unreachable(
            f"{address} cannot be reached, and nothing was charged: {said(error, address)}"
        ) from None
    connection = Connection(raw, longest=timeout + LEAST_PATIENCE)
    if connection.version < rules.OLDEST:
        connection.close()
        raise errors.NotALedger(f"{address} is PostgreSQL {connection.version}: {rules.OLDEST} or newer is needed")
    milliseconds = str(max(1, round(timeout * 1000)))
    settings = {"wait": milliseconds, "longest": str(patience * 1000), "idle": str(IDLE * 1000)}
    try:
        connection.execute(_SESSION, settings)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_alike(driver: Any, address: Address) -> bool:
    """Whether libpq takes for the password what we take for it: else it takes some of it for a host or a name, and says so."""
    try:
        found = driver.conninfo.conninfo_to_dict(address.url).get("password")
    except driver.Error:
        return False
    return found in map(unquote, address.secrets) if found or address.has_password else True


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as lacking:
        raise errors.Unreachable(
            f"a ledger on PostgreSQL needs psycopg: install honestdp[postgres] ({lacking})"
        ) from None
    return psycopg


def said(error: Exception, address: Address) -> str:
    """The driver's words in one line, with nothing of a password."""
    text = " ".join(str(error).split()) or type(error).__name__
    for secret in address.secrets:
        text = text.replace(secret, "***")
    return text


class Transaction(Held):
    """The server's entries, in one transaction."""

    def __init__(self, connection: Connection, address: Address) -> None:
        super().__init__(address)
        self._connection = connection

    def check_pages(self) -> None:
        """A server checks its own pages; what can be asked here is that the index has what the table has."""
        self._connection.execute("SET LOCAL enable_indexscan = off")
        self._connection.execute("SET LOCAL enable_indexonlyscan = off")
        self._connection.execute("SET LOCAL enable_bitmapscan = off")
        (plain,) = self._connection.execute(f"SELECT count(*) FROM ONLY {rules.TABLE}").fetchone()
        if plain != len(self.entries()):
            raise errors.NotALedger(f"{self._place} is damaged: its table has {plain} entries, and its index others")

    def check_role(self) -> None:
        """That the database itself keeps this role from changing or removing an entry."""
        role, there = self._connection.execute(
            "SELECT session_user::text, EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = 'entries')",
            (rules.SCHEMA,),
        ).fetchone()
        if not there:
            raise self._none()
        if excess := rules.too_much(self._connection, role):
            raise errors.MayDelete(
                f"the role {role} {excess[0]} at {self._place}, so that nothing but its word keeps the entries: use a role that "
                f"may select and insert alone, as `honestdp ledger init` makes one; nothing was charged"
            )

    def check_server(self) -> None:
        """That what is committed here stays, and that its times are those of this machine."""
        (kept, standby, now) = self._connection.execute(
            "SELECT current_setting('fsync') || current_setting('full_page_writes'), pg_is_in_recovery(), "
            "extract(epoch FROM clock_timestamp())::float8"
        ).fetchone()
        if standby:
            raise errors.ReadOnly(f"{self._place} is a standby, which is only read: charge its primary")
        if kept != "onon":
            raise errors.NotDurable(
                f"{self._place} runs with fsync or full_page_writes off, and may forget charges when its machine stops: nothing "
                f"was charged; set both to on"
            )
        apart = datetime.now(UTC).timestamp() - now
        if abs(apart) > APART:
            ahead = "ahead of" if apart > 0 else "behind"
            raise errors.ClocksDiffer(
                f"this machine's clock is {abs(apart):.0f} seconds {ahead} that of {self._place}: nothing was charged; set the "
                f"clock that is wrong (entries carry the server's time, and {APART:.0f} seconds between the two are let pass)"
            )

    def number(self) -> str:
        """The transaction's own, by which its fate can be asked later."""
        return str(self._connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0])

    def _verified(self, known: Sequence[Entry]) -> list[Entry]:
        self.check_role()
        self._check_schema()
        if known and self._row(len(known)) != [tuple(known[-1])]:
            known = ()
        rows = self._connection.execute(f"{ROW} WHERE number > %s ORDER BY number", (len(known) or -(2**63),))
        return verified(rows, written=None, known=known)

    def _check_schema(self) -> None:
        found = rules.present(self._connection)
        if not found:
            raise self._none()
        if names := rules.changed(found):
            raise errors.BrokenChain(f"the rules of {self._place} were changed: {', '.join(names)}", entry=0)

    def _none(self) -> errors.NoLedger:
        return errors.NoLedger(f"{self._place} has no ledger: `honestdp ledger init` sets one up")

    def _begin(self) -> None:
        """The table is there, or nothing would have been read."""

    def _insert(self, *entries: Entry) -> None:
        if len(entries) == 1:
            self._connection.execute(_INSERT, tuple(entries[0]))
        else:
            self._connection.many(_INSERT, [tuple(entry) for entry in entries])

    def _row(self, number: int) -> list[tuple[object, ...]]:
        return list(self._connection.execute(f"{ROW} WHERE number = %s", (number,)).fetchall())

    def _written(self) -> int:
        """There is no count but the entries: who may not remove one cannot cut them off."""
        return int(self._connection.execute(f"SELECT coalesce(max(number), 0) FROM ONLY {rules.TABLE}").fetchone()[0])

    def _now(self) -> str:
        """By the server's clock, which is one for all clients."""
        (now,) = self._connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        return datetime.fromtimestamp(math.floor(now), UTC).isoformat(timespec="seconds")


class Store:
    """The server. Connections are made anew for each use, so that processes and threads share nothing but the server."""

    def __init__(self, address: Address, *, timeout: float) -> None:
        self.address = address
        self.timeout = timeout

    def exists(self) -> bool:
        return True  # or whatever is done next says so

    def create(self) -> None:
        """A ledger on a server is set up by its administrator."""

    def entries(self) -> list[Entry]:
        with self.reading() as transaction:
            return transaction.entries()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One view of the entries, which no writer changes."""
        with self._connection() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield Transaction(connection, self.address)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """The only writer until the block ends, durably; an exception leaves the ledger as it was."""
        lost = None
        with self._connection() as connection:
            # Waited for outside of the transaction, which then sees what the last writer wrote, and held inside of it, so that
            # it is free with the commit even where nobody hears of that any more.
            connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
            connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            connection.execute("SELECT pg_advisory_xact_lock(%s), pg_advisory_unlock(%s)", (LOCK, LOCK))
            transaction = Transaction(connection, self.address)
            transaction.check_server()
            yield transaction
            if transaction.appended is not None:
                number = transaction.number()
                lost = self._committed(connection)
        if transaction.appended is None:
            return
        if lost is None:
            self._confirm(transaction.appended)
        else:
            self._find_out(transaction.appended, number, lost)

    def _committed(self, connection: Connection) -> str | None:
        """None when the server says that it is, the words of the failure where it cannot be known. A refusal is raised."""
        try:
            connection.execute("COMMIT")
        except _driver().Error as error:
            if (error.sqlstate or "")[:2] in ("23", "40"):
                raise
            return said(error, self.address)
        return None

    def _confirm(self, entry: Entry) -> None:
        """The server has said that it is committed. That it is also there is asked anew, if the server can still be asked."""
        with suppress(errors.Unreachable), self.reading() as again:
            again.check_kept(entry)

    def _find_out(self, entry: Entry, number: str, lost: str) -> None:
        """Returns where the entry was committed after all, and raises Conflict where it surely was not."""
        limit = time.monotonic() + max(self.timeout, LEAST_PATIENCE)
        while True:
            with suppress(errors.Unreachable), self._connection() as connection:
                under_way = _status(connection, number) == "in progress"  # asked first, for it may end meanwhile
                found = connection.execute(f"{ROW} WHERE number = %s", (entry.number,)).fetchall()
                if found == [tuple(entry)]:
                    return
                if not under_way:
                    raise errors.Conflict(f"{self.address} lost its connection, and nothing was charged: try again")
            if time.monotonic() > limit:
                raise errors.InDoubt(
                    f"{self.address} was lost while it committed entry {entry.number} ({lost}): it counts as charged, and "
                    f"nothing may be trained; the same call with the same key finds out whether it was, and charges once"
                )
            time.sleep(random.uniform(0.05, 0.2))

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with closing(connected(self.address, timeout=self.timeout)) as connection:
                yield connection
        except _driver().Error as error:
            raise self._translated(error) from None

    def _translated(self, error: Any) -> errors.LedgerError:
        code, words = error.sqlstate or "", said(error, self.address)
        if code in ("40001", "40P01", "23505"):
            return errors.Conflict(
                f"{self.address} was charged by others all the time for {self.timeout:g} seconds: nothing was charged, try again"
            )
        if code in ("55P03", "57014"):
            return errors.Locked(
                f"{self.address} was locked by another process for {self.timeout:g} seconds: nothing was charged, try again"
            )
        if code in ("42501", "25006"):
            return errors.ReadOnly(f"{self.address} takes nothing from this role: {words}")
        if not code or code[:2] in ("08", "53", "57"):
            return errors.Unreachable(f"{self.address} was lost, and nothing was charged: {words}")
        return errors.NotALedger(f"{self.address} cannot be read or written as a ledger: {words}")


def _status(connection: Connection, number: str) -> str:
    """What became of a transaction. A server that crashed may not have heard of its number: nothing of it is left then."""
    driver = _driver()
    try:
        return str(connection.execute("SELECT pg_xact_status(%s::text::xid8)", (number,)).fetchone()[0])
    except driver.errors.DataError:
        return "unknown"
