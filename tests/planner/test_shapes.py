"""Lot and steps chosen from public numbers: most of the signal that a budget buys, for a bearable number of records seen."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

import honestdp
from honestdp import Budget
from honestdp.checks import InvalidArgument
from honestdp.planner import shapes
from honestdp.planner.shapes import chosen_shape, mu_of, share

RECORDS = [50, 400, 12_000, 48_000, 10**6, 10**7]
EPSILONS = [0.1, 1.0, 3.0, 10.0]


def noise_of_all_steps(budget: Budget, records: int, lot: float, steps: int) -> float:
    """Of the mean gradient over the whole run, in clips, by the accountant: what `shapes` approximates."""
    run = honestdp.least_noise(budget, records=records, lot=lot, steps=steps)
    return run.noise / (run.lot * math.sqrt(run.steps))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (3.0, 1e-8), (10.0, 1e-6)])
def test_mu_is_that_of_the_gaussian_mechanism(epsilon: float, delta: float) -> None:
    mu = mu_of(Budget(epsilon, delta))
    found = norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert found == pytest.approx(delta, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("lot", "steps"), [(64, 2000), (250, 1000), (2400, 1000), (4800, 500), (50, 300)])
def test_the_share_is_what_the_accountant_finds(lot: float, steps: int) -> None:
    """Against half of all records in a lot, where nothing is lost; closest where it matters, near what is chosen."""
    budget = Budget(1.0, 1e-5)
    least = noise_of_all_steps(budget, 48_000, 24_000, 2000)
    found = least / noise_of_all_steps(budget, 48_000, lot, steps)
    assert share(budget, records=48_000, lot=lot, steps=steps) == pytest.approx(
        found, abs=0.02 if found > 0.9 else 0.08
    )


@pytest.mark.parametrize(("records", "epsilon"), list(itertools.product(RECORDS, EPSILONS)))
@pytest.mark.parametrize("candidates", [1, 40])
def test_what_is_chosen_is_sane(records: int, epsilon: float, candidates: int) -> None:
    budget = Budget(epsilon, 1e-6)
    chosen = chosen_shape(budget, records=records, candidates=candidates)
    assert 1 <= chosen.lot <= records / 2
    assert shapes.FEWEST_STEPS <= chosen.steps <= shapes.STEPS
    seen = chosen.lot * chosen.steps
    assert seen <= 1.11 * min(shapes.MOST_SEEN, max(50 * records, 10**6))
    if seen < 0.85 * min(shapes.MOST_SEEN, max(50 * records, 10**6)):  # nothing kept it from taking what it wants
        assert share(budget, records=records, lot=chosen.lot, steps=chosen.steps, candidates=candidates) > 0.945
    assert "public numbers" in chosen.how


def test_a_larger_budget_or_more_records_want_larger_lots_until_compute_bounds_them() -> None:
    lots = [chosen_shape(Budget(epsilon, 1e-5), records=48_000).lot for epsilon in (0.1, 0.3, 1.0)]
    assert lots == sorted(lots)
    assert lots[0] < lots[-1]
    lots = [chosen_shape(Budget(1.0, 1e-5), records=records).lot for records in (1000, 10_000, 100_000)]
    assert lots == sorted(lots)
    assert lots[0] < lots[-1]


def test_what_is_named_stands_and_the_rest_follows() -> None:
    budget = Budget(1.0, 1e-5)
    assert chosen_shape(budget, records=48_000, lot=100, steps=7) == shapes.Chosen(100, 7)
    few = chosen_shape(budget, records=48_000, steps=100)
    assert few.steps == 100
    assert few.lot > chosen_shape(budget, records=48_000, steps=1000).lot
    assert few.how.startswith("the lot was chosen")
    small = chosen_shape(budget, records=48_000, lot=250)
    assert small.lot == 250
    assert 2000 < small.steps <= shapes.MOST_STEPS
    assert small.how.startswith("the steps were chosen")


@pytest.mark.parametrize("epochs", [0.5, 2, 20, 200])
def test_epochs_are_kept_whatever_the_lot(epochs: float) -> None:
    budget = Budget(1.0, 1e-5)
    chosen = chosen_shape(budget, records=48_000, epochs=epochs)
    assert chosen.lot * chosen.steps / 48_000 == pytest.approx(epochs, rel=0.02)
    named = chosen_shape(budget, records=48_000, epochs=epochs, lot=240)
    assert (named.lot, named.steps) == (240, epochs * 200)
    assert named.how == ""
    with pytest.raises(InvalidArgument, match="epochs must be left out where steps are given"):
        chosen_shape(budget, records=48_000, epochs=epochs, steps=10)


def test_without_a_budget_there_is_nothing_to_choose_from() -> None:
    with pytest.raises(InvalidArgument, match="lot must be given together with a noise"):
        chosen_shape(None, records=1000, steps=10)
    with pytest.raises(InvalidArgument, match="steps must be given together with a noise"):
        honestdp.plan(records=1000, lot=10, noise=1.0, delta=1e-5, candidates=2)


@pytest.mark.parametrize("validation", [-0.1, 1.0, True, "half"])
def test_a_split_that_is_none_is_refused(validation: object) -> None:
    with pytest.raises(InvalidArgument, match="validation must be a fraction"):
        honestdp.plan(records=100, epsilon=1.0, delta=1e-5, candidates=1, validation=validation)  # type: ignore[arg-type]
