"""Balanced accuracy and log loss: bounded by construction for whatever model and labels, and what they are called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import honestdp
from honestdp import Accuracy, BalancedAccuracy, ClippedLoss, LogLoss
from honestdp.boundary import metrics
from honestdp.boundary.data import PrivateData
from honestdp.boundary.metrics import Metric, balanced, log_loss
from honestdp.boundary.score_noise import score_of
from honestdp.boundary.scores import ScoreDoor
from honestdp.checks import InvalidArgument
from honestdp.losses import cross_entropy
from honestdp.losses.class_weights import ClassWeighted
from honestdp.search.request import metric_of
from tests.tiny_search import BUDGET, WHOLE, clouds, linear

PARTS = (0.7, 0.25, 0.05)


def table(outputs: torch.Tensor) -> nn.Module:
    """A model whose outputs are looked up: record i is its own number."""
    return nn.Embedding.from_pretrained(outputs, freeze=False)


def total(metric: Metric, outputs: torch.Tensor, y: torch.Tensor, kept: list[int] | None = None) -> int:
    """S of these records, without noise."""
    rows = torch.arange(len(y)) if kept is None else torch.tensor(kept)
    door = ScoreDoor(rows, y[rows], loss=cross_entropy, metric=metric, noise=[(0,)], width=16)
    return door.score(0, table(outputs))[0]


def hostile(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of any size, infinite and NaN ones among them, and labels of which some are no class at all."""
    generator = torch.Generator().manual_seed(seed)
    outputs = (
        torch.randn(40, 3, generator=generator) * 10 ** torch.randint(-3, 30, (40, 1), generator=generator).float()
    )
    outputs[::7, 1] = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 3e38, -3e38])
    return outputs, torch.randint(-2, 6, (40,), generator=generator)


def worst_move(metric: Metric) -> int:
    """The most by which leaving out one record moves S."""
    moves = []
    for seed in range(3):
        outputs, y = hostile(seed)
        every = total(metric, outputs, y)
        for i in range(len(y)):
            moves.append(abs(every - total(metric, outputs, y, [j for j in range(len(y)) if j != i])))
    return max(moves)


@pytest.mark.parametrize("metric", [BalancedAccuracy(PARTS), LogLoss(), LogLoss(0.5)], ids=str)
def test_one_record_moves_the_score_by_at_most_the_sensitivity(metric: Metric) -> None:
    assert 0 < worst_move(metric) <= metric.sensitivity


def test_a_bound_that_is_not_kept_is_noticed() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "clamp_", lambda self, *_: self)
        assert worst_move(LogLoss(0.5)) > LogLoss(0.5).sensitivity


def test_a_mean_over_the_classes_that_are_there_is_noticed() -> None:
    """As balanced accuracy is often computed: the only record of a class then changes what all others count."""

    def over_those_present(weights: Any, output: Any, y: torch.Tensor) -> torch.Tensor:
        return balanced([weight * len(weights) / len(y.unique()) for weight in weights], output, y)

    metric, y = BalancedAccuracy(PARTS), torch.tensor([0] * 16 + [2])
    outputs = functional.one_hot(torch.zeros_like(y), 3).float()  # the last is wrong

    def moved() -> int:
        return abs(total(metric, outputs, y) - total(metric, outputs, y, list(range(16))))

    assert moved() <= metric.sensitivity
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "balanced", over_those_present)
        patch.setattr(ScoreDoor, "_total", _unfilled)
        assert moved() > metric.sensitivity


def _unfilled(self: Any, model: nn.Module, _: Any) -> torch.Tensor:
    """S with all records in one batch, and none that is blank."""
    x, y = (torch.cat(parts) for parts in zip(*self._batches, strict=True))
    return self._metric.units(self._numbers(model(x).detach(), y)).sum()


def test_at_the_declared_parts_it_is_balanced_accuracy() -> None:
    """140 + 50 + 10 records, of which 7/10, 1/2 and 1/5 are right: the mean of the three, to the rounding of a unit."""
    y = torch.tensor([0] * 140 + [1] * 50 + [2] * 10)
    right = torch.tensor([1] * 98 + [0] * 42 + [1] * 25 + [0] * 25 + [1] * 2 + [0] * 8).bool()
    outputs = functional.one_hot(torch.where(right, y, (y + 1) % 3), 3).float()
    metric = BalancedAccuracy(PARTS)
    value = metric.value(total(metric, outputs, y), records=200)
    assert value == pytest.approx((0.7 + 0.5 + 0.2) / 3, abs=0.5 / 128 * max(metric.weights))
    plain = Accuracy().value(total(Accuracy(), outputs, y), records=200)
    assert plain == pytest.approx(125 / 200)


def test_a_score_stays_between_nothing_and_all() -> None:
    metric = BalancedAccuracy([0.99, 0.01])
    for noisy in (-(10**6), 0, 10**6):
        score = score_of(metric, noisy, multiplier=3.0, records=100.0, fraction=0.2)
        assert 0 <= score.low <= score.value <= score.high <= 1
    assert score.noise == pytest.approx(3.0 * 50 / (2 * 100))


def test_log_loss_is_that_of_torch_and_of_nothing_else() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, y = torch.randn(50, 3, generator=generator), torch.randint(3, (50,), generator=generator)
    expected = functional.cross_entropy(outputs, y)
    metric = LogLoss()
    assert metric.value(total(metric, outputs, y), records=50) == pytest.approx(float(expected), abs=5 / 256)
    logit, second = torch.randn(50, 1, generator=generator), torch.randint(2, (50,), generator=generator)
    expected = functional.binary_cross_entropy_with_logits(logit[:, 0], second.float())
    for labels in (second, second.float(), 2 * second - 1):
        assert float(log_loss(logit, labels).mean()) == pytest.approx(float(expected), rel=1e-5)
    assert not metric.asks_user(lambda output, y: output.sum(1))
    assert not BalancedAccuracy(PARTS).asks_user(lambda output, y: output.sum(1))
    assert float(metric.numbers(cross_entropy)(torch.zeros(2, 3, 4), torch.zeros(2, 4).long())[0]) == pytest.approx(
        math.log(3)
    )


# ---- By name

DATA = PrivateData(clouds()).shapes


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("accuracy", Accuracy()),
        ("log loss", LogLoss()),
        ("log-loss", LogLoss()),
        ("Log_Loss", LogLoss()),
        (None, Accuracy()),
    ],
)
def test_metrics_are_known_by_name(name: str | None, metric: Metric) -> None:
    assert metric_of(name, DATA, validation=0.2) == metric


def test_balanced_accuracy_wants_a_declared_prevalence() -> None:
    assert metric_of("balanced accuracy", DATA, validation=0.2, prevalence=[0.9, 0.1]) == BalancedAccuracy((0.9, 0.1))
    with pytest.raises(
        InvalidArgument, match=r"prevalence must be given .* declared .* never counted from these records"
    ):
        metric_of("balanced accuracy", DATA, validation=0.2)


@pytest.mark.parametrize(
    "parts",
    [
        [1.0],
        [0.5, 0.6],
        [0.5, 0.0, 0.5],
        [0.5, math.nan],
        [True, False],
        torch.tensor([0.5, 0.5]),
        np.array([0.5, 0.5]),
        0.5,
        "ab",
    ],
    ids=str,
)
def test_a_prevalence_that_is_none_or_comes_as_an_array_is_refused(parts: Any) -> None:
    with pytest.raises(InvalidArgument, match="prevalence must be a list"):
        BalancedAccuracy(parts)


@pytest.mark.parametrize("name", ["auc", "ROC AUC", "AUROC"])
def test_auc_is_refused_with_what_to_take_in_its_place(name: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"compares pairs of records.*log loss judges probabilities.*on public records"
    ):
        metric_of(name, DATA, validation=0.2)


def test_another_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidArgument, match="metric must be one of accuracy, balanced accuracy, log loss"):
        metric_of("f1", DATA, validation=0.2)


# ---- In a search


def test_a_search_is_scored_by_balanced_accuracy_with_class_weights() -> None:
    more: dict[str, Any] = {"metric": "balanced accuracy", "class_weights": "balanced", "prevalence": [0.5, 0.5]}
    result = honestdp.tune(linear, clouds(), **{**WHOLE, **more})
    assert result.score is not None
    assert result.score.name == "balanced accuracy"
    assert result.epsilon <= BUDGET.epsilon
    assert "prevalence of classes are declared, public, and not counted" in str(result.statement)
    plain = honestdp.tune(linear, clouds(), **{**WHOLE, "metric": "log loss"})
    assert plain.score is not None
    assert plain.score.name == "log loss"
    assert "prevalence" not in str(plain.statement)


def test_a_prevalence_of_other_classes_than_the_models_is_refused_before_the_charge() -> None:
    with pytest.raises(InvalidArgument, match=r"prevalence must be of 2 classes, as the model's outputs have"):
        honestdp.tune(linear, clouds(), **{**WHOLE, "metric": "balanced accuracy", "prevalence": [0.4, 0.3, 0.3]})
    with pytest.raises(InvalidArgument, match=r"class_weights must be of 2 classes"):
        honestdp.tune(linear, clouds(), **{**WHOLE, "class_weights": [1, 2, 3]})


def test_a_loss_with_class_weights_is_scored_record_by_record() -> None:
    """By ClippedLoss: weighted as it is trained, each record by itself."""
    outputs, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3
    loss = ClassWeighted((1.0, 2.0, 4.0))
    found = ClippedLoss(9.0).numbers(loss)(outputs, y)
    expected = functional.cross_entropy(outputs, y, reduction="none") * torch.tensor([1.0, 2.0, 4.0])[y]
    torch.testing.assert_close(found.float(), expected)
