"""The bookkeeping of a pair: both directions, infinite losses, and what rounding may have taken, each charged in full."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from honestdp import Run, accounting
from honestdp.accounting import Pair, composition
from honestdp.accounting.composition import chernoff, compose, discretise, window
from honestdp.accounting.pair import Slack
from honestdp.accounting.steps import GaussianStep

LOSSES = np.array([-1.0, -0.25, 0.5, 1.25, 2.0])
P = np.array([0.2, 0.3, 0.3, 0.15, 0.04])


def small(p_inf: float = 0.01, r_inf: float = 0.002, upper: float = -8.0, lower: float = -7.0) -> Pair:
    return Pair(
        LOSSES,
        P,
        P * np.exp(-LOSSES),
        p_inf,
        r_inf,
        upper=(Slack(theta=1.5, log_mass=upper),),
        lower=(Slack(theta=0.5, log_mass=lower),),
    )


def by_hand(pair: Pair, epsilon: float) -> float:
    """delta_{P||R}(epsilon), term by term."""
    finite = sum(max(0.0, p - math.exp(epsilon) * r) for p, r in zip(pair.p, pair.r, strict=True))
    lacking = 3 * min(math.exp(slack.log_mass - slack.theta * epsilon) for slack in pair.upper)
    return finite + pair.p_inf + lacking


@pytest.mark.parametrize("direction", ["forward", "reversed"])
def test_delta_counts_every_term(direction: str) -> None:
    pair = small() if direction == "forward" else small().reversed
    for epsilon in (0.0, 0.1, 0.7, 1.3, 1.9, 2.5):
        assert pair.delta(epsilon) == pytest.approx(by_hand(pair, epsilon), rel=1e-12)
    at_losses = [by_hand(pair, loss) for loss in pair.losses]
    np.testing.assert_allclose(pair.profile, at_losses, rtol=1e-12)


@pytest.mark.parametrize("p_inf", [0.0, 1e-4, 0.01])
@pytest.mark.parametrize("upper", [-40.0, -9.0, -6.0])
@pytest.mark.parametrize("delta", [0.4, 0.2, 0.05, 0.02])
def test_epsilon_is_the_least_whose_delta_is_met(p_inf: float, upper: float, delta: float) -> None:
    pair = small(p_inf=p_inf, upper=upper)
    for direction in (pair, pair.reversed):
        epsilon = direction.epsilon(delta)
        if math.isinf(epsilon):
            assert direction.profile.min() > delta
            continue
        assert by_hand(direction, epsilon) <= delta * (1 + 1e-12)
        # The slack is taken at the lower end of its cell, which costs a little: never more than the cell is wide.
        if epsilon > 0.8:
            assert by_hand(direction, epsilon - 0.75) > delta


def test_infinite_losses_above_delta_leave_no_epsilon() -> None:
    assert small(p_inf=0.3, upper=-40.0).epsilon(0.2) == math.inf


def test_the_other_direction_swaps_everything() -> None:
    pair = small()
    other = pair.reversed
    assert (other.p_inf, other.r_inf) == (pair.r_inf, pair.p_inf)
    assert (other.upper, other.lower) == (pair.lower, pair.upper)
    np.testing.assert_array_equal(other.losses, -LOSSES[::-1])
    np.testing.assert_array_equal(other.p, pair.r[::-1])
    np.testing.assert_array_equal(other.r, pair.p[::-1])


def test_the_worse_direction_counts_whichever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = small()
    both = (pair.epsilon(0.05), pair.reversed.epsilon(0.05))
    assert both[0] != both[1]
    assert pair.worst_epsilon(0.05) == pair.reversed.worst_epsilon(0.05) == max(both)
    event = Run(records=100, lot=10, steps=5, noise=2.0).event
    honest = accounting.privacy_loss(event, delta=1e-5)
    assert honest is not None
    plain = accounting.epsilon(event, delta=1e-5)
    monkeypatch.setattr(accounting, "privacy_loss", lambda event, delta: honest.reversed)
    assert accounting.epsilon(event, delta=1e-5) == plain


def test_every_selection_charges_the_worse_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    from honestdp.selection import named

    event = Run(records=100, lot=10, steps=5, noise=2.0).event
    original = accounting.privacy_loss

    def swapped(event: object, **options: float) -> Pair:
        pair = original(event, **options)
        assert pair is not None
        return pair.reversed

    for name in ("winner", "profile", "envelope"):
        plain = named(name, candidates=6).epsilon(event, delta=1e-5)
        monkeypatch.setattr(accounting, "privacy_loss", swapped)
        assert named(name, candidates=6).epsilon(event, delta=1e-5) == pytest.approx(plain, rel=1e-9)
        monkeypatch.setattr(accounting, "privacy_loss", original)


STEPS = [GaussianStep(1.0, 5.0, 40)]


def test_the_window_leaves_out_what_it_says_of_every_tilt() -> None:
    """At rate one the tilted loss is N(T/(2 sigma^2) + theta T/sigma^2, T/sigma^2) exactly."""
    masses = discretise(STEPS, grid=1e-3, delta=1e-9)
    covered = window(masses, delta=1e-9)
    variance = 40 / 5.0**2
    for theta in covered.thetas:
        mean, deviation = variance / 2 + theta * variance, math.sqrt(variance)
        outside = special.ndtr(-(covered.high - mean) / deviation) + special.ndtr((covered.low - mean) / deviation)
        assert outside <= 2 * composition.OUTSIDE
    assert covered.thetas[0] < -1 < 0 < covered.thetas[3]
    assert composition.OUTSIDE <= 1e-15


def test_a_narrow_window_is_charged_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as much as a hundredth outside, the numbers must still be bounds."""
    monkeypatch.setattr(composition, "OUTSIDE", 1e-2)
    pair = compose(discretise(STEPS, grid=1e-3, delta=1e-5), grid=1e-3, delta=1e-5)
    noise = 5.0 / math.sqrt(40)
    for direction in (pair, pair.reversed):
        for epsilon in np.linspace(0.0, 0.95 * direction.losses[-1], 40):
            above = special.log_ndtr(1 / (2 * noise) - epsilon * noise)
            below = epsilon + special.log_ndtr(-1 / (2 * noise) - epsilon * noise)
            assert direction.delta(float(epsilon)) >= math.exp(above) - math.exp(below)
        beyond = direction.losses[-1] + 1.0
        assert direction.delta(float(beyond)) >= special.ndtr(-(beyond - 1 / (2 * noise**2)) * noise)


def test_the_error_of_a_transform_counts_rounding_window_and_lost_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    masses = discretise([replace(STEPS[0], count=1000)], grid=1e-2, delta=1e-6)
    size = 20000
    assert composition.ROUNDING >= 2.0**-52
    for rounding, outside in ((1e-3, 0.0), (0.0, 1e-2)):
        monkeypatch.setattr(composition, "ROUNDING", rounding)
        monkeypatch.setattr(composition, "OUTSIDE", outside)
        _, error = composition._tilted_power(masses, 0.0, first=-size // 2, size=size, grid=1e-2)
        assert error >= 1000 * rounding + outside
    original = composition.fft.irfft
    monkeypatch.setattr(composition.fft, "irfft", lambda *arguments: 0.999 * original(*arguments))
    _, with_loss = composition._tilted_power(masses, 0.0, first=-size // 2, size=size, grid=1e-2)
    assert with_loss >= 9.9e-3


def test_infinite_losses_add_up_in_both_directions() -> None:
    """A tail cut off on purpose, a hundred times, must be charged a hundred times on either side."""
    masses = [GaussianStep(0.5, 1.0, 100).discretised(grid=1e-2, tail=1e-5)]
    pair = compose(masses, grid=1e-2, delta=1e-6)
    for charged, one in ((pair.p_inf, masses[0].p_inf), (pair.r_inf, masses[0].r_inf)):
        assert charged >= (1 - (1 - one) ** 100) * (1 - 1e-9)
        assert one > 0


def test_what_lies_beyond_the_window_is_charged_as_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "OUTSIDE", 1e-2)
    masses = [STEPS[0].discretised(grid=1e-3, tail=1e-30)]
    pair = compose(masses, grid=1e-3, delta=1e-2)
    least_up = min(float(slack.above(pair.losses[-1:])[0]) for slack in pair.upper)
    least_down = min(float(slack.above(-pair.losses[:1])[0]) for slack in pair.lower)
    assert pair.p_inf >= least_up > 100 * masses[0].p_inf * 40
    assert pair.r_inf >= least_down > 100 * masses[0].r_inf * 40


def test_masses_sum_to_one_after_discretisation() -> None:
    for rate, noise in ((0.01, 1.0), (0.3, 0.5), (1.0, 2.0)):
        step = GaussianStep(rate, noise, 1).discretised(grid=1e-3, tail=1e-12)
        assert step.p.sum() + step.p_inf == pytest.approx(1, abs=1e-14)
        assert (step.p * np.exp(-step.losses)).sum() + step.r_inf == pytest.approx(1, abs=1e-10)


def test_any_step_without_noise_is_no_privacy() -> None:
    import dp_accounting

    private = Run(records=100, lot=10, steps=5, noise=2.0)
    mixed = dp_accounting.ComposedDpEvent([private.event, replace(private, noise=0.0).event])
    assert accounting.epsilon(mixed, delta=1e-5) == math.inf
    assert accounting.at_once(mixed) == math.inf


def test_chernoff_bounds_the_quantile_from_the_outside() -> None:
    masses = discretise(STEPS, grid=1e-3, delta=1e-9)
    variance = 40 / 5.0**2
    for mass in (1e-3, 1e-9):
        exact = variance / 2 - math.sqrt(variance) * float(special.ndtri(mass))
        assert chernoff(masses, mass=mass).loss >= exact
        assert chernoff(masses, mass=mass, sign=-1).loss <= variance - exact
