"""Trials that were passed and need not be made again: of models and losses that are torch's and this package's own parts alone.

A trial (independence.py, loss_independence.py) asks a model about made-up inputs with made-up weights, drawn from a fixed seed.
So its outcome follows from what the model is made of, and from shapes. What a user's code is made of nobody can say: a forward
of one's own may count its calls or read a global. But a model whose every module is of a class of torch.nn, with no hook and
with nothing put in by hand, is described by those classes, their settings, their modes and the shapes of their weights; so is a
loss of torch.nn, and one of this package by itself. A search tries the same model half a dozen times: what such a model has
passed, in lots as wide, it would pass again.

What is not known in every part is tried every time, and a refusal is never kept. Nothing of a record is here, for nothing of a
record is in a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook

from honestdp import losses
from honestdp.gradients import inputs
from honestdp.gradients.probe import Probe
from honestdp.losses import Loss

_MOST = 4096
"""Outcomes that are kept, a few hundred bytes each; then all are forgotten, and found again."""
_SETTINGS = (bool, int, float, str, type(None), torch.dtype, torch.device)
_TREES = ("_parameters", "_buffers", "_modules")
_passed: dict[object, tuple[int, Any]] = {}

Outcome = TypeVar("Outcome")


class _Unknown(Exception):
    """Something of which it cannot be said what it is made of."""


def once(
    name: str, trial: Callable[[], Outcome], probe: Probe, *about: object, examples: int, loss: Loss | None = None
) -> Outcome:
    """What the trial comes to, from memory where a model and a loss made of the same parts have passed it in lots as wide.

    about: all else that the outcome depends on. What the probe draws next does not depend on whether the trial was made.
    """
    try:
        made_of = (tuple(_parts(probe.model, probe.params.keys())), None if loss is None else _loss(loss), _world())
    except _Unknown:
        with probe.drawing_apart():
            return trial()
    weights = next(iter(probe.params.values()))
    key = (name, made_of, inputs.kinds(probe.x), probe.runs, weights.dtype, weights.device, *about)
    widest, outcome = _passed.get(key, (0, None))
    if examples > widest:
        with probe.drawing_apart():
            outcome = trial()
        if len(_passed) >= _MOST:
            _passed.clear()
        _passed[key] = examples, outcome
    found: Outcome = outcome
    return found


def forget() -> None:
    """As in a process that has tried nothing."""
    _passed.clear()


def _parts(model: nn.Module, put_in: Any) -> Iterator[object]:
    """Every module by its path: class, code, settings, weights. Which modules and weights are one is told by a number.

    put_in: the parameters that a trial makes up. Values of others would matter, and so would those of buffers.
    """
    numbers: dict[int, int] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        kind = type(module)
        if getattr(nn, kind.__name__, None) is not kind or any(one is not None for one in module._buffers.values()):
            raise _Unknown
        yield path, numbers.setdefault(id(module), len(numbers)), kind, kind.forward, kind.__call__
        yield tuple((name, _setting(value)) for name, value in vars(module).items() if name not in _TREES)
        for name, value in module._parameters.items():
            if value is None:
                yield name
                continue
            whole = f"{path}.{name}".removeprefix(".")
            if type(value) is not nn.Parameter or not (whole in put_in or id(value) in numbers):
                raise _Unknown
            yield name, numbers.setdefault(id(value), len(numbers)), value.shape, value.requires_grad


def _setting(value: object) -> object:
    """An attribute of a module that says how it was made; a function of torch's by itself."""
    if isinstance(value, _SETTINGS):
        return type(value), value
    if isinstance(value, tuple | list):
        return type(value), tuple(_setting(part) for part in value)
    if isinstance(value, dict | set) and not value:  # of hooks: there is none
        return type(value)
    if isinstance(value, FunctionType | BuiltinFunctionType) and getattr(functional, value.__name__, None) is value:
        return value
    raise _Unknown


def _loss(loss: Loss) -> object:
    if isinstance(loss, nn.Module):
        return tuple(_parts(loss, ()))
    if isinstance(loss, FunctionType) and getattr(losses, loss.__name__, None) is loss:
        return loss
    raise _Unknown


def _world() -> object:
    """What of torch's own state changes what its modules compute; under somebody's mode nothing is known."""
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    if modes or _has_any_global_hook():  # type: ignore[no-untyped-call]
        raise _Unknown
    return nn.Module._call_impl, torch.is_autocast_enabled(), torch.get_default_dtype()
