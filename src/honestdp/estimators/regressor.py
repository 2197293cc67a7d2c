"""`PrivateRegressor`: a regressor of scikit-learn whose epsilon covers everything that its `fit` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from torch import nn

from honestdp.boundary.metrics import ClippedLoss
from honestdp.checks import InvalidArgument
from honestdp.data.tables.table import Table
from honestdp.estimators.base import PrivateEstimator
from honestdp.estimators.rows import Array, target_bounds_of


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A regressor for scikit-learn, trained with differential privacy: one `fit` is one private training, or one search.

    target_bounds: (low, high) of what is predicted, public: it is then scaled from -1 to 1 and clipped, and so are predictions.
        Without them y is taken as it comes, which learns slowly where it is large.
    epsilon, delta, table, bounds, width, model, optimizer, space and all others: those of `PrivateClassifier`. A search is scored
        by the squared error of y scaled, cut at half of the declared range; without target_bounds or a table it needs
        metric=honestdp.ClippedLoss(bound), the most that a row may count.

    After `fit`: `statement_`, `result_` and `model_`. `score` is the exact R2 on the rows that it is given: of private rows it
    is no private number, and not for publishing; `private_score` is a noisy one, which is. Raises what
    `PrivateClassifier` raises.

    >>> import numpy as np, honestdp
    >>> x = np.random.default_rng(0).uniform(0, 10, (500, 2))
    >>> regressor = honestdp.PrivateRegressor(epsilon=3, bounds=(0, 10), target_bounds=(0, 20), steps=20, lot=100)
    >>> regressor.fit(x, x.sum(axis=1)).predict(x).max() <= 20
    np.True_
    """

    target_bounds: Any = None

    _task = "regression"

    def fit(self, X: Any, y: Any = None, **refused: Any) -> Self:
        """Train, or search and train, within epsilon. X `[rows, columns]`, y `[rows]` of numbers. Returns the estimator.

        With a table as for `PrivateClassifier.fit`.
        """
        return self._fit(X, y, refused)

    def predict(self, X: Any) -> Array:
        """A number for each row, in the units of y."""
        outputs = self._outputs(X)[:, 0]
        if self.table is not None:
            return self.table.decode(outputs)  # type: ignore[no-any-return]
        if self._target is None:
            return outputs
        low, high = self._target
        return low + (high - low) * (np.clip(outputs, -1, 1) + 1) / 2

    def _declare(self, table: Table) -> None:
        if self.target_bounds is not None:
            wanted = "left out where there is a table, which declares them"
            raise InvalidArgument("target_bounds", self.target_bounds, wanted)

    def _declare_labels(self, y: Any) -> tuple[int, str]:
        self._target = target_bounds_of(self.target_bounds)
        if self._target is None:
            return 1, "what is predicted was taken as it came"
        return 1, "what is predicted by declared bounds as -1 to 1, clipped"

    def _numbers(self, y: Any) -> Array:
        try:
            y = np.asarray(y, dtype=np.float64)
        except ValueError:
            y = None
        if y is None:  # here, so that the value which numpy quotes is not carried along
            raise InvalidArgument("y", "texts", "numbers; labels are for honestdp.PrivateClassifier")
        if self._target is None:
            return np.array(y, dtype=np.float32)
        low, high = self._target
        return np.array(np.clip(2 * (y - low) / (high - low) - 1, -1, 1), dtype=np.float32)

    def _predictor(self) -> nn.Module:
        """Cut to the declared bounds, as predictions are."""
        return (
            self.model_ if self.table is not None or self._target is None else nn.Sequential(self.model_, nn.Hardtanh())
        )

    def _metric(self) -> Any:
        if self.table is not None:
            from honestdp.models.saved import table_metric

            return table_metric(self.table)
        return None if self._target is None else ClippedLoss(1.0, name="squared error of the target as -1 to 1")
