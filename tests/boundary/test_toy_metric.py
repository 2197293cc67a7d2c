"""A new kind of metric is one class and one place in METRICS: a search is scored by it, and its numbers are bounded for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import losses
from honestdp.boundary import metrics
from honestdp.boundary.metrics import Metric, Numbers
from honestdp.boundary.scores import ScoreDoor
from honestdp.checks import InvalidArgument
from honestdp.losses import Loss


@dataclass(frozen=True)
class Margin(Metric):
    """How far the output of the label is ahead of the next one, from -1 to 1."""

    name: str = "margin"
    worst, best = -1.0, 1.0

    def numbers(self, loss: Loss) -> Numbers:
        return margins

    def check(self, loss: Loss, output: Any, y: Any) -> None:
        if output.shape[1] > 2:
            raise InvalidArgument("metric", self.name, "another for more than two classes")


def margins(output: Tensor, y: Tensor) -> Tensor:
    own = output.gather(1, y[:, None])[:, 0]
    return own - output.scatter(1, y[:, None], -torch.inf).amax(1)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS", (*metrics.METRICS, Margin))


def search(model: nn.Module, metric: Metric) -> honestdp.TuneResult:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    data = x, (x[:, 0] > 0).long()
    space = {"lr": [0.1, 1.0], "clip": 1.0, "lot": 20, "epochs": 2}
    budget = honestdp.Budget(20.0, 1e-5)
    how = {"optimizer": "sgd", "space": space, "validation": 0.5, "metric": metric}
    # each candidate once: a number of runs that is drawn may be zero, and then there is no score
    return honestdp.tune(model, data, budget=budget, selection="winner", **how)


def test_a_search_is_scored_by_it() -> None:
    score = search(nn.Linear(4, 2), Margin()).score
    assert score is not None
    assert score.name == "margin"
    assert -1 <= score.low <= score.value <= score.high <= 1


def test_its_own_check_is_asked_before_a_record_is() -> None:
    with pytest.raises(InvalidArgument, match="another for more than two classes"):
        search(nn.Linear(4, 3), Margin())


def test_a_record_counts_for_no_more_than_the_sensitivity_whatever_its_number() -> None:
    x, y = torch.tensor([[1e30, 0.0], [0.0, 1e30]]), torch.tensor([0, 0])
    for some, wanted in ((slice(0, 1), 128), (slice(1, 2), -128), (slice(None), 0)):
        door = ScoreDoor(x[some], y[some], loss=losses.cross_entropy, metric=Margin(), noise=[(0,)], width=4)
        assert door.score(0, nn.Identity()) == (wanted,)


def test_a_subclass_of_a_metric_is_refused() -> None:
    class Louder(Margin):
        sensitivity = 1

    with pytest.raises(InvalidArgument, match="metric must be"):
        search(nn.Linear(4, 2), Louder())
