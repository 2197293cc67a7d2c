"""The rules of a ledger on PostgreSQL: its table, triggers and rights, how they are set up, and how they are checked.

Entries are kept by rights: the role that charges may select and insert and nothing else, so that the database itself refuses the
rest. Triggers refuse the same to whoever owns the table, for mistakes are made by owners too. An owner or a superuser can take
all of this away, and such a role is therefore not used; what one of them does to entries is seen by the chain.

`set_up` makes what is missing in one transaction, and compares what is there and leaves it alone. A password goes to the server
as the hash that the server keeps, so that no log of statements has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from honestdp.checks import InvalidArgument
from honestdp.ledger import refusals
from honestdp.ledger.address import Address, connection

SCHEMA = "honestdp"
TABLE = f"{SCHEMA}.entries"
VERSION = 1
ROLE = "honestdp_ledger"
TIMEOUT = 30.0  # seconds to wait while the ledger is set up
LOCK = 0x68647031  # "hdp1": the lock of all writers of a database's ledger
_KEPT = """
BEGIN
    RAISE EXCEPTION 'an entry of a ledger is never changed or removed';
END;
"""
_APPENDED = f"""
DECLARE
    last record;
BEGIN
    SELECT number, hash INTO last FROM {TABLE} ORDER BY number DESC LIMIT 1;
    IF NEW.number IS DISTINCT FROM coalesce(last.number, 0) + 1
       OR NEW.previous IS DISTINCT FROM coalesce(last.hash, repeat('0', 64)) THEN
        RAISE EXCEPTION 'an entry of a ledger is only ever appended' USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NEW;
END;
"""
FUNCTIONS = {"entries_are_kept": _KEPT, "entries_are_appended": _APPENDED}
TRIGGERS = {
    "entries_are_kept": f"CREATE TRIGGER entries_are_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON {TABLE} "
    f"FOR EACH STATEMENT EXECUTE FUNCTION {SCHEMA}.entries_are_kept()",
    "entries_are_appended": f"CREATE TRIGGER entries_are_appended BEFORE INSERT ON {TABLE} "
    f"FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.entries_are_appended()",
}
_PINNED = "LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog"
CREATE = (
    f"""CREATE TABLE {TABLE} (
    number bigint CONSTRAINT entries_pkey PRIMARY KEY,
    "time" text NOT NULL,
    dataset text NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    what text NOT NULL,
    content text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    CONSTRAINT entries_once UNIQUE (dataset, kind, key))""",
    f"COMMENT ON TABLE {TABLE} IS 'honestdp ledger, version {VERSION}'",
    *(
        f"CREATE FUNCTION {SCHEMA}.{name}() RETURNS trigger {_PINNED} AS $body${body}$body$"
        for name, body in FUNCTIONS.items()
    ),
    *TRIGGERS.values(),
)
_COLUMNS = ("time", "dataset", "kind", "key", "what", "content", "previous", "hash")
# All that stands around the entries: kind, name and text, as `_PRESENT` asks for it.
RULES = frozenset(
    {
        ("table", "entries", f"r p false false false honestdp ledger, version {VERSION}"),
        ("column", "number", "bigint true "),
        *(("column", name, "text true ") for name in _COLUMNS),
        ("constraint", "entries_pkey", "PRIMARY KEY (number)"),
        ("constraint", "entries_once", "UNIQUE (dataset, kind, key)"),
        ("index", "entries_pkey", f"CREATE UNIQUE INDEX entries_pkey ON {TABLE} USING btree (number)"),
        ("index", "entries_once", f"CREATE UNIQUE INDEX entries_once ON {TABLE} USING btree (dataset, kind, key)"),
        *(("function", name, f"plpgsql f true {{search_path=pg_catalog}} {body}") for name, body in FUNCTIONS.items()),
        *(("trigger", name, f"O {text}") for name, text in TRIGGERS.items()),
    }
)
_PRESENT = f"""
WITH entries AS (
    SELECT c.* FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{SCHEMA}' AND c.relname = 'entries')
SELECT 'table', relname::text, concat_ws(' ', relkind, relpersistence, relrowsecurity::text, relhassubclass::text,
    EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid = entries.oid)::text,
    coalesce(pg_catalog.obj_description(oid, 'pg_class'), '')) FROM entries
UNION ALL SELECT 'column', a.attname::text, concat_ws(' ', pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
    concat(pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attgenerated::text))
    FROM entries JOIN pg_catalog.pg_attribute a ON a.attrelid = entries.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT 'constraint', c.conname::text, pg_catalog.pg_get_constraintdef(c.oid)
    FROM entries JOIN pg_catalog.pg_constraint c ON c.conrelid = entries.oid AND c.contype <> 'n'
UNION ALL SELECT 'index', c.relname::text, pg_catalog.pg_get_indexdef(i.indexrelid)
    FROM entries JOIN pg_catalog.pg_index i ON i.indrelid = entries.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid
UNION ALL SELECT 'trigger', t.tgname::text, concat_ws(' ', t.tgenabled::text, pg_catalog.pg_get_triggerdef(t.oid))
    FROM entries JOIN pg_catalog.pg_trigger t ON t.tgrelid = entries.oid AND NOT t.tgisinternal
UNION ALL SELECT 'function', p.proname::text, concat_ws(' ', l.lanname, p.prokind::text,
    (p.proowner = entries.relowner AND NOT p.prosecdef)::text, p.proconfig::text, p.prosrc)
    FROM entries JOIN pg_catalog.pg_proc p ON p.pronamespace = entries.relnamespace
    JOIN pg_catalog.pg_language l ON l.oid = p.prolang
UNION ALL SELECT 'rule', r.rulename::text, '' FROM entries JOIN pg_catalog.pg_rewrite r ON r.ev_class = entries.oid
UNION ALL SELECT 'policy', p.polname::text, '' FROM entries JOIN pg_catalog.pg_policy p ON p.polrelid = entries.oid
"""
# For every role that this one is, or can become: what it could do to the entries, in words.
_RIGHTS = f"""
WITH entries AS (
    SELECT c.oid, c.relowner, n.oid AS space, n.nspowner FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{SCHEMA}' AND c.relname = 'entries'),
base AS (SELECT datdba FROM pg_catalog.pg_database WHERE datname = current_database()),
mine AS (SELECT r.* FROM pg_catalog.pg_roles r WHERE pg_catalog.pg_has_role(%(role)s::name, r.oid, 'MEMBER'))
SELECT may FROM mine CROSS JOIN base LEFT JOIN entries ON true, LATERAL (VALUES
    (1, mine.rolsuper, 'is a superuser'),
    (2, mine.rolcreaterole, 'may create roles'),
    (3, mine.rolname IN ('pg_write_server_files', 'pg_execute_server_program'), 'may write files of the server'),
    (4, mine.oid = base.datdba, 'owns the database'),
    (5, mine.oid = entries.nspowner, 'owns the schema'),
    (6, mine.oid = entries.relowner, 'owns the table'),
    (7, pg_catalog.has_table_privilege(mine.oid, entries.oid, 'DELETE'), 'may delete entries'),
    (8, pg_catalog.has_any_column_privilege(mine.oid, entries.oid, 'UPDATE'), 'may update entries'),
    (9, pg_catalog.has_table_privilege(mine.oid, entries.oid, 'TRUNCATE'), 'may truncate the table'),
    (10, pg_catalog.has_table_privilege(mine.oid, entries.oid, 'TRIGGER'), 'may add triggers'),
    (11, pg_catalog.has_schema_privilege(mine.oid, entries.space, 'CREATE'), 'may create in the schema')
) AS found (weight, true_of_it, may) WHERE found.true_of_it ORDER BY found.weight
"""


def present(connection: Any) -> list[tuple[str, str, str]]:
    """What stands around the entries now; nothing where there is no such table."""
    return [(str(kind), str(name), str(text)) for kind, name, text in connection.execute(_PRESENT).fetchall()]


def changed(found: list[tuple[str, str, str]]) -> list[str]:
    """What is not as we made it, by kind and name; empty where all of it is."""
    return sorted({f"{kind} {name}" for kind, name, _ in RULES ^ set(found)})


def too_much(connection: Any, role: str) -> list[str]:
    """What this role, or one that it can become, could do to entries beyond select and insert."""
    return [str(may) for (may,) in connection.execute(_RIGHTS, {"role": role}).fetchall()]


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
    with connection(admin, timeout=TIMEOUT) as server:
        server.execute("BEGIN")
        server.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        (encoding,) = server.execute("SELECT current_setting('server_encoding')").fetchone()
        if encoding != "UTF8":
            raise refusals.NotALedger(f"{admin} is a database in {encoding}: names need one in UTF8")
        steps = [*_the_role(server, role, password), _the_table(server, admin), _the_rights(server, role)]
        if excess := too_much(server, role):
            raise refusals.MayDelete(
                f"the role {role} {excess[0]} at {admin}, and so is none to charge with: name another role, or take "
                f"that from it; nothing was set up"
            )
        server.execute("COMMIT")
    done, kept = (tuple(words for made, words in steps if made is which) for which in (True, False))
    return SetUp(admin.with_user(role), role, done, kept)


# Each step says whether it made something, and what there is now.


def _the_role(server: Any, role: str, password: str | None) -> list[tuple[bool, str]]:
    steps = [(False, f"role {role}")]
    if not server.execute("SELECT FROM pg_catalog.pg_roles WHERE rolname = %s", (role,)).fetchall():
        server.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION")
        steps = [(True, f"role {role}, which may log in and nothing else")]
    if password is not None:
        server.execute(f"ALTER ROLE {role} PASSWORD '{server.hashed(password, role)}'")
        steps.append((True, f"password of {role}"))
    return steps


def _the_table(server: Any, admin: Address) -> tuple[bool, str]:
    found = present(server)
    if found and (names := changed(found)):
        raise refusals.BrokenChain(f"the rules of {admin} were changed: {', '.join(names)}", entry=0)
    if found:
        return False, f"table {TABLE} with its triggers"
    server.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    owner, me = server.execute(
        "SELECT pg_get_userbyid(nspowner)::text, current_user::text FROM pg_catalog.pg_namespace WHERE nspname = %s",
        (SCHEMA,),
    ).fetchone()
    if owner != me:
        raise refusals.MayDelete(
            f"the schema {SCHEMA} of {admin} is there already and belongs to {owner}, who could drop what is made "
            f"in it: give it to {me}, or remove it; nothing was set up"
        )
    for statement in CREATE:
        server.execute(statement)
    return True, f"table {TABLE}, with triggers that keep its entries as they are"


def _the_rights(server: Any, role: str) -> tuple[bool, str]:
    def granted() -> list[Any]:
        """All that was granted around the entries."""
        query = (
            "SELECT relacl::text FROM pg_catalog.pg_class WHERE oid = %(table)s::regclass UNION ALL "
            "SELECT nspacl::text FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s UNION ALL "
            "SELECT datacl::text FROM pg_catalog.pg_database WHERE datname = current_database()"
        )
        return list(server.execute(query, {"table": TABLE, "schema": SCHEMA}).fetchall())

    before = granted()
    (base,) = server.execute("SELECT quote_ident(current_database())").fetchone()
    server.execute(f"REVOKE ALL ON {TABLE} FROM PUBLIC, {role}")
    server.execute(f"REVOKE ALL ON SCHEMA {SCHEMA} FROM PUBLIC, {role}")
    server.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role}")
    server.execute(f"GRANT SELECT, INSERT ON {TABLE} TO {role}")
    server.execute(f"GRANT CONNECT ON DATABASE {base} TO {role}")
    return granted() != before, f"rights of {role}: select and insert, and nothing else"
