"""A search is charged before it reads a record, and one that is refused reads none; a fixed seed is NOT PRIVATE.

Records of several kinds note, whenever they are read, what the ledger holds by then; those in memory are also put where the
processor refuses to read them before the charge.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import honestdp
from honestdp.checks import InvalidArgument
from honestdp.ledger import BudgetExceeded, Ledger, NoBudget
from honestdp.search import request as asking
from honestdp.search import tune_result as leaving
from honestdp.search.lifecycle import Search
from honestdp.search.vault import Unkept
from honestdp.selection import RandomStopping, count_of
from honestdp.training.spec import Compute

from . import closed_form_search as closed_form
from .forced_draws import remember_public_numbers, tune

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
    tune(folder, ENVELOPE, data=data, metric=honestdp.Accuracy(), compute=Compute(workers=0))
    return charges


@pytest.mark.slow
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
            tune(
                tmp_path,
                ENVELOPE,
                data=data,
                metric=honestdp.Accuracy(),
                compute=Compute(workers=0),
                ledger=path,
                dataset=dataset,
            )
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
    pay, result = Search._paid, leaving.result_of
    searches: list[Search] = []
    begun: list[Any] = []

    def noted(self: Search, one: Any) -> None:
        searches.append(self)
        begun.append(one)

    def late(*rest: Any) -> Any:
        if begun:  # and not in the rehearsal, which is before; told the truth, that records were read, it would refuse
            pay(searches[0], replace(begun[0], store=Unkept()))
        return result(*rest)

    monkeypatch.setattr(Search, "_paid", noted)
    monkeypatch.setattr(leaving, "result_of", late)
    assert 0 in reads(tmp_path, home)


def test_reading_before_the_charge_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = asking.PrivateData
    monkeypatch.setattr(asking, "PrivateData", lambda data: (data[0], real(data))[1])
    assert 0 in reads(tmp_path, noting_dataset)


PEEKS: dict[str, Callable[[Any], Any]] = {
    "the least label": lambda data: data[1].min(),
    "the largest label": lambda data: data[1].max(),
    "a label": lambda data: data[1][0].item(),
    "the labels as a list": lambda data: data[1].tolist(),
    "the labels as an array": lambda data: np.asarray(data[1]).copy(),
    "how many labels there are of a kind": lambda data: np.unique(np.asarray(data[1])),
    "a sum of the records": lambda data: data[0].sum(),
    "the labels as numbers of another kind": lambda data: (
        data[1].astype(float) if hasattr(data[1], "astype") else data[1].double()
    ),
}


class Unreadable:
    """Arrays in memory that the processor itself refuses to read, until it is allowed: a process that tries is killed."""

    def __init__(self) -> None:
        self._regions, self.parts = [], []
        for part in closed_form.records():
            array = part.numpy()
            region = mmap.mmap(-1, max(mmap.PAGESIZE, -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE))
            own = np.frombuffer(region, dtype=array.dtype, count=array.size).reshape(array.shape)
            own[:] = array
            self._regions.append((own.ctypes.data, len(region)))
            self.parts.append(own)
        self._protect(0)

    def _protect(self, allowed: int) -> None:
        for address, length in self._regions:
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), allowed) == 0

    def allow(self) -> None:
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)


def ending(folder: Path, *, tensors: bool, peek: Callable[[Any], Any] | None = None) -> int:
    """How the process of a search ends whose records can be read from the charge on. peek: what it does before."""
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    code = 1
    try:
        torch.set_num_threads(1)
        kept = Unreadable()
        data: Any = tuple(torch.from_numpy(part) for part in kept.parts) if tensors else tuple(kept.parts)
        charge = Ledger.charge

        def charged(self: Ledger, *args: Any, **named: Any) -> Any:
            found = charge(self, *args, **named)
            kept.allow()
            return found

        Ledger.charge = charged  # type: ignore[method-assign]
        if peek is not None:
            real = asking.PrivateData
            asking.PrivateData = lambda data: (peek(data), real(data))[1]  # type: ignore[assignment, misc]
        tune(folder, ENVELOPE, data=data, metric=honestdp.Accuracy(), compute=Compute(workers=0))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.mark.parametrize("tensors", [False, True])
def test_a_search_ends_well_whose_records_cannot_be_read_before_the_charge(tensors: bool, tmp_path: Path) -> None:
    assert ending(tmp_path, tensors=tensors) == 0


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("peek", PEEKS)
def test_whatever_looks_at_records_in_memory_before_the_charge_is_noticed(
    peek: str, tensors: bool, tmp_path: Path
) -> None:
    assert ending(tmp_path, tensors=tensors, peek=PEEKS[peek]) == -signal.SIGSEGV
