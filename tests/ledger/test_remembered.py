"""What is remembered saves time and nothing else: absent, damaged, foreign or of another program, it is computed anew."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from honestdp import Budget, Run
from honestdp.ledger import BudgetExceeded, Ledger, Misremembered, merging, remembered, spending
from honestdp.ledger.account import _spending
from honestdp.ledger.spending import Spending, counted_epsilon
from honestdp.selection import Compose, named
from tests.ledger.small_ledger import in_child, ledger_of

DELTA = 1e-6
KINDS = 24


def kind(number: int) -> Spending:
    run = Run(records=1000, lot=10, steps=20, noise=20.0 + number)
    return Spending(Compose(candidates=1), ((run, 1),))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home" / "composed"
    monkeypatch.setenv(remembered.VARIABLE, str(place))
    new_process()
    return place


@pytest.fixture
def full(tmp_path: Path, folder: Path) -> Ledger:
    """A ledger of many kinds, its compositions on the disk."""
    ledger = ledger_of(tmp_path, budget=Budget(50.0, DELTA))
    with ledger._store.writing() as transaction:
        for number in range(KINDS):
            content = spending_content(kind(number))
            transaction.append(dataset="a", kind="charge", key=str(number), what="", content=content)
    ledger.balance("a")
    return ledger


def spending_content(one: Spending) -> str:
    from honestdp.ledger.chain import canonical

    return canonical(one.as_dict())


def new_process() -> None:
    """As a new process begins: with nothing in its memory."""
    remembered.forget()
    for cache in (spending._total, spending._steps, merging.dominating_pair):
        cache.cache_clear()  # type: ignore[attr-defined]


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    calls: list[Any] = []
    original = getattr(module, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(module, name, call)
    return calls


def test_a_charge_composes_anew_only_what_it_changes(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    new_process()
    leaves = counted(monkeypatch, merging, "of_gaussians")
    full.charge("a", kind(1000), key="new")
    assert 1 <= len(leaves) < KINDS / 2
    new_process()
    leaves.clear()
    full.balance("a")
    assert leaves == []


def test_with_nothing_remembered_it_is_the_same_number(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    new_process()
    known = full.charge("a", kind(1000), key="new")
    monkeypatch.setenv(remembered.VARIABLE, "off")
    new_process()
    assert full.balance("a").spent == known.spent
    again = full.charge("a", kind(1000), key="new")
    assert (again.before, again.spent) == (known.before, known.spent)
    assert full.verify(recompute=True) == known.head


def test_profiles_are_remembered_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Spending(named("envelope", runs=4), ((Run(records=1000, lot=10, steps=20, noise=20.0), 4),), score=50.0)
    first = counted_epsilon({search: 2}, delta=DELTA)
    new_process()
    profiles = counted(monkeypatch, spending, "_profile_step")
    assert counted_epsilon({search: 2}, delta=DELTA) == first
    assert profiles == []


def test_each_content_is_read_once(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with full._store.writing() as transaction:
        for number in range(200):
            content = spending_content(kind(0))
            transaction.append(dataset="a", kind="charge", key=f"again {number}", what="", content=content)
    _spending.cache_clear()
    full.charge("a", kind(0), key="new")
    assert _spending.cache_info().misses == KINDS


def test_the_folder_is_its_owners_alone(full: Ledger, folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / remembered.FILE).stat().st_mode) == 0o600
    before = os.umask(0)
    try:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        new_process()
        full.balance("a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / remembered.FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "foreign", ["open folder", "open file", "linked folder", "linked file", "other owner", "nowhere"]
)
def test_what_others_could_have_written_is_not_read(
    full: Ledger, folder: Path, foreign: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = folder / remembered.FILE
    match foreign:
        case "open folder":
            folder.chmod(0o770)
        case "open file":
            file.chmod(0o660)
        case "linked folder":
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
        case "linked file":
            file.rename(tmp_path / "elsewhere.db")
            file.symlink_to(tmp_path / "elsewhere.db")
        case "other owner":
            monkeypatch.setattr(os, "geteuid", lambda: 4711)
        case "nowhere":
            monkeypatch.setenv(remembered.VARIABLE, "/proc/nowhere/composed")
    assert remembered._file() is None
    new_process()
    leaves = counted(monkeypatch, merging, "of_gaussians")
    full.balance("a")
    assert len(leaves) == KINDS


def test_another_program_remembers_for_itself(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    new_process()
    monkeypatch.setattr(remembered, "program", lambda: "another")
    leaves = counted(monkeypatch, merging, "of_gaussians")
    full.balance("a")
    assert len(leaves) == KINDS


def test_the_programs_text_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(remembered.__file__).parents[1]
    names = {path.name for pattern in remembered.SOURCES for path in package.glob(pattern)}
    assert {"pld.py", "composition.py", "profile.py", "merging.py", "spending.py", "run.py"} <= names
    copy = tmp_path / "ledger" / "remembered.py"
    (tmp_path / "accounting").mkdir()
    monkeypatch.setattr(remembered, "__file__", str(copy))
    found = set()
    for text in ("one", "two"):
        (tmp_path / "accounting" / "pld.py").write_text(text)
        found.add(remembered.program.__wrapped__())
    assert len(found) == 2


def test_another_delta_or_another_amount_is_another_question(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {kind(number): 1 for number in range(KINDS)}
    leaves = counted(monkeypatch, merging, "of_gaussians")
    one = counted_epsilon(kinds, delta=DELTA)
    assert leaves == []
    assert counted_epsilon(kinds, delta=DELTA / 2) > one
    assert len(leaves) == KINDS
    assert counted_epsilon({**kinds, kind(0): 2}, delta=DELTA) > one


def test_nothing_that_is_remembered_for_one_delta_answers_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile, a power of steps, a block, a total: each is followed as deep as its own delta asks for."""
    asked: dict[float, set[str]] = {1e-5: set(), 1e-8: set()}
    for delta, questions in asked.items():

        def remember(question: str, make: Any, *, questions: set[str] = questions, **_: Any) -> Any:
            questions.add(question)
            return make()

        monkeypatch.setattr(remembered, "remember", remember)
        spending._steps.cache_clear()
        run = Run(records=1000, lot=100, steps=2, noise=30.0)
        spending._remembered_step(Spending(named("envelope", runs=3), ((run, 3),)), delta)
        merging.of_gaussians(0.1, 30.0, 2 * merging.STEPS, delta=delta)
    assert [sorted(question.split()[0] for question in questions) for questions in asked.values()] == [
        ["gaussian", "profile"],
        ["gaussian", "profile"],
    ]
    assert not asked[1e-5] & asked[1e-8]


@pytest.mark.slow
def test_damaged_memory_is_no_harm(full: Ledger, folder: Path) -> None:
    """Bits flipped all over the file, an empty one, another's, a schema of someone else's: the number stays the same."""
    right = full.balance("a").spent
    file = folder / remembered.FILE
    chance, whole = random.Random(5), file.read_bytes()
    damaged = [b"", b"these are my notes" * 99, whole[:5000]]
    for _ in range(12):
        data = bytearray(whole)
        for _ in range(40):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        data[chance.randrange(200)] ^= 1 << chance.randrange(8)
        damaged.append(bytes(data))
    for data in damaged:
        file.write_bytes(data)
        file.chmod(0o600)
        new_process()
        assert full.balance("a").spent == right
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE VIEW results AS SELECT 1 AS key")
    file.chmod(0o600)
    new_process()
    assert full.balance("a").spent == right


def test_a_result_under_another_ones_key_is_not_taken(full: Ledger, folder: Path) -> None:
    right = full.balance("a").spent
    with closing(sqlite3.connect(folder / remembered.FILE)) as connection, connection:
        rows = connection.execute("SELECT key, hash, value FROM results ORDER BY size").fetchall()
        for row in rows:
            connection.execute("UPDATE results SET hash = ?, value = ? WHERE key = ?", (*rows[0][1:], row[0]))
    new_process()
    assert full.balance("a").spent == right


def test_a_forged_memory_is_found_by_recomputing(full: Ledger, folder: Path) -> None:
    """Who can write in the folder acts as the user: a forgery that is well made passes, until everything is computed anew."""
    weak = merging.of_gaussians(0.01, 1e3, 1, delta=DELTA).to_bytes()
    with closing(sqlite3.connect(folder / remembered.FILE)) as connection, connection:
        for (key,) in connection.execute("SELECT key FROM results").fetchall():
            row = (remembered._hash(key, weak), weak, key)
            connection.execute("UPDATE results SET hash = ?, value = ? WHERE key = ?", row)
    right = full.balance("a").spent  # from this process's memory
    new_process()
    assert full.balance("a").spent < right
    full.verify()
    with pytest.raises(Misremembered, match="remove that folder"):
        full.verify(recompute=True)
    new_process()
    for file in folder.iterdir():
        file.unlink()
    full.verify(recompute=True)


def test_a_budget_is_kept_from_memory_as_without(full: Ledger) -> None:
    spent = counted_epsilon({**{kind(n): 1 for n in range(KINDS)}, kind(999): 1}, delta=DELTA)
    tight = Ledger(full.path.with_name("tight.db"))
    tight.set_budget("a", Budget(spent * (1 - 1e-9), DELTA))
    with tight._store.writing() as transaction:
        for number in range(KINDS):
            content = spending_content(kind(number))
            transaction.append(dataset="a", kind="charge", key=str(number), what="", content=content)
    new_process()
    with pytest.raises(BudgetExceeded):
        tight.charge("a", kind(999), key="new")


def test_the_disk_keeps_what_was_used_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_BYTES", 1000)
    now = 1_000_000.0
    monkeypatch.setattr(remembered.time, "time", lambda: now)
    asked = []

    def ask(name: str) -> bytes:
        nonlocal now
        now += 2 * remembered.FRESH
        remembered.forget()

        def make() -> bytes:
            asked.append(name)
            return name.encode() * 300

        return remembered.remember(name, make, write=bytes, read=bytes)

    for name in ("a", "b", "c", "a", "d", "a", "b"):
        assert ask(name) == name.encode() * 300
    assert asked == ["a", "b", "c", "d", "b"]
    with closing(sqlite3.connect(folder / remembered.FILE)) as connection:
        assert connection.execute("SELECT sum(size) FROM results").fetchone()[0] <= 1000


@pytest.mark.parametrize("moment", [1, 2, 3, 5])
def test_killed_while_it_is_written_it_is_whole_or_absent(
    tmp_path: Path, folder: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {kind(number): 1 for number in range(KINDS)}

    def killed() -> None:
        count = 0
        original = remembered._hash

        def struck(key: str, value: bytes) -> str:
            nonlocal count
            count += 1
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(key, value)

        remembered._hash = struck
        counted_epsilon(kinds, delta=DELTA)

    in_child(killed).join(300)
    new_process()
    found = counted_epsilon(kinds, delta=DELTA)
    monkeypatch.setenv(remembered.VARIABLE, "off")
    new_process()
    assert found == counted_epsilon(kinds, delta=DELTA)


def test_processes_that_remember_at_once_agree(full: Ledger, folder: Path) -> None:
    (folder / remembered.FILE).unlink()
    expected = full.balance("a").spent
    new_process()

    def ask() -> None:
        os._exit(0 if full.balance("a").spent == expected else 1)

    children = [in_child(ask) for _ in range(3)]
    for child in children:
        child.join(300)
    assert [child.exitcode for child in children] == [0, 0, 0]


@pytest.mark.slow
def test_a_lock_on_the_memory_is_waited_for_no_longer_than_it_is_worth(
    full: Ledger, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "TIMEOUT", 0.05)
    with closing(sqlite3.connect(folder / remembered.FILE, isolation_level=None)) as rival:
        rival.execute("BEGIN EXCLUSIVE")
        new_process()
        assert full.charge("a", kind(1000), key="new").charged
    assert (folder / remembered.FILE).exists()
