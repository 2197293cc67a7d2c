"""A run's public constants are checked once, and are the only source of its event."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import dp_accounting
import pytest

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
