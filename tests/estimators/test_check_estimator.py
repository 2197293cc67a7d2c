"""scikit-learn's own checks of an estimator, all of which both estimators pass."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

import honestdp
from honestdp.gradients import prepared

EXPECTED_TO_FAIL: dict[str, str] = {}
"""Checks that a random mechanism cannot pass, each with the reason. There are none: a fixed random_state repeats a fit."""
SKIPPED = {"check_array_api_input"}
"""scikit-learn runs it where SCIPY_ARRAY_API is set."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steps"), [(honestdp.PrivateClassifier, 15), (honestdp.PrivateRegressor, 40)])
def test_every_check_of_scikit_learn_passes(kind: Any, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At epsilon 3, with the accuracy that scikit-learn asks of every estimator on its own small data."""
    monkeypatch.setattr(prepared, "refuse_mixing", lambda *_, **__: None)  # 70 fits would try the same linear model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(
            kind(epsilon=3, steps=steps), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None, on_skip=None
        )
    failed = {each["check_name"]: each["exception"] for each in outcomes if each["status"] == "failed"}
    assert failed == {}
    assert {each["check_name"] for each in outcomes if each["status"] == "skipped"} <= SKIPPED
    assert len(outcomes) > 45
