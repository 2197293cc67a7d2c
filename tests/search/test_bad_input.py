"""Bad input is one line that names the argument, its value and the way out: nothing charged, nothing read, no folder left."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import honestdp
from honestdp import Budget
from honestdp.accounting.calibration import OverBudget
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import BrokenChain, BudgetExceeded, Ledger, Locked, NoBudget, NotALedger, ReadOnly, book
from tests.command_line import called, run
from tests.tiny_search import WHOLE, clouds, linear

pytestmark = pytest.mark.usefixtures("unread")


class World:
    """A ledger, and a folder that is not there."""

    def __init__(self, folder: Path) -> None:
        self.out, self.path = folder / "runs" / "out", folder / "ledger.db"
        self.ledger = Ledger(self.path)
        self.ledger.set_budget("a", Budget(5.0, 1e-5))

    def refuses(
        self, error: type[HonestdpError], words: str, *, model: Any = linear, data: Any = None, **changes: Any
    ) -> None:
        settings = {**WHOLE, "out": self.out, "ledger": self.path, "dataset": "a", **changes}
        before = self.path.read_bytes() if self.path.exists() else None
        with pytest.raises(error, match=words) as raised:
            honestdp.tune(model, clouds() if data is None else data, **settings)
        assert "\n" not in str(raised.value)
        assert (self.path.read_bytes() if self.path.exists() else None) == before, "something was charged"
        assert not self.out.exists()
        assert not self.out.parent.exists()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    if made.path.exists():
        made.path.chmod(0o600)


RATE = {"lr": [1], "clip": [1]}
ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "space with half of its own": ("space must be .* clip of sgd", {"space": {"lr": [1.0], "lot": [320]}}),
    "optimizer": ("optimizer must be .*Adam.weight_decay=.*one of .*sgd.*'adamw'", {"optimizer": "adamw"}),
    "selection": ("selection must be one of auto.*'best'", {"selection": "best"}),
    "lot": ("lot must be at most 320.*got 321", {"lot": 321}),
    "no lot": ("lot must be a finite number above 0", {"lot": 0}),
    "no steps": ("steps must be a whole number of at least 1", {"steps": 0}),
    "no validation": ("validation must be above 0", {"validation": 0}),
    "all validation": ("validation must be a fraction", {"validation": 1.0}),
    "coverage": ("coverage must be strictly between 0 and 1", {"coverage": 1.0, "selection": "envelope"}),
    "max_runs": ("max_runs must be a finite number of at least 1", {"max_runs": 0, "selection": "envelope"}),
    "candidates": ("candidates must be left out for a grid", {"candidates": 3}),
    "schedule that is no number": (r"schedule\(0\) must be a finite number", {"schedule": lambda _: float("nan")}),
    "records": ("records must be 400, as many records as the data has", {"records": 401}),
    "budget": ("budget must be a honestdp.Budget", {"budget": 3.0}),
    "noise_seed": ("noise_seed must be left out with a ledger", {"noise_seed": 1}),
    "ledger alone": ("dataset must be given together with ledger", {"dataset": None}),
    "dataset alone": ("dataset must be given together with ledger", {"ledger": None}),
    "no module": ("model must be a function that returns", {"model": lambda: 3}),
    "nothing to train": ("trainable", {"model": lambda: nn.Flatten(0)}),
    "batch norm": ("BatchNorm", {"model": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))}),
    "loss of the lot": ("the loss's shape must be one number per example", {"loss": nn.functional.cross_entropy}),
    "floating labels": ("metric must be given for labels that", {"data": (clouds()[0], np.zeros(400, np.float32))}),
    "no data": ("data must be a pair", {"data": 3}),
    "no records": ("records must be a whole number of at least 1", {"data": (clouds()[0][:0], clouds()[1][:0])}),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_is_named(name: str, world: World) -> None:
    words, changes = ARGUMENTS[name]
    world.refuses(HonestdpError, words, **changes)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-12])
def test_a_budget_smaller_than_one_step_costs_is_refused(epsilon: float, world: World) -> None:
    world.refuses(OverBudget, "no noise .*meets this budget: raise epsilon or delta", budget=Budget(epsilon, 1e-5))


def test_a_model_that_does_not_fit_the_records_is_refused(world: World) -> None:
    words = r"model must be one that .* takes torch.float32 records of shape \[3\].*shapes cannot be multiplied.*got 'Linear'"
    world.refuses(InvalidArgument, words, model=lambda: nn.Linear(4, 2))


def test_a_dataset_without_a_budget_is_refused_with_the_call_that_sets_it(world: World) -> None:
    world.refuses(NoBudget, r"b has no budget .*: set it once with Ledger\(.*\).set_budget\('b', Budget", dataset="b")


def test_over_budget_names_what_is_left(world: World) -> None:
    world.refuses(
        BudgetExceeded, "over budget: a may spend epsilon 5 .* Left is 5; nothing was charged", budget=Budget(6.0, 1e-5)
    )


def test_no_ledger_is_refused(world: World) -> None:
    world.path.unlink()
    world.refuses(NoBudget, "a has no budget in .*: set it once")
    assert not world.path.exists()


@pytest.mark.parametrize("mode", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_locked_ledger_is_waited_for_and_then_refused(
    mode: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book.Ledger.__init__, "__kwdefaults__", {"timeout": 0.1})
    holder = sqlite3.connect(world.path, isolation_level=None)
    try:
        holder.execute(f"BEGIN {mode}")
        world.refuses(Locked, "was locked by another process for 0.1 seconds: nothing was charged")
    finally:
        holder.close()


def test_a_read_only_ledger_is_refused(world: World) -> None:
    world.path.chmod(0o400)
    world.refuses(ReadOnly, "is read-only: nothing can be charged")


def _nonsense(path: Path) -> None:
    path.write_bytes(b"nonsense" * 1000)


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _forged(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_are_not_changed")
    connection.execute("""UPDATE entries SET content = replace(content, '5.0', '9.0')""")
    connection.execute(
        """CREATE TRIGGER entries_are_not_changed BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never changed'); END"""
    )
    connection.commit()
    connection.close()


@pytest.mark.parametrize(("damage", "error"), [(_nonsense, NotALedger), (_cut_off, NotALedger), (_forged, BrokenChain)])
def test_a_damaged_ledger_is_refused(damage: Callable[[Path], None], error: type[HonestdpError], world: World) -> None:
    damage(world.path)
    world.refuses(error, "is not a ledger|cannot be read|entry 1 is broken|is damaged")


def test_a_folder_in_use_is_refused_and_left_alone(world: World) -> None:
    world.out.mkdir(parents=True)
    (world.out / "mine").write_text("mine")
    with pytest.raises(InvalidArgument, match="out must be a new or an empty folder; this one has mine"):
        honestdp.tune(linear, clouds(), **WHOLE, out=world.out, ledger=world.path, dataset="a")
    assert [path.name for path in world.out.iterdir()] == ["mine"]
    assert world.ledger.balance("a").charges == 0


@pytest.mark.parametrize("below", [False, True])
def test_an_out_that_cannot_be_a_folder_is_refused(below: bool, world: World) -> None:
    blocked = world.path.with_name("a file")
    blocked.write_text("mine")
    out = blocked / "out" if below else blocked
    with pytest.raises(InvalidArgument, match="out must be a folder that can be made and written"):
        honestdp.tune(linear, clouds(), **WHOLE, out=out, ledger=world.path, dataset="a")
    assert blocked.read_text() == "mine"
    assert world.ledger.balance("a").charges == 0


def test_a_disk_that_takes_nothing_is_named_and_nothing_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    world.refuses(InvalidArgument, "out must be a folder that can be made and written .No space left on device.")


@pytest.mark.slow
def test_a_search_that_was_refused_can_be_made_in_the_same_folder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.refuses(BudgetExceeded, "over budget", budget=Budget(6.0, 1e-5))
    monkeypatch.undo()
    result = honestdp.tune(linear, clouds(), **WHOLE, out=world.out, ledger=world.path, dataset="a")
    assert result.balance is not None
    assert result.balance.charges == 1
    assert torch.isfinite(next(result.model.parameters())).all()


THREE = "digits --epsilon 3 "
COMMANDS = {
    "no dataset": (
        "a file or a dataset must be named: honestdp tune FILE --schema SCHEMA, honestdp tune DATASET",
        "--epsilon 3",
    ),
    "unknown dataset": ("must be a CSV or Parquet file, or one of mnist, .*; got nonsense", "nonsense --epsilon 3"),
    "no epsilon": ("--epsilon must be given", "digits"),
    "infinite rate": ("--space must be NAME=VALUES with finite numbers.*got lr=inf", THREE + "--space lr=inf"),
    "no number": ("--space must be NAME=VALUES with finite numbers.*got lr=a", THREE + "--space lr=a"),
    "no values": ("--space must be NAME=VALUES, such as.*got lr$", THREE + "--space lr"),
    "law": ("--space must be .*with LOW below HIGH; got lr=log:1:0", THREE + "--space lr=log:1:0"),
    "width": (
        "--model must be hidden, since the space has widths; got logistic",
        THREE + "--optimizer adam --space clip=1 --space width=2,3",
    ),
    "dataset without ledger": ("--dataset must be given together with ledger.*got b", THREE + "--dataset b"),
    "no files": ("dataset mnist is not here.* Set HONESTDP_DATA", "mnist --epsilon 3"),
    "over budget": (
        "over budget: digits may spend",
        THREE + "--ledger ledger.db --lot 1150 --steps 50 --out runs/out",
    ),
    "resume": ("--resume must be the folder of a search that was begun.*got nowhere", "--resume nowhere"),
    "resume of nothing": ("--resume must be the folder of a search that was begun.* whole command", "--resume ."),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_says_it_in_one_line(name: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("digits", Budget(1.0, 1e-5))
    words, command = COMMANDS[name]
    act = run if name == "over budget" else called  # one of them from its start to its exit code
    code, out, err = act(tmp_path, "tune", *command.split())
    assert (code, out) == (2, "")
    assert err.startswith("honestdp: error: ")
    assert err.count("\n") == 1
    assert re.search(words, err.strip()), err
    assert ledger.balance("digits").charges == 0
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_help_names_every_way_in(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "tune", "--help")
    assert code == 0
    for word in ("--epsilon", "--space", "--selection", "--ledger", "--resume", "digits", "--out"):
        assert word in out
