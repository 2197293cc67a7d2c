"""Refuses a loss that holds weights to train: they would stay as they are, and another model be trained than the one written.

A training updates the parameters of `model=` alone. A class matrix in a loss module, a penalty on weights that the loss closes
over, or learnt weights of several tasks get a gradient from plain autograd and none here, without any sign of it. So the graph of
the losses of made-up outputs is walked, before the charge: each of its leaves has to be one of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument


def refuse_trainable(loss: Callable[..., Any], losses: Tensor, outputs: list[Tensor], model: nn.Module) -> None:
    """Refuse a loss whose numbers depend on a leaf that requires a gradient and is not one of the model's outputs.

    Args:
        loss: The function or module that gave `losses`.
        losses: with their graph.
        outputs: leaves of that graph.
        model: whose parameters are named as such, itself or a copy of it.

    Raises:
        InvalidArgument: naming the leaf and the way out.

    >>> output, m = torch.zeros(2, 3, requires_grad=True), nn.Linear(4, 3, bias=False)
    >>> def penalised(output, y):
    ...     return output.square().sum(1) + m.weight.square().sum()
    >>> refuse_trainable(penalised, penalised(output, None), [output], m)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    honestdp.checks.InvalidArgument: loss must be free of weights to train, ... got 'a loss with `weight` [3, 4] of the model'
    """
    known = {id(leaf) for leaf in outputs}
    leaf = next((one for one in _leaves(losses) if id(one) not in known), None)
    if leaf is None:
        return
    wanted = (
        "free of weights to train, which this training would leave as they are: put them into the model's forward, take "
        "weight_decay= of the optimizer for an L2 penalty, or freeze them (requires_grad_(False), or .detach()) if they are "
        "constants"
    )
    raise InvalidArgument("loss", f"a loss with {_named(leaf, loss, model)}", wanted)


def _leaves(losses: Tensor) -> Iterator[Tensor]:
    """The leaves of the graph of `losses` that require a gradient."""
    if losses.requires_grad and losses.grad_fn is None:
        yield losses
    met, ahead = set[Any](), [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            yield leaf
        ahead += [before for before, _ in node.next_functions]


def _named(leaf: Tensor, loss: object, model: nn.Module) -> str:
    """A weight for people: by its name in the model or in a loss that is a module, with its shape."""
    shape = list(leaf.shape)
    for name, value in model.named_parameters():
        copied = value.shape == leaf.shape and torch.equal(value.detach().cpu(), leaf.detach().cpu())
        if value is leaf or (copied and bool((leaf != leaf.flatten()[0]).any())):
            return f"`{name}` {shape} of the model"
    own = loss.named_parameters() if isinstance(loss, nn.Module) else ()
    name = next((f"`{name}`" for name, one in own if one is leaf), "a weight")
    return f"{name} {shape}"
