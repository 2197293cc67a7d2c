"""Searches over models of several inputs and outputs: trained and scored on them, on records in memory and from a Dataset."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import honestdp
from honestdp import Compute
from honestdp.gradients import RefusedModel
from honestdp.selection import Compose
from tests.several_inputs import Named, Reader, records

X, Y = records(300)


def dict_of(logits: Tensor, hidden: Tensor) -> dict[str, Any]:
    """With what holds something of every record of the batch, and is no tensor."""
    return {"hidden": hidden, "logits": logits, "cache": SimpleNamespace(all=hidden), "rows": len(hidden)}


def make() -> Reader:
    torch.manual_seed(0)
    return Reader(dict_of)


def search(data: Any = (X, Y), model: Any = make, **more: Any) -> honestdp.TuneResult:
    settings: dict[str, Any] = {
        "budget": honestdp.Budget(60.0, 1e-3),
        "optimizer": "sgd",
        "space": {"lr": [1e-6, 4.0], "clip": 1.0},
        "selection": Compose(candidates=2),
        "lot": 60,
        "steps": 40,
        "noise_seed": 1,
    }
    return honestdp.tune(model, data, **settings | more)


def accuracy(model: torch.nn.Module) -> float:
    with torch.no_grad():
        x = {**X, "table": X["table"].float()}
        return float((model(**x)["logits"].argmax(1) == Y).float().mean())


@pytest.mark.slow
def test_a_search_finds_the_model_that_learns_and_scores_it(tmp_path: Path) -> None:
    result = search(out=tmp_path / "out")
    assert result.hyperparameters["lr"] == 4.0
    assert accuracy(result.model) > 0.8
    assert result.score is not None
    assert abs(result.score.value - accuracy(result.model)) < 0.15
    again = search(out=tmp_path / "out", resume=True)
    assert again.score == result.score


@pytest.mark.slow
def test_a_metric_and_a_loss_of_ones_own_get_one_records_output_and_no_others() -> None:
    """What is no tensor of a row a record is None: it may hold the others."""

    def one(output: Any, y: Tensor) -> Tensor:
        assert set(output) == {"hidden", "logits", "cache", "rows"}
        assert output["hidden"].shape == (4,)
        assert output["cache"] is None
        assert output["rows"] is None
        return (output["logits"].argmax() == y).float()

    result = search(metric=honestdp.DeclaredMetric(one, low=0, high=1))
    assert result.hyperparameters["lr"] == 4.0
    assert search(metric=honestdp.ClippedLoss(3.0)).hyperparameters["lr"] == 4.0


@pytest.mark.slow
def test_a_dataset_of_dicts_is_decoded_by_workers_for_training_and_scores() -> None:
    result = search(Named(X, Y), metric=honestdp.Accuracy(), compute=Compute(workers=1), records=300)
    assert result.hyperparameters["lr"] == 4.0
    assert result.score is not None


class Careless(Reader):
    """Counts what is masked in a batch of scores, where it is in eval() mode."""

    def forward(self, ids: Tensor, mask: Tensor, table: Tensor) -> Any:
        return super().forward(ids, mask, table if self.training else table * mask.sum())


@pytest.mark.slow
def test_a_model_that_mixes_a_mask_where_it_scores_is_refused_before_the_charge(tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("some", honestdp.Budget(100.0, 1e-2))
    with pytest.raises(RefusedModel, match="mix examples"):
        search(model=Careless, ledger=tmp_path / "ledger.db", dataset="some", noise_seed=None)
    assert ledger.charges("some") == ()
