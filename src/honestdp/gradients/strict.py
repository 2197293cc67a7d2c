"""For strict=True: each example under a map of its own, so that it can depend on no other, whatever the model does.

`torch.func.vmap` shows the user's code one example at a time, and what it does to that example is done to all of them. There
is no tensor in that code that holds a second example, so no operation on it can mix two. Code that torch.func cannot map,
because it reads a number out of a tensor or writes what it saw to one that is there for all examples, fails, and is refused.
Every call is made on a copy of the module that is thrown away after it, so that nothing is kept from call to call in the module.
What is left are ways around torch itself: variables outside the module, and vmap rules of the user's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.loss_independence import accepted
from honestdp.gradients.materialised import mappable, throwaway
from honestdp.gradients.outputs import Rebuild, tensors_in
from honestdp.gradients.probe import Probe, without_dropout
from honestdp.gradients.vetting import RefusedModel
from honestdp.gradients.write_guard import tensors_of
from honestdp.losses import Loss, one_each


def unmapped(model: nn.Module, trouble: Exception) -> RefusedModel:
    why = " ".join(str(trouble).split())[:300]
    return RefusedModel(
        type(model).__name__,
        "for strict=True one that torch.func.vmap maps over examples: no .item(), no branch on a number of an example, no"
        f" write to a tensor that all examples share ({why})",
    )


@torch.no_grad()
def mapped_outputs(model: nn.Module, x: Inputs, *, together: int | None = None) -> Any:
    """What the model makes of x `[examples, ...]`, each example under its own map: `[examples, ...]`, or a tree of such.

    together: how many examples are mapped at once, which bounds the memory and changes nothing else.
    Raises RuntimeError (torch.func's) for a model that cannot be mapped, InvalidArgument for an output without a row an example.

    >>> mapped_outputs(nn.Flatten(), torch.ones(3, 2, 2)).shape
    torch.Size([3, 4])
    """
    model, tensors = throwaway(model), tensors_of(model)
    shapes: list[Rebuild] = []  # of the output, the same for every example

    def output_of(example: Inputs) -> list[Tensor]:
        found, rebuild = tensors_in(inputs.call_with(model, tensors, inputs.alone(example)))
        shapes[:] = [rebuild]
        return [_own_row(tensor) for tensor in found]

    with mappable(model):
        copied = inputs.each(torch.clone, x)
        outputs = vmap(output_of, randomness="different", chunk_size=together)(copied)
    return shapes[0](outputs)


def _own_row(tensor: Tensor) -> Tensor:
    if tensor.shape[:1] != (1,):
        value = f"an output of shape {tuple(tensor.shape)} for one example"
        raise InvalidArgument("model", value, "a module whose output has a row an example")
    return tensor.squeeze(0)


def try_mapped(model: nn.Module, x: Inputs) -> Any:
    """Refuse a model that torch.func cannot map; otherwise its `mapped_outputs`."""
    try:
        return mapped_outputs(model, x)
    except RuntimeError as trouble:
        raise unmapped(model, trouble) from trouble


def try_mapped_loss(probe: Probe, loss: Loss, y: Inputs) -> None:
    """Refuse a loss that torch.func cannot map, or that fails on the model's outputs."""
    probe = probe.fresh()
    with without_dropout(probe.model):
        output = try_mapped(probe.model, inputs.rows(probe.x, 0))
        labels = accepted(loss, output, probe, y)

    tensors, rebuild = tensors_in(output)

    def loss_of(tensors: list[Tensor], label: Inputs) -> Tensor:
        row = rebuild([tensor.unsqueeze(0) for tensor in tensors])
        return one_each(loss(row, inputs.alone(label)), 1)

    try:
        vmap(loss_of, randomness="different")(tensors, labels)
    except RuntimeError as trouble:
        why = " ".join(str(trouble).split())[:300]
        wanted = f"for strict=True a function that torch.func.vmap maps over examples ({why})"
        raise InvalidArgument("loss", getattr(loss, "__qualname__", type(loss).__qualname__), wanted) from trouble
