"""More charges than the accountant composes in one go: never below the truth, hardly above it, the same in any order."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from scipy import optimize, special

from honestdp import Run, accounting
from honestdp.accounting import discrete
from honestdp.ledger import spending
from honestdp.ledger.spending import Spending, counted_epsilon
from honestdp.selection import Compose, named

DELTA = 1e-6


def run(noise: float, *, steps: int = 1000, lot: int = 250, records: int = 60000) -> Spending:
    return Spending(Compose(candidates=1), ((Run(records=records, lot=lot, steps=steps, noise=noise), 1),))


ENVELOPE = Spending(
    named("envelope", candidates=10), ((Run(records=60000, lot=250, steps=1000, noise=40.0), 10),), score=100.0
)
KINDS = {run(20.0 + i): 1 for i in range(40)}


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Of a Gaussian of sensitivity mu and noise one, exactly (Balle & Wang 2018)."""

    def excess(e: float) -> float:
        return float(special.ndtr(mu / 2 - e / mu) - math.exp(e) * special.ndtr(-mu / 2 - e / mu)) - delta

    return float(optimize.brentq(excess, 0.0, 100.0, xtol=1e-14))


def fine_epsilon(spendings: Mapping[Spending, int], delta: float) -> float:
    """All at once, on a finer grid."""
    event = ComposedDpEvent([SelfComposedDpEvent(one.training, count) for one, count in spendings.items()])
    pair = accounting.privacy_loss(event, delta=delta, tolerance=1e-5)
    assert pair is not None
    return pair.worst_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spendings", "delta", "most"),
    [
        (KINDS, 1e-6, 2e-4),
        (KINDS, 1e-10, 2e-4),
        (KINDS, 1e-2, 2e-4),
        ({run(40.0 + i, steps=1, lot=100, records=100): 3 for i in range(40)}, 1e-6, 2e-4),
        ({run(8.0): 1000}, 1e-6, 2e-4),
        ({run(0.8 + 0.01 * i, steps=10): 2 for i in range(40)}, 1e-6, 5e-3),  # losses that are rare and large
    ],
    ids=lambda value: f"{len(value)} kinds" if isinstance(value, dict) else str(value),
)
def test_groups_come_to_what_all_at_once_come_to(spendings: dict[Spending, int], delta: float, most: float) -> None:
    found, fine = counted_epsilon(spendings, delta=delta), fine_epsilon(spendings, delta)
    assert fine * (1 - 1.5e-5) <= found <= fine * (1 + most)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("kinds", [1, 33, 300])
def test_gaussians_are_never_below_the_exact_gaussian(kinds: int, delta: float) -> None:
    noises = [200.0 + i for i in range(kinds)]
    spendings = {run(noise, steps=1, lot=5, records=5): 2 for noise in noises}
    exact = gaussian_epsilon(math.sqrt(sum(2 / noise**2 for noise in noises)), delta)
    assert exact <= counted_epsilon(spendings, delta=delta) <= exact * (1 + 3e-4)


def test_the_order_of_charges_changes_nothing() -> None:
    kinds = [*KINDS.items()]
    found = set()
    for seed in range(3):
        random.Random(seed).shuffle(kinds)
        spending._total.cache_clear()
        discrete._dominating.cache_clear()
        found.add(counted_epsilon(dict(kinds), delta=DELTA))
    assert len(found) == 1


def test_every_charge_counts() -> None:
    total = counted_epsilon(KINDS, delta=DELTA)
    assert counted_epsilon({**KINDS, run(20.0): 2}, delta=DELTA) > total
    assert counted_epsilon({**KINDS, run(70.0): 1}, delta=DELTA) > total
    for one in list(KINDS)[:3]:
        assert counted_epsilon({kind: 1 for kind in KINDS if kind != one}, delta=DELTA) < total


def test_many_profiles_do_not_add_up_to_infinity() -> None:
    """What a profile leaves below its end counts as infinite: a hundred thousand of them must not reach delta."""
    assert counted_epsilon({ENVELOPE: 10}, delta=DELTA) < counted_epsilon({ENVELOPE: 100_000}, delta=DELTA) < math.inf


def test_what_spends_nothing_adds_nothing() -> None:
    nothing = Spending(named("envelope", runs=3), ((Run(records=10, lot=5, steps=0, noise=1.0), 1),))
    assert counted_epsilon({**KINDS, nothing: 5}, delta=DELTA) == counted_epsilon(KINDS, delta=DELTA)
    assert counted_epsilon({nothing: 50}, delta=DELTA) == 0


def test_no_noise_among_many_is_infinite() -> None:
    assert counted_epsilon({**KINDS, run(0.0): 1}, delta=DELTA) == math.inf


@pytest.mark.slow
def test_losses_beyond_numbers_fall_back_to_a_bound() -> None:
    found = counted_epsilon({run(0.02 + i / 1000, steps=1): 1 for i in range(40)}, delta=DELTA)
    assert 100 < found < math.inf
