"""Private scores: the noise that is charged, the choice that is charged, and numbers that mean what they say."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from honestdp import Accuracy, BalancedAccuracy, ClippedLoss, DeclaredMetric, LogLikelihood, LogLoss
from honestdp.boundary import bounds
from honestdp.boundary import score_noise as noises
from honestdp.boundary.metrics import PersonMean, check_metric, default_metric
from honestdp.boundary.score_noise import Score, best_of, choice_noise, question_noise, score_noise, score_of
from honestdp.checks import InvalidArgument

FALSE_ALARM = 1e-6
"""Of every test that draws from the operating system."""


# ---- What a record counts


@pytest.mark.parametrize(
    "metric",
    [
        Accuracy(),
        ClippedLoss(0.7),
        LogLoss(),
        LogLikelihood(low=-9.0, high=2.0),
        BalancedAccuracy([0.5, 0.01, 0.49]),
        DeclaredMetric(lambda out, y: 0, low=-3, high=1e6),
    ],
    ids=lambda metric: metric.name,
)
def test_a_record_counts_a_whole_number_within_the_sensitivity_whatever_its_number_is(metric) -> None:
    ends = [metric.worst, metric.best]
    weird = torch.tensor([*ends, math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320, 0.1], dtype=torch.float64)
    units = metric.units(weird)
    assert units.dtype == torch.int64
    assert int(units.abs().max()) == metric.sensitivity
    assert units[:2].tolist() == [-metric.sensitivity, metric.sensitivity]
    assert int(units[2]) == -metric.sensitivity  # NaN counts as the worst


def test_values_are_means_and_stay_within_the_range() -> None:
    metric = DeclaredMetric(lambda out, y: 0, low=-1.0, high=3.0)
    numbers = torch.linspace(-1, 3, 401)
    assert metric.value(int(metric.units(numbers).sum()), records=401) == pytest.approx(1.0, abs=0.01)
    assert [metric.value(total, records=10) for total in (-(10**9), 10**9)] == [-1.0, 3.0]
    loss = ClippedLoss(4.0)
    assert loss.value(int(loss.units(torch.tensor([0.0, 9.0])).sum()), records=2) == pytest.approx(2.0)


def test_a_range_is_finite_and_upright_and_given_by_name() -> None:
    for low, high in ((1.0, 1.0), (2.0, 1.0), (-1.7e308, 1.7e308), (0.0, math.inf), (math.nan, 1.0), (False, 1.0)):
        with pytest.raises(InvalidArgument, match=r"low|high"):
            DeclaredMetric(lambda out, y: 0, low=low, high=high)
    with pytest.raises(TypeError):
        DeclaredMetric(lambda out, y: 0, 1.0)  # type: ignore[call-arg, misc]  # a bound of old: not to be mistaken for an end
    with pytest.raises(InvalidArgument, match="bound"):
        ClippedLoss(0.0)


class Mine(Accuracy):
    sensitivity = 0


@pytest.mark.parametrize(
    "metric", [Mine(), PersonMean(Mine()), PersonMean(Accuracy), lambda out, y: 0.0, Accuracy, "accuracy"]
)
def test_only_the_metrics_whose_sensitivity_is_known_are_taken(metric: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"metric must be honestdp\.Accuracy"):
        check_metric(metric)


def test_labels_that_are_no_classes_need_a_bound() -> None:
    assert default_metric(torch.int64) == Accuracy()
    assert default_metric(torch.uint8) == Accuracy()
    for dtype in (torch.float32, torch.float64):
        with pytest.raises(InvalidArgument, match="ClippedLoss"):
            default_metric(dtype)


# ---- The noise of a score


def discrete_gaussian(scale: float, grid: np.ndarray) -> np.ndarray:
    every = np.arange(-200, 201).astype(float)
    return np.exp(-(grid.astype(float) ** 2) / (2 * scale**2)) / np.exp(-(every**2) / (2 * scale**2)).sum()


def surprise(drawn: np.ndarray, law: Callable[[np.ndarray], np.ndarray], reach: int) -> float:
    """p-value of draws against a law on whole numbers, the rare ones taken together."""
    grid = np.arange(-reach, reach + 1)
    mass = law(grid)
    observed = np.array([np.count_nonzero(drawn == value) for value in grid], dtype=float)
    enough = mass * len(drawn) >= 20
    expected = np.append(mass[enough] * len(drawn), (1 - mass[enough].sum()) * len(drawn))
    found = np.append(observed[enough], len(drawn) - observed[enough].sum())
    if expected[-1] < 1e-9:
        assert not found[-1]
        expected, found = expected[:-1], found[:-1]
    return float(stats.chisquare(found, expected).pvalue)


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(2.5, 1), (0.6, 3), (0.5, 1)])
def test_score_noise_is_the_discrete_gaussian_that_is_charged(multiplier: float, sensitivity: int) -> None:
    drawn = np.array(score_noise(20000, multiplier=multiplier, sensitivity=sensitivity, generator=None))
    scale = multiplier * sensitivity
    assert surprise(drawn, lambda grid: discrete_gaussian(scale, grid), int(5 * scale) + 1) > FALSE_ALARM
    twice = score_noise(50, multiplier=multiplier, sensitivity=sensitivity, generator=None)
    assert twice != score_noise(50, multiplier=multiplier, sensitivity=sensitivity, generator=None)


def test_rounded_normals_in_the_place_of_the_exact_sampler_are_noticed() -> None:
    """At scale 1/2 a rounded normal is 0 with probability 0.683, a discrete Gaussian with 0.787: the test above sees that."""
    rounded = np.rint(np.random.default_rng(1).normal(scale=0.5, size=20000))
    assert surprise(rounded, lambda grid: discrete_gaussian(0.5, grid), 4) < 1e-100


def test_without_a_seed_the_noise_is_drawn_by_the_exact_sampler_and_numpy_draws_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At larger scales no test of a law tells the two samplers apart, so this one looks who draws."""
    import opendp.prelude as dp

    made: list[tuple[str, float]] = []
    for name in ("make_gaussian", "make_laplace"):
        real = getattr(dp.m, name)

        def noted(*args: Any, _real: Any = real, _name: str = name, scale: float, **rest: Any) -> Any:
            made.append((_name, scale))
            return _real(*args, scale=scale, **rest)

        monkeypatch.setattr(dp.m, name, noted)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("numpy drew noise of a real search")

    for name in ("normal", "rint", "exponential", "geometric", "floor"):
        if hasattr(np, name):
            monkeypatch.setattr(noises.np, name, refused)
    monkeypatch.setattr(noises.np.random, "default_rng", refused)
    assert len(score_noise(100, multiplier=30.0, sensitivity=128, generator=None)) == 100
    assert len(choice_noise(100, epsilon=0.25, sensitivity=3, generator=None)) == 100
    assert made == [("make_gaussian", 30.0 * 128), ("make_laplace", math.nextafter(24.0, math.inf))]


# ---- The choice among composed runs


def geometric(scale: float, grid: np.ndarray) -> np.ndarray:
    return np.where(grid < 0, 0.0, np.exp(-np.maximum(grid, 0) / scale) * -np.expm1(-1 / scale))


@pytest.mark.parametrize("generator", [None, np.random.default_rng(4)], ids=["private", "seeded"])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(2.0, 1), (0.5, 2)])
def test_the_noise_of_a_choice_is_geometric(epsilon: float, sensitivity: int, generator: Any) -> None:
    drawn = np.array(choice_noise(20000, epsilon=epsilon, sensitivity=sensitivity, generator=generator))
    scale = 2 * sensitivity / epsilon
    assert drawn.min() == 0
    assert surprise(drawn, lambda grid: geometric(scale, grid), int(12 * scale)) > FALSE_ALARM
    assert surprise(drawn, lambda grid: geometric(scale / 1.2, grid), int(12 * scale)) < FALSE_ALARM
    assert choice_noise(0, epsilon=epsilon, sensitivity=sensitivity, generator=generator) == []


Rule = Callable[[tuple[int, ...], tuple[int, ...]], int]
"""(totals, noise) -> the winner."""


def product_rule(totals: tuple[int, ...], noise: tuple[int, ...]) -> int:
    return best_of({i: total + z for i, (total, z) in enumerate(zip(totals, noise, strict=True))})


def ties_by_data(totals: tuple[int, ...], noise: tuple[int, ...]) -> int:
    return max(range(len(totals)), key=lambda i: (totals[i] + noise[i], totals[i], -i))


def law_of(totals: tuple[int, ...], scale: float, rule: Rule, reach: int) -> np.ndarray:
    """The law of the winner by enumeration of every noise below `reach`; what is cut off goes to nobody."""
    mass = geometric(scale, np.arange(reach))
    chances = np.zeros(len(totals))
    for noise in itertools.product(range(reach), repeat=len(totals)):
        chances[rule(totals, noise)] += math.prod(mass[z] for z in noise)
    return chances


def worst_loss(epsilon: float, *, scale: float, rule: Rule, candidates: int, reach: int) -> float:
    """The largest log-ratio of a winner's chance between totals and neighbours, each moved by at most D = 1, both ways."""
    cut = candidates * math.exp(-reach / scale)
    found, laws = 0.0, {}
    totals = list(itertools.product(range(3), repeat=candidates))
    for one in totals:
        laws[one] = law_of(one, scale, rule, reach)
    for one, other in itertools.product(totals, totals):
        if max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1:
            found = max(found, float(np.log(laws[one] / (laws[other] + cut)).max()))
    return found


@pytest.mark.parametrize(("candidates", "epsilon", "reach"), [(2, 1.0, 60), (3, 3.0, 20)])
def test_the_choice_keeps_its_epsilon_in_both_directions(candidates: int, epsilon: float, reach: int) -> None:
    """Its exact law on every pair of neighbours among totals of 0, 1, 2; half of epsilon is reached, so the test can fail."""
    found = worst_loss(epsilon, scale=2 / epsilon, rule=product_rule, candidates=candidates, reach=reach)
    assert 0.5 * epsilon < found <= epsilon + 1e-9


def test_a_smaller_scale_and_ties_settled_by_the_data_break_it() -> None:
    assert worst_loss(1.0, scale=1.0, rule=product_rule, candidates=2, reach=40) > 1.05
    assert worst_loss(1.0, scale=2.0, rule=ties_by_data, candidates=2, reach=60) > 1.05


def test_of_equals_the_first_is_chosen() -> None:
    assert best_of({3: 5, 1: 5, 2: 4}) == 1
    assert best_of({7: -2}) == 7


# ---- Words


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


def test_an_interval_covers_a_mean_of_ones_own() -> None:
    """At least 95 %: the sampling variance is that of the widest numbers. False alarm below 1e-6."""
    generator = np.random.default_rng(4)
    metric = DeclaredMetric(lambda out, y: 0, low=-2.0, high=2.0)
    records, fraction, multiplier, covered = 2000, 0.2, 6.0, 0
    for _ in range(1000):
        numbers = np.clip(generator.normal(1.0, 0.8, size=records), -2, 2)
        held = generator.random(records) < fraction
        units = metric.units(torch.from_numpy(numbers[held]))
        total = int(units.sum()) + int(np.rint(generator.normal(scale=multiplier * metric.sensitivity)))
        score = score_of(metric, total, multiplier=multiplier, records=records * fraction, fraction=fraction)
        covered += score.low <= 0.98 <= score.high
    assert covered >= 915


def test_the_noise_of_a_score_is_that_of_any_other_where_its_value_is_cut_to_a_limit() -> None:
    whole, half = (score_of(Accuracy(), total, multiplier=3.0, records=100, fraction=0.2) for total in (130, 0))
    assert whole.value == 1.0
    assert whole.noise == pytest.approx(half.noise) == pytest.approx(3.0 / 200)
    assert whole.low < 1.0


def test_exact_noise_is_drawn_without_what_opendp_imports_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its prelude takes a second of every process of a search, for scikit-learn and pandas, which no noise needs."""
    for name in ("opendp.prelude", "opendp.extras", "sklearn", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)  # to import it is an error
    assert len(score_noise(3, multiplier=1.0, sensitivity=1, generator=None)) == 3
    assert min(choice_noise(3, epsilon=1.0, sensitivity=1, generator=None)) >= 0
    assert isinstance(question_noise(epsilon=1.0, sensitivity=1), int)
    assert bounds._quantile(0.5, 1.0, np.arange(5.0))([2.0] * 50) in range(5)


def test_a_score_whose_interval_holds_the_value_of_no_label_says_so() -> None:
    """By public numbers alone: S = 0 is the sum of no record, whatever the metric."""
    given: dict[str, Any] = {"multiplier": 2.0, "records": 400, "fraction": 0.2}
    for metric, middle in ((Accuracy(), "0.5"), (LogLoss(), "2.5"), (BalancedAccuracy([0.9, 0.1]), "0.5")):
        none, many = (score_of(metric, int(part * metric.sensitivity), **given) for part in (0, 390))
        assert f"the interval holds {middle}, also the score where no record has a declared label" in none.caution
        assert none.caution in none.in_words()
        assert many.caution == ""
        assert Score.from_dict(none.as_dict()) == none
    assert Score("accuracy", 0.5, 0.4, 0.6, 0.01).caution == ""  # of an earlier version, which did not say
