"""What a score makes of records that are not there, or have no label, is said in the search's statement."""

from __future__ import annotations

from typing import Any

import pytest

import honestdp
from honestdp.boundary.metrics import PersonMean
from tests.tiny_search import clouds, linear

METRICS = [honestdp.Accuracy(), honestdp.BalancedAccuracy([0.9, 0.1]), honestdp.ClippedLoss(0.25)]


@pytest.mark.parametrize("metric", [*METRICS, *map(PersonMean, METRICS)], ids=lambda metric: metric.name)
def test_the_words_are_those_of_a_sum_to_which_nobody_adds(metric: Any) -> None:
    told = metric.value(0.0, records=100)
    assert f"counts as {told:.4g}, the middle of the range" in metric.absence("records")


def test_the_statement_of_a_search_says_it_where_there_is_a_score() -> None:
    whole: dict[str, Any] = {"budget": honestdp.Budget(3.0, 1e-3), "steps": 2, "lot": 40}
    said = {part: honestdp.tune(linear, clouds(), **whole, validation=part).statement.scores for part in (0.2, 0.0)}
    assert "the public number of records" in said[0.2]
    assert "counts as 0.5" in said[0.2]
    assert not said[0.0]
