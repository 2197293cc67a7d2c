"""Losses an example at a time (cross-entropy, squared error, a bound), and checks of a model's output, loss and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from honestdp.checks import InvalidArgument


class Labels(NamedTuple):
    """The whole-number labels that a loss takes: those below `classes`, and `besides`, which it accepts by a rule of its own."""

    classes: int
    besides: tuple[int, ...] = ()

    def fitted(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """y with 0 in the place of every other label, and where it was right; both of the shape of y."""
        right = y.clamp(0, self.classes - 1) == y
        for one in self.besides:
            right |= y == one
        return torch.where(right, y, 0), right


Taken = tuple[Labels | None, ...]
"""For each tensor of labels those that the loss takes; None for any."""

Loss = Callable[[Any, Any], Tensor]
"""loss(output, labels) -> one number an example: the model's whole output, and labels in the layout of the data."""


def prediction(output: Any) -> Tensor:
    """What of a model's output is its prediction, for honestdp's own losses and metrics.

    A tensor is. Otherwise what is called logits, as an attribute or a key (`output.logits`, `output["logits"]`); the first tensor
    of a tuple or a list; the one tensor of a dict that has no other.

    >>> import torch
    >>> prediction((torch.ones(2), torch.zeros(2)))
    tensor([1., 1.])
    """
    if isinstance(output, Tensor):
        return output
    by_name = isinstance(output, Mapping)
    named = output.get("logits") if by_name else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    parts = list(output.values()) if by_name else list(output) if isinstance(output, tuple | list) else []
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if not tensors or (by_name and len(tensors) > 1):
        keys = f" with the keys {list(output)}" if by_name else ""
        wanted = (
            "a tensor, a tuple whose first tensor is the prediction, or one with .logits or ['logits']; for any other, give a "
            "loss of your own, loss(output, y), and a metric of your own (honestdp.DeclaredMetric), which get the whole output"
        )
        raise InvalidArgument("the model's output", f"{type(output).__name__}{keys}", wanted)
    return tensors[0]


def cross_entropy(output: Any, y: Tensor) -> Tensor:
    """output `[examples, classes, ...]`, y `[examples, ...]` -> `[examples]`, summed over further dimensions."""
    output = prediction(output)
    if output.dim() == 2 and not output.is_cuda:
        # With few classes a CPU takes a softmax over the long dimension five times faster than over the short one.
        logs = functional.log_softmax(output.mT.contiguous(), dim=0)
        return functional.nll_loss(logs.mT, y, reduction="none")
    each = functional.cross_entropy(output, y, reduction="none")
    return each if each.dim() == 1 else each.flatten(1).sum(dim=1)


def _cross_entropy_slope(output: Tensor, y: Tensor) -> Tensor:
    """softmax(output) less one at the label."""
    slope = output.mT.softmax(dim=0)
    return slope.scatter_add_(0, y.long()[None], slope.new_full((1, 1), -1).expand(1, len(y))).mT


def squared_error(output: Any, y: Tensor) -> Tensor:
    """output and y of as many numbers per example -> `[examples]`, summed over an example's numbers."""
    found = prediction(output)
    if found.numel() != y.numel():
        wanted = (
            f"as many numbers per example as the labels, {tuple(y.shape[1:])}: floating labels have the squared error "
            "for a default loss. For classes pass whole numbers, y.long()"
        )
        raise InvalidArgument("the model's output shape", tuple(found.shape[1:]), wanted)
    return (found.reshape(len(y), -1) - y.reshape(len(y), -1).to(found.dtype)).square().sum(dim=1)


def one_number(output: Any, examples: int, argument: str) -> Tensor:
    """The prediction of a model that gives one number an example, as `[examples]`. argument: that is at fault if it does not."""
    found = prediction(output)
    if found.shape not in ((examples,), (examples, 1)):
        wanted = (
            "one number a record, its evidence bound or its log-likelihood. Where records have labels, pass (x, y); for a model "
            "of other outputs, a loss and a metric of your own"
        )
        raise InvalidArgument(argument, tuple(found.shape), wanted)
    return found.reshape(examples)


def negative_bound(output: Any, y: Tensor) -> Tensor:
    """Less the output, for a model that gives an example's evidence bound or log-likelihood, `[examples]`; no label is read."""
    return -one_number(output, len(y), "the model's output shape")


def default_loss(y: Any) -> Loss:
    """Integer labels are classes, floating labels are targets; where there are none, the model gives its own bound.

    y: labels `[examples, ...]`, of which shape and dtype are read. Several tensors of labels have no default loss.
    """
    if not isinstance(y, Tensor):
        parts = list(y) if isinstance(y, Mapping) else len(y)
        which = "y['...'] is each of them" if isinstance(y, Mapping) else "y[0] is the first of them"
        wanted = f"given where labels are several tensors: loss(output, y) -> one number an example, where {which}"
        raise InvalidArgument("loss", f"None for labels of {parts}", wanted)
    if y.shape[1:] == (0,):
        return negative_bound
    return squared_error if y.dtype.is_floating_point else cross_entropy


def one_each(losses: Tensor, examples: int) -> Tensor:
    """`losses`, once it is sure that there is one for every example."""
    if losses.shape != (examples,):
        wanted = f"one number an example, shape ({examples},) here; PyTorch's own losses need reduction='none'"
        raise InvalidArgument("loss", f"a result of shape {tuple(losses.shape)}", wanted)
    return losses


def slope_of(loss: Loss, output: object) -> Callable[[Tensor, Any], Tensor] | None:
    """The gradient of a known loss for such an output, as a function of (output, y), where it is at hand.

    What it spares is a graph and a backward pass of half a dozen small operations, which on a CPU is most of what a small
    model costs.
    """
    if not isinstance(output, Tensor) or output.dim() != 2 or output.is_cuda:
        return None
    if loss is cross_entropy:
        return _cross_entropy_slope
    from honestdp.losses.class_weights import ClassWeighted  # here: it is written with what is above

    if isinstance(loss, ClassWeighted) and loss.loss is cross_entropy:
        return lambda output, y: _cross_entropy_slope(output, y) * loss.weights_of(y, output)[:, None]
    return None
