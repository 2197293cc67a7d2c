"""Metrics of classes: accuracy, balanced accuracy and log loss. Each has its range, its numbers and its check on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from honestdp.boundary.counted import MACHINE, Counted, Numbers, UpToABound
from honestdp.checks import InvalidArgument
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.outputs import each_tensor
from honestdp.losses import Loss, cross_entropy, prediction
from honestdp.losses.class_weights import balancing_weights, checked_prevalence

OF_SEVERAL = (
    "for labels of several tensors honestdp.DeclaredMetric(function, low=, high=), whose function(output, y) of one record gets "
    "the tuple or dict of its labels, or honestdp.ClippedLoss(bound)"
)
_LOGITS = (-3.0, -0.3, 0.3, 3.0)


class _OfClasses(Counted):
    """A metric of outputs for each class, or of one logit, and one label a record."""

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        if not isinstance(y, Tensor):
            raise InvalidArgument("metric", self.name, OF_SEVERAL)
        predicted = prediction(output)
        aligned(predicted, y)
        self._check_classes(predicted, y)
        if predicted.dim() == 1 or predicted.shape[1] == 1:
            _check_logit(loss, output, y)

    def _check_classes(self, output: Tensor, y: Tensor) -> None:
        """Raise InvalidArgument where the declared classes are not those of the model."""


@dataclass(frozen=True)
class Accuracy(_OfClasses):
    """The part of records that are classified right: the highest of several outputs is the label, or the one output, a logit, is
    above 0 where the label is 1 and not where it is 0. S = right - wrong, so that D = 1.

    For `tune(metric=...)`, which takes it by itself where labels are whole numbers.

    >>> import honestdp
    >>> honestdp.Accuracy().sensitivity
    1
    """

    name: str = "accuracy"
    worst, best = 0.0, 1.0
    sensitivity = 1

    def numbers(self, loss: Loss) -> Numbers:
        return right


@dataclass(frozen=True)
class BalancedAccuracy(_OfClasses):
    """The mean over K classes of the part of each that is classified right. For `tune(metric=...)`, also as "balanced accuracy"
    with `prevalence=`.

    prevalence: the part of the records in each class, in order, DECLARED from public knowledge: counted from these records it
        would be a private quantity that no noise protects.

    With weights w_c = 1/(K p_c) a record of class c counts 1/2 + w_c/2 where it is right and 1/2 - w_c/2 where not; where the
    declared parts are the true ones, the mean of that is balanced accuracy. A record of the rarest class moves the sum the most,
    by D, and the noise is as large as that: one part in 100 of two classes costs 50 times the noise of accuracy.

    >>> import honestdp
    >>> honestdp.BalancedAccuracy([0.75, 0.25]).weights
    (0.6666666666666666, 2.0)
    """

    prevalence: Sequence[float]
    name: str = "balanced accuracy"
    limits = (0.0, 1.0)
    weighs_classes = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "prevalence", checked_prevalence(self.prevalence))

    @property
    def weights(self) -> tuple[float, ...]:
        return balancing_weights(self.prevalence)

    @property
    def worst(self) -> float:
        return (1 - max(self.weights)) / 2

    @property
    def best(self) -> float:
        return (1 + max(self.weights)) / 2

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """At most, by the declared parts: a record of class c is w_c/2 from the middle."""
        return sum(part * weight**2 / 4 for part, weight in zip(self.prevalence, self.weights, strict=True)) / records

    def numbers(self, loss: Loss) -> Numbers:
        return partial(balanced, self.weights)

    def _check_classes(self, output: Tensor, y: Tensor) -> None:
        self.numbers(cross_entropy)(output, y)
        classes = 2 if output.dim() == 1 else max(2, output.shape[1])
        if len(self.prevalence) != classes:
            wanted = f"of {classes} classes, as the model's outputs have"
            raise InvalidArgument("prevalence", list(self.prevalence), wanted)


@dataclass(frozen=True)
class LogLoss(UpToABound, _OfClasses):
    """The mean of -log of the probability that the model gives to a record's label (softmax of several outputs, or one logit),
    whatever loss it is trained with; each record's clipped to [0, bound]. For `tune(metric=...)`, also as "log loss".

    bound: the most that a record counts, above 0: at 5, a label that gets less than 0.7 % counts as one that gets 0.7 %.

    >>> import honestdp
    >>> honestdp.LogLoss().bound
    5.0
    """

    bound: float = 5.0
    name: str = "log loss"

    def numbers(self, loss: Loss) -> Numbers:
        return log_loss


def aligned(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs `[n, classes, ...]` and labels `[n, ...]` of the same further dimensions. Labels `[n, 1, ...]` and outputs `[n]`
    are understood; what would have to be broadcast is refused.
    """
    if y.dim() > 1 and 0 in y.shape[1:]:
        wanted = "another than accuracy where a record has no labels: honestdp.LogLikelihood(low=, high=)"
        raise InvalidArgument("metric", "accuracy", wanted)
    if output.dim() == 1:
        output = output[:, None]
    if y.dim() == output.dim() and y.shape[1] == 1:
        y = y[:, 0]
    classes = output.shape[1]
    if y.shape != (len(output), *output.shape[2:]) or classes == 0 or (classes > 1 and y.is_floating_point()):
        wanted = (
            f"another than accuracy for outputs of shape {list(output.shape[1:])} and {y.dtype} labels of shape "
            f"{list(y.shape[1:])} a record. Accuracy takes one whole number as the label of a record (or of a position in it) "
            "and an output for each class, or one logit. Take honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, "
            "low=, high=)"
        )
        raise InvalidArgument("metric", "accuracy", wanted)
    return output, y


def right(output: Any, y: Tensor) -> Tensor:
    """`[n]`: whether a record is classified right, at every position of it. NaN is wrong."""
    scores, y = aligned(prediction(output), y)
    highest, place = scores.max(dim=1)  # NaN is the highest of all
    # One output is a logit. Labels of two classes are 0 and 1, sometimes -1 and 1: above one half is the second class.
    found = (highest > 0) == (y > 0.5) if scores.shape[1] == 1 else place == y
    found &= highest == highest
    return found if found.dim() == 1 else found.flatten(1).all(dim=1)


def balanced(weights: Sequence[float], output: Any, y: Tensor) -> Tensor:
    """`[n]`: 1/2 and half of the weight of a record's class, more where it is right and less where not. NaN for other labels."""
    found = right(output, y)
    scores, label = aligned(prediction(output), y)
    if label.dim() != 1:
        raise InvalidArgument("metric", "balanced accuracy", "another for several labels a record")
    place = (label > 0.5).long() if scores.shape[1] == 1 else label
    fits = (place >= 0) & (place < len(weights))
    weight = torch.tensor(weights, dtype=torch.float64, device=label.device)[torch.where(fits, place, 0)]
    return torch.where(fits, 0.5 + weight * (found.double() - 0.5), torch.nan)


def log_loss(output: Any, y: Tensor) -> Tensor:
    """`[n]`: -log of the probability of a record's label, the mean over its positions. NaN for a label that is no class."""
    scores, label = aligned(prediction(output), y)
    if scores.shape[1] > 1:
        return cross_entropies(scores, label) / max(1, label[0].numel())
    second = torch.where(label > 0.5, 1.0, 0.0).to(torch.float64)
    losses = functional.binary_cross_entropy_with_logits(scores[:, 0].double(), second, reduction="none")
    return losses.reshape(len(label), -1).mean(dim=1)


def cross_entropies(output: Any, y: Tensor) -> Tensor:
    """Cross-entropy, and NaN for a label that is none of the classes: with it the loss would fail for the whole batch."""
    output = prediction(output)
    fits = (y >= 0) & (y < output.shape[1])
    losses = cross_entropy(output, torch.where(fits, y, 0)).double()
    return torch.where(fits.reshape(len(y), -1).all(dim=1), losses, torch.nan)


def _check_logit(loss: Loss, output: Any, y: Tensor) -> None:
    """That one output is a logit to the loss, too: label 1 has the smaller loss above 0, label 0 below."""
    predicted, label = prediction(output), y[:1]

    def at(logit: float) -> Any:
        """The first example's output with this prediction."""
        return each_tensor(lambda part: torch.full_like(part[:1], logit) if part is predicted else part[:1], output)

    try:
        losses = [[float(loss(at(one), torch.full_like(label, value)).sum()) for value in (0, 1)] for one in _LOGITS]
        agree = all((second < first) == (one > 0) for one, (first, second) in zip(_LOGITS, losses, strict=True))
    except MACHINE:
        raise
    except Exception:
        agree = False
    if not agree:
        wanted = (
            "another than accuracy for one output and this loss. Accuracy reads one output as a logit, class 1 above 0, and the "
            "loss does not: the labels are no classes, or the output is a probability. Take honestdp.ClippedLoss(bound), "
            "honestdp.DeclaredMetric(function, low=, high=), a loss of logits (binary_cross_entropy_with_logits), or an output "
            "for each class"
        )
        raise InvalidArgument("metric", "accuracy", wanted)
