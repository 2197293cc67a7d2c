"""A run's public constants are checked once, and are the only source of its event."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import dp_accounting
import pytest

from honestdp import Run
from honestdp.checks import InvalidArgument
from honestdp.joint import OSO_FACTOR, oso_split, quantile_split, remaining_noise

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


def test_a_percent_more_noise_on_the_gradient_leaves_seven_times_the_noise_for_the_direction() -> None:
    """Galli et al. 2024: allowing nu_g = 1.01 sigma gives nu_q = 7.124 sigma."""
    assert pytest.approx((1 - 1.01**-2) ** -0.5, abs=5e-4) == OSO_FACTOR
    gradient, direction = oso_split(2.0)
    assert direction == 7.124 * 2.0
    assert gradient == pytest.approx(1.01 * 2.0, rel=1e-4)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_both_queries_together_cost_one_gaussian(noise: float) -> None:
    gradient, direction = oso_split(noise)
    assert gradient**-2 + direction**-2 == pytest.approx(noise**-2, rel=1e-12)
    gradient = quantile_split(noise, count_noise=250 / 20)
    assert gradient**-2 + (2 * 250 / 20) ** -2 == pytest.approx(noise**-2, rel=1e-12)


def test_a_second_query_that_would_take_all_the_privacy_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="spent"):
        remaining_noise(noise=2.0, spent=2.0)
    assert remaining_noise(noise=0.0, spent=1.0) == 0.0
