"""Steps known by their losses or by their profile: discrete Gaussians, pure queries, the worst of several runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from scipy import special

from honestdp import Run, accounting
from honestdp.accounting import DiscreteGaussianDpEvent, PureDpEvent, UnknownEvent, WorstOfDpEvent, quiet
from honestdp.accounting.discrete import (
    BEYOND,
    AtomStep,
    Profile,
    WorstStep,
    discrete_gaussian,
    randomised_response,
    step_of,
)
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import GaussianStep, TooFine
from honestdp.selection import named


def exact_discrete_delta(scale: float, shift: int, epsilon: float) -> float:
    x = np.arange(-int(40 * scale) - shift, int(40 * scale) + 2 * shift)
    law = np.exp(-(x.astype(float) ** 2) / (2 * scale**2))
    law /= law.sum()
    moved = np.exp(-((x - shift).astype(float) ** 2) / (2 * scale**2))
    moved /= moved.sum()
    return float(np.maximum(moved - math.exp(epsilon) * law, 0).sum())


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(0.7, 1), (3.0, 1), (12.5, 1), (4.0, 16)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-10])
def test_discrete_gaussian_is_charged_its_exact_profile(multiplier: float, sensitivity: int, delta: float) -> None:
    event = DiscreteGaussianDpEvent(multiplier, sensitivity)
    epsilon = accounting.epsilon(event, delta=delta)
    exact = exact_discrete_delta(multiplier * sensitivity, sensitivity, epsilon)
    assert exact <= delta * (1 + 1e-9)
    assert exact_discrete_delta(multiplier * sensitivity, sensitivity, epsilon * (1 - 1e-3)) > delta


@pytest.mark.parametrize("delta", [1e-30, 1e-26])
def test_outcomes_beyond_those_that_are_counted_are_charged_at_deltas_below_their_mass(delta: float) -> None:
    assert delta < BEYOND
    with quiet():  # of a Renyi bound, which is all that is left there
        epsilon = accounting.epsilon(DiscreteGaussianDpEvent(3.0), delta=delta)
    assert exact_discrete_delta(3.0, 1, epsilon) <= delta * (1 + 1e-9)


def test_a_discrete_gaussian_of_noise_one_loses_more_than_a_continuous_one_somewhere() -> None:
    """The reason why a count's noise is not simply accounted as a Gaussian."""
    ratios = []
    for epsilon in np.linspace(0.1, 4, 40):
        continuous = special.ndtr(0.5 - epsilon) - math.exp(epsilon) * special.ndtr(-0.5 - epsilon)
        ratios.append(exact_discrete_delta(1.0, 1, float(epsilon)) / continuous)
    assert max(ratios) > 1.02


def test_a_smaller_change_of_the_sum_loses_less() -> None:
    for epsilon in (0.0, 0.3, 1.0):
        deltas = [exact_discrete_delta(20.0, shift, epsilon) for shift in range(1, 11)]
        assert deltas == sorted(deltas)


def test_many_discrete_gaussians_compose_as_one_of_less_noise_does() -> None:
    many = accounting.epsilon(SelfComposedDpEvent(DiscreteGaussianDpEvent(30.0), 100), delta=1e-6)
    one = accounting.epsilon(GaussianDpEvent(3.0), delta=1e-6)
    assert many == pytest.approx(one, rel=2e-3)


def test_pure_queries_cost_their_epsilon_at_delta_zero_and_less_at_a_larger_delta() -> None:
    assert accounting.epsilon(PureDpEvent(0.5), delta=1e-12) == pytest.approx(0.5, rel=1e-3)
    assert accounting.epsilon(SelfComposedDpEvent(PureDpEvent(0.01), 10000), delta=1e-6) < 6
    curve = accounting.renyi_curve(PureDpEvent(0.5))
    assert np.all(curve.values <= 0.5 + 1e-12)
    assert curve.values[0] == pytest.approx(0.5**2 / 2 * curve.orders[0], rel=0.05)


def test_renyi_divergences_of_the_discrete_gaussian_are_those_of_the_continuous_one() -> None:
    curve = accounting.renyi_curve(DiscreteGaussianDpEvent(3.0, 5))
    np.testing.assert_allclose(curve.values, curve.orders / 18)


def test_worst_of_equal_runs_is_that_run() -> None:
    run = Run(records=5000, lot=100, steps=300, noise=2.0)
    other = Run(records=5000, lot=100, steps=300, noise=2.5)
    alone = accounting.epsilon(run.event, delta=1e-6)
    worst = accounting.epsilon(WorstOfDpEvent((run.event, other.event)), delta=1e-6)
    assert alone <= worst <= alone * (1 + 1e-3)


@pytest.mark.parametrize(
    "selection", [named("envelope", runs=40), named("profile", runs=40), named("winner", candidates=6)]
)
def test_worst_of_crossing_profiles_costs_at_least_what_each_costs(selection) -> None:
    # few steps of a small rate have heavy tails; many of a large one have a heavy middle
    first = Run(records=10000, lot=50, steps=100, noise=0.8)
    second = Run(records=10000, lot=500, steps=200, noise=4.0)
    each = [selection.epsilon(run.event, delta=1e-6) for run in (first, second)]
    worst = selection.epsilon(WorstOfDpEvent((first.event, second.event)), delta=1e-6)
    assert max(each) * (1 - 1e-4) <= worst <= 1.5 * max(each)


def test_the_worst_of_steps_that_are_dearer_the_other_way_round_is_charged_that_way() -> None:
    """An outcome that is e^3 times as likely without the record as with it, and none that the record makes much likelier."""
    p = np.array([0.01, 0.99])
    losses = np.array([-3.0, math.log(0.99 / (1 - 0.01 * math.exp(3)))])
    dear = AtomStep(losses, p)
    pair = dominating_pair((WorstStep(((randomised_response(0.1),), (dear,)), 1),), delta=0.01)
    assert pair is not None
    exact = math.log((0.01 * math.exp(3) - 0.01) / 0.01)  # where 0.01 e^3 - 0.01 e^e falls to delta
    assert exact * (1 - 1e-9) <= pair.worst_epsilon(0.01) <= exact * 1.01
    assert pair.epsilon(0.01) < 0.3


def test_renyi_curve_of_the_worst_is_the_greatest_at_every_order() -> None:
    events = (Run(records=1000, lot=50, steps=100, noise=0.8).event, GaussianDpEvent(4.0), DiscreteGaussianDpEvent(3.0))
    worst = accounting.renyi_curve(WorstOfDpEvent(events)).values
    np.testing.assert_allclose(worst, np.max([accounting.renyi_curve(event).values for event in events], axis=0))
    twice = accounting.renyi_curve(ComposedDpEvent([WorstOfDpEvent(events), GaussianDpEvent(4.0)])).values
    finite = np.isfinite(worst)
    assert np.all(twice[finite] > worst[finite])


def test_a_profile_gives_back_the_pair_it_was_taken_from() -> None:
    pair = dominating_pair((GaussianStep(0.02, 1.5, 400),), delta=1e-8)
    assert pair is not None
    epsilons = np.linspace(0.0, pair.epsilon(1e-10), 3000)
    step = step_of(Profile(epsilons, pair.deltas(epsilons)), Profile(epsilons, pair.reversed.deltas(epsilons)))
    assert step.p.sum() + step.p_inf == pytest.approx(1.0, abs=1e-12)
    again = dominating_pair((step,), delta=1e-8)
    assert again is not None
    for direction, other in ((pair, again), (pair.reversed, again.reversed)):
        for epsilon in (0.0, 0.1, 0.5, 1.0):
            assert (
                direction.delta(epsilon) * (1 - 1e-9)
                <= other.delta(epsilon)
                <= direction.delta(epsilon) * 1.005 + 1e-10
            )


def test_points_that_are_no_profile_are_lowered_to_one_and_still_dominate() -> None:
    """delta(0) = 1 is a valid but absurd bound: the pair takes what convexity allows, above the truth everywhere."""
    truth = randomised_response(1.0)
    epsilons = np.array([0.0, 0.2, 0.6, 1.0])
    exact = np.array([(math.e - math.exp(e)) / (1 + math.e) for e in epsilons])
    rough = Profile(epsilons, np.append(1.0, exact[1:] + 0.01))
    pair = dominating_pair((step_of(rough, rough),), delta=1e-3)
    real = dominating_pair((truth,), delta=1e-3)
    assert pair is not None
    assert real is not None
    assert pair.p.sum() + pair.p_inf == pytest.approx(1.0, abs=1e-9)
    assert pair.r.sum() + pair.r_inf == pytest.approx(1.0, abs=1e-6)
    for epsilon in np.linspace(0, 0.99, 30):
        assert pair.delta(float(epsilon)) >= real.delta(float(epsilon)) - 1e-12


def test_no_noise_is_an_infinite_epsilon_and_sampling_is_refused() -> None:
    assert math.isinf(accounting.epsilon(DiscreteGaussianDpEvent(0.0), delta=1e-6))
    assert math.isinf(accounting.epsilon(WorstOfDpEvent((GaussianDpEvent(1.0), GaussianDpEvent(0.0))), delta=1e-6))
    with pytest.raises(UnknownEvent, match="Poisson sampling"):
        accounting.epsilon(PoissonSampledDpEvent(0.1, DiscreteGaussianDpEvent(1.0)), delta=1e-6)
    assert discrete_gaussian(2.0) is discrete_gaussian(2.0)


def test_losses_that_no_float_holds_are_infinite_and_not_nan() -> None:
    """All of P at an infinite loss: no grid has it, so there is no pair, and nothing is divided by 0."""
    step = AtomStep(np.array([-10.0, 10.0]), np.array([0.0, 0.0]), p_inf=1.0, r_inf=1.0)
    with pytest.raises(TooFine):
        step.discretised(grid=1.0, tail=1e-10)
    assert dominating_pair((step,), delta=1e-6) is None
