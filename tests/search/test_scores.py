"""Private scores: exact sensitivity, exact noise, and nothing that a failing metric could betray."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from honestdp import Accuracy, ClippedLoss, DeclaredMetric
from honestdp.checks import InvalidArgument
from honestdp.losses import cross_entropy, squared_error
from honestdp.scores import Validation, default_metric, private_choice, score_noise, score_of

FALSE_ALARM = 1e-6


class Given(nn.Module):
    """A model that gives out its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def classes(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.randint(4, (n,), generator=generator)


METRICS = [
    (Accuracy(), cross_entropy, classes),
    (ClippedLoss(0.7), cross_entropy, classes),
    (DeclaredMetric(lambda out, y: float((out.argmax(1) == y).sum()) / 3, bound=1 / 3), cross_entropy, classes),
]


@pytest.mark.parametrize(("metric", "loss", "records"), METRICS, ids=["accuracy", "loss", "declared"])
def test_one_record_moves_a_total_by_at_most_its_sensitivity(metric, loss, records) -> None:
    x, y = records(60, 1)
    x[3] = math.nan
    x[5] = math.inf
    x[7] = -1e30
    whole = Validation(x, y, loss=loss, metric=metric).total(Given())
    reached = 0
    for i in range(len(x)):
        keep = torch.arange(len(x)) != i
        without = Validation(x[keep], y[keep], loss=loss, metric=metric).total(Given())
        reached = max(reached, abs(whole - without))
    assert 0 < reached <= metric.sensitivity
    if not isinstance(metric, DeclaredMetric):
        assert reached == metric.sensitivity  # the bound is met, so no smaller one would do


def test_totals_say_the_accuracy_and_the_mean_loss() -> None:
    x, y = classes(500, 2)
    right = float((x.argmax(1) == y).float().mean())
    total = Validation(x, y, loss=cross_entropy, metric=Accuracy()).total(Given())
    assert Accuracy().value(total, records=500) == pytest.approx(right)
    metric = ClippedLoss(1.5)
    total = Validation(x, y, loss=cross_entropy, metric=metric).total(Given())
    clipped = float(cross_entropy(x, y).clamp(max=1.5).mean())
    assert metric.value(total, records=500) == pytest.approx(clipped, abs=1.5 / 512)


def test_batches_do_not_change_a_total() -> None:
    x, y = classes(100, 3)
    totals = {
        Validation(x, y, loss=cross_entropy, metric=Accuracy(), batch=size).total(Given()) for size in (1, 7, 100)
    }
    assert len(totals) == 1
    assert Validation(x[:0], y[:0], loss=cross_entropy, metric=Accuracy()).total(Given()) == 0


@pytest.mark.parametrize("metric", [Accuracy(), ClippedLoss(1.0)], ids=["accuracy", "loss"])
def test_a_record_on_which_the_loss_fails_does_not_take_the_others_with_it(metric) -> None:
    x, y = classes(300, 5)
    whole = Validation(x, y, loss=cross_entropy, metric=metric).total(Given())
    more = torch.cat([x, x[:1]]), torch.cat([y, torch.tensor([9])])  # no such class: cross-entropy raises
    assert abs(Validation(*more, loss=cross_entropy, metric=metric).total(Given()) - whole) <= metric.sensitivity


def test_a_loss_far_below_zero_counts_as_none() -> None:
    x, y = classes(50, 6)
    losses = torch.zeros(50)
    losses[3] = -1e6
    found = [
        Validation(x, y, loss=lambda out, y, own=own: own, metric=ClippedLoss(1.0)).total(Given())
        for own in (losses, losses * 0)
    ]
    assert found[0] == found[1]


def test_a_metric_that_fails_or_is_no_number_counts_as_nothing_and_says_nothing() -> None:
    x, y = classes(10, 4)

    def fails(out: torch.Tensor, y: torch.Tensor) -> float:
        raise RuntimeError("record 7 is odd")

    for function in (fails, lambda out, y: math.nan, lambda out, y: math.inf):
        metric = DeclaredMetric(function, bound=1.0)
        assert Validation(x, y, loss=cross_entropy, metric=metric).total(Given()) == 0


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(2.5, 1), (0.6, 3)])
def test_score_noise_is_the_discrete_gaussian_that_is_charged(multiplier: float, sensitivity: int) -> None:
    drawn = np.array(score_noise(20000, multiplier=multiplier, sensitivity=sensitivity, generator=None))
    scale = multiplier * sensitivity
    reach = int(5 * scale)
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x.astype(float) ** 2) / (2 * scale**2))
    mass /= np.exp(-(np.arange(-200, 201).astype(float) ** 2) / (2 * scale**2)).sum()
    observed = np.array([np.count_nonzero(drawn == value) for value in x], dtype=float)
    enough = mass * len(drawn) >= 20
    expected = np.append(mass[enough] * len(drawn), (1 - mass[enough].sum()) * len(drawn))
    found = np.append(observed[enough], len(drawn) - observed[enough].sum())
    assert stats.chisquare(found, expected).pvalue > FALSE_ALARM
    twice = score_noise(50, multiplier=multiplier, sensitivity=sensitivity, generator=None)
    assert twice != score_noise(50, multiplier=multiplier, sensitivity=sensitivity, generator=None)


def noisy_maximum(totals: np.ndarray, scale: float) -> np.ndarray:
    """The exact chance of each candidate to have the highest total plus exponential noise, by quadrature."""
    gaps = totals.max() - totals
    noise = np.linspace(0.0, 40.0, 8001)  # the noise of the winner beyond its gap, in scales
    chances = []
    for i in range(len(totals)):
        over = (noise * scale)[:, None] + gaps[np.arange(len(totals)) != i][None, :]
        others = np.prod(-np.expm1(-over / scale), axis=1)
        chances.append(np.trapezoid(np.exp(-noise - gaps[i] / scale) * others, noise))
    return np.array(chances)


@pytest.mark.parametrize("seeded", [False, True])
def test_private_choice_follows_the_law_of_a_noisy_maximum(seeded: bool) -> None:
    totals, epsilon, sensitivity = [10, 14, 12, 6], 0.5, 2
    generator = np.random.default_rng(1) if seeded else None
    drawn = [private_choice(totals, epsilon=epsilon, sensitivity=sensitivity, generator=generator) for _ in range(6000)]
    chances = noisy_maximum(np.array(totals), 2 * sensitivity / epsilon)
    assert chances.sum() == pytest.approx(1.0, abs=1e-5)
    assert stats.chisquare(np.bincount(drawn, minlength=4), chances / chances.sum() * 6000).pvalue > FALSE_ALARM


def test_the_noisy_maximum_keeps_its_epsilon_however_many_candidates_there_are() -> None:
    """Its exact probabilities, on neighbours whose totals move by D in any directions."""
    generator = np.random.default_rng(2)
    epsilon, sensitivity = 0.8, 3
    worst = 0.0
    for k in (2, 5, 20):
        for _ in range(10):
            totals = generator.integers(-10, 10, size=k)
            moved = totals + generator.choice([-sensitivity, sensitivity], size=k)
            first, second = (noisy_maximum(t, 2 * sensitivity / epsilon) for t in (totals, moved))
            worst = max(worst, float(np.abs(np.log(first / second)).max()))
    assert 0.5 * epsilon < worst <= epsilon * (1 + 1e-5)


def test_an_interval_covers_the_accuracy_of_all_records() -> None:
    """95 % of noisy scores on coin-chosen records; false alarm below 1e-6 by the binomial law."""
    generator = np.random.default_rng(3)
    records, fraction, chance, multiplier = 2000, 0.2, 0.85, 6.0
    covered = 0
    for _ in range(2000):
        right = generator.random(records) < chance
        held = generator.random(records) < fraction
        total = int(2 * (right & held).sum() - held.sum()) + int(np.rint(generator.normal(scale=multiplier)))
        score = score_of(Accuracy(), total, multiplier=multiplier, records=records * fraction, fraction=fraction)
        covered += score.low <= chance <= score.high
    assert 1890 <= covered <= 1950


def test_the_noise_of_a_score_is_that_of_any_other_where_its_value_is_cut_to_a_limit() -> None:
    whole, half = (score_of(Accuracy(), total, multiplier=3.0, records=100, fraction=0.2) for total in (130, 0))
    assert whole.value == 1.0
    assert whole.noise == pytest.approx(half.noise) == pytest.approx(3.0 / 200)
    assert whole.low < 1.0


def test_labels_that_are_no_classes_need_a_bound() -> None:
    assert default_metric(torch.int64) == Accuracy()
    assert default_metric(np.dtype("uint8")) == Accuracy()
    for dtype in (torch.float32, np.dtype("float64")):
        with pytest.raises(InvalidArgument, match="ClippedLoss"):
            default_metric(dtype)
    with pytest.raises(InvalidArgument, match="bound"):
        ClippedLoss(0.0)
    x = torch.tensor([[1.0], [3.0]])
    y = torch.tensor([1.0, 0.0])
    total = Validation(x, y, loss=squared_error, metric=ClippedLoss(4.0)).total(Given())
    assert ClippedLoss(4.0).value(total, records=2) == pytest.approx(2.0)
