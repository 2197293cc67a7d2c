"""Digests of text that `search.json` may hold for everybody to read: of users' code and of this package's source.

*Users' code.* Only what a person wrote counts: byte code with its literals, the layers of a model, what is frozen, modes and
precision. Numbers in attributes, defaults and closures, arrays and tensors are never read, since they may come from records;
`values` digests those, and its digests stay secret. The text digest may merge two different models and never splits one; the
log says so to whoever reads a finished result.

*This package.* A search continues only with the source that started it. Reports, the command line and the named datasets decide
nothing and are left out.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from honestdp import __version__
from honestdp.identity.values import Reader, codes, installed

PACKAGE = Path(__file__).parents[1]
UNDECISIVE = ("report", "cli", "data")


def text_digest(*things: Any) -> str:
    """Of functions, classes, modules and dataclasses, with what they name. What is installed counts by its name alone."""
    reader = _Text()
    for thing in things:
        if is_dataclass(thing) and not isinstance(thing, type):
            reader.each(type(thing), *vars(thing).values())
        else:
            reader.see(thing)
    return reader.digest.hexdigest()[:32]


class _Text(Reader):
    """Whatever is no code, no class and no module is passed by."""

    def see(self, thing: Any) -> None:
        ways: tuple[tuple[Any, Any], ...] = (
            (types.FunctionType, self._function),
            (types.MethodType, lambda one: self.each(one.__func__, one.__self__)),
            (type, self._class),
            (torch.nn.Module, self._module),
            (functools.partial, lambda one: self.each(one.func, *one.args, *one.keywords.values())),
            ((staticmethod, classmethod), lambda one: self.each(one.__func__)),
            (property, lambda one: self.each(one.fget, one.fset, one.fdel)),
            (Callable, lambda one: self.each(type(one))),
        )
        way = next((way for kinds, way in ways if isinstance(thing, kinds)), None)
        if way is not None and not self.again(thing):
            way(thing)

    def each(self, *things: Any) -> None:
        for thing in things:
            self.see(thing)

    def _function(self, function: types.FunctionType) -> None:
        if installed(function.__module__, function.__code__.co_filename):
            return self.note("named", function.__module__ or "", function.__qualname__)
        for code in codes(function.__code__):
            literals = sorted(_literal(one) for one in code.co_consts if not isinstance(one, types.CodeType))
            self.note("code", code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), *literals)
        self.each(*(cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()))
        names = {name for code in codes(function.__code__) for name in code.co_names}
        self.each(*(function.__globals__[name] for name in sorted(names & function.__globals__.keys())))

    def _class(self, own: type) -> None:
        for one in own.__mro__:
            if installed(one.__module__):
                self.note("named", one.__module__, one.__qualname__)
                continue
            self.note("class", one.__qualname__)
            self.each(*(value for _, value in sorted(vars(one).items())))

    def _module(self, model: torch.nn.Module) -> None:
        for name, layer in model.named_modules():
            self.note("layer", name, str(layer.training))
            self.each(type(layer), *(value for _, value in sorted(vars(layer).items())))
        for name, weight in model.named_parameters():
            self.note("weight", name, str(weight.dtype), str(tuple(weight.shape)), str(weight.requires_grad))


def _literal(value: Any) -> str:
    """Alike in every process: a set of literals has an order of its own in each."""
    return f"set {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)


@functools.cache
def source_digest(package: Path = PACKAGE) -> str:
    """Of every file of this package that may decide what a search does."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] not in UNDECISIVE:
            digest.update(name.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """The versions of everything installed that decides what a search does, in this process."""
    return {
        "honestdp": __version__,
        "code": source_digest(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
