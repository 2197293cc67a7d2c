"""What is drawn is what is accounted: counts follow their stated law, candidates are uniform and independent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from honestdp.checks import InvalidArgument
from honestdp.selection import Compose, LiuTalwar, RandomStopping, Winner, count_of
from honestdp.selection.counts import Binomial, Count, TruncatedNegativeBinomial

DRAWS = 20000
FALSE_ALARM = 1e-6  # of each chi-square test, with a fixed seed besides


def masses(count: Count, most: int) -> np.ndarray:
    """P(K = k) for k = 0 .. most-1 by the generating function on a circle: nothing of the sampler is used."""
    size = 1 << 14
    radius = 0.9999
    x = radius * np.exp(2j * np.pi * np.arange(size) / size)
    phi = np.array([_generating(count, z) for z in x])
    found = np.fft.fft(phi).real / size / radius ** np.arange(size)
    return found[:most]


def _generating(count: Count, z: complex) -> complex:
    if isinstance(count, TruncatedNegativeBinomial):
        inner = np.log(count.gamma + (1 - count.gamma) * (1 - z))
        if count.shape == 0:
            return inner / np.log(count.gamma)
        return np.expm1(-count.shape * inner) / np.expm1(-count.shape * np.log(count.gamma))
    if isinstance(count, Binomial):
        return (1 - count.chance * (1 - z)) ** count.trials
    return np.exp(-count.mean * (1 - z))


def chi_square(drawn: np.ndarray, expected: np.ndarray) -> float:
    """p-value of the counts 0, 1, 2, ... against their masses, cells pooled to at least 20 expected."""
    total = 0.0
    observed = np.bincount(np.minimum(drawn, len(expected)), minlength=len(expected) + 1)
    mass = np.append(expected, max(0.0, 1 - expected.sum()))
    pooled_observed, pooled_expected, seen = [], [], 0
    for count, chance in zip(observed, mass * len(drawn), strict=True):
        seen, total = seen + count, total + chance
        if total >= 20:
            pooled_observed.append(seen)
            pooled_expected.append(total)
            seen, total = 0, 0.0
    bins = np.array(pooled_expected)
    bins[-1] += total
    pooled_observed[-1] += seen
    bins *= sum(pooled_observed) / bins.sum()
    return float(stats.chisquare(pooled_observed, bins).pvalue)


LAWS = [count_of(runs=mean, shape=shape) for shape in (-0.5, 0.0, 0.5, 1.0, 2.0, "poisson") for mean in (3.0, 27.0)]


@pytest.mark.parametrize("count", LAWS, ids=str)
def test_the_number_of_runs_follows_its_stated_law(count: Count) -> None:
    generator = np.random.default_rng(7)
    drawn = np.array([count.draw(generator) for _ in range(DRAWS)])
    assert drawn.min() >= (0 if count.none else 1)
    assert chi_square(drawn, masses(count, 2000)) > FALSE_ALARM


def test_the_test_sees_a_law_of_another_shape_or_a_mean_of_ten_percent_more() -> None:
    generator = np.random.default_rng(7)
    told = masses(count_of(runs=27.0, shape=1.0), 2000)
    for other in (count_of(runs=27.0, shape=0.5), count_of(runs=29.7, shape=1.0)):
        drawn = np.array([other.draw(generator) for _ in range(DRAWS)])
        assert chi_square(drawn, told) < FALSE_ALARM


def test_liu_talwar_ends_by_a_coin_and_a_hard_stop() -> None:
    generator = np.random.default_rng(3)
    selection = LiuTalwar(gamma=0.2)
    drawn = np.array([len(selection.draws(generator, 5)) for _ in range(DRAWS)])
    assert chi_square(drawn, np.append(0.0, 0.2 * 0.8 ** np.arange(200))) > FALSE_ALARM
    assert drawn.max() <= selection.most_runs
    assert LiuTalwar(gamma=1.0).draws(generator, 5)[0] in range(5)


@pytest.mark.parametrize("selection", [RandomStopping(count=count_of(runs=20.0, shape=1.0)), LiuTalwar(gamma=0.05)])
def test_candidates_are_drawn_uniformly_and_independently(selection: RandomStopping | LiuTalwar) -> None:
    generator = np.random.default_rng(5)
    first, pairs = np.zeros(6), np.zeros((6, 6))
    for _ in range(DRAWS):
        drawn = selection.draws(generator, 6)
        first[drawn[0]] += 1
        if len(drawn) > 1:
            pairs[drawn[0], drawn[1]] += 1
    assert stats.chisquare(first).pvalue > FALSE_ALARM
    assert stats.chisquare(pairs.ravel()).pvalue > FALSE_ALARM


@pytest.mark.parametrize("selection", [Compose(candidates=5), Winner(candidates=5)])
def test_a_grid_runs_every_candidate_once_and_no_other_grid(selection: Compose | Winner) -> None:
    assert selection.draws(np.random.default_rng(1), 5) == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidArgument, match="candidates"):
        selection.draws(np.random.default_rng(1), 6)


@pytest.mark.parametrize(("shape", "runs"), [(0.0, 1e15), (0.0, 1e18), (0.5, 1e18), (1.0, 1e18)])
def test_a_law_that_no_generator_can_draw_from_is_refused_in_words(shape: float, runs: float) -> None:
    law = count_of(runs=runs, shape=shape)  # it has a price, which a plan may compare
    with pytest.raises(InvalidArgument, match="runs must be fewer for a search"):
        law.draw(np.random.default_rng(0))


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0, 1000.0])
def test_what_is_not_refused_can_be_drawn(shape: float) -> None:
    for runs in (1.0, 1e6, 1e14):
        assert count_of(runs=runs, shape=shape).draw(np.random.default_rng(0)) >= 1
