"""Made-up rows, and estimators small enough to be fitted many times."""

from __future__ import annotations

from typing import Any

import numpy as np

import honestdp

COLUMNS = 3


def rows(count: int = 60, *, seed: int = 0) -> tuple[Any, Any]:
    """Inputs between 0 and 10, and the labels "no" and "yes"."""
    x = np.random.default_rng(seed).uniform(0, 10, (count, COLUMNS))
    return x, np.where(x[:, 0] > 5, "yes", "no")


def classifier(**arguments: Any) -> honestdp.PrivateClassifier:
    """A few steps, whose noise is repeated."""
    settings = {"epsilon": 3.0, "bounds": (0, 10), "classes": ["no", "yes"], "steps": 5, "lot": 20, "random_state": 0}
    return honestdp.PrivateClassifier(**settings | arguments)


def regressor(**arguments: Any) -> honestdp.PrivateRegressor:
    settings = {"epsilon": 3.0, "bounds": (0, 10), "target_bounds": (0, 10), "steps": 5, "lot": 20, "random_state": 0}
    return honestdp.PrivateRegressor(**settings | arguments)
