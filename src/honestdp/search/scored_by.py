"""The metric that a search is scored by, from its name or as an object; what cannot be private is refused in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from honestdp.boundary.class_metrics import Accuracy, BalancedAccuracy, LogLoss
from honestdp.boundary.counted import PersonMean
from honestdp.boundary.data import Shapes
from honestdp.boundary.metrics import Metric, check_metric, default_metric
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.run import ROW, Unit

NAMES = ("accuracy", "balanced accuracy", "log loss")
_AUC = (
    "one of accuracy, balanced accuracy and log loss. The area under the ROC curve compares pairs of records, so that one record "
    "moves it by as much as one over the number of records of its class, which is private: there is no bound for noise to cover. "
    "log loss judges probabilities too, balanced accuracy does not mind rare classes; the AUC of result.model on public records "
    "costs nothing"
)


def metric_of(
    metric: Any,
    shapes: Shapes | None,
    *,
    validation: float,
    prevalence: Sequence[float] | None = None,
    unit: Unit = ROW,
) -> Metric | None:
    """The metric that is meant; None where nothing is scored.

    shapes: of the records, where they are known. prevalence: of the classes, declared. unit: whose record it is.
    """
    found = _meant(metric, shapes, validation, prevalence)
    if found is None or isinstance(found, PersonMean) or not unit.person:
        return found
    return PersonMean(found)


def _meant(metric: Any, shapes: Shapes | None, validation: float, prevalence: Sequence[float] | None) -> Metric | None:
    if isinstance(metric, str):
        return _named(metric, prevalence)
    if metric is not None:
        check_metric(metric)
    if metric is not None or not validation:
        found: Metric | None = metric
        return found
    if shapes is None:
        wanted = (
            'given for a Dataset, whose labels are not read before they are paid for, such as "accuracy" or "log loss"'
        )
        raise InvalidArgument("metric", None, wanted)
    return default_metric(None if inputs.several(shapes.y) else inputs.first(shapes.y).dtype)


def _named(metric: str, prevalence: Sequence[float] | None) -> Metric:
    name = re.sub(r"[\s_-]+", " ", metric.strip().lower())
    if name == "accuracy":
        return Accuracy()
    if name in ("log loss", "logloss"):
        return LogLoss()
    if name == "balanced accuracy":
        if prevalence is None:
            wanted = (
                "given for balanced accuracy: a list with the part of each class, such as [0.9, 0.1], declared from public "
                "knowledge and never counted from these records"
            )
            raise InvalidArgument("prevalence", None, wanted)
        return BalancedAccuracy(prevalence)
    if name in ("auc", "roc auc", "auroc"):
        raise InvalidArgument("metric", metric, _AUC)
    wanted = (
        f"one of {', '.join(NAMES)}, honestdp.ClippedLoss(bound), honestdp.LogLikelihood(low=, high=), or "
        "honestdp.DeclaredMetric(function, low=, high=)"
    )
    raise InvalidArgument("metric", metric, wanted)
