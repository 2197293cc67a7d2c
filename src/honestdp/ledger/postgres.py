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
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from honestdp.ledger import postgres_rules as rules
from honestdp.ledger import refusals
from honestdp.ledger.address import Address, Connection, connection, driver_of, said
from honestdp.ledger.chain import COLUMNS, Entry
from honestdp.ledger.chain import Transaction as Held

APART = 300.0  # seconds between this machine's clock and the server's, beyond which nothing is charged
LEAST_PATIENCE = 5.0  # seconds to find out about a commit, however short the timeout
ROW = f"SELECT {', '.join(COLUMNS)} FROM ONLY {rules.TABLE}"
_INSERT = f"INSERT INTO {rules.TABLE} ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"


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
            raise refusals.NotALedger(f"{self._place} is damaged: its table has {plain} entries, and its index others")

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
            raise refusals.MayDelete(
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
            raise refusals.ReadOnly(f"{self._place} is a standby, which is only read: charge its primary")
        if kept != "onon":
            raise refusals.NotDurable(
                f"{self._place} runs with fsync or full_page_writes off, and may forget charges when its machine stops: nothing "
                f"was charged; set both to on"
            )
        apart = datetime.now(UTC).timestamp() - now
        if abs(apart) > APART:
            ahead = "ahead of" if apart > 0 else "behind"
            raise refusals.ClocksDiffer(
                f"this machine's clock is {abs(apart):.0f} seconds {ahead} that of {self._place}: nothing was charged; set the "
                f"clock that is wrong (entries carry the server's time, and {APART:.0f} seconds between the two are let pass)"
            )

    def number(self) -> str:
        """The transaction's own, by which its fate can be asked later."""
        return str(self._connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0])

    def _begun(self) -> bool:
        self.check_role()
        self._check_schema()
        return True

    def _rows(self, after: int) -> Iterable[Sequence[Any]]:
        found: Iterable[Sequence[Any]] = self._connection.execute(
            f"{ROW} WHERE number > %s ORDER BY number", (after or -(2**63),)
        )
        return found

    def _check_schema(self) -> None:
        found = rules.present(self._connection)
        if not found:
            raise self._none()
        if names := rules.changed(found):
            raise refusals.BrokenChain(f"the rules of {self._place} were changed: {', '.join(names)}", entry=0)

    def _none(self) -> refusals.NoLedger:
        return refusals.NoLedger(f"{self._place} has no ledger: `honestdp ledger init` sets one up")

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
        with self._connection() as server:
            server.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield Transaction(server, self.address)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """The only writer until the block ends, durably; an exception leaves the ledger as it was."""
        lost = None
        with self._connection() as server:
            # Waited for outside of the transaction, which then sees what the last writer wrote, and held inside of it, so that
            # it is free with the commit even where nobody hears of that any more.
            server.execute("SELECT pg_advisory_lock(%s)", (rules.LOCK,))
            server.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            server.execute("SELECT pg_advisory_xact_lock(%s), pg_advisory_unlock(%s)", (rules.LOCK, rules.LOCK))
            transaction = Transaction(server, self.address)
            transaction.check_server()
            yield transaction
            if transaction.appended is not None:
                number = transaction.number()
                lost = self._committed(server)
        if transaction.appended is None:
            return
        if lost is None:
            self._confirm(transaction.appended)
        else:
            self._find_out(transaction.appended, number, lost)

    def _committed(self, server: Connection) -> str | None:
        """None when the server says that it is, the words of the failure where it cannot be known. A refusal is raised."""
        try:
            server.execute("COMMIT")
        except driver_of().Error as error:
            if (error.sqlstate or "")[:2] in ("23", "40"):
                raise
            return said(error, self.address)
        return None

    def _confirm(self, entry: Entry) -> None:
        """The server has said that it is committed. That it is also there is asked anew, if the server can still be asked."""
        with suppress(refusals.Unreachable, refusals.Locked), self.reading() as again:
            again.check_kept(entry)

    def _find_out(self, entry: Entry, number: str, lost: str) -> None:
        """Returns where the entry was committed after all, and raises Conflict where it surely was not."""
        limit = time.monotonic() + max(self.timeout, LEAST_PATIENCE)
        while True:
            answer = None
            with suppress(refusals.Unreachable, refusals.Locked), self._connection() as server:
                under_way = _status(server, number) == "in progress"  # asked first, for it may end meanwhile
                found = server.execute(f"{ROW} WHERE number = %s", (entry.number,)).fetchall()
                answer = True if found == [tuple(entry)] else None if under_way else False
            if answer:
                return
            if answer is False:
                raise refusals.Conflict(f"{self.address} lost its connection, and nothing was charged: try again")
            if time.monotonic() > limit:
                raise refusals.InDoubt(
                    f"{self.address} was lost while it committed entry {entry.number} ({lost}): it counts as charged, and "
                    f"nothing may be trained; the same call with the same key finds out whether it was, and charges once"
                )
            time.sleep(random.uniform(0.05, 0.2))

    def _connection(self) -> AbstractContextManager[Connection]:
        return connection(self.address, timeout=self.timeout)


def _status(server: Connection, number: str) -> str:
    """What became of a transaction. A server that crashed may not have heard of its number: nothing of it is left then."""
    driver = driver_of()
    try:
        return str(server.execute("SELECT pg_xact_status(%s::text::xid8)", (number,)).fetchone()[0])
    except driver.errors.DataError:
        return "unknown"
