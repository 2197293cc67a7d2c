"""No bound of docs/theory.md is ever below the exact delta; every formula loosened on purpose is.

All instances are seeded, so each test gives the same answer every time: there is no false alarm to be had by chance.
A bound of one's own is put to the same trial by one line in BOUNDS (GRID_BOUNDS for candidates each run once).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from . import loosened
from .brute_force import LawOfK, Mechanism
from .instances import (
    Bound,
    GridBound,
    GridInstance,
    Instance,
    RenyiFormula,
    grid_instances,
    grid_violations,
    on_uniform_grid,
    random_instances,
    random_law,
    renyi_violations,
    some_epsilons,
    tight_grid_instances,
    tight_instances,
    violations,
)
from .reference_bounds import (
    Pair,
    envelope,
    papernot_steinke,
    papernot_steinke_rdp,
    profile,
    refined,
    refined_with,
    trade_off,
    winner,
)

pytestmark = pytest.mark.law

RANDOM_STOPPING = ("geometric", "tnb", "poisson")
SHAPED = ("geometric", "tnb")
BOUNDS: dict[str, tuple[Bound, tuple[str, ...] | None]] = {
    "papernot-steinke": (papernot_steinke, RANDOM_STOPPING),
    "profile": (profile, None),
    "envelope": (envelope, None),
    "refined": (refined, None),
}
GRID_BOUNDS: dict[str, GridBound] = {"winner": winner}
LOOSENED: list[tuple[Bound, tuple[str, ...] | None]] = [
    (loosened.profile_without_mean, None),
    (loosened.profile_with_forward_trade_off, None),
    (loosened.profile_with_eta_for_eta_plus_one, SHAPED),
    (loosened.profile_without_shift, None),
    (loosened.envelope_with_forward_trade_off, None),
    (loosened.envelope_without_trade_off, None),
    (loosened.envelope_averaged_over_the_reverse, None),
    (loosened.envelope_with_slopes_from_the_right_end, None),
    (loosened.envelope_with_offsets_from_the_left_end, None),
    (loosened.envelope_with_infinite_losses_counted_once, None),
    (loosened.envelope_without_reverse_infinite_losses, None),
    (loosened.envelope_without_the_empty_search, ("poisson", "binomial")),
    (loosened.refined_without_what_lambda_costs, None),
    (loosened.refined_with_a_smaller_slope_at_infinity, None),
]
LOOSENED_GRID: list[GridBound] = [
    loosened.winner_without_majorant,
    loosened.winner_without_the_cut,
    loosened.winner_counted_as_one_run,
    loosened.winner_as_if_all_candidates_had_one_law,
    loosened.winner_with_forward_trade_off,
]
LOOSENED_RENYI: list[tuple[RenyiFormula, tuple[str, ...]]] = [
    (loosened.renyi_with_eta_for_eta_plus_one, SHAPED),
    (loosened.renyi_without_log_mean, RANDOM_STOPPING),
    (loosened.renyi_without_gamma, SHAPED),
    (loosened.renyi_poisson_without_reverse_delta, ("poisson",)),
    (loosened.renyi_poisson_without_the_empty_search, ("poisson",)),
]


@pytest.mark.parametrize("name", BOUNDS)
def test_the_exact_delta_is_never_above_the_bound(name: str) -> None:
    bound, kinds = BOUNDS[name]
    searched = chain(random_instances(1, 600, kinds=kinds), tight_instances(2, 400, kinds=kinds))
    assert next(violations(bound, searched), None) is None


@pytest.mark.parametrize("h", [0.07, 0.5])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_bound_holds_for_pairs_on_a_uniform_grid(name: str, h: float) -> None:
    bound, kinds = BOUNDS[name]
    searched = chain(random_instances(3, 150, kinds=kinds), tight_instances(4, 150, kinds=kinds))
    assert next(violations(bound, on_uniform_grid(searched, h)), None) is None


@pytest.mark.parametrize("name", BOUNDS)
def test_the_bound_holds_in_the_other_direction(name: str) -> None:
    bound, kinds = BOUNDS[name]
    searched = (
        replace(x, mechanism=x.mechanism.reversed, pair=x.pair.reversed)
        for x in chain(random_instances(5, 150, kinds=kinds), tight_instances(6, 150, kinds=kinds))
    )
    assert next(violations(bound, searched), None) is None


@pytest.mark.parametrize("name", GRID_BOUNDS)
def test_the_exact_delta_of_a_grid_is_never_above_the_bound(name: str) -> None:
    searched = chain(grid_instances(7, 500), tight_grid_instances(8, 500))
    assert next(grid_violations(GRID_BOUNDS[name], searched), None) is None


def test_the_renyi_bound_holds_at_every_order() -> None:
    searched = chain(random_instances(9, 500, kinds=RANDOM_STOPPING), tight_instances(10, 500, kinds=RANDOM_STOPPING))
    assert next(renyi_violations(papernot_steinke_rdp, searched), None) is None


@pytest.mark.parametrize(("bound", "kinds"), LOOSENED, ids=[bound.__name__ for bound, _ in LOOSENED])
def test_a_loosened_formula_is_caught(bound: Bound, kinds: tuple[str, ...] | None) -> None:
    searched = chain(tight_instances(2, 400, kinds=kinds), random_instances(1, 600, kinds=kinds))
    assert next(violations(bound, searched), None) is not None


@pytest.mark.parametrize("bound", LOOSENED_GRID, ids=[bound.__name__ for bound in LOOSENED_GRID])
def test_a_loosened_formula_for_a_grid_is_caught(bound: GridBound) -> None:
    searched = chain(tight_grid_instances(8, 500), grid_instances(7, 500))
    assert next(grid_violations(bound, searched), None) is not None


@pytest.mark.parametrize(("formula", "kinds"), LOOSENED_RENYI, ids=[formula.__name__ for formula, _ in LOOSENED_RENYI])
def test_a_loosened_renyi_formula_is_caught(formula: RenyiFormula, kinds: tuple[str, ...]) -> None:
    searched = chain(tight_instances(10, 500, kinds=kinds), random_instances(9, 500, kinds=kinds))
    assert next(renyi_violations(formula, searched), None) is not None


def test_every_step_function_gives_a_refined_bound() -> None:
    rng = np.random.default_rng(11)

    def with_any_weights(pair: Pair, law: LawOfK, epsilon: float) -> float:
        cells = len(trade_off(pair)[0]) - 1
        return refined_with(pair, law, epsilon, rng.normal(0, 1, cells) * law.mean * (rng.random(cells) < rng.random()))

    searched = chain(random_instances(12, 400), tight_instances(13, 400))
    assert next(violations(with_any_weights, searched), None) is None


def test_candidates_drawn_inside_the_runs_cost_what_the_pair_that_dominates_each_of_them_costs() -> None:
    """Q is a mixture over candidates with laws of their own; the index is released with the outcome."""

    def mixtures(count: int) -> list[Instance]:
        rng, found = np.random.default_rng(14), []
        for grid in grid_instances(15, count):
            weights = rng.dirichlet(np.ones(len(grid.candidates)))
            parts = list(zip(weights, grid.candidates, strict=True))
            q = np.concatenate([w * c.q for w, c in parts])
            q_prime = np.concatenate([w * c.q_prime for w, c in parts])
            mixture = Mechanism(q, q_prime, np.concatenate([c.score for _, c in parts]))
            found.append(Instance(mixture, random_law(rng), some_epsilons(mixture, rng), grid.pair))
        return found

    for bound in (profile, envelope, refined):
        assert next(violations(bound, iter(mixtures(150))), None) is None


def test_refined_is_never_above_envelope_nor_envelope_above_profile() -> None:
    for x in chain(random_instances(16, 150), tight_instances(17, 150)):
        s, g = trade_off(x.pair)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The profile form on the cells that the envelope has.
            shift = float(np.nan_to_num(np.log(x.law.slope(s[:-1]) / x.law.slope(g[1:])), nan=0.0, posinf=np.inf).max())
        for epsilon in x.epsilons:
            by_envelope = envelope(x.pair, x.law, epsilon)
            assert refined(x.pair, x.law, epsilon) <= by_envelope + 1e-12
            if math.isfinite(shift):
                by_profile = x.law.mean * x.pair.delta(epsilon - shift) + x.law.none * max(0.0, -math.expm1(epsilon))
                assert by_envelope <= by_profile * (1 + 1e-10) + 1e-12


def test_identical_candidates_each_run_once_cost_a_fixed_number_of_runs() -> None:
    """One law, one score function, ties at random: the winner's index says nothing, and Theorem 2R applies."""
    rng = np.random.default_rng(20)
    for x in chain(random_instances(21, 150), tight_instances(22, 150)):
        k = int(rng.integers(2, 5))
        grid = GridInstance((x.mechanism,) * k, x.pair, "uniform", x.epsilons)
        for epsilon in grid.epsilons:
            assert grid.exact(epsilon) <= refined(x.pair, LawOfK("fixed", (k,)), epsilon) + 1e-11


def test_ties_broken_by_a_released_index_are_not_covered_by_theorem_2r() -> None:
    """The same runs with the first of the tied ones winning: the index then tells how likely a tie was."""

    def caught(x: Instance) -> bool:
        grid = GridInstance((x.mechanism,) * 4, x.pair, "index", x.epsilons)
        return any(grid.exact(e) > refined(x.pair, LawOfK("fixed", (4,)), e) + 1e-11 for e in x.epsilons)

    searched = (x for x in chain(random_instances(31, 500), tight_instances(32, 500)) if len(x.mechanism.q) < 6)
    assert any(caught(x) for x in searched)


def test_liu_talwar_holds_with_its_cap_on_the_number_of_runs() -> None:
    """Mohapatra et al. 2022, Theorem 1, for every epsilon1 that the pair allows; the cap is part of the algorithm."""
    rng = np.random.default_rng(23)
    for x in chain(random_instances(24, 150), tight_instances(25, 150)):
        gamma, delta2 = float(rng.uniform(0.1, 1)), float(10 ** -rng.uniform(1, 4))
        cap = math.ceil(math.log(1 / delta2) / gamma)
        pmf = gamma * (1 - gamma) ** np.arange(cap)
        pmf[-1] = (1 - gamma) ** (cap - 1)
        search = replace(x, law=LawOfK("pmf", (0.0, *pmf.tolist())))
        for epsilon1 in np.append(x.pair.losses, 0.0):
            wide = math.sqrt(2 * max(x.pair.delta(epsilon1), x.pair.reversed.delta(epsilon1)))
            if epsilon1 >= 0:
                assert search.exact(3 * epsilon1 + 3 * wide) <= wide * cap + delta2 + 1e-11


def test_one_run_costs_one_run() -> None:
    one = LawOfK("fixed", (1,))
    for x in random_instances(18, 200):
        for epsilon in x.epsilons:
            base = x.pair.delta(epsilon)
            for bound in (profile, envelope):
                assert bound(x.pair, one, epsilon) == pytest.approx(base, abs=1e-12)
            assert winner(x.pair, 1, epsilon) == pytest.approx(base, abs=1e-12)


def test_the_envelope_is_nearly_attained() -> None:
    """Neither its constant nor its trade-off can be improved for all mechanisms."""
    ratios = [
        x.exact(epsilon) / envelope(x.pair, x.law, epsilon)
        for x in tight_instances(19, 500, kinds=RANDOM_STOPPING)
        for epsilon in x.epsilons[2:]
        if x.exact(epsilon) > 1e-6
    ]
    assert max(ratios) > 0.999
    assert math.isfinite(sum(ratios))
