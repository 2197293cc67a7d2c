"""`PrivateClassifier`: a classifier of scikit-learn whose epsilon covers everything that its `fit` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from honestdp.checks import InvalidArgument
from honestdp.data.tables.table import Table
from honestdp.estimators.base import PrivateEstimator
from honestdp.estimators.rows import Array
from honestdp.gradients.predictions import probabilities
from honestdp.logs import logger

_log = logger("honestdp")
_DECLARED = "the class labels were declared"
_READ_OFF = (
    "which class labels occur was read off these rows, not declared, and is told without noise: right only where it is public "
    "anyway"
)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier for scikit-learn, trained with differential privacy: one `fit` is one private training, or one search.

    epsilon: of everything that `fit` does. delta: left out, the largest power of ten below one over the number of rows.
    table: a honestdp.Table, which declares columns, their bounds and categories, and the target's classes. X is then rows in the
        units that it declares, a pandas DataFrame for one, or the path of a file.
    bounds: without a table, of the inputs, public: (low, high) for all columns, one pair for each, or a dictionary by
        their names. Inputs are then scaled from -1 to 1 and clipped; without bounds they are taken as they come.
    classes: the labels that there are, declared; left out, they are read off y, and the statement says so.
    prevalence: the part of each class, DECLARED and never counted: a list in the order of classes, or a dictionary by label.
    class_weights: a list or a dictionary of numbers by which losses are multiplied, or "balanced" with prevalence: 1 for the
        rarest class and less for the others, since the clip would cut larger ones.
    width: units of a hidden layer, 0 for a linear model. model: in its place a function of (inputs, outputs) that makes a module.
    optimizer, space: left out, there is one run on all rows, with nothing to tune: by echo for classes, by horizon for numbers.
        With a space, or an optimizer that needs one, `fit` is a search as by `honestdp.tune`, which selection, validation,
        metric, max_runs, candidates, published and out are for.
    lot, steps, epochs, ledger, dataset, note, strict, secure, compute: see `honestdp.tune`.
    preprocessing: what was done to the rows beforehand, in words, for the statement. public_steps: of a Pipeline before this
        estimator, those that learnt from public rows alone, with where those are from; see docs/scikit-learn.md.
    random_state: a whole number makes the same fit twice, which is then NOT PRIVATE.

    After `fit`: `classes_`, `statement_` (what is guaranteed), `result_` (what `train` or `tune` returned) and `model_`.
    `score` is the exact accuracy on the rows that it is given: of private rows it is no private number, and not for publishing.
    `private_score(X, y, epsilon=0.1)` is a noisy one, which is.

    Raises InvalidArgument for an argument that nothing can be trained with, and UncountedUse inside of GridSearchCV,
    cross_val_score and others that fit many times, and behind a step of a Pipeline that learns from the rows.

    >>> import honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> classifier = honestdp.PrivateClassifier(epsilon=3, delta=1e-5, bounds=(0, 1), classes=range(10), steps=20, lot=64)
    >>> classifier.fit(x, y).predict(x[:2]).shape, round(classifier.statement_.epsilon, 2) <= 3
    ((2,), True)
    """

    classes: Any = None
    prevalence: Any = None
    class_weights: Any = None

    _task = "classification"

    def fit(self, X: Any, y: Any = None, **refused: Any) -> Self:
        """Train, or search and train, within epsilon. X `[rows, columns]`, y `[rows]` of labels. Returns the estimator.

        With a table X is rows in the units that it declares, or the path of a CSV or Parquet file; y is left out where X has the
        target's column.
        """
        return self._fit(X, y, refused)

    def predict(self, X: Any) -> Array:
        """The likeliest label of each row."""
        outputs = self._outputs(X)
        labels: Array = self.classes_[outputs.argmax(1)]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """The model's probability of each label, in the order of `classes_`: `[rows, classes]`."""
        return probabilities(self._outputs(X))

    # ---- Declared classes

    def _declare(self, table: Table) -> None:
        if self.classes is not None:
            raise InvalidArgument("classes", self.classes, "left out where there is a table, which declares them")
        self.classes_: Array = table.decode(np.arange(table.outputs))

    def _declare_labels(self, y: Any) -> tuple[int, str]:
        check_classification_targets(y)
        declared = self._declared()
        self.classes_ = unique_labels(y) if declared is None else np.unique(declared)
        if len(self.classes_) < 2:
            raise InvalidArgument(
                "y", f"{len(self.classes_)} class", "of two classes at least; declare them in classes="
            )
        if declared is None:
            _log.warning("%s; declare them in classes=", _READ_OFF)
        return len(self.classes_), _READ_OFF if declared is None else _DECLARED

    def _numbers(self, y: Any) -> Array:
        numbers: Array = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if not (self.classes_[numbers] == y).all():
            raise InvalidArgument(
                "y", "labels that are none of them", f"of the declared classes {self.classes_.tolist()}"
            )
        return np.array(numbers, dtype=np.int64)

    def _declared(self) -> list[Any] | None:
        """Labels that were declared, as classes or as keys of a dictionary that is about them."""
        if self.table is not None:
            return list(self.table.classes)
        if self.classes is None:
            named = next((d for d in (self.prevalence, self.class_weights) if isinstance(d, Mapping)), None)
            return None if named is None else list(named)
        labels = list(self.classes)
        if len(set(labels)) < max(2, len(labels)):
            raise InvalidArgument("classes", labels, "a list of two different labels at least")
        return labels

    def _settings(self) -> dict[str, Any]:
        return {name: self._in_order(name) for name in ("prevalence", "class_weights")}

    def _in_order(self, name: str) -> Any:
        """A number for each class in the order of `classes_`, of a dictionary by label or a list in the order of classes."""
        numbers, labels = getattr(self, name), self._declared()
        if numbers is None or isinstance(numbers, str):
            return numbers
        if isinstance(numbers, Mapping):
            by_label = dict(numbers)
        elif labels is None:
            raise InvalidArgument(name, numbers, "a dictionary by label, or a list together with classes= in its order")
        elif len(labels) != len(numbers):
            raise InvalidArgument(name, numbers, f"one number for each of {len(labels)} classes")
        else:
            by_label = dict(zip(labels, numbers, strict=True))
        if set(by_label) != set(self.classes_.tolist()):
            raise InvalidArgument(name, numbers, f"of the classes {self.classes_.tolist()}")
        return [float(by_label[label]) for label in self.classes_.tolist()]
