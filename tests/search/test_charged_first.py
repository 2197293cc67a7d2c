"""A search is charged before it reads a record, and one that is refused reads none; a fixed seed is NOT PRIVATE.

Records of three kinds (a Dataset, tensors, memory-mapped arrays) note, whenever they are read, what the ledger holds by then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import honestdp
from honestdp import tuning
from honestdp.checks import InvalidArgument
from honestdp.ledger import BudgetExceeded, Ledger, NoBudget
from honestdp.search.carrying import Search
from honestdp.selection import RandomStopping, count_of

from . import closed_form
from .forced import remember_public_numbers, tune

ENVELOPE = RandomStopping(count=count_of(runs=4.0, shape=1.0))


@pytest.fixture(autouse=True)
def _public(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_public_numbers(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Noting(torch.utils.data.Dataset[Any]):
    """Records that note, whenever one of them is read, how many charges the ledger holds."""

    def __init__(self, ledger: Path) -> None:
        self._x, self._y = closed_form.records()
        self._ledger, self.charges = ledger, []  # type: tuple[Path, list[int]]

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.charges.append(len(Ledger(self._ledger).charges("tiny")))
        return self._x[index], self._y[index]


class NotingTensor(torch.Tensor):
    """A tensor that notes every use of its numbers: anything but its shape, its kind, and none of its rows."""

    ledger: Path
    charges: list[int]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = function(*args, **(kwargs or {}))
        numbers = not isinstance(found, torch.Tensor | tuple) or bool(getattr(found, "numel", lambda: 0)())
        if numbers and function.__name__ not in ("__len__", "__get__", "is_floating_point", "dim", "size"):
            cls.charges.append(len(Ledger(cls.ledger).charges("tiny")))
        return found


def noting_tensors(ledger: Path) -> tuple[Any, list[int]]:
    NotingTensor.ledger, NotingTensor.charges = ledger, []
    x, y = (part.as_subclass(NotingTensor) for part in closed_form.records())
    return (x, y), NotingTensor.charges


def noting_dataset(ledger: Path) -> tuple[Any, list[int]]:
    data = Noting(ledger)
    return data, data.charges


def noting_memmap(ledger: Path) -> tuple[Any, list[int]]:
    charges: list[int] = []

    class NotingMap(np.memmap):
        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            if np.size(found):
                charges.append(len(Ledger(ledger).charges("tiny")))
            return found

    x, y = (part.numpy() for part in closed_form.records())
    parts = []
    for name, part in (("x", x), ("y", y)):
        part.tofile(ledger.with_name(name))
        parts.append(np.memmap(ledger.with_name(name), dtype=part.dtype, mode="r", shape=part.shape).view(NotingMap))
    return (parts[0], parts[1]), charges


HOMES = [noting_dataset, noting_tensors, noting_memmap]


def reads(folder: Path, home: Callable[[Path], tuple[Any, list[int]]]) -> list[int]:
    """How many charges there were at each read of a search."""
    data, charges = home(folder / "ledger.db")
    tune(folder, ENVELOPE, data=data, metric=honestdp.Accuracy(), workers=0)
    return charges


@pytest.mark.parametrize("home", HOMES)
def test_the_ledger_holds_the_charge_at_the_first_read(home: Any, tmp_path: Path) -> None:
    assert set(reads(tmp_path, home)) == {1}


@pytest.mark.parametrize("home", HOMES)
def test_without_a_budget_or_over_it_nothing_is_read_charged_or_left_behind(home: Any, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).set_budget("poor", honestdp.Budget(0.5, 1e-4))
    before = Ledger(path).entries()
    for dataset, refusal in (("unknown", NoBudget), ("poor", BudgetExceeded)):
        data, charges = home(path)
        with pytest.raises(refusal):
            tune(tmp_path, ENVELOPE, data=data, metric=honestdp.Accuracy(), workers=0, ledger=path, dataset=dataset)
        assert charges == []
        assert list((tmp_path / "out").glob("*")) == []
    assert Ledger(path).entries() == before


def test_a_refused_search_can_be_made_again_in_the_same_folder(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).set_budget("poor", honestdp.Budget(0.5, 1e-4))
    with pytest.raises(BudgetExceeded):
        tune(tmp_path, ENVELOPE, ledger=path, dataset="poor")
    assert tune(tmp_path, ENVELOPE).balance is not None


# ---- A fixed seed


def test_a_fixed_seed_is_not_private_and_is_said_so_everywhere(tmp_path: Path) -> None:
    result = tune(tmp_path, ENVELOPE, noise_seed=3)
    assert str(result.statement).startswith("NOT PRIVATE")
    assert json.loads((tmp_path / "out" / "statement.json").read_text())["private"] is False
    assert json.loads((tmp_path / "out" / "result.json").read_text())["statement"]["private"] is False
    assert "NOT PRIVATE" in (tmp_path / "out" / "report.html").read_text().upper()
    again = tune(tmp_path, ENVELOPE, noise_seed=3, out=tmp_path / "again")
    assert again.as_dict() == result.as_dict()


def test_a_fixed_seed_is_refused_with_a_ledger_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).set_budget("tiny", honestdp.Budget(5.0, 1e-4))
    data, charges = noting_dataset(path)
    named = {"data": data, "metric": honestdp.Accuracy(), "ledger": path, "dataset": "tiny", "noise_seed": 3}
    with pytest.raises(InvalidArgument, match="noise_seed"):
        tune(tmp_path, ENVELOPE, **named)
    assert (charges, len(Ledger(path).entries())) == ([], 1)
    assert not (tmp_path / "out").exists()


# ---- Planted faults


@pytest.mark.parametrize("home", HOMES)
def test_a_charge_after_reading_is_noticed(home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    charge, result = Search._charge, Search._result
    keys: list[str] = []

    def late(self: Search, *rest: Any) -> Any:
        charge(self, keys[0], tmp_path / "nothing read")  # as told the truth it would refuse
        return result(self, *rest)

    monkeypatch.setattr(Search, "_charge", lambda self, key, hidden: keys.append(key))
    monkeypatch.setattr(Search, "_result", late)
    assert 0 in reads(tmp_path, home)


def test_reading_before_the_charge_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tuning.count
    monkeypatch.setattr(tuning, "count", lambda data: (data[0], real(data))[1])
    assert 0 in reads(tmp_path, noting_dataset)
