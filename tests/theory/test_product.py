"""The functions that the product charges by, on trial against exact probabilities; and the trial against planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from honestdp.accounting import Pair, RenyiCurve
from honestdp.selection import envelope as product_envelope
from honestdp.selection import grid as product_grid
from honestdp.selection import random_stopping
from honestdp.selection.counts import Binomial, Count, Poisson, TruncatedNegativeBinomial

from .brute_force import Array, LawOfK
from .instances import (
    GridInstance,
    Instance,
    grid_instances,
    random_instances,
    renyi_violations,
    tight_grid_instances,
    tight_instances,
)
from .reference_bounds import Pair as ExactPair

pytestmark = pytest.mark.law

KINDS = ("geometric", "tnb", "poisson", "binomial")
Charge = Callable[[Pair, Count, float], float]


def product_pair(pair: ExactPair) -> Pair:
    return Pair(pair.losses, pair.p, pair.r, pair.p_inf, pair.r_inf)


def product_count(law: LawOfK) -> Count:
    match law.kind:
        case "tnb":
            return TruncatedNegativeBinomial(*law.parameters)
        case "poisson":
            return Poisson(*law.parameters)
        case "binomial":
            return Binomial(*law.parameters)
        case "fixed":
            return Binomial(law.parameters[0], 1.0)
    raise ValueError(law)


def instances(kinds: tuple[str, ...] = KINDS) -> Iterator[Instance]:
    found = chain(tight_instances(2, 250, kinds=kinds), random_instances(1, 250, kinds=kinds))
    return (x for x in found if len(x.pair.losses) > 1)


def deltas(x: Instance | GridInstance) -> list[float]:
    """Just below the exact delta at each epsilon of the instance: there a charge that is too small shows at once."""
    exact = [x.exact(epsilon) for epsilon in x.epsilons if epsilon >= 0]
    return [delta * (1 - 1e-6) for delta in exact if 1e-8 < delta < 1]


def undercharged(charge: Charge, searched: Iterator[Instance]) -> int:
    """How often the exact delta at the charged epsilon exceeds the delta that was asked for."""
    wrong = 0
    for x in searched:
        for delta in deltas(x):
            epsilon = charge(product_pair(x.pair), product_count(x.law), delta)
            wrong += math.isfinite(epsilon) and x.exact(epsilon) > delta * (1 + 1e-9) + 1e-11
    return wrong


@pytest.mark.parametrize("charge", [product_envelope.envelope_epsilon, product_envelope.profile_epsilon])
def test_random_stopping_is_never_undercharged(charge: Charge) -> None:
    assert undercharged(charge, instances()) == 0


@pytest.mark.parametrize("charge", [product_envelope.envelope_epsilon, product_envelope.profile_epsilon])
def test_the_other_direction_is_never_undercharged(charge: Charge) -> None:
    searched = (replace(x, mechanism=x.mechanism.reversed, pair=x.pair.reversed) for x in instances())
    assert undercharged(charge, searched) == 0


def test_envelope_never_charges_more_than_profile() -> None:
    for x in instances():
        for delta in deltas(x):
            arguments = product_pair(x.pair), product_count(x.law), delta
            dearer = product_envelope.profile_epsilon(*arguments)
            assert product_envelope.envelope_epsilon(*arguments) <= dearer * (1 + 1e-5) + 1e-9


def test_the_best_of_a_fixed_number_of_runs_is_never_undercharged() -> None:
    def charge(pair: Pair, count: Count, delta: float) -> float:
        assert isinstance(count, Binomial)
        return product_grid.identical_epsilon(pair, count.trials, delta) if count.trials > 1 else pair.epsilon(delta)

    assert undercharged(charge, instances(kinds=("fixed",))) == 0


def grid_undercharged(searched: Iterator[GridInstance]) -> int:
    wrong = 0
    for x in searched:
        for delta in deltas(x):
            epsilon = product_grid.different_epsilon(product_pair(x.pair), len(x.candidates), delta)
            wrong += math.isfinite(epsilon) and x.exact(epsilon) > delta * (1 + 1e-9) + 1e-11
    return wrong


def grids() -> Iterator[GridInstance]:
    return chain(tight_grid_instances(8, 200), grid_instances(7, 100))


@pytest.fixture(autouse=True)
def cells_for_few_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than the product takes: thousands of charges are made here."""
    monkeypatch.setattr(product_envelope, "FINE", 1200)
    monkeypatch.setattr(product_grid, "CELLS", 2**12)


def test_the_winner_of_a_grid_is_never_undercharged() -> None:
    assert grid_undercharged(grids()) == 0


def product_renyi(orders: Array, values: Array, reverse: Array, law: LawOfK, reverse_pair: ExactPair) -> Array:
    curve = RenyiCurve(orders, np.maximum(values, reverse))
    return random_stopping.repeated_curve(curve, product_count(law)).values


def test_papernot_steinke_is_never_undercharged() -> None:
    searched = chain(tight_instances(10, 250, kinds=KINDS[:3]), random_instances(9, 250, kinds=KINDS[:3]))
    assert next(renyi_violations(product_renyi, searched), None) is None


def _forward_g(pair: Pair) -> product_envelope.Curve:
    """g from the wrong direction: the test that finds P, used where the one that finds R belongs."""
    return ORIGINAL_CURVE(pair.reversed)


ORIGINAL_CURVE = product_envelope.Curve.of
ORIGINAL_CELLS = product_envelope.Curve.cells


def _swapped_ends(curve: product_envelope.Curve, count: Count) -> tuple[Array, Array]:
    return count.slope(curve.s[1:], curve.x[1:]), count.slope(curve.g[:-1], curve.y[:-1])


def _no_trade_off(curve: product_envelope.Curve, count: Count) -> tuple[Array, Array]:
    return count.slope(curve.s[:-1], curve.x[:-1]), count.slope(curve.s[1:], curve.x[1:])


def _mean_dropped(curve: product_envelope.Curve, count: Count) -> tuple[Array, Array]:
    above, below = ORIGINAL_CELLS(curve, count)
    return above / count.mean, below / count.mean


@pytest.mark.parametrize("fault", [_swapped_ends, _no_trade_off, _mean_dropped])
def test_a_fault_planted_in_the_cells_is_caught(fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_envelope, "FINE", 32)  # cells so wide that their two ends differ
    monkeypatch.setattr(product_envelope.Curve, "cells", fault)
    assert undercharged(product_envelope.envelope_epsilon, instances()) > 0


def test_a_curve_of_the_wrong_direction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_envelope.Curve, "of", staticmethod(_forward_g))
    assert undercharged(product_envelope.envelope_epsilon, instances()) > 0
    assert undercharged(product_envelope.profile_epsilon, instances()) > 0


def test_infinite_losses_left_out_are_caught() -> None:
    def charge(pair: Pair, count: Count, delta: float) -> float:
        return product_envelope.envelope_epsilon(replace(pair, p_inf=0.0), count, delta)

    assert undercharged(charge, instances()) > 0


def test_a_grid_charged_without_what_lies_beyond_the_cut_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = product_grid._grid_lines
    monkeypatch.setattr(
        product_grid, "_grid_lines", lambda curve, candidates, cut: original(curve, candidates, cut=0.1)
    )
    assert grid_undercharged(grids()) > 0


def test_a_grid_without_its_majorant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = product_grid.turning_points

    def chain_of_all(x: Array, y: Array) -> tuple[Array, Array]:
        increasing = len(x) > 1 and x[-1] > x[0]
        return (x, y) if increasing else original(x, y)

    monkeypatch.setattr(product_grid, "turning_points", chain_of_all)
    assert grid_undercharged(grids()) > 0


def test_a_renyi_constant_of_eta_for_eta_plus_one_is_caught() -> None:
    def loosened(orders: Array, values: Array, reverse: Array, law: LawOfK, reverse_pair: ExactPair) -> Array:
        count = product_count(law)
        assert isinstance(count, TruncatedNegativeBinomial)
        honest = product_renyi(orders, values, reverse, law, reverse_pair)
        base = np.maximum(values, reverse) + math.log(count.mean) / (orders - 1)
        finite = np.isfinite(base)
        return np.where(finite, base + (honest - np.where(finite, base, 0.0)) * count.shape / (1 + count.shape), base)

    searched = tight_instances(10, 250, kinds=("geometric", "tnb"))
    assert next(renyi_violations(loosened, searched), None) is not None
