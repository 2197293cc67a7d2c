"""`PrivateRegressor`: numbers in the user's units, by declared bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import honestdp
from honestdp.errors import InvalidArgument
from tests.estimators.made_up import regressor, rows


def test_it_learns_in_the_units_of_y() -> None:
    x, _ = rows(3000)
    y = 1000 + 50 * x[:, 0] - 20 * x[:, 1]
    fitted = regressor(target_bounds=(500, 2000), steps=200, lot=300).fit(x, y)
    assert fitted.score(x, y) > 0.7
    assert fitted.statement_.epsilon <= 3


def test_predictions_stay_within_the_declared_bounds() -> None:
    x, _ = rows()
    predicted = regressor(target_bounds=(4, 5)).fit(x, x[:, 0]).predict(x * 1e6)
    assert predicted.min() >= 4
    assert predicted.max() <= 5


@pytest.mark.parametrize("bounds", [(1, 0), (0, np.nan), 3, "high", (1, 2, 3)])
def test_target_bounds_that_are_none_are_refused(bounds: Any) -> None:
    x, _ = rows()
    with pytest.raises(InvalidArgument, match="target_bounds must be"):
        regressor(target_bounds=bounds).fit(x, x[:, 0])


@pytest.mark.slow
def test_a_search_is_scored_by_a_clipped_loss() -> None:
    x, _ = rows()
    space = {"lr": [0.1, 1.0], "clip": 1.0}
    fitted = regressor(optimizer="sgd", space=space, metric=honestdp.ClippedLoss(1.0)).fit(x, x[:, 0])
    assert fitted.result_.score.name == "loss"


def test_a_private_score_is_of_the_squared_error_in_declared_bounds() -> None:
    x, _ = rows()
    fitted = regressor().fit(x, x[:, 0])
    exact = ((fitted.predict(x) - x[:, 0]) ** 2 / 25).clip(max=1).mean()
    assert fitted.private_score(x, x[:, 0], epsilon=50).score.value == pytest.approx(exact, abs=0.05)


@pytest.mark.slow
def test_a_search_needs_no_metric_where_the_range_is_declared() -> None:
    x, _ = rows()
    fitted = regressor(optimizer="sgd", space={"lr": [0.1, 1.0], "clip": 1.0}).fit(x, x[:, 0])
    assert fitted.result_.score.name == "squared error of the target as -1 to 1"
    with pytest.raises(InvalidArgument, match="metric must be given"):
        regressor(optimizer="sgd", space={"lr": [0.1, 1.0], "clip": 1.0}, target_bounds=None).fit(x, x[:, 0])


def test_texts_to_predict_are_refused_without_a_value_of_theirs() -> None:
    x, y = rows()
    with pytest.raises(InvalidArgument, match=r"y must be numbers; labels are for honestdp.PrivateClassifier") as told:
        regressor().fit(x, y)
    assert "yes" not in f"{told.value}{told.value.__context__}"
