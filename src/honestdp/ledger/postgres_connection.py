"""Connections to a PostgreSQL server whose every answer comes in time, with settings of our own and errors without passwords."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from threading import Timer
from typing import Any
from urllib.parse import unquote

from honestdp.ledger import errors
from honestdp.ledger.address import Address

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


def connected(address: Address, *, timeout: float) -> Connection:
    """A new connection, settled so that nothing of the role's or the database's own settings changes what is asked."""
    driver = driver_of()
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
        text = said(error, address)
        way = next((f"; {way}" for word, way in _WAYS_OUT.items() if word in text), "")
        raise errors.Unreachable(f"{address} cannot be reached, and nothing was charged: {text}{way}") from None
    connection = Connection(raw, longest=timeout + GRACE)
    if connection.version < OLDEST:
        connection.close()
        raise errors.NotALedger(f"{address} is PostgreSQL {connection.version}: {OLDEST} or newer is needed")
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


def driver_of() -> Any:
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
