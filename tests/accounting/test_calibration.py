"""Calibration never overshoots, and comes close from below."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import replace

import pytest

from honestdp import Budget, Run
from honestdp.accounting import AccountingWarning
from honestdp.accounting.calibration import OverBudget, least_noise
from honestdp.checks import InvalidArgument
from honestdp.run import LEAST_NOISE
from honestdp.selection import SELECTIONS, Compose, named

from .absurd_settings import spread


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTIONS)
def test_every_selection_can_be_calibrated(name: str) -> None:
    selection = named(name, candidates=6)
    budget = Budget(2.0, 1e-6)
    run = least_noise(budget, records=60000, lot=250, steps=2000, selection=selection)
    spent = selection.epsilon(run.event, delta=budget.delta)
    assert 0.999 * budget.epsilon <= spent <= budget.epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_a_budget_that_is_none_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidArgument):
        Budget(epsilon, delta)


def test_no_step_needs_no_noise_and_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="steps"):
        least_noise(Budget(1.0, 1e-6), records=100, lot=10, steps=0, selection=Compose(candidates=1))


@pytest.mark.filterwarnings("ignore::honestdp.accounting.AccountingWarning")
@pytest.mark.parametrize(
    ("records", "lot", "steps", "epsilon", "delta"),
    [(1000, 1, 1, 0.5, 1e-2), (10**6, 1, 10, 1.0, 1e-4), (10**6, 10, 1, 0.01, 1e-3), (100, 100, 1, 30.0, 0.1)],
)
def test_the_least_noise_is_found_where_noise_one_costs_nothing(
    records: int, lot: float, steps: int, epsilon: float, delta: float
) -> None:
    selection = Compose(candidates=1)
    found = least_noise(Budget(epsilon, delta), records=records, lot=lot, steps=steps, selection=selection)
    assert found.noise < 1
    assert selection.epsilon(found.event, delta=delta) <= epsilon
    if found.noise > 1.01 * LEAST_NOISE:
        assert selection.epsilon(replace(found, noise=found.noise * 0.999).event, delta=delta) > epsilon


@pytest.mark.filterwarnings("ignore::honestdp.accounting.AccountingWarning")
def test_where_even_the_least_noise_costs_too_little_it_is_the_least() -> None:
    found = least_noise(Budget(1e13, 1e-3), records=100, lot=100, steps=1, selection=Compose(candidates=1))
    assert found.noise == pytest.approx(LEAST_NOISE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_no_less_noise_would_do(seed: int) -> None:
    """Over random settings, the dear and the cheap: what is found fits, and a thousandth less does not."""
    rng = random.Random(seed)
    records = int(spread(rng, 2, 1e6))
    constants = {"records": records, "lot": min(records, spread(rng, 0.1, 1e4)), "steps": int(spread(rng, 1, 1e4))}
    budget = Budget(spread(rng, 0.02, 50), spread(rng, 1e-10, 0.3))
    name, options = rng.choice(
        [("compose", {"accountant": a}) for a in ("pld", "rdp", "moments")]
        + [("envelope", {}), ("papernot-steinke", {}), ("liu-talwar", {})]
    )
    selection = named(name, candidates=rng.randint(1, 20), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        try:
            run = least_noise(budget, selection=selection, **constants)  # type: ignore[arg-type]
        except OverBudget:
            assert selection.epsilon(Run(noise=1e9, **constants).event, delta=budget.delta) > budget.epsilon  # type: ignore[arg-type]
            return
        assert selection.epsilon(run.event, delta=budget.delta) <= budget.epsilon
        if run.noise > 1.01 * LEAST_NOISE:
            less = replace(run, noise=max(run.noise * (1 - 2e-3), LEAST_NOISE))
            assert selection.epsilon(less.event, delta=budget.delta) > budget.epsilon
