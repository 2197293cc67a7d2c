"""`Address`: where a ledger on PostgreSQL is, and connections to it. It holds a password and never shows one.

A ledger is named by a path or by an address; `place_of` tells them apart. Whatever prints, logs, saves or raises with an address
does it through `str` or `repr`, and both are made of the parts that are known to be no secret: what is not on that list is left
out. Two addresses are equal where they look the same. Connections have settings of our own, give every answer in time, and
raise errors without passwords.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import quote, urlencode

from honestdp.budget import LEDGER_VARIABLE
from honestdp.checks import InvalidArgument
from honestdp.ledger import refusals

_SCHEME = re.compile(r"postgres(ql)?://", re.IGNORECASE)
_COLLAPSED = re.compile(r"postgres(ql)?:/", re.IGNORECASE)  # as pathlib makes it of an address
_ANY_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode", "target_session_attrs")
OLDEST = 14  # PostgreSQL's major version: the first with all the functions that are asked here
IDLE = 120  # seconds after which the server ends a session that is lost, and frees its lock
GRACE = 5.0  # seconds beyond the timeout after which an answer is not waited for any more
# A role may set all of these for itself (ALTER ROLE ... SET), and would lock out the team that charges by it, or change how the
# server writes the rules and the numbers that are compared here.
_SESSION = """SELECT pg_catalog.set_config(name, value, false) FROM (VALUES
    ('search_path', 'pg_catalog'), ('default_transaction_read_only', 'off'), ('quote_all_identifiers', 'off'),
    ('extra_float_digits', '1'), ('transaction_timeout', '0'), ('TimeZone', 'UTC'),
    ('lock_timeout', %(wait)s), ('statement_timeout', %(longest)s),
    ('idle_in_transaction_session_timeout', %(idle)s), ('idle_session_timeout', %(idle)s),
    ('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit')
        OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local']) THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END)
) AS settings (name, value) WHERE pg_catalog.current_setting(name, true) IS NOT NULL"""


class Address:
    """An address such as `postgresql://team@db.example/privacy`, as libpq reads it, with a password or without.

    parent: where searches are kept that are charged there and have no folder of their own: the current one.
    """

    parent = Path()

    def __init__(self, url: str) -> None:
        driver = driver_of()
        self._url = _SCHEME.sub("postgresql://", url, count=1)
        # A password with an @ or a slash that is not encoded would be read as a host or a name, which are shown.
        readable = url.count("@") <= 1 and "/" not in url.partition("://")[2].rpartition("@")[0]
        try:
            self._parts: dict[str, str] = driver.conninfo.conninfo_to_dict(self._url)
        except driver.Error:
            readable = False
        if not readable:
            raise refusals.Unreachable(
                "this is no address that PostgreSQL's library can read: write postgresql://USER@HOST:PORT/DATABASE, and the "
                "password in ~/.pgpass, or in the address with %40 for @ and the like for every special character"
            )

    @property
    def url(self) -> str:
        """All of it, with the password: for the connection alone."""
        return self._url

    @property
    def secrets(self) -> list[str]:
        """What an error of the driver must not repeat."""
        hidden = [value for name, value in self._parts.items() if name not in _SHOWN and value]
        return [*hidden, *map(quote, hidden)]

    def with_user(self, user: str) -> Address:
        """The same database as another user, who has to have a password of their own."""
        return Address(_shown(self._parts | {"user": user}))

    def with_password(self) -> Address:
        """This address, or the one that the environment names where the two differ by a password alone."""
        named = os.environ.get(LEDGER_VARIABLE, "")
        known = Address(named) if _SCHEME.match(named) else self
        return known if known == self and not self.secrets else self

    def absolute(self) -> Address:
        return self

    def __str__(self) -> str:
        return _shown(self._parts)

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Address) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


Place = Path | Address


def place_of(named: object, *, argument: str = "ledger") -> Place:
    """The path or the address that is meant. The error for anything else does not repeat what could hold a password."""
    if isinstance(named, Address):
        return named
    if not named or not isinstance(named, str | os.PathLike):
        wanted = f"the path of a ledger or its address postgresql://..., or left out with {LEDGER_VARIABLE} set"
        raise InvalidArgument(argument, named, wanted)
    text = os.fspath(named)
    if isinstance(text, str) and _SCHEME.match(text):
        return Address(text)
    if isinstance(text, str) and _COLLAPSED.match(text):
        wanted = "postgresql://USER@HOST/DATABASE with two slashes, as text: a Path takes one of them away"
        raise InvalidArgument(argument, "postgresql:/...", wanted)
    if isinstance(text, str) and (other := _ANY_SCHEME.match(text)):
        raise InvalidArgument(
            argument, f"{other[0]}...", "the path of a file, or an address postgresql://USER@HOST/DATABASE"
        )
    return Path(named)


def _shown(parts: dict[str, str]) -> str:
    """An address of the parts that are no secret: what is not a plain host and port is written as options."""
    left = {name: value for name, value in parts.items() if name in _SHOWN and value}
    user, base, host = (left.pop(name, "") for name in ("user", "dbname", "host"))
    if re.search(r"[/,:]", host):
        left, host = {"host": host, **left}, ""
    port = f":{left.pop('port')}" if host and "port" in left else ""
    options = "?" + urlencode(left, safe="/,:") if left else ""
    return f"postgresql://{quote(user, safe='')}{'@' if user else ''}{host}{port}/{quote(base, safe='')}{options}"


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


# By the server's words, for libpq has no code of an error that comes before the login; in another language they stand alone.
_WAYS_OUT = {
    "password": "the password is taken from the address, from PGPASSWORD or from ~/.pgpass",
    "role ": "`honestdp ledger init` makes the role that charges",
    "database ": "make the database first, with createdb, and then the ledger in it, with `honestdp ledger init`",
}


@contextmanager
def connection(address: Address, *, timeout: float) -> Iterator[Connection]:
    """A new connection, closed at the end; the driver's errors within become the ledger's, in words without a password."""
    try:
        with closing(_connected(address, timeout=timeout)) as made:
            yield made
    except driver_of().Error as error:
        raise _translated(error, address, timeout) from None


def _connected(address: Address, *, timeout: float) -> Connection:
    """A new connection, settled so that nothing of the role's or the database's own settings changes what is asked."""
    driver = driver_of()
    patience = max(2, math.ceil(timeout))
    how = {"connect_timeout": patience, "application_name": "honestdp", "client_encoding": "utf8"}
    alive = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    try:
        raw = driver.connect(address.url, autocommit=True, prepare_threshold=None, **how, **alive)
    except driver.Error as error:
        text = said(error, address)
        way = next((f"; {way}" for word, way in _WAYS_OUT.items() if word in text), "")
        raise refusals.Unreachable(f"{address} cannot be reached, and nothing was charged: {text}{way}") from None
    made = Connection(raw, longest=timeout + GRACE)
    if made.version < OLDEST:
        made.close()
        raise refusals.NotALedger(f"{address} is PostgreSQL {made.version}: {OLDEST} or newer is needed")
    milliseconds = str(max(1, round(timeout * 1000)))
    settings = {"wait": milliseconds, "longest": str(patience * 1000), "idle": str(IDLE * 1000)}
    try:
        made.execute(_SESSION, settings)
    except BaseException:
        made.close()
        raise
    return made


def _translated(error: Any, address: Address, timeout: float) -> refusals.LedgerError:
    code, words = error.sqlstate or "", said(error, address)
    if code in ("40001", "40P01", "23505"):
        return refusals.Conflict(
            f"{address} was charged by others all the time for {timeout:g} seconds: nothing was charged, try again"
        )
    if code in ("55P03", "57014"):
        return refusals.Locked(
            f"{address} was locked by another process for {timeout:g} seconds: nothing was charged, try again"
        )
    if code in ("42501", "25006"):
        return refusals.ReadOnly(f"{address} takes nothing from this role: {words}")
    if not code or code[:2] in ("08", "53", "57"):
        return refusals.Unreachable(f"{address} was lost, and nothing was charged: {words}")
    return refusals.NotALedger(f"{address} cannot be read or written as a ledger: {words}")


def driver_of() -> Any:
    try:
        import psycopg
    except ImportError as lacking:
        raise refusals.Unreachable(
            f"a ledger on PostgreSQL needs psycopg: install honestdp[postgres] ({lacking})"
        ) from None
    return psycopg


def said(error: Exception, address: Address) -> str:
    """The driver's words in one line, with nothing of a password."""
    text = " ".join(str(error).split()) or type(error).__name__
    for secret in address.secrets:
        text = text.replace(secret, "***")
    return text
