"""A statement says what its number does not cover: earlier trainings on the same data, the start from a result, a large delta."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import Dataset, TensorDataset

import honestdp
from honestdp import Budget, Compute, Ledger, Run
from honestdp.boundary.whereabouts import whereabouts
from honestdp.optimizers import SGD
from honestdp.training.loop import Interrupted
from honestdp.training.population import Population

RUN = Run(records=40, lot=40, steps=2, noise=30.0)  # lots of all records: quick to account
SECOND = "the second training or search on these data in this process; the first is not in this number"


def records(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    maker = torch.Generator().manual_seed(seed)
    return torch.randn(40, 3, generator=maker), torch.randint(2, (40,), generator=maker)


def train(data: Any, model: torch.nn.Module | None = None, **rest: Any) -> honestdp.Result:
    named = {"run": RUN, "optimizer": SGD(lr=0.1, clip=1.0), "delta": 1e-5, **rest}
    compute = rest.get("compute", Compute(device="cpu", workers=0))
    return honestdp.train(model or torch.nn.Linear(3, 2), data, **{**named, "compute": compute})


def notes(result: Any) -> list[str]:
    return [note for note in result.statement.notes if "in this number" in note]


# ---- The same data


def test_later_trainings_on_the_same_data_say_so() -> None:
    data = records()
    first, second, third = (train(data) for _ in range(3))
    assert notes(first) == []
    assert notes(second) == [SECOND]
    assert notes(third) == [SECOND.replace("second", "third").replace("the first is", "the others are")]
    assert notes(train(records())) == []  # other memory


def test_a_search_after_a_training_says_so_and_a_training_after_a_search() -> None:
    data = records()
    train(data)
    own: dict[str, Any] = {"optimizer": "sgd", "space": {"lr": [0.1, 1.0], "clip": 1.0}, "selection": "compose"}
    found = honestdp.tune(torch.nn.Linear(3, 2), data, budget=Budget(3.0, 1e-5), lot=32, steps=2, **own)
    assert notes(found) == [SECOND]
    assert "the third training" in notes(train(data))[0]


class Rows(Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = records()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.x[index], self.y[index]


def arrays() -> tuple[np.ndarray, np.ndarray]:
    x, y = records()
    return x.numpy().copy(), y.numpy().copy()


X, Y = arrays()
ROWS, TENSORS = Rows(), records()
SAME: dict[str, tuple[Any, Any]] = {
    "an array and a tensor over it": ((X, Y), (torch.from_numpy(X), torch.from_numpy(Y))),
    "columns of one table": ((X[:, :2], Y), (X[:, 1:], Y.copy())),
    "the same inputs with other labels": ((X, Y), (X, Y.copy())),
    "rows that overlap": ((X[:30], Y[:30].copy()), (X[20:], Y[20:].copy())),
    "a table read backwards": ((X[::-1], Y[::-1].copy()), (X, Y.copy())),
    "a Dataset": (ROWS, ROWS),
    "a Dataset of tensors": (TensorDataset(*TENSORS), TENSORS),
    "several inputs": (({"a": X}, Y), ((X, X.copy()), Y.copy())),
}
OTHER: dict[str, tuple[Any, Any]] = {
    "a copy": ((X, Y), (X.copy(), Y.copy())),
    "disjoint rows of one table": ((X[:20], Y[:20]), (X[20:], Y[20:])),
    "two Datasets": (Rows(), Rows()),
    "lists": ([[1.0], [0]], [[1.0], [0]]),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_the_same_memory_is_known_again(pair: tuple[Any, Any]) -> None:
    assert whereabouts(pair[0]).overlap(whereabouts(pair[1]))


@pytest.mark.parametrize("pair", OTHER.values(), ids=OTHER)
def test_other_memory_is_not(pair: tuple[Any, Any]) -> None:
    assert not whereabouts(pair[0]).overlap(whereabouts(pair[1]))


def test_a_file_is_known_again_however_often_it_is_opened(tmp_path: Path) -> None:
    X.tofile(tmp_path / "x")
    first, second = (np.memmap(tmp_path / "x", dtype=X.dtype, mode="r", shape=X.shape) for _ in range(2))
    assert whereabouts((first, Y)).overlap(whereabouts((second[5:], Y.copy())))
    assert not whereabouts(first[:5]).overlap(whereabouts(second[5:]))


def test_data_is_not_kept_alive_and_its_memory_is_nobody_s_after_it() -> None:
    x, y = records()
    places, alive = whereabouts((x, y)), [weakref.ref(x), weakref.ref(y.untyped_storage())]
    copied = whereabouts((x, y))
    assert places.overlap(copied)
    del x, y
    gc.collect()
    assert [one() for one in alive] == [None, None]
    assert not places.overlap(copied)


def test_a_resumed_training_is_no_second_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, start = records(), torch.nn.Linear(3, 2)
    compute = Compute(device="cpu", checkpoint=tmp_path / "checkpoint")
    honest = Population.block
    monkeypatch.setattr(Population, "block", lambda *args, **named: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(Interrupted):
        train(data, start, compute=compute)
    monkeypatch.setattr(Population, "block", honest)
    assert notes(train(data, start, compute=compute)) == []
    assert notes(train(data)) == [SECOND]


def test_a_ledger_that_knows_of_all_is_named(tmp_path: Path) -> None:
    data, ledger = records(), Ledger(tmp_path / "ledger.db")
    ledger.set_budget("a", Budget(5.0, 1e-5))
    first, second = (train(data, ledger=ledger, dataset="a") for _ in range(2))
    assert first.statement.how == "one run, no tuning: the only charge to a in its ledger"
    assert second.statement.how == "one run; the ledger of a has 1 earlier charge, which is not in this number"
    assert notes(second) == [f"{SECOND}, but the ledger counts them together"]
    assert notes(train(data)) == [SECOND.replace("second", "third").replace("the first is", "the others are")]


def test_nothing_is_said_of_tuning_that_is_not_known() -> None:
    assert "no tuning" not in str(train(records()).statement)
    assert "runs made before to choose its settings are not in it" in train(records()).statement.how


@pytest.mark.slow
def test_the_only_charge_is_no_word_on_tuning_where_the_process_knows_of_other_runs(tmp_path: Path) -> None:
    data, ledger = records(), Ledger(tmp_path / "ledger.db")
    for name in ("a", "b", "c", "d"):
        ledger.set_budget(name, Budget(5.0, 1e-5))
    tried = train(data)  # and not charged
    chosen = train(data, ledger=ledger, dataset="a")
    assert chosen.statement.how == "one run: the only charge to a in its ledger"
    assert notes(chosen) == [SECOND]
    warm = train(records(), tried.model, ledger=ledger, dataset="b")
    assert "no tuning" not in str(warm.statement)
    assert train(records(), ledger=ledger, dataset="c").statement.how.startswith("one run, no tuning")
    chosen = train(records(), run=None, delta=None, budget=Budget(1.0, 1e-5), ledger=ledger, dataset="d")
    assert chosen.statement.how.startswith("one run, no tuning")  # what is chosen from public numbers is not tuned


# ---- A warm start


def test_a_start_from_a_result_is_known_by_its_weights(tmp_path: Path) -> None:
    data = records()
    first = train(data)
    first.save(tmp_path / "model.safetensors")
    read = torch.nn.Linear(3, 2)
    read.load_state_dict(load_file(tmp_path / "model.safetensors"))
    body = torch.nn.Sequential(copy.deepcopy(first.model), torch.nn.Tanh(), torch.nn.Linear(2, 2))
    frozen = copy.deepcopy(body)
    frozen[0].requires_grad_(False)
    for start in (first.model, copy.deepcopy(first.model), read, body, frozen):
        warm = [note for note in notes(train(data, start)) if "warm start" in note]
        assert warm == [
            "a warm start: it begins with weights that a training or search of this process ended with, on these data; that is "
            "not in this number"
        ]
    (other,) = notes(train(records(1), first.model))
    assert "where those saw records of these data, too, that is not in this number" in other


def test_a_start_of_one_s_own_is_not_a_warm_one() -> None:
    start = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(start.bias)
    for _ in range(2):
        assert notes(train(records(), start)) == []


# ---- A large delta


@pytest.mark.parametrize(
    ("delta", "words"), [(0.05, "picked at random would meet it too"), (0.01, "give up a record entirely"), (1e-3, "")]
)
def test_a_large_delta_is_said(delta: float, words: str) -> None:
    said = [note for note in train(records(), delta=delta).statement.notes if note.startswith("delta")]
    assert len(said) == (1 if words else 0)
    assert all(words in note for note in said)


# ---- A large epsilon


@pytest.mark.parametrize(("noise", "count"), [(0.2, 1), (30.0, 0), (0.0, 0)])
def test_a_large_epsilon_is_said(noise: float, count: int) -> None:
    """Where nothing is guaranteed at all, the statement says that in place of the note."""
    statement = train(records(), run=Run(records=40, lot=40, steps=2, noise=noise)).statement
    said = [note for note in statement.notes if "guarantees next to nothing" in note]
    assert len(said) == count
    assert bool(statement.not_private) == (noise == 0)
