"""A Gaussian answer whose lattice nobody said costs at least what it costs on each, and hardly more than on the dearest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from scipy import special

from honestdp import accounting
from honestdp.accounting import AnyGaussianDpEvent, DiscreteGaussianDpEvent, UnknownEvent, lattices, quiet
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import Array

SENSITIVITIES = (1, 2, 3, 5, 8, 64, 65, 66, 100, 300)


def exact_discrete(multiplier: float, sensitivity: int, epsilons: Array) -> Array:
    """delta of the discrete law, summed over positive terms alone."""
    scale = multiplier * sensitivity
    reach = math.ceil(39 * scale)
    x = np.arange(-reach, reach + sensitivity + 1, dtype=np.float64)
    p = np.exp(-((x - sensitivity) ** 2) / (2 * scale**2))
    excess = (2 * x * sensitivity - sensitivity**2) / (2 * scale**2) - epsilons[:, None]
    return np.asarray((p / p.sum() * -np.expm1(-np.maximum(excess, 0.0))).sum(axis=1))


@pytest.mark.parametrize("multiplier", [0.2, 0.4, 0.7, 1.0, 3.0, 8.0])
def test_no_lattice_has_a_greater_profile(multiplier: float) -> None:
    epsilons = np.linspace(0.0, lattices._end(multiplier, 1e-30), 101)
    bound = lattices.deltas(multiplier, epsilons)
    for sensitivity in SENSITIVITIES:
        assert np.all(bound >= exact_discrete(multiplier, sensitivity, epsilons) * (1 - 1e-12)), sensitivity
    a, b = 0.5 / multiplier - epsilons * multiplier, -0.5 / multiplier - epsilons * multiplier
    assert np.all(bound >= special.ndtr(a) - np.exp(epsilons + special.log_ndtr(b)))


@pytest.mark.parametrize("multiplier", [0.4, 1.0])
def test_the_bound_for_finer_lattices_holds_for_coarse_ones_too(multiplier: float, monkeypatch) -> None:
    """With no lattice counted as it is, the bound speaks for every one of them: nothing else could hide a fault in it."""
    monkeypatch.setattr(lattices, "MOST_COUNTED", 0)
    epsilons = np.linspace(0.0, lattices._end(multiplier, 1e-30), 101)
    bound = lattices.deltas(multiplier, epsilons)
    exact = [exact_discrete(multiplier, sensitivity, epsilons) for sensitivity in SENSITIVITIES]
    assert np.all(bound >= np.max(exact, axis=0) * (1 - 1e-12))
    assert np.any(np.max(exact, axis=0) > lattices.continuous(multiplier, epsilons) * 1.3)


@pytest.mark.parametrize(
    ("multiplier", "tolerance"), [(0.2, 0.02), (0.4, 2e-3), (1.0, 1e-3), (5.0, 1e-3), (300.0, 1e-3)]
)
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_epsilon_is_hardly_more_than_that_of_the_dearest_law(multiplier: float, tolerance: float, delta: float) -> None:
    laws = [GaussianDpEvent(multiplier), *(DiscreteGaussianDpEvent(multiplier, d) for d in SENSITIVITIES)]
    dearest = max(accounting.epsilon(law, delta=delta) for law in laws)
    found = accounting.epsilon(AnyGaussianDpEvent(multiplier), delta=delta)
    assert dearest * (1 - accounting.pld.TOLERANCE) <= found <= dearest * (1 + tolerance)


def test_one_between_whole_numbers_and_continuous_noise_may_be_the_dearest() -> None:
    """The reason why the worse of those two is no bound."""
    five, *ends = (
        accounting.epsilon(law, delta=1e-12)
        for law in (DiscreteGaussianDpEvent(0.4, 5), DiscreteGaussianDpEvent(0.4, 1), GaussianDpEvent(0.4))
    )
    assert five > max(ends) * 1.005


def test_many_of_them_compose_as_the_dearest_law_or_above_it() -> None:
    many = accounting.epsilon(SelfComposedDpEvent(AnyGaussianDpEvent(2.0), 30), delta=1e-6)
    laws = (GaussianDpEvent(2.0), DiscreteGaussianDpEvent(2.0, 1), DiscreteGaussianDpEvent(2.0, 2))
    each = [accounting.epsilon(SelfComposedDpEvent(law, 30), delta=1e-6) for law in laws]
    assert max(each) * (1 - accounting.pld.TOLERANCE) <= many <= max(each) * 1.01


def test_both_directions_have_one_profile() -> None:
    pair = dominating_pair(accounting.events.steps_of(AnyGaussianDpEvent(0.7)), delta=1e-6)
    assert pair is not None
    assert pair.epsilon(1e-6) == pytest.approx(pair.reversed.epsilon(1e-6), rel=1e-6)


def test_losses_beyond_numbers_fall_back_to_the_renyi_bound_of_them_all() -> None:
    curve, other = (accounting.renyi_curve(law(0.02)) for law in (AnyGaussianDpEvent, DiscreteGaussianDpEvent))
    np.testing.assert_array_equal(curve.values, other.values)
    with pytest.warns(accounting.FallBack):
        assert accounting.epsilon(AnyGaussianDpEvent(0.02), delta=1e-6) < math.inf
    with quiet():
        twice = accounting.epsilon(ComposedDpEvent([AnyGaussianDpEvent(0.02)] * 2), delta=1e-6)
        assert accounting.epsilon(AnyGaussianDpEvent(0.02), delta=1e-6) < twice < math.inf


def test_no_noise_is_an_infinite_epsilon_and_sampling_is_refused() -> None:
    assert math.isinf(accounting.epsilon(AnyGaussianDpEvent(0.0), delta=1e-6))
    with pytest.raises(UnknownEvent, match="Poisson sampling"):
        accounting.epsilon(PoissonSampledDpEvent(0.1, AnyGaussianDpEvent(1.0)), delta=1e-6)
