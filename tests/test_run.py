"""A run's public constants are checked once, and are the only source of its event."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import dp_accounting
import pytest

import honestdp
from honestdp import Run
from honestdp.checks import InvalidArgument

GOOD: dict[str, Any] = {"records": 1000, "lot": 50, "steps": 10, "noise": 1.5}


def test_the_event_is_made_of_the_constants_alone() -> None:
    run = Run(**GOOD)
    step = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.5))
    assert run.event == dp_accounting.SelfComposedDpEvent(step, 10)
    assert run.rate == 0.05


def test_a_run_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Run(**GOOD).noise = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("records", 0),
        ("records", 10.5),
        ("records", True),
        ("lot", 0),
        ("lot", -1),
        ("lot", 1001),
        ("lot", math.nan),
        ("steps", -1),
        ("steps", 1.5),
        ("noise", -0.1),
        ("noise", math.nan),
        ("noise", math.inf),
        ("noise", "4"),
    ],
)
def test_a_bad_constant_is_refused_by_name_and_value(argument: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=argument) as caught:
        Run(**{**GOOD, argument: value})
    assert repr(value) in str(caught.value)


# ---- Epochs in the place of steps


@pytest.mark.parametrize(
    ("lot", "epochs", "steps"), [(50, 1, 20), (50, 2.5, 50), (30, 1, 33), (70, 1, 14), (1000, 0.1, 1)]
)
def test_epochs_are_records_over_lot_steps_each_to_the_nearest(lot: float, epochs: float, steps: int) -> None:
    run = Run(records=1000, lot=lot, epochs=epochs, noise=1.5)
    assert run.steps == steps
    assert run == Run(records=1000, lot=lot, steps=steps, noise=1.5)
    assert vars(run).keys() == {"records", "lot", "steps", "noise"}  # what files and ledgers keep


def test_a_run_says_its_epochs_and_keeps_its_steps_when_its_noise_changes() -> None:
    run = Run(records=1000, lot=50, epochs=2, noise=1.5)
    assert run.epochs == 2.0
    assert run.with_noise(3.0).steps == replace(run, noise=9.0).steps == 40
    assert pickle.loads(pickle.dumps(run)) == run


@pytest.mark.parametrize("length", [{}, {"steps": 10, "epochs": 1}])
def test_a_run_has_steps_or_epochs_and_not_both(length: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidArgument, match=r"steps must be given, or epochs in its place, and not both; .* 20 steps"
    ):
        Run(records=1000, lot=50, noise=1.5, **length)


@pytest.mark.parametrize("epochs", [0, -1, math.nan, math.inf, "3", True])
def test_epochs_that_no_run_has_are_refused(epochs: Any) -> None:
    with pytest.raises(InvalidArgument, match="epochs must be"):
        Run(records=1000, lot=50, noise=1.5, epochs=epochs)


def test_plan_and_least_noise_take_epochs_too() -> None:
    budget = honestdp.Budget(1.0, 1e-5)
    assert honestdp.least_noise(budget, records=1000, lot=50, epochs=1) == honestdp.least_noise(
        budget, records=1000, lot=50, steps=20
    )
    plans = [
        honestdp.plan(records=1000, lot=50, validation=0, delta=1e-5, candidates=1, noise=2.0, **more)
        for more in LENGTHS
    ]
    assert plans[0].run == plans[1].run


LENGTHS: list[dict[str, Any]] = [{"steps": 20}, {"epochs": 1}]
