"""A ledger on a server: the database's own rights keep its entries, whoever could change them is refused, and a client that loses
its server finds out what it has charged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from honestdp import Budget
from honestdp.checks import InvalidArgument
from honestdp.ledger import (
    Address,
    BrokenChain,
    BudgetExceeded,
    ClocksDiffer,
    InDoubt,
    Ledger,
    LedgerError,
    Locked,
    MayDelete,
    NoLedger,
    NotDurable,
    ReadOnly,
    Unreachable,
    postgres,
)
from honestdp.ledger import (
    address as addresses,
)
from honestdp.ledger.paying import Payment
from honestdp.ledger.postgres_rules import set_up
from honestdp.ledger.spending import total_epsilon
from tests.ledger.cut_network import Cut, network
from tests.ledger.postgres_server import ADMIN, ROLE, Server
from tests.ledger.small_ledger import BUDGET, FORK, in_child, ledger_of, spending

DELTA = 1e-6
CLIENTS = 16


def base(address: Address) -> str:
    return str(address).split("/")[3].split("?")[0]


@contextmanager
def altered(server: Server, address: Address, do: str, undo: str) -> Iterator[None]:
    server.ask(do, base(address))
    try:
        yield
    finally:
        server.ask(undo, base(address))


REFUSED = (
    "DELETE FROM honestdp.entries", "UPDATE honestdp.entries SET what = ''", "TRUNCATE honestdp.entries",
    "DROP TABLE honestdp.entries", "DROP SCHEMA honestdp CASCADE", "ALTER TABLE honestdp.entries DISABLE TRIGGER ALL",
    "ALTER TABLE honestdp.entries ENABLE ROW LEVEL SECURITY", "DROP TRIGGER entries_are_kept ON honestdp.entries",
    "CREATE RULE swallow AS ON INSERT TO honestdp.entries DO INSTEAD NOTHING", "SET ROLE postgres",
    "CREATE TABLE honestdp.mine ()", "SET session_replication_role = replica",
    "CREATE OR REPLACE FUNCTION honestdp.entries_are_kept() RETURNS trigger LANGUAGE sql AS ''",
    "INSERT INTO honestdp.entries SELECT 7, time, dataset, kind, 'k', what, content, hash, hash FROM honestdp.entries",
    "INSERT INTO honestdp.entries SELECT 2, time, dataset, kind, 'k', what, content, '', hash FROM honestdp.entries",
    "INSERT INTO honestdp.entries SELECT * FROM honestdp.entries ON CONFLICT (number) DO UPDATE SET what = ''",
)  # fmt: skip


def test_the_database_itself_refuses_the_role_everything_but_to_append(server: Server, address: Address) -> None:
    import psycopg

    ledger = ledger_of(address)
    for statement in REFUSED:
        with pytest.raises(psycopg.Error):
            server.ask(statement, base(address), ROLE)
    ledger.verify()
    assert len(ledger.entries()) == 1


def test_the_owner_does_not_change_an_entry_by_mistake_either(server: Server, address: Address) -> None:
    import psycopg

    ledger = ledger_of(address)
    for statement in ("DELETE FROM", "TRUNCATE", "UPDATE"):
        rest = " SET what = ''" if statement == "UPDATE" else ""
        with pytest.raises(psycopg.Error, match="never changed or removed"):
            server.ask(f"{statement} honestdp.entries{rest}", base(address))
    ledger.verify()


TOO_MUCH = (
    ("ALTER ROLE {r} SUPERUSER", "ALTER ROLE {r} NOSUPERUSER", "is a superuser"),
    ("ALTER ROLE {r} CREATEROLE", "ALTER ROLE {r} NOCREATEROLE", "may create roles"),
    ("GRANT DELETE ON honestdp.entries TO {r}", "REVOKE DELETE ON honestdp.entries FROM {r}", "may delete entries"),
    ("GRANT DELETE ON honestdp.entries TO PUBLIC", "REVOKE DELETE ON honestdp.entries FROM PUBLIC", "may delete entries"),
    ("GRANT UPDATE (what) ON honestdp.entries TO {r}", "REVOKE ALL (what) ON honestdp.entries FROM {r}", "may update"),
    ("GRANT TRUNCATE ON honestdp.entries TO {r}", "REVOKE TRUNCATE ON honestdp.entries FROM {r}", "may truncate"),
    ("GRANT TRIGGER ON honestdp.entries TO {r}", "REVOKE TRIGGER ON honestdp.entries FROM {r}", "may add triggers"),
    ("GRANT CREATE ON SCHEMA honestdp TO {r}", "REVOKE CREATE ON SCHEMA honestdp FROM {r}", "may create in the schema"),
    ("GRANT pg_write_all_data TO {r}", "REVOKE pg_write_all_data FROM {r}", "may delete entries"),
    ("GRANT pg_execute_server_program TO {r}", "REVOKE pg_execute_server_program FROM {r}", "may write files"),
    ("ALTER TABLE honestdp.entries OWNER TO {r}", "ALTER TABLE honestdp.entries OWNER TO postgres", "owns the table"),
    ("ALTER SCHEMA honestdp OWNER TO {r}", "ALTER SCHEMA honestdp OWNER TO postgres", "owns the schema"),
    ("ALTER DATABASE {d} OWNER TO {r}", "ALTER DATABASE {d} OWNER TO postgres", "owns the database"),
    (
        "CREATE ROLE other; GRANT DELETE ON honestdp.entries TO other; ALTER ROLE {r} NOINHERIT; GRANT other TO {r}",
        "DROP OWNED BY other; DROP ROLE other; ALTER ROLE {r} INHERIT",
        "may delete entries",
    ),
)  # fmt: skip


def test_a_role_that_could_remove_an_entry_is_not_used(server: Server, address: Address) -> None:
    ledger, named = ledger_of(address), {"r": ROLE, "d": base(address)}
    for number, (do, undo, words) in enumerate(TOO_MUCH):
        asks = (lambda: ledger.charge("a", spending(), key="1"), ledger.verify, lambda: ledger.balance("a"))
        with (
            altered(server, address, do.format(**named), undo.format(**named)),
            pytest.raises(MayDelete, match=f"{ROLE} .*{words}") as raised,
        ):
            asks[number % 3]()
        assert "\n" not in str(raised.value)
    disguised = Address(
        f"{server.admin(base(address)).url}&options=-crole%3D{ROLE}"
    )  # who can take the disguise off again
    with pytest.raises(MayDelete, match=f"{ADMIN} is a superuser"):
        Ledger(disguised).charge("a", spending(), key="1")
    assert not [text for text in set_up(server.admin(base(address))).done if "role" in text]
    assert len(ledger.entries()) == 1
    assert ledger.charge("a", spending(), key="1").charged


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("CREATE RULE swallow AS ON INSERT TO honestdp.entries DO INSTEAD NOTHING", "rule swallow"),
        ("ALTER TABLE honestdp.entries DISABLE TRIGGER entries_are_kept", "trigger entries_are_kept"),
        ("ALTER TABLE honestdp.entries ENABLE ROW LEVEL SECURITY", "table entries"),
        ("ALTER TABLE honestdp.entries SET UNLOGGED", "table entries"),
        ("ALTER TABLE honestdp.entries ALTER key DROP NOT NULL", "column key"),
        ("ALTER TABLE honestdp.entries DROP CONSTRAINT entries_once", "constraint entries_once"),
        ("CREATE TABLE public.child () INHERITS (honestdp.entries)", "table entries"),
        (
            "CREATE FUNCTION public.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
            "CREATE TRIGGER zz BEFORE INSERT ON honestdp.entries FOR EACH ROW EXECUTE FUNCTION public.swallow()",
            "trigger zz",
        ),
        (
            "CREATE OR REPLACE FUNCTION honestdp.entries_are_appended() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RETURN NULL; END'",
            "function entries_are_appended",
        ),
    ],
)  # fmt: skip
def test_other_rules_than_ours_are_named_and_nothing_is_charged(
    server: Server, address: Address, do: str, words: str
) -> None:
    ledger = ledger_of(address)
    with altered(
        server, address, do, "DROP TABLE IF EXISTS public.child; DROP FUNCTION IF EXISTS public.swallow CASCADE"
    ):
        for ask in (lambda: ledger.charge("a", spending(), key="1"), ledger.verify):
            with pytest.raises(BrokenChain, match=f"rules of .* were changed: .*{words}"):
                ask()
        with pytest.raises(BrokenChain, match="were changed"):
            set_up(server.admin(base(address)))


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("UPDATE honestdp.entries SET what = 'other' WHERE number = 2", "entry 2 is broken"),
        ("DELETE FROM honestdp.entries WHERE number = 2", "entry 2 is missing"),
    ],
)
def test_what_an_administrator_does_to_an_entry_is_seen(server: Server, address: Address, do: str, words: str) -> None:
    ledger = ledger_of(address)
    for key in "12":
        ledger.charge("a", spending(), key=key)
    noted = ledger.verify()
    server.ask(f"SET session_replication_role = replica; {do}", base(address))
    for ask in (ledger.verify, lambda: ledger.charge("a", spending(), key="3")):
        with pytest.raises(BrokenChain, match=words):
            ask()
    server.ask("SET session_replication_role = replica; DELETE FROM honestdp.entries WHERE number > 1", base(address))
    ledger.verify()  # a chain alone does not know that it was cut
    with pytest.raises(BrokenChain, match="cut off, or replaced"):
        ledger.verify(head=noted)


def test_clocks_that_differ_are_said_and_nothing_is_charged(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_of(address)
    for apart, words in ((3600, "3600 seconds ahead of"), (-86400, "86400 seconds behind")):

        class Off(datetime):
            @classmethod
            def now(cls, tz: Any = None, apart: int = apart) -> Any:
                return datetime.now(tz) + timedelta(seconds=apart)

        monkeypatch.setattr(postgres, "datetime", Off)
        with pytest.raises(ClocksDiffer, match=f"{words} that of .*nothing was charged"):
            ledger.charge("a", spending(), key="1")
    assert len(ledger.entries()) == 1  # reading needs no clock
    monkeypatch.setattr(postgres, "APART", 1e9)
    ledger.charge("a", spending(), key="1")
    written = datetime.fromisoformat(ledger.entries()[-1].time)
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=10)  # the server's


def test_a_server_that_may_forget_is_refused(server: Server, address: Address) -> None:
    ledger = ledger_of(address)
    server.ask("ALTER SYSTEM SET full_page_writes = off")
    server.reload()
    try:
        _until(lambda: server.ask("SHOW full_page_writes") == [("off",)])
        with pytest.raises(NotDurable, match="nothing was charged"):
            ledger.charge("a", spending(), key="1")
    finally:
        server.ask("ALTER SYSTEM RESET full_page_writes")
        server.reload()
        _until(lambda: server.ask("SHOW full_page_writes") == [("on",)])
    assert ledger.charge("a", spending(), key="1").charges == 1


def test_a_commit_waits_for_the_disk_whatever_the_role_was_given(server: Server, address: Address) -> None:
    ledger = ledger_of(address)
    for given in ("off", "local"):
        with (
            altered(
                server, address, f"ALTER ROLE {ROLE} SET synchronous_commit = {given}", f"ALTER ROLE {ROLE} RESET ALL"
            ),
            ledger._store.writing() as transaction,
        ):
            asked = transaction._connection.execute  # type: ignore[union-attr]
            assert asked("SHOW synchronous_commit").fetchone() == ("on",)
            assert asked("SHOW transaction_isolation").fetchone() == ("serializable",)


@pytest.mark.parametrize(
    "setting",
    ["default_transaction_read_only = on", "search_path = nowhere", "quote_all_identifiers = on", "extra_float_digits = -15",
     "default_transaction_isolation = 'read uncommitted'", "lock_timeout = 1", "TimeZone = 'Asia/Tokyo'", "DateStyle = 'German'",
     "client_encoding = 'SQL_ASCII'", "standard_conforming_strings = off", "idle_in_transaction_session_timeout = 1"],
)  # fmt: skip
def test_no_setting_of_the_role_locks_the_team_out(server: Server, address: Address, setting: str) -> None:
    """Which the role may make by itself: it is no right, so no grant takes it away."""
    ledger = ledger_of(address)
    server.ask(f"ALTER ROLE {ROLE} SET {setting}", base(address), ROLE)
    try:
        assert ledger.charge("a", spending(), key="1").charged
        assert ledger.verify()
    finally:
        server.ask(f"ALTER ROLE {ROLE} RESET ALL", base(address))


def test_a_search_path_of_the_role_leads_nowhere_else(server: Server, address: Address) -> None:
    """Tables and functions of the same names, in front of the system's own."""
    ledger = ledger_of(address)
    evil = "CREATE SCHEMA evil; CREATE FUNCTION evil.pg_has_role(name, oid, text) RETURNS bool LANGUAGE sql AS 'SELECT false'; "
    evil += f"GRANT USAGE ON SCHEMA evil TO {ROLE}; GRANT DELETE ON honestdp.entries TO {ROLE}; "
    evil += f"ALTER ROLE {ROLE} SET search_path = evil, pg_catalog"
    undo = f"DROP SCHEMA evil CASCADE; REVOKE DELETE ON honestdp.entries FROM {ROLE}; ALTER ROLE {ROLE} RESET ALL"
    with altered(server, address, evil, undo), pytest.raises(MayDelete):
        ledger.charge("a", spending(), key="1")


def test_what_is_no_ledger_is_said_in_a_line(server: Server, address: Address, tmp_path: Path) -> None:
    for place, error, words in (
        (server.address(server.database()), NoLedger, "honestdp ledger init"),
        (server.address("nowhere"), Unreachable, 'database "nowhere" does not exist; make the database first'),
        (
            server.address("nowhere", "nobody_here"),
            Unreachable,
            "does not exist; `honestdp ledger init` makes the role",
        ),
        (Address(f"postgresql:///x?host={tmp_path}"), Unreachable, "cannot be reached, and nothing was charged"),
    ):
        for ask in (
            lambda ledger: ledger.verify(),
            lambda ledger: ledger.set_budget("a", BUDGET),
            lambda ledger: ledger.balance("a"),
            lambda ledger: ledger.charge("a", spending(), key="1"),
        ):
            with pytest.raises(error, match=words) as raised:
                ask(Ledger(place))
            assert "\n" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="as text"):
        Ledger(Path("postgresql://u:secret@h/d"))


def test_a_role_without_the_right_to_insert_reads_and_does_not_charge(server: Server, address: Address) -> None:
    ledger = ledger_of(address)
    take, give = f"REVOKE INSERT ON honestdp.entries FROM {ROLE}", f"GRANT INSERT ON honestdp.entries TO {ROLE}"
    with altered(server, address, take, give):
        assert ledger.balance("a").charges == 0
        with pytest.raises(ReadOnly, match="permission denied"):
            ledger.charge("a", spending(), key="1")


def test_a_locked_ledger_says_so_and_is_not_charged(address: Address) -> None:
    ledger = ledger_of(address, timeout=0.2)
    with ledger._store.writing():
        for ask in (lambda: ledger.charge("a", spending(), key="1"), lambda: ledger.set_budget("b", BUDGET)):
            with pytest.raises(Locked, match=r"locked by another process for 0\.2 seconds"):
                ask()
        assert ledger.balance("a").charges == 0
    assert ledger.charge("a", spending(), key="1").charges == 1


def test_without_the_lock_two_writers_still_do_not_follow_one_entry(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is a courtesy: what keeps the chain one is the transaction, the number and the key."""
    ledger = ledger_of(address)
    execute = postgres.Connection.execute

    def unlocked(self: postgres.Connection, query: str, values: Any = None) -> Any:
        return execute(self, "SELECT 1") if "advisory" in query else execute(self, query, values)

    monkeypatch.setattr(postgres.Connection, "execute", unlocked)
    done = [threading.Thread(target=ledger.charge, args=("a", spending()), kwargs={"key": str(i)}) for i in range(6)]
    for thread in done:
        thread.start()
    for thread in done:
        thread.join()
    assert sorted(entry.key for entry in ledger.entries("a")) == ["", *"012345"]
    ledger.verify()


@pytest.mark.parametrize("how", ["before", "after", "silent"])
def test_cut_off_at_the_commit_it_is_charged_once(
    server: Server, address: Address, how: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "GRACE", 1.0)
    ledger_of(address)
    with network(address, server.folder) as (between, through):
        ledger = Ledger(through, timeout=0.5 if how == "silent" else 20)
        between.cut(b"COMMIT", how)
        balance = ledger.charge("a", spending(), key="1")
        assert between.times == 0
        assert balance.charges == 1
        assert balance.charged
        assert not ledger.charge("a", spending(), key="1").charged
    assert [entry.key for entry in Ledger(address).entries()] == ["", "1"]


@pytest.mark.parametrize("how", ["before", "after"])
def test_cut_off_for_good_at_the_commit_it_counts_as_charged(
    server: Server, address: Address, how: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LEAST_PATIENCE", 0.3)
    ledger_of(address)
    with network(address, server.folder) as (between, through):
        ledger = Ledger(through, timeout=0.2)
        between.cut(b"COMMIT", how, stays_down=True)
        with pytest.raises(InDoubt, match=r"counts as charged, and nothing may be trained") as raised:
            ledger.charge("a", spending(), key="1")
        assert not Payment(Ledger(address), "a", "1").surely_unpaid(raised.value)
        between.down = False
        assert ledger.charge("a", spending(), key="1").charged is (how == "before")
    assert Ledger(address).balance("a").charges == 1


def test_a_charge_that_cannot_be_asked_about_for_a_lock_is_not_said_to_be_none(
    server: Server, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds the whole table from the commit on: whether it is charged is known when they let go, and not before."""
    import psycopg

    monkeypatch.setattr(postgres, "LEAST_PATIENCE", 0.1)
    ledger_of(address)
    execute = postgres.Connection.execute
    for key, lost, ends in (("1", True, InDoubt), ("2", False, None)):
        with psycopg.connect(server.admin(base(address)).url) as other:

            def committed(self: postgres.Connection, query: str, values: Any = None, lost: bool = lost) -> Any:
                found = execute(self, query, values)
                if query == "COMMIT":
                    other.execute("LOCK TABLE honestdp.entries IN ACCESS EXCLUSIVE MODE")
                    if lost:
                        raise psycopg.OperationalError("the answer is lost")
                return found

            with monkeypatch.context() as held:
                held.setattr(postgres.Connection, "execute", committed)
                ask = lambda key=key: Ledger(address, timeout=0.1).charge("a", spending(), key=key)  # noqa: E731
                if ends is None:
                    assert ask().charged
                else:
                    with pytest.raises(ends, match="counts as charged"):
                        ask()
        assert not Ledger(address).charge("a", spending(), key=key).charged
    assert Ledger(address).balance("a").charges == 2


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_said_after_a_commit_is_what_is_there(
    server: Server, address: Address, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says it shuts down has committed all the same; one that says it has committed has lost the entry."""
    import psycopg

    ledger = ledger_of(address)
    execute = postgres.Connection.execute

    def committed(self: postgres.Connection, query: str, values: Any = None) -> Any:
        found = execute(self, query, values)
        if query == "COMMIT" and kept:
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
        if query == "COMMIT":
            undo = "SET session_replication_role = replica; DELETE FROM honestdp.entries WHERE number = 2"
            server.ask(undo, base(address))
        return found

    monkeypatch.setattr(postgres.Connection, "execute", committed)
    if kept:
        assert ledger.charge("a", spending(), key="1").charged
    else:
        with pytest.raises(BrokenChain, match=r"entry 2 was written .* and is not there"):
            ledger.charge("a", spending(), key="1")
    assert len(ledger.entries()) == (2 if kept else 1)


def test_cut_off_before_the_commit_nothing_is_charged(server: Server, address: Address) -> None:
    ledger_of(address)
    with network(address, server.folder) as (between, through):
        ledger = Ledger(through)
        between.cut(b"INSERT", "before", stays_down=True)
        with pytest.raises(Unreachable, match="nothing was charged") as raised:
            ledger.charge("a", spending(), key="1")
        assert Payment(Ledger(address), "a", "1").surely_unpaid(raised.value)
    assert Ledger(address).balance("a").charges == 0


@pytest.mark.kill
def test_many_clients_and_a_server_that_is_killed(server: Server, address: Address, tmp_path: Path) -> None:
    """What a client was told is charged stays charged, once; what it was not told is charged at most once; never over budget."""
    allowed, kills = 24, 2
    budget = Budget(total_epsilon([spending()] * allowed, delta=DELTA), DELTA)
    for count in range(allowed + 2):
        total_epsilon([spending()] * count, delta=DELTA)  # known to the children
    ledger = ledger_of(address, budget=budget)
    begin = FORK.Barrier(CLIENTS + 1)
    children = [in_child(lambda me=me: hammer(address, me, tmp_path, begin, allowed)) for me in range(CLIENTS)]  # type: ignore[misc]
    begin.wait()
    for kill in range(kills):
        _until(lambda kill=kill: len(list(tmp_path.glob("told-*"))) >= 4 * (kill + 1))
        server.kill()
        server.start()
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    check_hammered(ledger, tmp_path, allowed)


def hammer(address: Address, me: int, notes: Path, begin: Any, allowed: int) -> None:
    """Charges until the budget is spent. After an error the same key is asked for again, as a search does that goes on."""
    ledger = Ledger(address)
    begin.wait()
    for attempt in range(allowed + 1):
        key = f"{me}-{attempt}"
        while True:
            try:
                ledger.charge("a", spending(), key=key)
                (notes / f"told-{key}").touch()
                break
            except BudgetExceeded:
                return
            except (Unreachable, InDoubt, Locked):
                time.sleep(0.02)


def check_hammered(ledger: Ledger, notes: Path, allowed: int) -> None:
    keys = [entry.key for entry in ledger.entries("a") if entry.kind == "charge"]
    told = {file.name.removeprefix("told-") for file in notes.glob("told-*")}
    assert len(keys) == len(set(keys)) == allowed
    assert told == set(keys)
    balance = ledger.balance("a")
    assert balance.spent <= balance.budget.epsilon
    ledger.verify()


def _until(holds: Any) -> None:
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_to_set_up_again_changes_nothing(server: Server) -> None:
    admin = server.admin(server.database())
    first = set_up(admin)
    assert any("table" in text for text in first.done)
    ledger_of(first.address)
    again = set_up(admin)
    assert again.done == ()
    assert len(again.kept) == 3
    assert again.address == first.address
    assert len(Ledger(first.address).entries()) == 1
    with pytest.raises(InvalidArgument, match="role"):
        set_up(admin, role='x"; DROP TABLE')
    with pytest.raises(InvalidArgument, match="63 at most"):
        set_up(admin, role="r" * 64)
    with pytest.raises(MayDelete, match="nothing was set up"):
        set_up(admin, role=ADMIN)


def test_a_ledger_is_not_set_up_in_a_schema_of_someone_else(server: Server, address: Address) -> None:
    """Who owns the schema could drop the table."""
    server.ask(f"DROP SCHEMA honestdp CASCADE; CREATE SCHEMA honestdp AUTHORIZATION {ROLE}", base(address))
    with pytest.raises(MayDelete, match=f"belongs to {ROLE}.* nothing was set up"):
        set_up(server.admin(base(address)), role="another")
    assert not server.ask("SELECT FROM pg_roles WHERE rolname = 'another'")


def test_a_password_is_nowhere_but_in_the_connection(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    name, secret = server.database(), "swordfish"
    done = set_up(server.admin(name), role="passworded", password=secret)
    plain = server.address(name, "passworded")
    ours = Address(plain.url.replace("passworded@", f"passworded:{secret}@"))
    ledger_of(ours).charge("a", spending(), key="1")
    wrong = Address(plain.url.replace("passworded@", "passworded:dogfish@") + "&sslpassword=catfish")
    said = [str(done), str(ours), repr(ours), str(Ledger(ours).verify()), f"{ours!s:>80}"]
    for place in (wrong, plain):
        with pytest.raises(LedgerError, match=r"cannot be reached.*from PGPASSWORD or from ~/\.pgpass") as raised:
            Ledger(place).verify()
        said.append("".join(map(str, (raised.value, raised.value.__cause__, raised.value.__context__))))
    with pytest.raises(LedgerError, match="has no budget") as raised:
        Ledger(ours).balance("none")
    said += [str(raised.value), server.log.read_text(errors="replace"), "".join(capfd.readouterr())]
    for text in said:
        assert not any(word in text for word in (secret, "dogfish", "catfish"))
    assert server.ask("SELECT rolpassword FROM pg_authid WHERE rolname = 'passworded'")[0][0].startswith(
        "SCRAM-SHA-256"
    )
