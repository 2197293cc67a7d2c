"""A small search, ready to be carried out, and processes in which it dies.

A child is forked from a process that has everything imported and the search's public side computed, so that hundreds of deaths
are quick. Its draws, its key and its clock are made constant: then nothing but a fault can make one child's result differ from
another's, a ledger's charge included. The draws are a seed of the operating system's, so that all noise is drawn as it truly is.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import sys
import tempfile
import traceback
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import honestdp
from honestdp import Budget
from honestdp.boundary.data import PrivateData
from honestdp.ledger import Ledger, store
from honestdp.ledger.paying import Books
from honestdp.ledger.spending import total_epsilon
from honestdp.report import costs, html
from honestdp.search import planning, secret
from honestdp.search.design import Design
from honestdp.search.lifecycle import Search, SearchStopped
from honestdp.training.spec import Compute

DATASET, BUDGET = "a", Budget(50.0, 1e-2)
SELECTIONS = ("compose", "winner", "envelope")
DEAD, FAILED = 77, 78
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
KEY = "5" * 32


def records() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


def arguments(selection: str) -> dict[str, Any]:
    """Two widths, so that there are two batches."""
    return {
        "budget": Budget(3.0, 1e-2),
        "optimizer": "sgd",
        "space": {"lr": [0.5], "clip": [1.0], "width": [2, 3]},
        "selection": selection,
        "coverage": 0.6,
        "lot": 20.0,
        "steps": 4,
        "compute": Compute(device="cpu"),
    }


@functools.lru_cache
def ready(selection: str) -> Search:
    """The search with its public side fixed, and what its report compares computed once."""
    caught: list[Search] = []

    def stopped(self: Search, *_: Any, **__: Any) -> Any:
        caught.append(self)
        raise SearchStopped

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(Search, "carry_out", stopped)
        ledger = world(Path(folder) / "world") / "ledger.db"  # a dataset without a budget is not planned for
        settings = {**arguments(selection), "out": Path(folder) / "out", "ledger": ledger, "dataset": DATASET}
        with pytest.raises(SearchStopped):
            honestdp.tune(network, records(), **settings)
    (made,) = caught
    total_epsilon([], delta=BUDGET.delta)
    total_epsilon([made.design.spending], delta=BUDGET.delta)
    plan = made.design.plan()
    design = made.design
    compared = costs.compare(plan, event=design.base, delta=design.budget.delta, selection=design.selection)
    _COMPUTED[selection] = plan, compared
    _DRAWN[selection] = _draw(made.design)
    for template in ("report.html.j2", "charts.html.j2", "style.css"):
        html._templates().get_template(template)
    return made


_COMPUTED: dict[str, Any] = {}
_DRAWN: dict[str, secret.Secret] = {}


def _draw(design: Design) -> secret.Secret:
    """Draws of the operating system's randomness: few runs, of both widths."""
    for _ in range(1000):
        one = secret.drawn(design, seed=None)
        if len({candidate.model for candidate in one.candidates}) == 2 and len(one.candidates) < 6:
            return one
    raise AssertionError("no such draw")


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def _constant(selection: str) -> None:
    """Everything that differs from one process to the next, made constant. In a child alone: nothing is put back."""
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # a killed process loses nothing that the system has taken; the ledger keeps its own
    secret.drawn = lambda design, *, seed: _DRAWN[selection]  # type: ignore[assignment]
    planning.free_memory = lambda device: 1 << 30  # type: ignore[assignment]
    uuid.uuid4 = lambda: uuid.UUID(KEY)
    store.datetime = _Clock  # type: ignore[misc]
    plan, compared = _COMPUTED[selection]
    Design.plan = lambda self: plan  # type: ignore[method-assign]
    costs.compare = lambda *_, **__: compared


def child(folder: Path, selection: str, *, die_at: int | None = None) -> int:
    """The process of a search in `folder`/out with the ledger beside it, begun or resumed.

    die_at: see `Deaths`.
    """
    search = replace(ready(selection), books=Books(folder / "ledger.db", DATASET))
    number = os.fork()
    if number:
        return number
    code = FAILED
    try:
        _constant(selection)
        _note_reading(folder)
        if die_at is not None:
            Deaths(die_at, folder / "events")
        carry_out(search, folder / "out", records())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def carry_out(search: Search, out: Path, data: Any) -> Any:
    """The same call, whether there is a search in the folder or not."""
    return search.carry_out(PrivateData(data), out, resume=False, show=False)


def _note_reading(folder: Path) -> None:
    honest = PrivateData.fingerprint

    def fingerprint(data: PrivateData) -> str:
        os.close(os.open(folder / "read", os.O_RDONLY | os.O_CREAT))
        return honest(data)

    PrivateData.fingerprint = fingerprint  # type: ignore[method-assign]


class Deaths:
    """Ends the process just before its n-th change of what is on the disk. Every change goes through an audited call.

    SQLite's own writing is between these: a statement that changes the ledger counts as one, before it is run.
    """

    FILES = frozenset({"os.mkdir", "os.chmod", "os.rename", "os.remove", "os.rmdir", "os.utime"})
    STATEMENTS = ("BEGIN IMMEDIATE", "INSERT", "COMMIT")

    def __init__(self, die_at: int, notes: Path) -> None:
        self._left, self._notes = die_at, os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        sys.addaudithook(self._hook)
        connect = sqlite3.connect

        def traced(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **options)
            connection.set_trace_callback(self._statement)
            return connection

        sqlite3.connect = traced  # type: ignore[assignment]

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event in self.FILES:
            self._count(f"{event} {Path(os.fsdecode(args[0])).name}")
        elif event == "open" and isinstance(args[0], str | bytes | os.PathLike) and args[2] & WRITING:
            self._count(f"open {Path(os.fsdecode(args[0])).name}")

    def _statement(self, statement: str) -> None:
        if statement.lstrip().upper().startswith(self.STATEMENTS):
            self._count(statement.split("(")[0].strip())

    def _count(self, what: str) -> None:
        if what.endswith(" read"):
            return
        os.write(self._notes, (what.replace(str(os.getpid()), "PID") + "\n").encode())
        if self._left == 0:
            os._exit(DEAD)
        self._left -= 1


def ended(number: int) -> int:
    """The exit code of a child, or minus the signal that killed it."""
    _, status = os.waitpid(number, 0)
    return os.waitstatus_to_exitcode(status)


def world(folder: Path) -> Path:
    """A folder with a ledger in which the dataset has a budget."""
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "datetime", _Clock)
        Ledger(folder / "ledger.db").set_budget(DATASET, BUDGET)
    return folder


def check_ledger(folder: Path) -> int:
    """How often the dataset was charged: once at most, and once if a record was read."""
    ledger = Ledger(folder / "ledger.db")
    ledger.verify()
    charges = [entry.key for entry in ledger.entries(DATASET) if entry.kind == "charge"]
    assert charges in ([], [str(uuid.UUID(KEY).hex)])
    assert charges or not (folder / "read").exists(), "a record was read before it was paid for"
    out = folder / "out"
    if charges:
        assert json.loads((out / "search.json").read_text())["key"] == charges[0], "it could be charged again"
        whole = (out / ".secret" / "key").exists() and (out / ".secret" / "plan").exists()
        assert whole or (out / ".result.json.pending").exists() or (out / "result.json").exists(), (
            "what was paid for is lost"
        )
    if (out / "result.json").exists():
        assert not (out / ".secret").exists(), "a search that looks finished has secrets left"
    return len(charges)


def left(folder: Path) -> dict[str, bytes]:
    """Every file of a search's folder, hidden ones too, and the ledger's entries."""
    out = folder / "out"
    found = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    times = {path.stat().st_mtime_ns for path in (out, *out.rglob("*"))}
    assert len(times) == 1, "files tell how long the search took"
    entries = [entry for entry in Ledger(folder / "ledger.db").entries() if entry.kind != "resume"]
    told = [(one.dataset, one.kind, one.time, one.key, one.what, one.content) for one in entries]
    assert [one.kind for one in entries if one.key == str(uuid.UUID(KEY).hex)] == ["charge", "over"]
    return {**found, "ledger": repr(told).encode()}


def without_kill(folder: Path, selection: str) -> dict[str, bytes]:
    """What a search leaves that nothing interrupts."""
    world(folder)
    assert ended(child(folder, selection)) == 0
    assert check_ledger(folder) == 1
    return left(folder)
