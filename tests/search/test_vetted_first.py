"""Models and losses are tried before the charge, as wide as a population trains them and as they are scored; strict searches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import honestdp
from honestdp import Budget
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel
from honestdp.ledger import Ledger
from tests.command_line import run
from tests.tiny_search import BUDGET, SEARCH, clouds, linear, weights


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def mixed(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.mixed(self.layer(x))


class AtTestTime(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return x if self.training or len(x) < 500 else x - x.mean(0)


class FirstBatch(Own):
    def mixed(self, x: Tensor) -> Tensor:
        if self.training:
            return x
        if not hasattr(self, "scale"):
            self.scale = x.detach().std(0)
        return x / self.scale


class InPopulations(Own):
    """One run's lot is 40; a population of four goes through the model at once."""

    def mixed(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training and len(x) > 120 else x


class InLots(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training and len(x) >= 16 else x


def hardest(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    if len(losses) <= 16:
        return losses
    return torch.where(losses >= losses.detach().topk(16).values[-1], losses, 0)


def ledger_of(folder: Path) -> dict[str, object]:
    path = folder / "ledger.db"
    Ledger(path).set_budget("tiny", Budget(10.0, 1e-4))
    return {"ledger": path, "dataset": "tiny"}


@pytest.mark.parametrize("kind", [AtTestTime, FirstBatch, InPopulations, InLots])
def test_a_model_that_mixes_examples_is_refused_before_the_charge(kind: type[Own], tmp_path: Path) -> None:
    named = ledger_of(tmp_path)
    with pytest.raises(RefusedModel, match=kind.__name__):
        honestdp.tune(kind, clouds(), selection="compose", **SEARCH, **named)
    assert not Ledger(named["ledger"]).charges("tiny")


def test_a_loss_that_mixes_examples_is_refused_before_the_charge(tmp_path: Path) -> None:
    named = ledger_of(tmp_path)
    with pytest.raises(InvalidArgument, match="loss that mixes"):
        honestdp.tune(linear, clouds(), selection="compose", loss=hardest, **SEARCH, **named)
    assert not Ledger(named["ledger"]).charges("tiny")


def test_a_strict_search_maps_each_example_in_training_and_in_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: set[int] = set()

    class Seen(Own):
        def mixed(self, x: Tensor) -> Tensor:
            shown.add(len(x))
            return x

    from honestdp.search.lifecycle import Search

    carry_out = Search.carry_out

    def begun(*args: object, **named: object) -> object:
        shown.clear()  # what has been shown so far was made up
        return carry_out(*args, **named)

    monkeypatch.setattr(Search, "carry_out", begun)
    result = honestdp.tune(Seen, clouds(), selection="compose", strict=True, **{**SEARCH, "steps": 3})
    assert "independent by construction" in str(result.statement)
    assert shown == {1}


def test_a_strict_search_finds_what_a_search_finds() -> None:
    results = [
        honestdp.tune(linear, clouds(), selection="compose", noise_seed=4, strict=strict, **SEARCH)
        for strict in (False, True)
    ]
    torch.testing.assert_close(*(weights(result.model) for result in results), rtol=1e-4, atol=1e-5)
    said = [str(result.statement) for result in results]
    assert "tried on made-up inputs, which proves nothing" in said[0]
    assert "independent by construction" in said[1]


@pytest.mark.slow
def test_strict_is_part_of_a_search_and_an_option_of_the_command(tmp_path: Path) -> None:
    out = tmp_path / "search"
    words = ("tune", "digits", "--epsilon", "3", "--steps", "3", "--lot", "64", "--validation", "0", "--out", str(out))
    code, _, trouble = run(tmp_path, *words, "--strict", "--json")
    assert code == 0, trouble
    public = json.loads((out / "search.json").read_text())
    assert public["strict"] is True
    assert "--strict" in public["reproduce"]


def test_the_budget_of_a_strict_search_is_that_of_any_other() -> None:
    result = honestdp.tune(linear, clouds(), strict=True, selection="compose", **SEARCH)
    assert result.epsilon <= BUDGET.epsilon
