"""Sets up a ledger on a PostgreSQL server by an administrator: the role, the table, its triggers and rights, in one transaction.

What is there already is compared and left alone. A password goes to the server as the hash that the server keeps, so that no log
of statements has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from honestdp.checks import InvalidArgument
from honestdp.ledger import errors, postgres
from honestdp.ledger import postgres_rules as rules
from honestdp.ledger.address import Address

ROLE = "honestdp_ledger"
TIMEOUT = 30.0


@dataclass(frozen=True)
class SetUp:
    """address: by which the role charges, without a password. done: what was made, in words; kept: what was there already."""

    address: Address
    role: str
    done: tuple[str, ...]
    kept: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        return {"ledger": str(self.address), "role": self.role, "done": list(self.done), "kept": list(self.kept)}


def set_up(admin: Address, *, role: str = ROLE, password: str | None = None) -> SetUp:
    """Makes what is missing; to do it again changes nothing.

    admin: who may create roles and schemas. password: of the role, set where it is given; without one the server's own ways of
    knowing a user decide.
    """
    if (
        not role.isidentifier()
        or not role.isascii()
        or role != role.lower()
        or role.startswith("pg_")
        or len(role) > 63
    ):
        raise InvalidArgument(
            "role", role, "small letters, digits and underscores, such as honestdp_ledger, 63 at most"
        )
    store = postgres.Store(admin, timeout=TIMEOUT)
    with store._connection() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (postgres.LOCK,))
        made = _Making(connection, admin, role)
        made.check_server()
        made.the_role(password)
        made.the_table()
        made.the_rights()
        if excess := rules.too_much(connection, role):
            raise errors.MayDelete(
                f"the role {role} {excess[0]} at {admin}, and so is none to charge with: name another role, or take "
                f"that from it; nothing was set up"
            )
        connection.execute("COMMIT")
    return SetUp(admin.with_user(role), role, tuple(made.done), tuple(made.kept))


class _Making:
    """The steps, and what they found to do."""

    def __init__(self, connection: Any, admin: Address, role: str) -> None:
        self.connection, self.admin, self.role = connection, admin, role
        self.done: list[str] = []
        self.kept: list[str] = []

    def check_server(self) -> None:
        (encoding,) = self.connection.execute("SELECT current_setting('server_encoding')").fetchone()
        if encoding != "UTF8":
            raise errors.NotALedger(f"{self.admin} is a database in {encoding}: names need one in UTF8")

    def the_role(self, password: str | None) -> None:
        known = self.connection.execute("SELECT FROM pg_catalog.pg_roles WHERE rolname = %s", (self.role,)).fetchall()
        if known:
            self.kept.append(f"role {self.role}")
        else:
            limits = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION"
            self.connection.execute(f"CREATE ROLE {self.role} {limits}")
            self.done.append(f"role {self.role}, which may log in and nothing else")
        if password is not None:
            self.connection.execute(f"ALTER ROLE {self.role} PASSWORD '{self.connection.hashed(password, self.role)}'")
            self.done.append(f"password of {self.role}")

    def the_table(self) -> None:
        found = rules.present(self.connection)
        if found and (names := rules.changed(found)):
            raise errors.BrokenChain(f"the rules of {self.admin} were changed: {', '.join(names)}", entry=0)
        if found:
            self.kept.append(f"table {rules.TABLE} with its triggers")
            return
        self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {rules.SCHEMA}")
        owner, me = self.connection.execute(
            "SELECT pg_get_userbyid(nspowner)::text, current_user::text FROM pg_catalog.pg_namespace WHERE nspname = %s",
            (rules.SCHEMA,),
        ).fetchone()
        if owner != me:
            raise errors.MayDelete(
                f"the schema {rules.SCHEMA} of {self.admin} is there already and belongs to {owner}, who could drop what is made "
                f"in it: give it to {me}, or remove it; nothing was set up"
            )
        for statement in rules.CREATE:
            self.connection.execute(statement)
        self.done.append(f"table {rules.TABLE}, with triggers that keep its entries as they are")

    def the_rights(self) -> None:
        before = self._rights()
        self.connection.execute(f"REVOKE ALL ON {rules.TABLE} FROM PUBLIC, {self.role}")
        self.connection.execute(f"REVOKE ALL ON SCHEMA {rules.SCHEMA} FROM PUBLIC, {self.role}")
        self.connection.execute(f"GRANT USAGE ON SCHEMA {rules.SCHEMA} TO {self.role}")
        self.connection.execute(f"GRANT SELECT, INSERT ON {rules.TABLE} TO {self.role}")
        (base,) = self.connection.execute("SELECT quote_ident(current_database())").fetchone()
        self.connection.execute(f"GRANT CONNECT ON DATABASE {base} TO {self.role}")
        words = f"rights of {self.role}: select and insert, and nothing else"
        (self.kept if self._rights() == before else self.done).append(words)

    def _rights(self) -> list[Any]:
        """All that was granted around the entries."""
        granted = (
            "SELECT relacl::text FROM pg_catalog.pg_class WHERE oid = %(table)s::regclass UNION ALL "
            "SELECT nspacl::text FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s UNION ALL "
            "SELECT datacl::text FROM pg_catalog.pg_database WHERE datname = current_database()"
        )
        return list(self.connection.execute(granted, {"table": rules.TABLE, "schema": rules.SCHEMA}).fetchall())
