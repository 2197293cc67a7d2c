"""Trials that were passed and need not be made again: of models and losses that are torch's and this package's own parts alone.

A trial (independence.py, loss_independence.py) asks a model about made-up inputs with made-up weights, drawn from a fixed seed.
So its outcome follows from what the model is made of, and from shapes. What a user's code is made of nobody can say: a forward
of one's own may count its calls or read a global. But a model whose every module is of a class of torch.nn, with no hook and
with nothing put in by hand, is described by those classes, their settings, their modes and the shapes of their weights; so is a
loss of torch.nn, and one of this package by itself. A search tries the same model half a dozen times: what such a model has
passed, in lots as wide, it would pass again. As long as torch is what it was: where somebody has put a function of their own in
the place of one of torch's since this package was imported, nothing is known.

What is not known in every part is tried every time, and a refusal is never kept. Nothing of a record is here, for nothing of a
record is in a trial.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
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
_MODULES = frozenset(
    kind
    for kind in vars(nn).values()
    if isinstance(kind, type) and str(kind.__module__).startswith("torch.nn.modules.")
)
_LOSSES = frozenset(
    one for one in vars(losses).values() if isinstance(one, FunctionType) and one.__module__.startswith(losses.__name__)
)


def _functions(module: ModuleType) -> dict[str, object]:
    """With the modules in which it finds others. Of torch itself those that are compiled: of the others it exchanges some itself,
    when its compiler is imported.
    """
    kinds = BuiltinFunctionType if module is torch else BuiltinFunctionType | FunctionType | ModuleType
    return {name: one for name, one in vars(module).items() if isinstance(one, kinds)}


def _held(kind: type) -> dict[str, object]:
    """What a class does by, and what else it holds but what Python puts in every class."""
    return {
        name: one
        for name, one in vars(kind).items()
        if callable(one) or isinstance(one, classmethod | staticmethod | property) or not name.startswith("__")
    }


_FILES = [file for file in vars(nn.modules).values() if isinstance(file, ModuleType)]
_FUNCTIONS = {module: _functions(module) for module in (torch, functional, *_FILES)}
_CLASSES = {
    kind: _held(kind) for kind in (torch.Tensor, *dict.fromkeys(one for kind in _MODULES for one in kind.__mro__))
}
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
    kinds = {type(module) for module in model.modules()}
    if not kinds <= _MODULES or any(map(_exchanged, {base for kind in kinds for base in kind.__mro__})):
        raise _Unknown
    numbers: dict[int, int] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if any(one is not None for one in module._buffers.values()):
            raise _Unknown
        yield path, numbers.setdefault(id(module), len(numbers)), type(module)
        yield tuple((name, _setting(value)) for name, value in vars(module).items() if name not in _TREES)
        for name, value in module._parameters.items():
            if value is None:
                yield name
                continue
            whole = f"{path}.{name}".removeprefix(".")
            if type(value) is not nn.Parameter or not (whole in put_in or id(value) in numbers):
                raise _Unknown
            kept = value.shape, value.dtype, value.device, value.requires_grad
            yield name, numbers.setdefault(id(value), len(numbers)), *kept


def _exchanged(kind: type) -> bool:
    """Whether a class of torch's does something by another function than when it was imported."""
    return _held(kind) != _CLASSES[kind]


def _setting(value: object) -> object:
    """An attribute of a module that says how it was made; a function of torch's by itself."""
    if type(value) in _SETTINGS:
        return type(value), value
    if type(value) in (tuple, list, torch.Size):
        return type(value), tuple(_setting(part) for part in value)  # type: ignore[attr-defined]
    if type(value) in (dict, OrderedDict, set) and not value:  # of hooks: there is none
        return type(value)
    if isinstance(value, FunctionType | BuiltinFunctionType) and _FUNCTIONS[functional].get(value.__name__) is value:
        return value
    raise _Unknown


def _loss(loss: Loss) -> object:
    if isinstance(loss, nn.Module):
        return tuple(_parts(loss, ()))
    if isinstance(loss, FunctionType) and loss in _LOSSES:
        return loss
    raise _Unknown


def _world() -> object:
    """What of torch's own state changes what its modules compute; under somebody's mode, and once somebody has put another
    function in the place of one of torch's, nothing is known.
    """
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    if modes or _has_any_global_hook():  # type: ignore[no-untyped-call]
        raise _Unknown
    if any(vars(module).get(name) is not one for module, known in _FUNCTIONS.items() for name, one in known.items()):
        raise _Unknown
    if _exchanged(torch.Tensor):
        raise _Unknown
    return torch.is_autocast_enabled(), torch.get_default_dtype()
