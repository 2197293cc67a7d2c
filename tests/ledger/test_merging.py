"""Blocks merged two at a time: never below the truth, hardly above it, and the same whatever the order."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special, stats

from honestdp import Run
from honestdp.accounting.discrete import randomised_response
from honestdp.accounting.pair import Pair, Slack
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import Array, GaussianStep, Step
from honestdp.ledger import merging, spending
from honestdp.ledger.merging import Block, merge, of_atoms, of_gaussians, of_pair, power
from honestdp.ledger.spending import Spending, counted_epsilon
from honestdp.selection import Compose, named

DELTA = 1e-6


def run(noise: float, *, steps: int = 1000, lot: int = 250, records: int = 60000) -> Spending:
    return Spending(Compose(candidates=1), ((Run(records=records, lot=lot, steps=steps, noise=noise), 1),))


ENVELOPE = Spending(
    named("envelope", candidates=10), ((Run(records=60000, lot=250, steps=1000, noise=40.0), 10),), score=100.0
)
CHOICE = Spending(Compose(candidates=3), ((Run(records=60000, lot=250, steps=10, noise=40.0), 3),), choice=0.05)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Of a Gaussian of sensitivity mu and noise one, exactly (Balle & Wang 2018)."""

    def excess(e: float) -> float:
        return float(special.ndtr(mu / 2 - e / mu) - math.exp(e) * special.ndtr(-mu / 2 - e / mu)) - delta

    return float(optimize.brentq(excess, 0.0, 100.0, xtol=1e-14))


def merged_epsilon(spendings: Mapping[Spending, int], delta: float) -> float:
    leaves = spending._leaves(tuple(spendings.items()), delta)
    return merging.merged(leaves, delta=delta).pair().worst_epsilon(delta)


def fine_epsilon(spendings: Mapping[Spending, int], delta: float, tolerance: float) -> float:
    """All at once, on a much finer grid."""
    gaussian, others = spending._sorted_out(tuple(spendings.items()))
    steps: list[Step] = [GaussianStep(rate, noise, count) for (rate, noise), count in gaussian.items()]
    for one, count in others:
        steps += [replace(step, count=step.count * count) for step in one.steps(delta=delta * merging.DEEPER)]
    pair = dominating_pair(tuple(steps), delta=delta, tolerance=tolerance)
    assert pair is not None
    return pair.worst_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spendings", "delta", "tolerance"),
    [
        ({run(10.0 + i): 1 for i in range(12)}, 1e-6, 1e-6),
        ({run(10.0 + i): 1 for i in range(12)}, 1e-10, 1e-6),
        ({run(10.0 + i): 1 for i in range(12)}, 1e-2, 1e-6),
        ({run(0.8 + 0.05 * i, steps=10): 2 for i in range(4)}, 1e-6, 1e-6),
        ({run(40.0 + i, steps=1, lot=100, records=100): 3 for i in range(20)}, 1e-6, 1e-6),
        ({run(8.0): 100}, 1e-6, 1e-5),
        ({run(3.0, steps=10): 3000}, 1e-6, 1e-5),
        ({ENVELOPE: 50}, 1e-6, 1e-5),
        ({CHOICE: 40}, 1e-6, 1e-5),
        ({ENVELOPE: 5, CHOICE: 7, **{run(10.0 + i): 1 for i in range(10)}}, 1e-6, 1e-5),
    ],
    ids=lambda value: f"{len(value)} kinds" if isinstance(value, dict) else str(value),
)
def test_it_is_what_all_at_once_comes_to(spendings: dict[Spending, int], delta: float, tolerance: float) -> None:
    found, fine = merged_epsilon(spendings, delta), fine_epsilon(spendings, delta, tolerance)
    assert found >= fine * (1 - 1.5 * tolerance)
    assert found <= fine * (1 + 2e-4)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("count", [1, 2, 3, 300, 4095])
def test_gaussians_merged_one_by_one_are_never_below_the_exact_gaussian(count: int, delta: float) -> None:
    sigma = 200.0
    one = of_gaussians(1.0, sigma, 1, delta=delta)
    exact = gaussian_epsilon(math.sqrt(count) / sigma, delta)
    found = power(one, count, delta=delta).pair().worst_epsilon(delta)
    assert exact <= found <= exact * (1 + 3e-4) + 1e-9


def test_different_gaussians_without_sampling_are_one() -> None:
    noises = [30.0 + i for i in range(20)]
    spendings = {run(noise, steps=1, lot=5, records=5): 2 for noise in noises}
    exact = gaussian_epsilon(math.sqrt(sum(2 / noise**2 for noise in noises)), DELTA)
    assert exact <= counted_epsilon(spendings, delta=DELTA) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("count", [1, 7, 60, 1000])
def test_pure_queries_are_never_below_their_exact_composition(count: int) -> None:
    """Of randomised responses the sum of losses is binomial: delta is a finite sum."""
    one = 0.1 if count < 100 else 0.02
    block = power(of_atoms(randomised_response(one), delta=DELTA), count, delta=DELTA)
    pair = block.pair()
    right = 1 / (1 + math.exp(-one))
    k = np.arange(count + 1)
    losses, p = (2 * k - count) * one, stats.binom.pmf(k, count, right)
    for e in np.linspace(0.0, 0.95 * float(losses[-1]), 17):
        exact = float(np.sum(p * -np.expm1(np.minimum(e - losses, 0.0))))
        for direction in (pair, pair.reversed):
            assert direction.delta(float(e)) >= exact * (1 - 1e-10)
    epsilon = pair.worst_epsilon(DELTA)
    exact = float(np.sum(p * -np.expm1(np.minimum(epsilon * (1 - 2e-3) - losses, 0.0))))
    assert exact > DELTA or epsilon <= 1e-9


EPSILONS = np.linspace(0.0, 3.0, 61)


def deltas(pair: Pair) -> Array:
    return np.array([direction.delta(float(e)) for direction in (pair, pair.reversed) for e in EPSILONS])


def some_block(seed: int) -> Block:
    chance = np.random.default_rng(seed)
    p = chance.random(200) ** 8 * np.exp(-(np.linspace(-5, 5, 200) ** 2) / 2)
    r = p * np.exp(-(np.arange(200) - 93 + seed) * 2.0**-5)
    p, r = p / p.sum(), r / r.sum()
    return Block(-5, -93 + seed, p, 1e-9, 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_coarser_grid_is_never_below(seed: int) -> None:
    block = some_block(seed)
    coarse = block.coarser()
    assert coarse.p.sum() == pytest.approx(block.p.sum(), rel=1e-14)
    assert float(np.sum(coarse.p * np.exp(-coarse.losses))) == pytest.approx(
        float(np.sum(block.p * np.exp(-block.losses))), rel=1e-13
    )
    assert np.all(deltas(coarse.pair()) >= deltas(block.pair()) * (1 - 1e-12))
    assert coarse.variance() >= block.variance() * (1 - 1e-6)


@pytest.mark.parametrize("least", [1e-20, 1e-6, 1e-3])
def test_what_is_cut_off_is_charged_in_full(least: float) -> None:
    block = some_block(1)
    cut = block.cut(least)
    assert np.all(deltas(cut.pair()) >= deltas(block.pair()) * (1 - 1e-12))
    assert cut.p.sum() + cut.p_inf == pytest.approx(block.p.sum() + block.p_inf, rel=1e-12)
    assert cut.r_inf - block.r_inf <= 3 * least
    assert least < 1e-4 or len(cut.p) < len(block.p)


def test_what_a_pair_may_lack_is_added() -> None:
    """Slacks so large that they matter: the block is nowhere below the pair's own bound."""
    pair = dominating_pair((GaussianStep(0.1, 2.0, 50),), delta=1e-9)
    assert pair is not None
    worse = Pair(
        pair.losses,
        pair.p,
        pair.r,
        pair.p_inf,
        pair.r_inf,
        upper=(Slack(0.0, math.log(1e-3)), Slack(3.0, math.log(1e-2))),
        lower=(Slack(0.0, math.log(2e-3)), Slack(2.0, math.log(1e-2))),
    )
    plain, added = (of_pair(one, delta=1e-9).pair() for one in (pair, worse))
    # A delta of mass at a loss of at least l counts by 1 - e^(e - l): the bound that the slack stands for, at its mildest.
    assert np.all(deltas(added) >= deltas(plain))
    for direction, usual, slack in ((added, plain, worse), (added.reversed, plain.reversed, worse.reversed)):
        for loss in (-1.0, 0.0, 0.7, 1.5):
            mass = float(direction.p[direction.losses >= loss].sum()) + direction.p_inf
            known = float(usual.p[usual.losses >= loss + 0.02].sum()) + usual.p_inf
            assert mass >= known + 0.99 * float(slack.slack(np.array(loss + 0.02)))


def test_infinite_losses_add_up() -> None:
    one, other = some_block(1), some_block(2)
    both = merge(one, other, delta=DELTA)
    assert both.p_inf >= one.p_inf + other.p_inf
    assert both.r_inf >= one.r_inf + other.r_inf


def test_the_order_of_charges_changes_nothing() -> None:
    kinds = [(run(20.0 + i), 1 + i % 3) for i in range(12)]
    found = set()
    for seed in range(3):
        random.Random(seed).shuffle(kinds)
        spending._total.cache_clear()
        merging._kept_branch.cache_clear()
        found.add(counted_epsilon(dict(kinds), delta=DELTA))
    assert len(found) == 1


@pytest.mark.slow
def test_every_charge_counts() -> None:
    kinds = {run(20.0 + i): 1 for i in range(20)}
    total = counted_epsilon(kinds, delta=DELTA)
    assert counted_epsilon({**kinds, run(20.0): 2}, delta=DELTA) > total
    assert counted_epsilon({**kinds, run(50.0): 1}, delta=DELTA) > total
    for one in list(kinds)[:3]:
        assert counted_epsilon({kind: 1 for kind in kinds if kind != one}, delta=DELTA) < total


def test_many_profiles_do_not_add_up_to_infinity() -> None:
    """What a profile leaves below its end counts as infinite: a hundred thousand of them must not reach delta."""
    assert counted_epsilon({ENVELOPE: 100_000}, delta=DELTA) < math.inf


def test_what_spends_nothing_adds_nothing() -> None:
    nothing = Spending(named("envelope", runs=3), ((Run(records=10, lot=5, steps=0, noise=1.0), 1),))
    kinds = {run(20.0 + i): 1 for i in range(12)}
    assert counted_epsilon({**kinds, nothing: 5}, delta=DELTA) == counted_epsilon(kinds, delta=DELTA)
    assert counted_epsilon({nothing: 50}, delta=DELTA) == 0


def test_no_noise_among_many_is_infinite() -> None:
    kinds = {run(20.0 + i): 1 for i in range(12)}
    assert counted_epsilon({**kinds, run(0.0): 1}, delta=DELTA) == math.inf


@pytest.mark.slow
def test_losses_beyond_numbers_fall_back_to_a_bound() -> None:
    kinds = {run(0.02 + i / 1000, steps=1): 1 for i in range(12)}
    found = counted_epsilon(kinds, delta=DELTA)
    assert found > 100


def test_few_charges_are_composed_as_before() -> None:
    few = Counter({run(10.0 + i): 1 for i in range(spending.AT_ONCE)})
    assert not spending._many(tuple(few.items()))
    assert spending._many(tuple((few + Counter([run(9.0)])).items()))
    assert spending._many(((ENVELOPE, spending.AT_ONCE + 1),))
    assert spending._many(((run(9.0), 1000),))
    total = tuple(sorted(few.items(), key=repr))
    assert counted_epsilon(few, delta=DELTA) == spending._at_once(total, DELTA)
