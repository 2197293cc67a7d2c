"""The tight accountant: never too small, close from above, and sound where its numbers end."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from dp_accounting import SelfComposedDpEvent
from dp_accounting.pld import privacy_loss_distribution
from scipy import special

import honestdp
from honestdp import Budget, Run
from honestdp.accounting import (
    AccountingWarning,
    Pair,
    PureDpEvent,
    composition,
    epsilon,
    privacy_loss,
    renyi_curve,
)
from honestdp.accounting.composition import compose, discretise
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import GaussianStep


def gaussian_delta(epsilon: float, noise: float) -> float:
    """Balle & Wang 2018, by logarithms, so that it holds far in the tail."""
    above = special.log_ndtr(1 / (2 * noise) - epsilon * noise)
    below = epsilon + special.log_ndtr(-1 / (2 * noise) - epsilon * noise)
    return math.exp(above) * -math.expm1(below - above)


def subsampled_delta(epsilon: float, rate: float, noise: float) -> float:
    """One Poisson-sampled Gaussian, the record removed: P = (1-q) N(0) + q N(1) against N(0)."""
    x = noise**2 * math.log1p(math.expm1(epsilon) / rate) + 0.5
    with_record = (1 - rate) * special.ndtr(-x / noise) + rate * special.ndtr((1 - x) / noise)
    return float(with_record - math.exp(epsilon) * special.ndtr(-x / noise))


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-30, 1e-60])
@pytest.mark.parametrize(("noise", "steps"), [(4.0, 50), (10.0, 750)])
def test_gaussian_steps_composed_by_transforms_match_the_closed_form_far_below_the_floor_of_a_plain_one(
    noise: float, steps: int, delta: float
) -> None:
    """At rate one T steps of noise sigma are one of sigma / sqrt(T): a closed form to hold the transforms against."""
    grid = 2e-3 / math.sqrt(steps)
    masses = discretise([GaussianStep(1.0, noise, steps)], grid=grid, delta=delta)
    pair = compose(masses, grid=grid, delta=delta)
    for direction in (pair, pair.reversed):
        found = direction.epsilon(delta)
        exact = gaussian_delta(found, noise / math.sqrt(steps))
        assert exact <= delta  # never too small
        assert exact > delta * 0.97


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 0.6), (0.9, 2.0), (1e-4, 0.5), (0.999999, 1.0)])
def test_one_step_dominates_the_exact_mechanism_at_every_epsilon(rate: float, noise: float) -> None:
    low, high = GaussianStep(rate, noise, 1).loss_range(1e-15)
    grid = (high - low) / 300
    pair = compose(discretise([GaussianStep(rate, noise, 1)], grid=grid, delta=1e-8), grid=grid, delta=1e-8)
    for e in np.linspace(max(low, math.log1p(-rate) + 1e-9) if rate < 1 else low, high, 57):
        exact = subsampled_delta(float(e), rate, noise)
        assert pair.delta(float(e)) >= exact - 1e-14
        # The other direction: delta_{R||P}(-e) = e^-e (delta_{P||R}(e) - 1) + 1.
        reverse = 1 - math.exp(-e) + math.exp(-e) * exact
        assert pair.reversed.delta(float(-e)) >= reverse - 1e-14 * max(1.0, math.exp(-e))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    [(0.01, 1.0, 500, 1e-5), (0.004, 4.0, 10000, 1e-6), (0.1, 0.7, 60, 1e-7), (0.5, 5.0, 300, 1e-6)],
)
def test_a_coarser_grid_reports_more_and_never_less(rate: float, noise: float, steps: int, delta: float) -> None:
    step = GaussianStep(rate, noise, steps)
    found = [dominating_pair((step,), delta=delta, tolerance=t).worst_epsilon(delta) for t in (1e-6, 1e-4, 1e-3, 1e-2)]
    assert found == sorted(found)
    assert found[1] <= found[0] * 1.0004
    assert found[3] <= found[0] * 1.03


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(0.01, 1.0, 1000), (0.02, 0.6, 200), (0.005, 3.0, 5000), (0.2, 4.0, 100)]
)
def test_dp_accounting_agrees_in_both_directions(rate: float, noise: float, steps: int) -> None:
    grid = 1e-4 if steps <= 1000 else 3e-5
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=grid, use_connect_dots=True
    ).self_compose(steps)
    pair = dominating_pair((GaussianStep(rate, noise, steps),), delta=1e-6)
    for delta in (1e-4, 1e-6, 1e-8):
        assert pair.worst_epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-3)
    add = theirs._pmf_add  # the grid is chosen for the worse direction, so that this one is a little coarser
    assert pair.reversed.epsilon(1e-6) == pytest.approx(add.get_epsilon_for_delta(1e-6), rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.0, 1000), (0.05, 2.0, 400)])
def test_a_second_fourier_accountant_contains_our_value(rate: float, noise: float, steps: int) -> None:
    prv = pytest.importorskip("prv_accountant")
    mechanism = prv.PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=rate)
    accountant = prv.PRVAccountant(prvs=[mechanism], max_self_compositions=[steps], eps_error=0.005, delta_error=1e-9)
    low, estimate, high = accountant.compute_epsilon(delta=1e-6, num_self_compositions=[steps])
    ours = dominating_pair((GaussianStep(rate, noise, steps),), delta=1e-6).worst_epsilon(1e-6)
    assert low <= ours <= high
    assert ours == pytest.approx(estimate, rel=1e-3)


def test_opacus_agrees_on_rdp() -> None:
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    run = Run(records=10000, lot=100, steps=700, noise=1.3)
    whole = [2.0, 8.0, 33.0, 64.0]
    theirs = analysis.compute_rdp(q=0.01, noise_multiplier=1.3, steps=700, orders=whole)
    np.testing.assert_allclose(renyi_curve(run.event, whole).values, theirs, rtol=1e-8)
    # Between whole orders dp-accounting takes an upper bound.
    between = [1.1, 1.5, 2.5, 7.3]
    exact = np.array(analysis.compute_rdp(q=0.01, noise_multiplier=1.3, steps=700, orders=between))
    ours = renyi_curve(run.event, between).values
    assert (ours >= exact * (1 - 1e-9)).all()
    np.testing.assert_allclose(ours, exact, rtol=0.05)


def test_the_losses_of_different_runs_add_up() -> None:
    """Two Gaussian steps of different noise are one: 1/sigma^2 adds."""
    steps = [GaussianStep(1.0, 3.0, 20), GaussianStep(1.0, 7.0, 45)]
    pair = compose(discretise(steps, grid=1e-4, delta=1e-7), grid=1e-4, delta=1e-7)
    together = (20 / 3.0**2 + 45 / 7.0**2) ** -0.5
    assert gaussian_delta(pair.worst_epsilon(1e-7), together) == pytest.approx(1e-7, rel=2e-2)
    assert gaussian_delta(pair.worst_epsilon(1e-7), together) <= 1e-7


def test_masses_stay_probabilities() -> None:
    pair = privacy_loss(Run(records=60000, lot=250, steps=10000, noise=4.0).event, delta=1e-6)
    assert isinstance(pair, Pair)
    assert pair.p.min() >= 0
    assert pair.p.sum() + pair.p_inf == pytest.approx(1, abs=1e-9)
    assert pair.r.sum() + pair.r_inf == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(pair.reversed.reversed.p, pair.p)


def test_infinite_losses_of_every_step_are_charged() -> None:
    """A tail cut off on purpose must show up in delta, once for each step."""
    step = GaussianStep(0.5, 1.0, 100)
    masses = [step.discretised(grid=1e-2, tail=1e-5)]
    pair = compose(masses, grid=1e-2, delta=1e-6)
    assert pair.p_inf >= (1 - (1 - masses[0].p_inf) ** 100) * (1 - 1e-9)
    assert masses[0].p_inf > 1e-6
    assert pair.delta(50.0) >= pair.p_inf


def test_rounding_is_charged() -> None:
    pair = privacy_loss(Run(records=60000, lot=250, steps=10**6, noise=4.0).event, delta=1e-6)
    assert pair is not None
    assert float(pair.slack(np.array(0.0))) >= 10**6 * composition.ROUNDING
    bare = Pair(pair.losses, pair.p, pair.r, pair.p_inf, pair.r_inf)
    assert pair.delta(1.0) > bare.delta(1.0)


@pytest.mark.parametrize(
    ("run", "delta"),
    [
        (Run(records=100, lot=50, steps=10, noise=0.01), 1e-6),
        (Run(records=1000, lot=10, steps=1000, noise=1.0), 1e-150),
        (Run(records=100, lot=100, steps=10**6, noise=1.0), 1e-6),
    ],
)
def test_beyond_its_numbers_it_says_so_and_falls_back_to_a_sound_bound(run: Run, delta: float) -> None:
    with pytest.warns(AccountingWarning, match="a Renyi bound, sound but looser"):
        found = epsilon(run.event, delta=delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        assert found == min(epsilon(run.event, delta=delta, accountant=name) for name in ("rdp", "moments"))
    assert math.isfinite(found)


def test_one_run_takes_no_noticeable_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark measures speed; this catches a slip of an order of magnitude: of the cells that are transformed."""
    honest, cells = composition._tilted_power, []

    def counted(steps: Any, theta: float, *, first: int, size: int, grid: float) -> Any:
        cells.append(size)
        return honest(steps, theta, first=first, size=size, grid=grid)

    monkeypatch.setattr(composition, "_tilted_power", counted)
    run = Run(records=61234, lot=250, steps=10000, noise=4.0)
    dominating_pair.cache_clear()
    epsilon(run.event, delta=1e-6)
    assert 0 < sum(cells) < 1_500_000  # 442 368 today: four tilts of one grid


@pytest.mark.parametrize("delta", [1e-12, 1e-40, 1e-90])
@pytest.mark.parametrize(("lot", "steps"), [(1, 1), (2, 1), (2, 10)])
def test_the_most_noise_that_a_run_may_have_is_accounted_at_any_delta(lot: int, steps: int, delta: float) -> None:
    """Losses of 1e-8 have tails of tilt 1e10. A sampled Gaussian, removed, is q times one at epsilon log(1 + (e^e - 1) / q)."""
    found = epsilon(Run(records=2, lot=lot, steps=steps, noise=1e9).event, delta=delta)
    rate, noise = lot / 2, 1e9 / math.sqrt(steps)

    def exact(e: float) -> float:
        a, b = (math.log1p(math.expm1(e) / rate) * noise + shift for shift in (-0.5 / noise, 0.5 / noise))
        mills = [math.sqrt(math.pi / 2) * float(special.erfcx(z / math.sqrt(2))) for z in (a, b)]
        return rate * math.exp(-(a**2) / 2) / math.sqrt(2 * math.pi) * (mills[0] - mills[1])

    assert exact(found * (1 + 1e-5)) <= delta * (1 + 1e-6)
    assert exact(found * (1 - 1e-3)) > delta


def test_the_least_noise_of_a_tiny_budget_meets_it() -> None:
    run = honestdp.least_noise(Budget(1e-8, 1e-40), records=2, lot=1, steps=1)
    assert 0.99e-8 < honestdp.epsilon(run, delta=1e-40) <= 1e-8


def test_a_pair_with_nothing_above_an_epsilon_is_as_steep_as_can_be() -> None:
    p = np.array([0.25, 0.75])
    pair = Pair(np.array([-1.0, 1.0]), p, p[::-1], p_inf=0.0, r_inf=0.0)
    assert pair.steepness(1.0) == math.inf
    assert 0 < pair.steepness(0.5) < math.inf


def test_masses_of_the_other_law_beyond_the_grid_are_its_infinite_losses() -> None:
    """R's mass above the highest loss too: the record that is there and not there is told apart by it in one direction alone."""
    step = GaussianStep(1.0, 1.0, 1)
    masses = step.discretised(grid=0.05, tail=0.01)
    # Of N(0, 1) against N(1, 1) the loss of the outcome x is x - 1/2.
    low, high = masses.losses[0] + 0.5, masses.losses[-1] + 0.5
    assert masses.r_inf == pytest.approx(special.ndtr(low) + special.ndtr(-high), rel=1e-12)
    assert masses.p_inf == pytest.approx(special.ndtr(low - 1) + special.ndtr(1 - high), rel=1e-12)
    r = masses.p * np.exp(-masses.losses)
    assert r.sum() + masses.r_inf == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("each", [1e-6, 1e-9])
@pytest.mark.parametrize("part", [1e-3, 1e-9, 1e-40])
def test_pure_queries_that_lose_next_to_nothing_compose_as_the_closed_form_says(each: float, part: float) -> None:
    """Losses that end ask for any tilt: one so large that its exponents lose their digits would report too little."""
    count, delta = 20, part * each
    event = SelfComposedDpEvent(PureDpEvent(each), count)
    found = epsilon(event, delta=delta)
    right = [math.expm1(each * i) for i in range(count + 1)]
    wrong = [math.expm1(found + each * (count - i)) for i in range(count + 1)]
    terms = [math.comb(count, i) * max(right[i] - wrong[i], 0.0) for i in range(count + 1)]
    assert sum(terms) / (1 + math.exp(each)) ** count <= delta * (1 + 1e-6)
    assert found <= count * each * 1.01
