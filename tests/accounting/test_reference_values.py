"""Reference values computed with public libraries, and values published elsewhere."""

from __future__ import annotations

import warnings

import pytest
from dp_accounting.pld import privacy_loss_distribution

from honestdp import Budget, Run
from honestdp.accounting import AccountingWarning, epsilon
from honestdp.accounting.calibration import least_noise
from honestdp.selection import Compose


def event(rate: float, noise: float, steps: int):
    return Run(records=6_000_000, lot=rate * 6_000_000, steps=steps, noise=noise).event


# rate, noise, steps, delta -> rdp, tight
ONE_RUN = [
    (1, 1, 1, 1e-5, 4.728, 4.377),
    (1, 4, 1000, 1e-6, 71.22, 68.05),
    (0.01, 1, 1, 1e-5, None, 0.1995),
    (0.01, 1, 1000, 1e-5, 2.101, 1.828),
    (0.01, 1, 10000, 1e-5, 6.713, 6.188),
    (256 / 60000, 1.1, 14062, 1e-5, 2.597, 2.382),
    (250 / 60000, 4, 10000, 1e-6, 0.4593, 0.4238),
    (250 / 60000, 4, 40000, 1e-6, 0.9590, 0.8888),
    (200 / 60000, 2, 30000, 1e-6, 1.440, 1.337),
    (512 / 60000, 1, 1180, 1e-5, 1.929, 1.668),
    (0.01, 0.3, 100, 1e-5, 32.09, 26.84),
    (0.001, 4, 10**6, 1e-6, 1.163, 1.079),
    (1e-4, 1, 10**6, 1e-6, 0.7725, 0.5324),
    # ADADP: lot 200 of 60000, 100 epochs of two releases an iteration
    (200 / 60000, 4, 30000, 1e-6, 0.648, 0.600),
]
# The same at noise 6 and 8, where the reference was computed on a grid of 1e-4 that adds about 0.4 %.
COARSE = [(200 / 60000, 6, 30000, 1e-6, 0.417, 0.386), (200 / 60000, 8, 30000, 1e-6, 0.306, 0.283)]


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "rdp", "tight"), ONE_RUN)
def test_one_run(rate: float, noise: float, steps: int, delta: float, rdp: float | None, tight: float) -> None:
    assert epsilon(event(rate, noise, steps), delta=delta) == pytest.approx(tight, rel=3e-3)
    if rdp is not None:
        assert epsilon(event(rate, noise, steps), delta=delta, accountant="rdp") == pytest.approx(rdp, rel=1.5e-3)


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "rdp", "coarse"), COARSE)
def test_a_reference_from_a_coarse_grid_is_met_from_below(
    rate: float, noise: float, steps: int, delta: float, rdp: float, coarse: float
) -> None:
    def dp_accountings(grid: float) -> float:
        step = privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=grid, use_connect_dots=True
        )
        return float(step.self_compose(steps).get_epsilon_for_delta(delta))

    tight = epsilon(event(rate, noise, steps), delta=delta)
    assert dp_accountings(1e-4) == pytest.approx(coarse, rel=2e-3)
    assert tight == pytest.approx(dp_accountings(1e-5), rel=5e-4)
    assert coarse * 0.994 <= tight <= coarse
    assert epsilon(event(rate, noise, steps), delta=delta, accountant="rdp") == pytest.approx(rdp, rel=1.5e-3)


@pytest.mark.slow
def test_a_million_steps_at_a_rate_of_one_in_a_million() -> None:
    tiny = event(1e-6, 1, 10**6)
    assert epsilon(tiny, delta=1e-6) == pytest.approx(0.0037, rel=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        assert epsilon(tiny, delta=1e-6, accountant="rdp") == pytest.approx(0.3669, rel=3e-3)


# The published "tight" values are upper ends of intervals of half-width 0.01, as their authors' accountant gives them.
UPPER_ENDS = [
    (0.04, 1.5, 2249, 1e-5, 6.7774),
    *(
        (0.05, noise, 1000, 1e-6, value)
        for noise, value in zip((0.8, 1.5, 2, 3), (19.5258, 6.21, 4.1728, 2.5276), strict=True)
    ),
    *(
        (0.001, noise, 20000, 1e-6, value)
        for noise, value in zip((0.8, 1.5, 2, 3), (1.2960, 0.43701, 0.30584, 0.19403), strict=True)
    ),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "upper"), UPPER_ENDS)
def test_published_upper_ends_contain_the_tight_value(
    rate: float, noise: float, steps: int, delta: float, upper: float
) -> None:
    tight = epsilon(event(rate, noise, steps), delta=delta)
    assert upper - 0.0105 <= tight <= upper
    assert tight == pytest.approx(upper - 0.01, rel=3e-3)


def test_opacus_own_rdp_test() -> None:
    assert epsilon(event(0.04, 1.5, 2250), delta=1e-5, accountant="rdp") == pytest.approx(7.3291, rel=3e-3)


@pytest.mark.parametrize(
    ("budget", "rate", "steps", "rdp", "tight"),
    [
        (Budget(3, 1e-5), 512 / 60000, 8260, 1.3616, 1.2881),
        (Budget(8, 1e-5), 0.01, 1000, 0.6159, 0.5863),
        (Budget(1, 1e-6), 250 / 60000, 10000, 2.034, 1.911),
    ],
)
def test_calibration(budget: Budget, rate: float, steps: int, rdp: float, tight: float) -> None:
    for accountant, noise in (("rdp", rdp), ("pld", tight)):
        selection = Compose(candidates=1, accountant=accountant)
        run = least_noise(budget, records=6_000_000, lot=rate * 6_000_000, steps=steps, selection=selection)
        assert run.noise == pytest.approx(noise, rel=2e-3)


@pytest.mark.parametrize(
    ("target", "runs", "rdp", "tight"),
    [(3, 5, 1.210, 1.148), (3, 7, 1.362, 1.288), (3, 49, 3.151, 2.946), (9, 7, 0.772, 0.746), (9, 35, 1.211, 1.159)],
)
def test_galli_noise_for_a_whole_grid(target: float, runs: int, rdp: float, tight: float) -> None:
    for accountant, noise in (("rdp", rdp), ("pld", tight)):
        selection = Compose(candidates=runs, accountant=accountant)
        run = least_noise(Budget(target, 1e-5), records=60000, lot=512, steps=1180, selection=selection)
        assert run.noise == pytest.approx(noise, rel=2e-3)
