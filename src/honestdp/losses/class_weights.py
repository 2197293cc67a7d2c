"""Class weights and prevalence, both DECLARED: a loss that counts some classes more, and the weights that balance them.

They are public constants. The part of each class counted from the records would itself be a private quantity, and a loss, a
metric or a noise that depends on it would tell of the records without any noise; so nothing here ever looks at a label to find
a weight. What a loss's weights do to a record's gradient is bounded by the clip, as every gradient is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.losses import Loss, cross_entropy, prediction

BALANCED = "balanced"
NEAR = 0.01  # of 1, how close the declared parts must come together
Weights = Sequence[float] | Literal["balanced"]


def checked_prevalence(prevalence: Any) -> tuple[float, ...]:
    """The declared part of each class, in order, as plain numbers."""
    wanted = (
        "a list with the part of each class, above 0 and 1 together, such as [0.9, 0.1]: declared from public knowledge, not "
        "counted from these records"
    )
    if not isinstance(prevalence, list | tuple) or len(prevalence) < 2:
        raise InvalidArgument("prevalence", prevalence, wanted)
    for part in prevalence:
        if isinstance(part, bool) or not isinstance(part, int | float) or not 0 < part < 1:
            raise InvalidArgument("prevalence", list(prevalence), wanted)
    if abs(math.fsum(prevalence) - 1) > NEAR:
        raise InvalidArgument("prevalence", list(prevalence), wanted)
    return tuple(float(part) for part in prevalence)


def balancing_weights(prevalence: Sequence[float]) -> tuple[float, ...]:
    """1/(K p_c): at the declared parts every class weighs the same, and the mean weight is 1. For metrics alone: see below."""
    return tuple(1 / (len(prevalence) * part) for part in prevalence)


def below_the_clip(prevalence: Sequence[float]) -> tuple[float, ...]:
    """Of a loss: weights that balance classes of these declared parts, the rarest's 1 and the others' less.

    Weights with a mean of 1 would give the rarest class far more than 1, and clipping would cut its gradients back to those of
    any other class, so that little was balanced.

    >>> below_the_clip([0.9, 0.1])
    (0.11111111111111112, 1.0)
    """
    return tuple(min(prevalence) / part for part in prevalence)


@dataclass(frozen=True)
class ClassWeighted:
    """A loss, each example's times the weight of its class: at every position of it for cross-entropy.

    weights: one for each class, public. loss: what is weighted.
    """

    weights: tuple[float, ...]
    loss: Loss = cross_entropy

    def __call__(self, output: Any, y: Tensor) -> Tensor:
        if self.loss is cross_entropy:
            scores = prediction(output)
            weights = _tensor(self.weights, scores.dtype, scores.device)
            each = functional.cross_entropy(scores, y, weight=weights, reduction="none")
            return each if each.dim() == 1 else each.flatten(1).sum(dim=1)
        losses, labels = self.loss(output, y), y.reshape(len(y), -1)
        if labels.shape[1] != 1:
            wanted = "left out with this loss and several labels an example; cross-entropy weighs each of them"
            raise InvalidArgument("class_weights", list(self.weights), wanted)
        return losses * self.weights_of((labels[:, 0] > 0.5).long() if y.is_floating_point() else labels[:, 0], losses)

    def weights_of(self, classes: Tensor, like: Tensor) -> Tensor:
        """The weight of each class, `[examples]`, in the precision of `like`."""
        return _tensor(self.weights, like.dtype, like.device)[classes]


@lru_cache(maxsize=64)
def _tensor(weights: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Made once: a step that is captured on a GPU may copy nothing from the host."""
    return torch.tensor(weights, dtype=dtype, device=device)


def with_class_weights(
    loss: Loss | None, class_weights: Weights | None, prevalence: Sequence[float] | None
) -> Loss | None:
    """The loss that a user means; the given one without weights. "balanced" makes them of the declared prevalence."""
    if prevalence is not None:
        prevalence = checked_prevalence(prevalence)
    if class_weights is None:
        return loss
    if isinstance(class_weights, str):
        checks.one_of((BALANCED,), class_weights=class_weights)
        if prevalence is None:
            wanted = "given with class_weights='balanced': the part of each class, declared and never counted from these records"
            raise InvalidArgument("prevalence", None, wanted)
        weights = below_the_clip(prevalence)
    else:
        weights = _checked(class_weights)
    if prevalence is not None and len(prevalence) != len(weights):
        raise InvalidArgument("class_weights", list(weights), f"of {len(prevalence)} classes, as prevalence has")
    if loss is not None and (isinstance(loss, type) or not callable(loss)):
        return loss  # whoever takes it says what is wrong with it
    return ClassWeighted(weights, cross_entropy if loss is None else loss)


def _checked(class_weights: Any) -> tuple[float, ...]:
    wanted = "a list of one plain number above 0 for each class, such as [1, 5], or 'balanced' with prevalence=[...]"
    if not isinstance(class_weights, list | tuple) or len(class_weights) < 2:
        raise InvalidArgument("class_weights", class_weights, wanted)
    for weight in class_weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise InvalidArgument("class_weights", list(class_weights), wanted)
    return tuple(float(weight) for weight in class_weights)


def base_of(loss: Loss) -> Loss:
    """The loss without its class weights."""
    return loss.loss if isinstance(loss, ClassWeighted) else loss
