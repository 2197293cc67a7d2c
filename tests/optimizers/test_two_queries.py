"""Two questions of one lot cost one Gaussian: what a second answer leaves to the gradient, and when it would leave nothing."""

from __future__ import annotations

import pytest
import torch

from honestdp.boundary.clipping import gradient_multiplier
from honestdp.boundary.query import HALF_RANGE, Query
from honestdp.checks import InvalidArgument
from honestdp.optimizers.learnt import DIRECTION_NOISE
from tests.toy_training import second_question


def left(noise: float, *, direction: float = 0.0, count: float = 0.0, norm: float = 0.0) -> float:
    """nu_g where the second answer has this noise."""
    deviation = torch.tensor([direction or count or norm], dtype=torch.float64)
    query = Query(
        clip=torch.ones(1, dtype=torch.float64),
        second=second_question("direction" if direction else "quantile" if count else "norm", deviation),
    )
    return gradient_multiplier(torch.tensor([noise], dtype=torch.float64), query).item()


def test_a_percent_more_noise_on_the_gradient_leaves_seven_times_the_noise_for_the_direction() -> None:
    """Galli et al. 2024: allowing nu_g = 1.01 sigma gives nu_q = 7.124 sigma."""
    assert pytest.approx((1 - 1.01**-2) ** -0.5, abs=5e-4) == DIRECTION_NOISE == 7.124
    assert left(2.0, direction=7.124 * 2.0) == pytest.approx(1.01 * 2.0, rel=1e-4)


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
def test_both_queries_together_cost_one_gaussian(noise: float) -> None:
    gradient = left(noise, direction=DIRECTION_NOISE * noise)
    assert gradient**-2 + (DIRECTION_NOISE * noise) ** -2 == pytest.approx(noise**-2, rel=1e-12)
    gradient = left(noise, count=250 / 20)
    assert gradient**-2 + (2 * 250 / 20) ** -2 == pytest.approx(noise**-2, rel=1e-12)


@pytest.mark.parametrize(
    "second",
    [
        *({"direction": 2.0}, {"direction": 1.9}, {"direction": float("nan")}, {"direction": -9.0}),
        *({"count": 1.0}, {"norm": 2 * HALF_RANGE}, {"norm": 2.5}),
    ],
    ids=str,
)
def test_a_second_query_that_would_take_all_the_privacy_is_refused(second: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match=r"second\.noise must be noise above the run's own"):
        left(2.0, **second)
    assert left(0.0, direction=1.0) == 0.0
