"""Refuses a loss that holds weights to train: they would stay as they are, and another model be trained than the one written.

A training updates the parameters of `model=` alone. A class matrix in a loss module, a penalty on weights that the loss closes
over, or learnt weights of several tasks get a gradient from plain autograd and none here, without any sign of it. So the graph of
the losses of made-up outputs is walked, before the charge: each of its leaves has to be one of the outputs.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument

_DEEP = 6  # attributes, items and closures from the loss to a weight, for its name


def refuse_trainable(loss: Callable[..., Any], losses: Tensor, outputs: list[Tensor], model: nn.Module) -> None:
    """Refuse a loss whose numbers depend on a leaf that requires a gradient and is not one of the model's outputs.

    Args:
        loss: which gave `losses`; where the leaf is held in it names the leaf.
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
    """A weight for people: by its name in the model, or else by the path to it from the loss."""
    shape = list(leaf.shape)
    for name, value in model.named_parameters():
        copied = value.shape == leaf.shape and torch.equal(value.detach().cpu(), leaf.detach().cpu())
        if value is leaf or (copied and bool((leaf != leaf.flatten()[0]).any())):
            return f"`{name}` {shape} of the model"
    path = next((path for path, one in _held("", loss, _DEEP, set()) if one is leaf), None)
    return f"a weight {shape}" if path is None else f"`{path}` {shape}"


def _held(path: str, thing: Any, deep: int, met: set[int]) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an object reaches, with the path to each: attributes, items, closures, defaults, globals by name."""
    if isinstance(thing, Tensor):
        yield path, thing
        return
    if deep < 0 or id(thing) in met or isinstance(thing, type | types.ModuleType | str | int | float | None):
        return
    met.add(id(thing))
    dot = f"{path}." if path else ""
    if isinstance(thing, nn.Module):
        yield from ((f"{dot}{name}", value) for name, value in thing.named_parameters())
    for name, part in _parts(thing, path, dot):
        yield from _held(name, part, deep - 1, met)


def _parts(thing: Any, path: str, dot: str) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, types.FunctionType):
        code = thing.__code__
        for name, cell in zip(code.co_freevars, thing.__closure__ or (), strict=True):
            yield from [] if cell == types.CellType() else [(name, cell.cell_contents)]
        yield from ((name, thing.__globals__[name]) for name in code.co_names if name in thing.__globals__)
        yield from ((path, value) for value in (thing.__defaults__ or (), *(thing.__kwdefaults__ or {}).values()))
    elif isinstance(thing, types.MethodType):
        yield from ((path, part) for part in (thing.__self__, thing.__func__))
    elif isinstance(thing, functools.partial):
        yield from ((path, part) for part in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, Mapping):
        yield from ((f"{dot}{name}", value) for name, value in thing.items())
    elif isinstance(thing, list | tuple):
        yield from ((f"{path}[{place}]", value) for place, value in enumerate(thing))
    elif hasattr(thing, "__dict__"):
        yield from ((f"{dot}{name}", value) for name, value in vars(thing).items())
