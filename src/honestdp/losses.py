"""Losses an example at a time (cross-entropy, squared error), and checks of a model's output, its loss and the labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from honestdp.checks import InvalidArgument

Loss = Callable[[Any, Tensor], Tensor]


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """output `[examples, classes, ...]`, y `[examples, ...]` -> `[examples]`, summed over further dimensions."""
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


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """output and y of as many numbers per example -> `[examples]`, summed over an example's numbers."""
    if output.numel() != y.numel():
        wanted = f"as many numbers per example as the labels, {tuple(y.shape[1:])}"
        raise InvalidArgument("the model's output shape", tuple(output.shape[1:]), wanted)
    return (output.reshape(len(y), -1) - y.reshape(len(y), -1).to(output.dtype)).square().sum(dim=1)


def default_loss(y_dtype: torch.dtype) -> Loss:
    """Integer labels are classes, floating labels are targets."""
    return squared_error if y_dtype.is_floating_point else cross_entropy


def one_each(losses: Tensor, examples: int) -> Tensor:
    """`losses`, once it is sure that there is one for every example."""
    if losses.shape != (examples,):
        wanted = f"one number an example, shape ({examples},) here; PyTorch's own losses need reduction='none'"
        raise InvalidArgument("loss", f"a result of shape {tuple(losses.shape)}", wanted)
    return losses


def slope_of(loss: Loss, output: object) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The gradient of a known loss for such an output, as a function of (output, y), where it is at hand.

    What it spares is a graph and a backward pass of half a dozen small operations, which on a CPU is most of what a small
    model costs.
    """
    if loss is cross_entropy and isinstance(output, Tensor) and output.dim() == 2 and not output.is_cuda:
        return _cross_entropy_slope
    return None


@torch.no_grad()
def check_output(model: nn.Module, loss: Loss, x: Tensor, y: Tensor) -> int | None:
    """Try model and loss on two made-up examples; the number of classes where the loss is cross-entropy.

    x `[2, ...]`, y `[2, ...]` are zeros of the records' shapes: no record is needed to find a wrong shape.
    """
    output = model(x)
    if not isinstance(output, Tensor) or output.dim() == 0 or len(output) != len(x):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        wanted = f"a tensor of one row per example: two examples of shape {tuple(x.shape[1:])} went in"
        raise InvalidArgument("the model's output", shape, wanted)
    classes = None
    if loss is cross_entropy:
        if output.dim() != y.dim() + 1 or output.shape[2:] != y.shape[1:]:
            shape = tuple(y.shape[1:])
            wanted = f"[examples, classes, ...] with the dimensions of the labels, {shape}, after the classes"
            raise InvalidArgument("the model's output shape", tuple(output.shape), wanted)
        classes = output.shape[1]
    losses = loss(output, y)
    if losses.shape != (len(x),):
        wanted = (
            "one number per example, shape [examples]: take reduction='none' and sum what is left of each example; a mean "
            "over the lot would mix the records"
        )
        raise InvalidArgument("the loss's shape", tuple(losses.shape), wanted)
    return classes


def check_labels(lowest: int, highest: int, classes: int) -> None:
    if lowest < 0 or highest >= classes:
        wanted = f"whole numbers from 0 to {classes - 1}, since the model gives {classes} outputs"
        if classes == 1:
            wanted += "; give it one output for each class, or take floating labels and loss=BCEWithLogitsLoss"
        raise InvalidArgument("labels", f"from {lowest} to {highest}", wanted)
