"""Arguments of a model's function are searched like any hyperparameter: tried, trained apart, written, read and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import honestdp
from honestdp.checks import InvalidArgument
from honestdp.search import secret
from honestdp.search.secret import Secret
from tests.search.test_resume import Stopped
from tests.tiny_search import WHOLE, clouds, weights


def net(units: int = 3, *, gate: str = "tanh", bias: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, units, bias=bias), nn.Tanh() if gate == "tanh" else nn.ReLU(), nn.Linear(units, 2)
    )


SPACE = {"lr": [0.1], "clip": [1.0], "units": [2, 5], "gate": ["tanh", "relu"]}


@pytest.mark.slow
def test_every_architecture_leaves_with_its_arguments_and_is_read_again(tmp_path: Path) -> None:
    settings = {**WHOLE, "space": SPACE, "out": tmp_path / "out", "noise_seed": 1}
    result = honestdp.tune(net, clouds(), **settings)
    found = [(one.hyperparameters["units"], one.hyperparameters["gate"]) for one in result.candidates]
    assert found == [(2, "tanh"), (2, "relu"), (5, "tanh"), (5, "relu")]
    for one in result.candidates:
        assert one.model[0].out_features == one.hyperparameters["units"]
        assert isinstance(one.model[1], nn.Tanh if one.hyperparameters["gate"] == "tanh" else nn.ReLU)
    assert result.hyperparameters.items() >= {"optimizer": "sgd", "lr": 0.1}.items()
    again = honestdp.tune(net, clouds(), **settings, resume=True)
    assert again.hyperparameters == result.hyperparameters
    assert torch.equal(weights(again.model), weights(result.model))
    assert all(one.model[0].bias is not None for one in result.candidates)


def test_a_search_is_resumed_with_the_same_arguments_only(tmp_path: Path) -> None:
    search = Stopped(tmp_path, model=net, space=SPACE)
    search.refuses("differs in space", space={**SPACE, "gate": ["tanh"]})
    search.refuses("differs in model, space", space={**SPACE, "bias": [False]})
    assert search.resume().hyperparameters["units"] in (2, 5)


def test_runs_of_different_arguments_are_not_trained_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Secret] = []
    real = secret.drawn

    def kept(*args: Any, **more: Any) -> Secret:
        seen.append(real(*args, **more))
        return secret.read(secret.written(seen[-1]))  # as a resume would have it

    monkeypatch.setattr(secret, "drawn", kept)
    honestdp.tune(net, clouds(), **{**WHOLE, "space": {**SPACE, "lr": [0.1, 1.0]}})
    plan = seen[-1]
    assert secret.read(secret.written(plan)) == plan
    assert [len({plan.candidates[run].model for run in group}) for group in plan.groups()] == [1, 1, 1, 1]
    assert [len(group) for group in plan.groups()] == [2, 2, 2, 2]


def test_what_the_function_does_not_take_is_said_before_anything_else() -> None:
    with pytest.raises(InvalidArgument, match=r"argument of the model's factory \(units, gate, bias\), got 'width'"):
        honestdp.tune(net, clouds(), **{**WHOLE, "space": {**SPACE, "width": [1]}})
