"""The optimizer of a call that names none follows from the loss, through every door; what is written down names it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import honestdp
from honestdp import Budget, Compute, Run
from honestdp.losses import cross_entropy, squared_error
from honestdp.losses.class_weights import ClassWeighted
from honestdp.optimizers.default import default_rule
from tests.command_line import called
from tests.several_inputs import Reader, records
from tests.tiny_search import clouds, linear

ALL: dict[str, Any] = {"budget": Budget(3.0, 1e-4), "compute": Compute(device="cpu")}
RUN = Run(records=400, lot=400, steps=2, noise=0)
WHOLES, NUMBERS, NONE = torch.zeros(0, dtype=torch.int64), torch.zeros(0), torch.zeros(0, 0)


class Sharp(nn.CrossEntropyLoss):
    """Of outputs that are a thousandth of logits."""

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return super().forward(1000 * output, y)


class Agreeable:
    """Says that it equals whatever it is asked about."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return own(output, y)


def own(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(1000 * output, y)


@pytest.mark.parametrize(
    ("loss", "labels", "name"),
    [
        (None, WHOLES, "echo"),
        (None, NUMBERS, "horizon"),
        (None, NONE, "horizon"),
        (None, None, "horizon"),
        (cross_entropy, None, "echo"),
        (cross_entropy, NUMBERS, "echo"),
        (ClassWeighted((1.0, 2.0)), WHOLES, "echo"),
        (nn.CrossEntropyLoss(reduction="none"), None, "echo"),
        (partial(functional.cross_entropy, reduction="none"), None, "echo"),
        (nn.BCEWithLogitsLoss(reduction="none"), NUMBERS, "echo"),
        (partial(functional.binary_cross_entropy_with_logits, reduction="none"), NUMBERS, "echo"),
        (ClassWeighted((1.0, 2.0), squared_error), NUMBERS, "horizon"),
        (squared_error, WHOLES, "horizon"),
        (nn.MSELoss(reduction="none"), WHOLES, "horizon"),
        (nn.BCELoss(reduction="none"), NUMBERS, "horizon"),
        (Sharp(reduction="none"), WHOLES, "horizon"),
        (own, WHOLES, "horizon"),
        (Agreeable(), WHOLES, "horizon"),
        (partial(own), WHOLES, "horizon"),
    ],
)
def test_the_default_follows_from_the_loss(loss: Any, labels: Tensor | None, name: str) -> None:
    assert default_rule(loss, labels).name == name


def numbers() -> tuple[Any, Any]:
    x, y = clouds()
    return x, y.astype(np.float32)


def one_number() -> nn.Module:
    return nn.Linear(3, 1)


class Rows(Dataset[Any]):
    """Of which nothing is known before one is read."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3,), index / 400), index % 2


class KnownRows(Rows):
    made_up = torch.zeros(3), 0


CASES: dict[str, tuple[Callable[[], nn.Module], Any, dict[str, Any], str]] = {
    "classes": (linear, clouds(), {}, "echo"),
    "numbers": (one_number, numbers(), {"metric": honestdp.ClippedLoss(1.0)}, "horizon"),
    "a loss of one's own": (linear, clouds(), {"loss": own}, "horizon"),
    "class weights": (linear, clouds(), {"class_weights": [1.0, 2.0]}, "echo"),
    "a Dataset": (linear, Rows(), {"metric": "accuracy"}, "horizon"),
    "a Dataset with a loss": (linear, Rows(), {"metric": "accuracy", "loss": cross_entropy}, "echo"),
    "a Dataset with class weights": (linear, Rows(), {"metric": "accuracy", "class_weights": [1.0, 2.0]}, "echo"),
    "a Dataset with a made-up record": (linear, KnownRows(), {"metric": "accuracy"}, "echo"),
}


@pytest.mark.parametrize("case", CASES)
def test_train_takes_it_and_says_which(case: str) -> None:
    model, data, more, name = CASES[case]
    more = {key: value for key, value in more.items() if key != "metric"}
    result = honestdp.train(model(), data, run=RUN, **ALL, **more)
    assert result.hyperparameters["optimizer"] == name
    assert any(note.startswith("echo: beside its gradient") for note in result.statement.notes) == (name == "echo")
    assert why(result.statement) == [WHY[name]]


def why(statement: honestdp.Statement) -> list[str]:
    return [note for note in statement.notes if "optimizer" in note]


WHY = {
    "echo": "no optimizer was named: echo was taken, which has nothing to tune, because the loss is a cross-entropy",
    "horizon": "no optimizer was named: horizon was taken, which has nothing to tune, because the loss is not known to be a "
    "cross-entropy",
}


@pytest.mark.parametrize("case", ["classes", "numbers", "a loss of one's own", "a Dataset"])
def test_tune_takes_it_and_writes_it_down(case: str, tmp_path: Path) -> None:
    model, data, more, name = CASES[case]
    result = honestdp.tune(model, data, lot=320, steps=2, out=tmp_path / "out", **ALL, **more)
    assert result.hyperparameters["optimizer"] == name
    assert list(json.loads((tmp_path / "out" / "search.json").read_text())["space"]) == [name]
    assert result.statement.how == "one run"
    assert why(result.statement) == [WHY[name]]


def test_a_dry_run_says_which_and_why_where_none_was_named() -> None:
    how: dict[str, Any] = {"lot": 320, "steps": 2, **ALL}
    ahead = str(honestdp.dry_run(linear, clouds(), **how))
    assert f"optimizer   {WHY['echo'].replace('no optimizer', 'none', 1)}\n" in ahead
    named = honestdp.dry_run(linear, clouds(), optimizer="echo", **how)
    assert "optimizer  " not in str(named)
    assert why(named.statement) == []


def test_a_training_whose_optimizer_was_named_does_not_say_why() -> None:
    assert why(honestdp.train(linear(), clouds(), run=RUN, optimizer="horizon", **ALL).statement) == []


SCHEMA = """
[columns.age]
low = 17
high = 90
[columns.target]
"""


@pytest.mark.parametrize(
    ("target", "name", "more"),
    [
        ('values = ["no", "yes"]', "echo", []),
        ("low = 0\nhigh = 1", "horizon", []),
        ('values = ["no", "yes"]', "echo", ["--model", "hidden:2", "--space", "width=2"]),
    ],
)
def test_the_command_line_takes_it(target: str, name: str, more: list[str], tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        words = ["no", "yes"] if name == "echo" else ["0", "1"]
        csv.writer(file).writerows([("age", "target"), *((str(20 + i % 60), words[i % 2]) for i in range(100))])
    (tmp_path / "rows.toml").write_text(SCHEMA + target)
    asked = ("tune", "rows.csv", "--schema", "rows.toml", "--target", "target", "--epsilon", "3", "--lot", "80")
    code, out, err = called(tmp_path, *asked, "--steps", "2", "--out", "model", "--json", *more)
    assert code == 0, err
    assert json.loads(out)["hyperparameters"]["optimizer"] == name
    assert honestdp.load(tmp_path / "model").hyperparameters["optimizer"] == name


def test_the_estimators_take_it() -> None:
    x, y = clouds()
    how: dict[str, Any] = {"epsilon": 3, "delta": 1e-4, "lot": 400, "steps": 2, "bounds": (-4, 4)}
    classifier = honestdp.PrivateClassifier(classes=(0, 1), **how).fit(x, y)
    regressor = honestdp.PrivateRegressor(target_bounds=(0, 1), **how).fit(x, y)
    assert classifier.result_.hyperparameters["optimizer"] == "echo"
    assert regressor.result_.hyperparameters["optimizer"] == "horizon"
    assert classifier.get_params()["optimizer"] is None


class Frozen(nn.Module):
    """A body that is not trained, and dropout before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(3, 4).requires_grad_(False), nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.body(x.to(self.head.weight.dtype))))  # type: ignore[no-any-return]


class Places(nn.Module):
    """A class at each of four places, `[records, classes, places]`."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(7, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x)).transpose(1, 2)  # type: ignore[no-any-return]


def logits(found: Tensor, hidden: Tensor) -> dict[str, Tensor]:
    return {"logits": found, "hidden": hidden}


BCE = {"loss": nn.BCEWithLogitsLoss(reduction="none")}
X, TOKENS = torch.randn(60, 3), torch.randint(0, 7, (60, 4))
KINDS: dict[str, tuple[nn.Module, Any, dict[str, Any]]] = {
    "a dict": (Reader().double(), records(), {}),
    "outputs by name": (Reader(logits).double(), records(), {}),
    "frozen, dropout": (Frozen(), (X, torch.zeros(60, dtype=torch.int64)), {}),
    "float64": (Frozen().double(), (X.double(), torch.zeros(60, dtype=torch.int64)), {}),
    "whole numbers": (Frozen(), (torch.randint(0, 9, (60, 3)), torch.zeros(60, dtype=torch.int64)), {}),
    "places": (Places(), (TOKENS, TOKENS % 3), {}),
    "one output": (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), (X, X[:, 0].gt(0).float()), BCE),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_many_kinds_are_trained_by_it(kind: str) -> None:
    model, data, more = KINDS[kind]
    run = Run(records=60, lot=20, steps=3, noise=1.0)
    result = honestdp.train(model, data, run=run, delta=1e-3, compute=Compute(device="cpu"), **more)
    assert result.hyperparameters["optimizer"] == "echo"
    assert all(value.isfinite().all() for value in result.model.parameters())
