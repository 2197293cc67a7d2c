"""Results of a training, a population and a search: one mode of the model, one set of verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import honestdp
from honestdp.optimizers import SGD
from tests.tiny_search import WHOLE, clouds

VERBS = (
    "model",
    "run",
    "hyperparameters",
    "score",
    "epsilon",
    "delta",
    "statement",
    "balance",
    "as_dict",
    "save",
    "report",
)
RUN = honestdp.Run(records=400, lot=40, steps=2, noise=1.0)


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    given = dropping()
    rules = [SGD(0.1, 1.0), SGD(0.2, 1.0)]
    found = {
        "train": honestdp.train(given, clouds(), run=RUN, optimizer=rules[0], delta=1e-5),
        "train in eval": honestdp.train(dropping().eval(), clouds(), run=RUN, optimizer=rules[0], delta=1e-5),
        "population": honestdp.train_population(dropping, clouds(), run=RUN, optimizers=rules, delta=1e-5)[1],
        "tune": honestdp.tune(given, clouds(), **{**WHOLE, "selection": "compose"}),
    }
    assert given.training
    return found


def test_every_model_is_in_eval_mode_whatever_mode_it_came_in(results: dict[str, Any]) -> None:
    models = [result.model for result in results.values()] + [one.model for one in results["tune"].candidates]
    assert len(models) > len(results)
    for model in models:
        assert not any(module.training for module in model.modules())
        x = torch.ones(5, 3)
        assert torch.equal(model(x), model(x))


def test_both_kinds_of_result_have_the_same_verbs(results: dict[str, Any], tmp_path: Path) -> None:
    for name, result in results.items():
        assert all(hasattr(result, verb) for verb in VERBS)
        assert result.delta == 1e-5 == result.as_dict()["delta"]
        assert result.hyperparameters["optimizer"] == "sgd"
        result.save(tmp_path / f"{name}.safetensors")
        assert result.report(tmp_path / f"{name}.html").exists()
    assert set(results["train"].as_dict()) <= set(results["tune"].as_dict())
