"""What a model is called with: one tensor, several in a row (`model(*x)`) or several by name (`model(**x)`).

One record is all of its inputs. Everything that is done to a lot is done to each of them alike, by the few verbs here, and a
single tensor goes through none of them but as itself, so that models of one input pay nothing for the others.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.func import functional_call
from torch.nn.modules import transformer

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""All of the same first dimensions: the examples, or runs and lot. Labels come in the same layouts."""


def several(x: object) -> bool:
    """Whether it is more than one tensor (or array: what holds of tensors here holds of arrays)."""
    return isinstance(x, tuple | dict)


def leaves(x: Any) -> list[Any]:
    """The tensors, in their order."""
    if isinstance(x, dict):
        return list(x.values())
    return list(x) if isinstance(x, tuple) else [x]


def first(x: Any) -> Any:
    """The first of the tensors: for first dimensions and the device, which all have in common."""
    return leaves(x)[0] if several(x) else x


def each(function: Callable[[Any], Any], x: Any) -> Any:
    """`function` of every tensor, in the shape of x.

    >>> each(len, {"ids": torch.zeros(2, 5), "mask": torch.ones(2, 5)})
    {'ids': 2, 'mask': 2}
    """
    if isinstance(x, dict):
        return {name: function(leaf) for name, leaf in x.items()}
    return tuple(function(leaf) for leaf in x) if isinstance(x, tuple) else function(x)


def like(x: Any, values: list[Any]) -> Any:
    """The values, one for each tensor, in the shape of x."""
    if isinstance(x, dict):
        return dict(zip(x, values, strict=True))
    return tuple(values) if isinstance(x, tuple) else values[0]


def rows(x: Inputs, where: Any) -> Inputs:
    """Some of the examples `[examples, ...]`: by a slice, a mask or numbers."""
    found: Inputs = each(lambda leaf: leaf[where], x)
    return found


def joined(parts: list[Inputs]) -> Inputs:
    """Examples one after the other."""
    if isinstance(parts[0], Tensor):
        return torch.cat(parts)  # type: ignore[arg-type]
    together: Inputs = like(parts[0], [torch.cat(values) for values in zip(*map(leaves, parts), strict=True)])
    return together


def arguments(x: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """As a model is called with them: `model(*args, **kwargs)`."""
    if isinstance(x, dict):
        return (), x
    return ((x,) if isinstance(x, Tensor) else x), {}


def call(model: nn.Module, x: Inputs) -> Any:
    """What the model makes of `x` `[examples, ...]`, without a look at its masks to choose a way."""
    args, kwargs = arguments(x)
    with one_way(model):
        return model(*args, **kwargs)


def call_with(model: nn.Module, params: Mapping[str, Tensor], x: Inputs) -> Any:
    """The same with other parameters."""
    args, kwargs = arguments(x)
    with one_way(model):
        return functional_call(model, _everywhere(model, params), args, kwargs, tie_weights=False)


def _everywhere(model: nn.Module, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters by all of their names, tied weights by each, but once for each place that they stand in.

    A layer that is in a model twice has one place by two names. torch puts a tensor into it by both, and then puts the first of
    these tensors back in the place of the model's own.
    """
    names: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(value), []).append(name)
    found = dict(params)
    for several in names.values():
        given = next((name for name in several if name in params), None)
        if given is None or len(several) == 1:
            continue
        places = {_place(model, name) for name in several if name in params}
        for name in several:
            if (place := _place(model, name)) not in places:
                places.add(place)
                found[name] = params[given]
    return found


def _place(model: nn.Module, name: str) -> tuple[int, str]:
    path, _, last = name.rpartition(".")
    return id(model.get_submodule(path)), last


def alone(x: Inputs) -> Inputs:
    """One example as a lot of one."""
    found: Inputs = each(lambda leaf: leaf.unsqueeze(0), x)
    return found


def flat_runs(x: Inputs) -> Inputs:
    """`[runs, lot, ...]` as `[runs * lot, ...]`."""
    found: Inputs = each(lambda leaf: leaf.flatten(0, 1), x)
    return found


def kinds(x: Inputs) -> object:
    """Names, shapes of one example, and dtypes: what a model is tried for once. x: `[runs, lot, ...]`."""
    if isinstance(x, Tensor):
        return x.shape[2:], x.dtype
    shapes = tuple((leaf.shape[2:], leaf.dtype) for leaf in leaves(x))
    return (tuple(x), shapes) if isinstance(x, dict) else shapes


def gpus(x: Inputs) -> list[torch.device]:
    """The device of the tensors, if it has a generator of its own that may be drawn from: a GPU."""
    device = first(x).device
    return [device] if device.type == "cuda" else []


def in_words(x: Inputs, called: str = "records") -> str:
    """Shapes of one example and dtypes, for people. x: `[examples, ...]`."""
    if isinstance(x, Tensor):
        return f"{x.dtype} {called} of shape {list(x.shape[1:])}"
    names = list(x) if isinstance(x, dict) else [f"[{place}]" for place in range(len(x))]
    parts = [f"{name} {leaf.dtype} {list(leaf.shape[1:])}" for name, leaf in zip(names, leaves(x), strict=True)]
    return f"{called} of {'inputs' if called == 'records' else 'several tensors,'} {', '.join(parts)}"


NUMBER, MASK, LENGTH = "number", "mask", "length"


def roles(model: nn.Module, x: Inputs) -> list[str]:
    """What each of several inputs is: a mask, which says what counts of a record and is never all zero; a length, which is
    never zero; or any other number. One tensor alone is a number.

    Masks are bools, and whole numbers whose name speaks of a mask; lengths, whole numbers whose name speaks of them. The name is
    a dict's key, or that of the argument of the model's `forward` at the input's place.
    """
    if not several(x):
        return [NUMBER]
    names = list(x) if isinstance(x, dict) else _arguments_of(model, len(x))
    return [_role(name.lower(), leaf.dtype) for name, leaf in zip(names, leaves(x), strict=True)]


def _role(name: str, dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return NUMBER
    if dtype == torch.bool or "mask" in name:
        return MASK
    return LENGTH if "len" in name else NUMBER


def _arguments_of(model: nn.Module, count: int) -> list[str]:
    """The names of the first arguments of the model's forward; empty where it has none."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, one in inspect.signature(model.forward).parameters.items() if one.kind in positional]
    return [*names[:count], *[""] * (count - len(names))]


def blank(model: nn.Module, x: Inputs, examples: int) -> Inputs:
    """So many made-up examples in the shape of those of x: zeros, and ones for masks, since attention to nothing is NaN."""
    made = [
        leaf.new_full((examples, *leaf.shape[1:]), 0 if role == NUMBER else 1)
        for leaf, role in zip(leaves(x), roles(model, x), strict=True)
    ]
    blanks: Inputs = like(x, made)
    return blanks


def quantities(x: Inputs) -> list[Tensor]:
    """The inputs that have a size: numbers, and not tokens or marks."""
    return [part for part in leaves(x) if part.is_floating_point()]


def entering(x: Inputs) -> int:
    """How many numbers of one example are quantities. x: `[examples, ...]`."""
    return sum(math.prod(part.shape[1:]) for part in quantities(x))


def numbers(x: Inputs) -> int:
    """How many numbers one example has. x: `[examples, ...]`."""
    return sum(math.prod(leaf.shape[1:]) for leaf in leaves(x))


def bytes_each(x: Inputs) -> int:
    """How many bytes one example takes, at least those of a number an input. x: `[examples, ...]`."""
    return sum(max(1, math.prod(leaf.shape[1:])) * leaf.element_size() for leaf in leaves(x))


_LOCK = threading.RLock()
_depth = 0
_before: list[tuple[ModuleType, str, Any]] = []


def _always(*tensors: object) -> bool:
    return True


def _hinted(mask: object, is_causal: bool | None = None, size: object = None) -> bool:
    """Whether the caller said that the mask is the causal one; otherwise it is applied as any other."""
    return is_causal is True


@contextmanager
def one_way(model: nn.Module) -> Iterator[None]:
    """Within, attention runs the one way that holds for every mask, where torch or transformers would look into the masks.

    Without padding some kernels are faster, so both libraries ask `mask.all()` and the like before they begin. That is a look at
    the numbers of a whole lot, by which one example would decide how another is computed, if only by its rounding. Each
    choice has one way that is right whatever the mask holds, and within `one_way` it is always taken: transformers builds its
    masks as it does under a tracer, torch leaves its fast path for inference alone, and does not compare a mask with the
    causal one. Nothing is read then, and a lot goes through the model at once.
    """
    global _depth
    with _LOCK:
        _depth += 1
        _switch(_masking(model))
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                while _before:
                    setattr(*_before.pop())


_of_transformers: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether a model has modules of transformers'; to be found out once."""


def _masking(model: nn.Module) -> ModuleType | None:
    """Where transformers makes its masks, if the model is made of its modules."""
    if model not in _of_transformers:
        _of_transformers[model] = any(type(part).__module__.startswith("transformers.") for part in model.modules())
    if not _of_transformers[model]:
        return None
    try:
        from transformers import masking_utils
    except ImportError:  # an older one
        return None
    module: ModuleType = masking_utils
    return module


def _switch(masking: ModuleType | None) -> None:
    if _depth == 1:
        _replace(mha, "_is_fastpath_enabled", False)
        _replace(transformer, "_detect_is_causal_mask", _hinted)
    if masking is not None and getattr(masking, "is_tracing", None) is not _always:
        _replace(masking, "is_tracing", _always)


def _replace(module: ModuleType, name: str, value: object) -> None:
    if hasattr(module, name):  # another version may have other names; its models then go example by example
        _before.append((module, name, getattr(module, name)))
        setattr(module, name, value)
