"""One contract for all accountants."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import dp_accounting
import pytest

from honestdp import Run
from honestdp.accounting import (
    ACCOUNTANTS,
    AccountingWarning,
    DiscreteGaussianDpEvent,
    PureDpEvent,
    RenyiCurve,
    UnknownEvent,
    epsilon,
    renyi_curve,
)
from honestdp.checks import InvalidArgument

RUN = Run(records=60000, lot=250, steps=10000, noise=4.0)


@pytest.fixture(params=ACCOUNTANTS)
def accountant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def cost(run: Run, accountant: str, delta: float = 1e-6) -> float:
    return epsilon(run.event, delta=delta, accountant=accountant)


def test_more_noise_costs_less(accountant: str) -> None:
    costs = [cost(replace(RUN, noise=noise), accountant) for noise in (0.5, 0.8, 1.0, 2.0, 4.0, 8.0)]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)


def test_more_steps_cost_more(accountant: str) -> None:
    costs = [cost(replace(RUN, steps=steps), accountant) for steps in (100, 1000, 10000, 100000)]
    assert costs == sorted(costs)


def test_a_larger_rate_costs_more(accountant: str) -> None:
    costs = [cost(replace(RUN, lot=lot, steps=500), accountant) for lot in (25, 250, 2500, 30000, 60000)]
    assert costs == sorted(costs)


def test_a_larger_delta_costs_less(accountant: str) -> None:
    costs = [cost(RUN, accountant, delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3, 1e-1)]
    assert costs == sorted(costs, reverse=True)


def test_composing_adds_up(accountant: str) -> None:
    """Two halves are one whole, and k runs are one run of k times the steps."""
    half = replace(RUN, steps=5000)
    halves = dp_accounting.ComposedDpEvent([half.event, half.event])
    twice = dp_accounting.SelfComposedDpEvent(half.event, 2)
    whole = cost(RUN, accountant)
    assert epsilon(halves, delta=1e-6, accountant=accountant) == pytest.approx(whole, rel=1e-9)
    assert epsilon(twice, delta=1e-6, accountant=accountant) == pytest.approx(whole, rel=1e-9)


def test_different_runs_compose_to_more_than_either_and_less_than_both(accountant: str) -> None:
    other = Run(records=60000, lot=600, steps=2000, noise=2.0)
    both = epsilon(dp_accounting.ComposedDpEvent([RUN.event, other.event]), delta=1e-6, accountant=accountant)
    parts = [cost(run, accountant, 5e-7) for run in (RUN, other)]
    assert max(cost(RUN, accountant), cost(other, accountant)) < both < sum(parts)


def test_no_step_costs_nothing(accountant: str) -> None:
    assert cost(replace(RUN, steps=0), accountant) == 0


def test_no_noise_costs_everything(accountant: str) -> None:
    assert cost(replace(RUN, noise=0.0), accountant) == math.inf


def test_at_rate_one_the_gaussian_mechanism_is_never_undercharged(accountant: str) -> None:
    for noise in (0.5, 1.0, 3.0, 20.0):
        run = Run(records=100, lot=100, steps=1, noise=noise)
        exact = dp_accounting.get_epsilon_gaussian(noise, 1e-6)
        assert cost(run, accountant) >= exact * (1 - 1e-12)


@pytest.mark.slow
def test_tiny_rates_are_never_rounded_to_nothing(accountant: str) -> None:
    """T steps of rate q have a total variation near 0.66 q sqrt(T) here: epsilon cannot be zero when that exceeds delta."""
    run = Run(records=10**9, lot=100, steps=10**6, noise=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        assert epsilon(run.event, delta=1e-6, accountant=accountant) > 1e-4


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, math.inf])
def test_a_delta_outside_the_unit_interval_is_refused(accountant: str, delta: float) -> None:
    with pytest.raises(InvalidArgument, match="delta must be strictly between 0 and 1"):
        cost(RUN, accountant, delta)


def test_rdp_bounds_are_never_below_the_tight_one() -> None:
    for run in (RUN, replace(RUN, noise=0.7, steps=300), replace(RUN, lot=6000, steps=100)):
        assert cost(run, "pld") <= cost(run, "rdp") <= cost(run, "moments")


def test_a_best_order_at_the_edge_warns() -> None:
    tiny = Run(records=10**6, lot=1, steps=10, noise=100.0)
    with pytest.warns(AccountingWarning, match="edge of the orders"):
        epsilon(tiny.event, delta=1e-9, accountant="rdp")
    with pytest.warns(AccountingWarning, match="edge of the orders"):
        epsilon(tiny.event, delta=1e-9, accountant="moments")


def test_an_unknown_accountant_or_event_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="accountant must be one of pld, rdp, moments, got 'prv'"):
        epsilon(RUN.event, delta=1e-6, accountant="prv")
    with pytest.raises(UnknownEvent, match="LaplaceDpEvent"):
        epsilon(dp_accounting.LaplaceDpEvent(1.0), delta=1e-6)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, RUN.event)
    with pytest.raises(UnknownEvent, match="under Poisson sampling"):
        epsilon(sampled, delta=1e-6)


def sampled(rate: float, noise: float) -> dp_accounting.DpEvent:
    return dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))


def test_rate_zero_costs_nothing_whatever_the_noise(accountant: str) -> None:
    assert epsilon(sampled(0.0, 1.0), delta=1e-6, accountant=accountant) == 0
    assert epsilon(sampled(0.0, 0.0), delta=1e-6, accountant=accountant) == 0
    many = dp_accounting.SelfComposedDpEvent(sampled(0.0, 1.0), 10**15)
    assert epsilon(many, delta=1e-12, accountant=accountant) == 0


def test_what_costs_nothing_adds_nothing(accountant: str) -> None:
    query = sampled(0.1, 2.0)
    alone = epsilon(query, delta=1e-6, accountant=accountant)
    nothing = (
        sampled(0.0, 0.0),
        dp_accounting.NoOpDpEvent(),
        PureDpEvent(0.0),
        dp_accounting.SelfComposedDpEvent(sampled(0.5, 0.0), 0),
        dp_accounting.SelfComposedDpEvent(DiscreteGaussianDpEvent(0.0), 0),
    )
    for event in nothing:
        together = dp_accounting.ComposedDpEvent([event, query])
        assert epsilon(together, delta=1e-6, accountant=accountant) == pytest.approx(alone, rel=1e-9)


def test_rate_one_is_no_sampling(accountant: str) -> None:
    plain = epsilon(dp_accounting.GaussianDpEvent(2.0), delta=1e-6, accountant=accountant)
    assert epsilon(sampled(1.0, 2.0), delta=1e-6, accountant=accountant) == pytest.approx(plain, rel=1e-9)
    assert plain > 2


@pytest.mark.filterwarnings("ignore::honestdp.accounting.AccountingWarning")
def test_a_divergence_that_is_no_number_is_no_bound() -> None:
    import numpy as np

    for values in ([math.nan, math.nan], [math.nan, math.inf]):
        curve = RenyiCurve(np.array([2.0, 8.0]), np.array(values))
        assert curve.epsilon(1e-6) == math.inf
        assert curve.delta(1.0) == 1
    one = RenyiCurve(np.array([2.0, 8.0]), np.array([math.nan, 0.5]))
    assert one.epsilon(1e-6) == pytest.approx(RenyiCurve(np.array([8.0]), np.array([0.5])).epsilon(1e-6))


def test_a_delta_of_a_renyi_curve_is_dp_accountings_and_holds_below_rounding() -> None:
    import numpy as np
    from dp_accounting.rdp import rdp_privacy_accountant

    curve = renyi_curve(sampled(0.1, 2.0))
    for at in (0.0, 0.1, 1.0, 5.0):
        theirs = rdp_privacy_accountant.compute_delta(curve.orders, curve.values, at)[0]
        assert curve.delta(at) == pytest.approx(theirs, rel=1e-9)
    tiny = RenyiCurve(np.array([2.0, 8.0]), np.array([1e-30, 1e-30]))
    assert tiny.delta(0.0) == pytest.approx(1e-15)
