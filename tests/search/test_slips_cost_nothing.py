"""Slips cost nothing: what fails without a record fails before the charge; what only records tell is explained after it."""

from __future__ import annotations

import os
import random
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import honestdp
from honestdp import Budget
from honestdp.boundary.data import PrivateData
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.ledger import Ledger, NoBudget
from honestdp.optimizers import SGD
from honestdp.search import folder as folders
from honestdp.search import rehearsal
from honestdp.search import tune as tuning
from tests.tiny_search import WHOLE, clouds, linear


class World:
    """A ledger with a budget, and searches that are charged to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, Ledger(folder / "ledger.db")
        self.ledger.set_budget("a", Budget(20.0, 1e-5))

    def tune(self, model: Any = linear, data: Any = None, **changes: Any) -> honestdp.TuneResult:
        settings = {**WHOLE, "ledger": self.ledger, "dataset": "a", **changes}
        return honestdp.tune(model, clouds() if data is None else data, **settings)

    @property
    def charges(self) -> int:
        return self.ledger.balance("a").charges

    def refuses(self, words: str, *, error: type[HonestdpError] = InvalidArgument, **changes: Any) -> None:
        """In one line, with nothing charged and no folder made."""
        with pytest.raises(error, match=words) as raised:
            self.tune(**changes)
        assert "\n" not in str(raised.value)
        assert self.charges == 0
        assert [path.name for path in self.folder.iterdir()] == ["ledger.db"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Extra(nn.Linear):
    """Its state holds what is no tensor."""

    def get_extra_state(self) -> Any:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


class Unloadable(nn.Linear):
    def _load_from_state_dict(self, *args: Any) -> None:
        raise RuntimeError("made for one use")


class Forgetful(SGD, name="forgetful"):
    """Makes its steps, and cannot say its weights."""

    def weights(self, params: Tensor, state: Any) -> Tensor:
        raise RuntimeError("no weights here")


class Once:
    """A factory whose modules differ in more than their weights."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> nn.Module:
        self.made += 1
        return nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.1 * (self.made % 3)))


SLIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "a state that is no tensor": ("whose weights can be saved and read back", {"model": lambda: Extra(3, 2)}),
    "weights that cannot be read back": (
        "can be saved and read back.*made for one use",
        {"model": lambda: Unloadable(3, 2)},
    ),
    "a rule without weights": ("makes a step of training.*no weights here", {"optimizer": Forgetful}),
    "a factory that changes its mind": ("differ in trainable weights alone", {"model": Once()}),
    "one output for classes": (
        "the model's outputs must be one for each class.*two for yes and no",
        {"model": lambda: nn.Linear(3, 1)},
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told_before_the_charge(slip: str, world: World) -> None:
    words, changes = SLIPS[slip]
    world.refuses(words, **changes)


@pytest.mark.parametrize("slip", ["a state that is no tensor", "a rule without weights"])
def test_without_the_rehearsal_it_would_be_charged(slip: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: these slips are found by the rehearsal and by nothing else."""
    nothing = rehearsal.Rehearsed({"model.safetensors": 1})
    monkeypatch.setattr(tuning, "rehearse", lambda *_, **__: nothing)
    with pytest.raises(HonestdpError, match=r"what it was charged stays charged|no run ended"):
        world.tune(**SLIPS[slip][1])
    assert world.charges == 1


def test_a_report_that_cannot_be_made_is_told_before_the_charge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(_: Any) -> str:
        raise ValueError("no paper")

    monkeypatch.setattr("honestdp.report.html.render", page)
    world.refuses(
        "files of this search cannot be written .ValueError: no paper.: nothing was charged", error=HonestdpError
    )


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.same = self.frozen

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.same(self.frozen(x)))


def test_tied_weights_and_half_precision_records_go_through(world: World) -> None:
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in clouds())
    result = world.tune(Tied(), (x.bfloat16(), y))
    again = world.tune(Tied(), (x.bfloat16(), y))
    assert torch.equal(result.model(x), again.model(x))
    assert world.charges == 1


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["horizon", "quantile", "oso", "adadp"])
@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_every_kind_of_rule_is_rehearsed_with_and_without_validation(
    optimizer: str, validation: float, world: World
) -> None:
    space = None if optimizer == "horizon" else {"lr": [0.1]} if optimizer != "adadp" else {"clip": [1.0]}
    plain = {"optimizer": optimizer, "space": space, "validation": validation, "selection": "auto"}
    result = world.tune(**plain)
    assert (result.score is None) == (validation == 0)
    assert world.charges == 1


def test_the_rehearsal_is_given_no_record_and_touches_no_generator(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, held = rehearsal.rehearse, []

    def noted(*args: Any, **named: Any) -> Any:
        held.extend(one for one in (*args, *named.values()) if isinstance(one, PrivateData))
        torch.manual_seed(3)
        random.seed(3)
        before = torch.get_rng_state(), random.getstate()
        found = honest(*args, **named)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        return found

    monkeypatch.setattr(tuning, "rehearse", noted)
    world.tune()
    assert held == []


# ---- What no plan can mend is told before one is made


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    def design(_: Any) -> None:
        raise AssertionError("it was planned")

    monkeypatch.setattr(tuning, "design", design)


@pytest.mark.usefixtures("unplanned", "unread")
def test_a_dataset_without_a_budget_is_told_before_planning(world: World) -> None:
    world.refuses("b has no budget", error=NoBudget, dataset="b")
    world.refuses("a has no budget", error=NoBudget, ledger=world.folder / "none" / "other.db")


@pytest.mark.usefixtures("unplanned", "unread")
def test_a_folder_that_cannot_be_written_is_told_before_planning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "out must be a folder that can be made and written"
    world.refuses(rf"{words} \(Not a directory\)", out=world.ledger.path / "out")
    monkeypatch.setattr(os, "access", lambda *_: False)
    world.refuses(rf"{words} \(Permission denied\)", out=world.folder / "out")


def test_a_disk_without_room_is_told_before_the_charge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 100, 100))
    world.refuses("out must be on a disk with room for its files: they take .* MB and 0.0 MB are free")
    assert folders.SEARCHES not in [path.name for path in world.folder.iterdir()]


# ---- What only the records tell


class Pairs(Dataset[Any]):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


@pytest.mark.parametrize("wrap", [tuple, lambda pair: Pairs(*pair)], ids=["arrays", "dataset"])
@pytest.mark.parametrize("beyond", [1, 4711])
def test_labels_that_are_no_classes_count_for_nothing_and_are_not_told_of(beyond: int, wrap: Any, world: World) -> None:
    x, y = clouds()
    changes = {"metric": honestdp.Accuracy(), "compute": honestdp.Compute(device="cpu", workers=0)}
    found = world.tune(data=wrap((x, y + beyond)), **changes)
    assert world.charges == 1
    assert all(bool(value.isfinite().all()) for value in found.model.parameters())
