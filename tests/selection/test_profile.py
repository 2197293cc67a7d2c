"""What a selection spends at every epsilon: agrees with its epsilon, and is never below an exact attack."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from honestdp import Run
from honestdp.accounting import privacy_loss, quiet
from honestdp.accounting.discrete import Profile, step_of
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import Array
from honestdp.selection import BOUNDS, SELECTIONS, LiuTalwar, Profiles, RandomStopping, named
from honestdp.selection.counts import Binomial
from honestdp.selection.profile import BEND, TAIL, at, constant, corners, least, worst

RUN = Run(records=60000, lot=250, steps=500, noise=4.0)
ONE = Run(records=100, lot=100, steps=1, noise=6.0)
DELTA = 1e-6
ALL: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SELECTIONS),
    ("compose", {"accountant": "moments"}),
    ("winner", {"identical": True}),
    ("envelope", {"shape": 0.0}),
    *((bound, {"shape": "poisson"}) for bound in BOUNDS),
]
each = pytest.mark.parametrize(("name", "options"), ALL, ids=lambda value: str(value))


@functools.cache
def profiles_of(name: str, **options: Any) -> Profiles:
    return named(name, candidates=6, **options).profiles(RUN.event, delta=DELTA)


def value(profile: Profile, epsilon: float) -> float:
    return float(at(profile, np.array([epsilon]))[0])


@pytest.mark.slow
@each
def test_the_profile_agrees_with_the_epsilon(name: str, options: dict[str, Any]) -> None:
    selection = named(name, candidates=6, **options)
    if options.get("accountant") == "moments":
        selection = named(name, candidates=6)  # a profile is that of the tight accountant, whichever was asked
    epsilon = selection.epsilon(RUN.event, delta=DELTA)
    profiles = profiles_of(name, **options)
    there = max(value(profile, epsilon) for profile in profiles)
    assert 0.9 * DELTA <= there <= 1.01 * DELTA
    alone = dominating_pair((step_of(*profiles),), delta=DELTA)
    assert alone is not None
    assert alone.worst_epsilon(DELTA) == pytest.approx(epsilon, rel=3e-3)


@pytest.mark.parametrize("name", ["compose", "liu-talwar", "papernot-steinke", "profile", "envelope"])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_it_agrees_at_other_deltas_too(name: str, delta: float) -> None:
    selection = named(name, candidates=6)
    with quiet():
        epsilon = selection.epsilon(RUN.event, delta=delta)
    found = max(value(profile, epsilon) for profile in profiles_of(name))
    assert 0.8 * delta <= found <= 1.05 * delta


@each
def test_a_profile_falls_from_epsilon_zero_to_far_below_delta(name: str, options: dict[str, Any]) -> None:
    for profile in profiles_of(name, **options):
        assert profile.epsilons[0] == 0
        assert np.all(np.diff(profile.epsilons) > 0)
        assert np.all(np.diff(profile.deltas) < 0)
        assert profile.deltas[0] <= 1
        assert profile.deltas[-1] <= TAIL * DELTA


@each
def test_no_noise_spends_everything_and_no_step_nothing(name: str, options: dict[str, Any]) -> None:
    selection = named(name, candidates=6, **options)
    for profile in selection.profiles(RUN.with_noise(0.0).event, delta=DELTA):
        assert value(profile, 100.0) == 1
    for profile in selection.profiles(RUN.with_steps(0).event, delta=DELTA):
        assert value(profile, 1e-5) <= DELTA or name == "liu-talwar"


def test_a_law_without_a_published_bound_has_a_profile() -> None:
    selection = RandomStopping(count=Binomial(8, 0.5), bound="envelope")
    epsilon = selection.epsilon(RUN.event, delta=DELTA)
    found = max(value(profile, epsilon) for profile in selection.profiles(RUN.event, delta=DELTA))
    assert 0.9 * DELTA <= found <= 1.01 * DELTA


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [case for case in ALL if case[0] != "liu-talwar"], ids=str)
def test_no_profile_is_below_an_exact_attack(name: str, options: dict[str, Any]) -> None:
    """The winner of k Gaussian runs by its own outcome, in both directions, by quadrature; for compose, the sum of all k.

    A run gives x ~ N(+-1/2, sigma^2) and the lowest x wins, which is a function of what every selection here lets leave.
    """
    selection = named(name, candidates=6, **options)
    noise = ONE.noise
    x = np.linspace(-11 * noise, 11 * noise, 200_001)
    densities = [_winner_density(selection, (x - centre) / noise) for centre in (0.5, -0.5)]
    profiles = selection.profiles(ONE.event, delta=DELTA)
    for p, r in (densities, densities[::-1]):
        for profile in profiles:
            for epsilon in np.linspace(0, profile.epsilons[-1], 25):
                exact = float(np.maximum(p - math.exp(epsilon) * r, 0).sum())
                assert exact <= value(profile, epsilon) * (1 + 1e-4) + 1e-14


def _winner_density(selection: Any, z: Array) -> Array:
    beaten = special.ndtr(z)  # the chance that a fresh run has a lower outcome
    if isinstance(selection, RandomStopping):
        slope = selection.count.slope(beaten, special.ndtr(-z))
    else:
        slope = special.ndtr(-z) ** (selection.candidates - 1)
    density = np.exp(-(z**2) / 2) * slope
    none = selection.count.none if isinstance(selection, RandomStopping) else 0.0
    scaled: Array = density / density.sum() * (1 - none)
    return scaled


def test_the_attack_would_see_a_profile_that_is_too_low() -> None:
    """The planted fault: the profile of one run in place of that of the best of six."""
    x = np.linspace(-66, 66, 200_001)
    selection = named("envelope", candidates=6)
    p, r = (_winner_density(selection, (x - centre) / 6.0) for centre in (-0.5, 0.5))
    one = named("compose").profiles(ONE.event, delta=DELTA)[0]
    for epsilon in (0.2, 0.4, 0.6):
        assert float(np.maximum(p - math.exp(epsilon) * r, 0).sum()) > 2 * value(one, epsilon)


def test_points_left_out_only_raise_a_profile() -> None:
    pair = privacy_loss(RUN.event, delta=DELTA)
    assert pair is not None
    epsilons = np.linspace(0, 0.5, 400)
    dense = Profile(epsilons, pair.deltas(epsilons))
    thin = corners(Profile(epsilons[::7], dense.deltas[::7]))
    kept = corners(dense)
    assert np.all(at(thin, epsilons) >= dense.deltas * (1 - 1e-12))
    assert np.all(at(kept, epsilons) >= dense.deltas * (1 - 1e-12))
    assert np.all(at(kept, epsilons) <= dense.deltas * (1 + 1e-5))


def test_points_that_almost_coincide_make_no_negative_mass() -> None:
    """Two grids of one profile, a rounding apart, as the lesser of two bounds joins them."""
    first = profiles_of("winner")
    nudged = Profile(np.append(0.0, first[0].epsilons[1:] * (1 + 1e-15)), first[0].deltas)
    step = step_of(least(first[0], nudged), least(first[1], first[1]))
    assert np.all(step.p >= 0)


def test_the_worst_of_two_is_at_least_either() -> None:
    few, many = (named("envelope", runs=runs).profiles(RUN.event, delta=DELTA) for runs in (2, 40))
    noisy = named("papernot-steinke", runs=5).profiles(RUN.with_noise(9.0).event, delta=DELTA)
    for first, second in ((few, many), (noisy, few)):
        for joint, *sides in zip(worst(first, second), first, second, strict=True):
            for side in sides:
                assert np.all(at(joint, joint.epsilons) >= at(side, joint.epsilons) * (1 - 1e-6))
    assert worst(constant(0.0), few)[0].deltas[0] == few[0].deltas[0]


def test_a_profile_is_followed_finely() -> None:
    """No two neighbouring points of a smooth profile differ by more than BEND in log delta."""
    profile = named("envelope", runs=5).profiles(RUN.event, delta=DELTA)[0]
    assert np.max(-np.diff(np.log(profile.deltas))) <= BEND + 1e-9


@pytest.mark.parametrize("gamma", [1.0, 0.1])
def test_points_of_liu_talwar_are_in_order_and_each_is_the_theorem(gamma: float) -> None:
    """Of a run that costs next to nothing the term 3 sqrt(2 delta1) is all there is: epsilon falls where delta does."""
    weak, selection = Run(records=60000, lot=1, steps=1, noise=1e4), LiuTalwar(gamma=gamma)
    profile, _ = selection.profiles(weak.event, delta=DELTA)
    assert np.all(np.diff(profile.epsilons) > 0)
    assert np.all(np.diff(profile.deltas) <= 0)
    with quiet():
        for epsilon, delta in zip(profile.epsilons[1:].tolist(), profile.deltas[1:].tolist(), strict=True):
            assert selection.epsilon(weak.event, delta=delta) <= epsilon
