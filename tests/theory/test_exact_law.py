"""The exact computations that judge the bounds, judged themselves against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

from .brute_force import LawOfK, delta, enumerate_winner, grid_winner_law, winner_law
from .instances import grid_pair, random_law, random_mechanism, spread
from .reference_bounds import Pair, trade_off


@pytest.mark.parametrize("ties", ["uniform", "first", "last"])
def test_lemma_1_is_the_enumeration_of_all_sequences_under_every_tie_rule(ties: str) -> None:
    rng = np.random.default_rng(10)
    for _ in range(60):
        mechanism = random_mechanism(rng)
        n = len(mechanism.q)
        pmf = rng.dirichlet(np.full({2: 8, 3: 6, 4: 5}.get(n, 4), 0.7))
        law = LawOfK("pmf", tuple(pmf.tolist()))
        expected = enumerate_winner(mechanism.q, mechanism.score, pmf, ties)
        assert np.abs(winner_law(mechanism.q, mechanism.score, law) - expected).max() < 1e-13


def test_the_generating_functions_belong_to_their_laws() -> None:
    rng = np.random.default_rng(11)
    x = np.linspace(0, 0.9, 7)
    for _ in range(200):
        law = random_law(rng)
        pmf = law.pmf()
        k = np.arange(len(pmf))
        assert np.allclose(law.generating(x), (pmf * x[:, None] ** k).sum(axis=1), atol=1e-12)
        assert np.allclose(law.slope(1 - x), (k[1:] * pmf[1:] * x[:, None] ** (k[1:] - 1)).sum(axis=1), atol=1e-10)
        assert law.mean == pytest.approx(float(law.slope(np.array(0.0))), rel=1e-12)
        assert law.none == pytest.approx(pmf[0], abs=1e-15)


def test_identical_candidates_each_run_once_are_a_fixed_number_of_runs() -> None:
    rng = np.random.default_rng(12)
    for k in (1, 2, 3):
        mechanism = random_mechanism(rng)
        each = grid_winner_law([mechanism.q] * k, [mechanism.score] * k, "uniform").reshape(k, -1)
        expected = winner_law(mechanism.q, mechanism.score, LawOfK("fixed", (k,)))[:-1]
        assert np.allclose(each.sum(axis=0), expected, atol=1e-14)


def test_the_reverse_profile_is_the_profile_at_minus_epsilon() -> None:
    rng = np.random.default_rng(13)
    for _ in range(200):
        pair, e = Pair.of(random_mechanism(rng)), float(rng.uniform(-3, 3))
        assert pair.delta(-e) == pytest.approx(-math.expm1(-e) + math.exp(-e) * pair.reversed.delta(e), abs=1e-13)


def test_the_trade_off_is_the_infimum_over_the_reverse_profile() -> None:
    rng = np.random.default_rng(14)
    for _ in range(200):
        pair = grid_pair(rng)[0]
        s, g = trade_off(pair)
        e = np.concatenate([-pair.losses, [-30.0, 30.0]])
        lines = np.exp(e)[:, None] * s + np.array([pair.reversed.delta(x) for x in e])[:, None]
        assert np.allclose(lines.min(axis=0), g, atol=1e-10)


def test_spreading_over_a_uniform_grid_dominates_in_both_directions() -> None:
    rng = np.random.default_rng(15)
    for _ in range(300):
        mechanism = random_mechanism(rng)
        pair = spread(mechanism, float(rng.choice([0.05, 0.3, 1.0])))
        assert [mass.sum() for mass in pair.masses] == pytest.approx([1.0, 1.0], abs=1e-12)
        for e in rng.uniform(-4, 4, 8):
            assert delta(mechanism.q, mechanism.q_prime, e) <= pair.delta(e) + 1e-12
            assert delta(mechanism.q_prime, mechanism.q, e) <= pair.reversed.delta(e) + 1e-12
