"""`fix`: a copy of a model in which layers that private training refuses are replaced by others that do the same work.

What a layer normalises or in which order it reads its input is the user's to decide, so every change is said in words, and
nothing is changed in the model that was given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.probe import flat, without_dropout
from honestdp.gradients.vetting import is_compiled

_SWAPS = 16  # trials of whether examples mix: few of them have a token at a position that is mostly padding
_MOST_GROUPS, _LEAST_CHANNELS = 32, 4


class Fixed(NamedTuple):
    """model: a copy, with layers replaced. changes: what was replaced, kept or left as it is, a line each."""

    model: nn.Module
    changes: tuple[str, ...]


def fix(model: nn.Module, x: Inputs | None = None) -> Fixed:
    """A copy of the model without the layers that private training refuses, and a line for everything that was changed.

    - BatchNorm becomes GroupNorm, and InstanceNorm forgets its running statistics: gain and shift are carried over,
      statistics of a lot or of the past are not.
    - Attention and recurrent layers that read `[positions, examples, features]` read `[examples, positions, features]`
      (`batch_first=True`) where nothing can have turned their input around: in an nn.Sequential, or as the model itself. The
      model is then called with examples first. Elsewhere `x` decides: they are changed if the model mixes the
      examples of x, and does not once they are.
    - Tables no longer scale gradients by how often a row occurs in a lot.
    - spectral_norm in training mode is taken off, with the weight left as it is now; a model that was compiled or wrapped in
      DataParallel is unwrapped.

    model: any nn.Module; it is not changed. x: two or more made-up inputs for it, `[examples, ...]`; never records.
    Returns the copy and the lines; none where nothing had to be changed. What cannot be replaced, such as
    `Embedding(max_norm=...)`, is left, and the training refuses it with the way out.
    Raises InvalidArgument for what is no module.

    >>> model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    >>> fixed, changes = fix(model)
    >>> print(*changes, sep="\\n")
    '1': BatchNorm2d(16) is GroupNorm(4, 16); its gain and shift are carried over, its running statistics are not
    >>> type(fixed[1]).__name__
    'GroupNorm'
    """
    if not isinstance(model, nn.Module):
        raise InvalidArgument("model", type(model).__name__, "an nn.Module")
    changes: list[str] = []
    fixed = _replaced(_unwrapped(model, changes), "", changes)
    _turn(fixed, x, changes)
    return Fixed(fixed, tuple(changes))


def _unwrapped(model: nn.Module, changes: list[str]) -> nn.Module:
    """A copy of what is within compilers' and parallel wrappers."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        changes.append(f"{type(model).__name__} is taken off: honestdp spreads a population over the machine itself")
        return _unwrapped(model.module, changes)
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        changes.append(_UNCOMPILED)
        return _unwrapped(inner, changes)
    for path, module in model.named_modules():
        if module._compiled_call_impl is not None:  # by compile() in place, which a copy forgets
            changes.append(f"{path!r}: {_UNCOMPILED}" if path else _UNCOMPILED)
    try:
        return copy.deepcopy(model)
    except RuntimeError as trouble:
        wanted = f"one that copy.deepcopy can copy: take off old hooks first, such as nn.utils.weight_norm ({trouble})"
        raise InvalidArgument("model", type(model).__name__, wanted) from trouble


_UNCOMPILED = "torch.compile is taken off: its graph is of one model, and private training runs layers of its own"


def _replaced(module: nn.Module, path: str, changes: list[str]) -> nn.Module:
    """The module, or what takes its place, with its parts replaced."""
    if is_compiled(module):
        changes.append(f"{path!r}: {_UNCOMPILED}" if path else _UNCOMPILED)
        inner = getattr(module, "_orig_mod", None)
        module = inner if isinstance(inner, nn.Module) else module
        module._compiled_call_impl = None
    for kind, replace in _REPLACEMENTS:
        if isinstance(module, kind):
            other, said = replace(module)
            if said:
                changes.append(f"{path!r}: {said}" if path else said)
            module = other
    for name, part in list(module.named_children()):
        other = _replaced(part, f"{path}.{name}" if path else name, changes)
        if other is not part:
            setattr(module, name, other)
    _without_spectral_norm(module, path, changes)
    return module


def groups_of(channels: int) -> int:
    """How many groups take the place of statistics over a lot: at most 32, of 4 channels or more where there are so many."""
    fitting = (g for g in range(_MOST_GROUPS, 1, -1) if channels % g == 0 and channels // g >= _LEAST_CHANNELS)
    return next(fitting, 1)


def _group_norm(module: Any) -> tuple[nn.Module, str]:
    if not module.training and module.running_mean is not None:
        return module, ""  # fixed statistics
    channels = module.num_features
    norm = nn.GroupNorm(groups_of(channels), channels, eps=module.eps, affine=module.affine)
    carried = "its gain and shift are carried over, its" if module.affine else "its"
    line = f"{type(module).__name__}({channels}) is GroupNorm({norm.num_groups}, {channels})"
    return _like(norm, module), f"{line}; {carried} running statistics are not"


def _like(other: Any, module: Any) -> nn.Module:
    """`other` with the gain and the shift of a module, and in its mode."""
    if module.affine:
        other.weight, other.bias = module.weight, module.bias
    return other.train(module.training)  # type: ignore[no-any-return]


def _instance_norm(module: Any) -> tuple[nn.Module, str]:
    if not (module.training and module.track_running_stats):
        return module, ""
    other = type(module)(module.num_features, eps=module.eps, affine=module.affine)
    return _like(other, module), f"{type(module).__name__} keeps no running statistics (track_running_stats=False)"


def _table(module: Any) -> tuple[nn.Module, str]:
    if not module.scale_grad_by_freq:
        return module, ""
    module.scale_grad_by_freq = False
    return module, f"{type(module).__name__} does not scale gradients by how often a row occurs in a lot"


_REPLACEMENTS: list[tuple[Any, Callable[[Any], tuple[nn.Module, str]]]] = [
    (nn.modules.batchnorm._BatchNorm, _group_norm),
    (nn.modules.instancenorm._InstanceNorm, _instance_norm),
    (nn.Embedding | nn.EmbeddingBag, _table),
]


def _without_spectral_norm(module: nn.Module, path: str, changes: list[str]) -> None:
    for name, kinds in list(getattr(module, "parametrizations", {}).items()):
        if module.training and any(isinstance(kind, nn.utils.parametrizations._SpectralNorm) for kind in kinds):
            # A copy shares its class with the model, and the weight is taken off the class.
            kind = type(module)
            own = {key: value for key, value in vars(kind).items() if key not in ("__dict__", "__weakref__")}
            module.__class__ = type(kind.__name__, kind.__bases__, own)
            parametrize.remove_parametrizations(module, name)
            changes.append(f"{path!r}: spectral_norm of {name} is taken off, and the weight is free from here on")


def _positions_first(model: nn.Module) -> dict[str, Any]:
    """Attention and recurrent layers whose first dimension is not the examples, and what else knows of that, by path."""
    kinds = nn.RNNBase | nn.MultiheadAttention | nn.Transformer
    return {path: m for path, m in model.named_modules() if isinstance(m, kinds) and not m.batch_first}


def _turn(model: nn.Module, x: Inputs | None, changes: list[str]) -> None:
    """Make layers read examples first where that mends the model."""
    layers = _positions_first(model)
    if x is None:
        turned = {path: layer for path, layer in layers.items() if _direct(model, path)}
    else:
        turned = layers if layers and _mixes(model, x) else {}
    for layer in turned.values():
        layer.batch_first = True
    if x is not None and turned and _mixes(model, x):
        for layer in turned.values():
            layer.batch_first = False
        turned = {}
    for path, layer in layers.items():
        named = f"{path!r}: {type(layer).__name__}" if path else type(layer).__name__
        if path in turned:
            said = "reads [examples, positions, features] (batch_first=True), no longer [positions, examples, features]"
            changes.append(f"{named} {said}")
        elif x is None:
            said = "is left to read positions first, since the model may turn its input around; give fix(model, x) made-up inputs"
            changes.append(f"{named} {said}")


def _direct(model: nn.Module, path: str) -> bool:
    """Whether no code of the user's is between the model's input and the layer: only nn.Sequential and torch's transformers."""
    own = (nn.Sequential, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.ModuleList)
    above = path.split(".")[:-1] if path else []
    owners = [model.get_submodule(".".join(above[:depth])) for depth in range(len(above) + 1)] if path else []
    return all(type(owner) in own for owner in owners)


@torch.no_grad()
def _mixes(model: nn.Module, x: Inputs) -> bool:
    """Whether the outputs for other examples move with the first, which is replaced by values of all, shuffled: in sequences that
    are padded alike, one real example in the place of another would move nothing at the padding.
    """
    fresh, many = copy.deepcopy(model).eval(), len(inputs.first(x))
    generator = torch.Generator().manual_seed(0)

    def swapped(leaf: Tensor) -> Tensor:
        drawn = torch.randint(leaf.numel(), leaf[:1].shape, generator=generator).to(leaf.device)
        return torch.cat([leaf.reshape(-1)[drawn], leaf[1:]])

    with without_dropout(fresh):
        try:
            first = flat(inputs.call(fresh, x))
            others = [flat(inputs.call(fresh, inputs.each(swapped, x))) for _ in range(_SWAPS)]
        except (RuntimeError, InvalidArgument):
            return True
    return len(first) != many or not all(torch.allclose(first[1:], one[1:], rtol=1e-4, atol=1e-5) for one in others)
