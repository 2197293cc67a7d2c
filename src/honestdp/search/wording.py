"""Digests of the text of users' code, which stay with a search that is over: another model or loss does not read its result.

What runs is compared before a search goes on (`identity`), by digests that are erased at its end with all that is secret: they
cover numbers that functions close over and that objects hold, which may be of the records. Here only what somebody wrote counts:
byte code with its literals, which layers there are, what of them is frozen, in which mode and precision. No attribute, default or
closure that is a number, no array and no tensor is looked at, so that the digest may lie in `search.json` for everybody to read.

It may be too coarse: what is not written is not compared, and whoever reads a result is told so.
"""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from honestdp.gradients.identity import codes, installed

TEXT = "text"
_WRAPPED = (staticmethod, classmethod)


def text(*things: Any) -> str:
    """Of functions, classes and modules, with what they name. What is installed counts by its name, in whatever version."""
    reader = _Reader()
    for thing in things:
        reader.see(thing)
    return reader.digest.hexdigest()[:32]


def differing(path: Path, texts: Mapping[str, str], python: str) -> set[str]:
    """Whose text is another than in the `search.json` at the path. Byte code is compared within one version of Python alone."""
    try:
        written = json.loads(path.read_text())
        kept = written.get(TEXT) if written["python"] == python else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # what is wrong with it is said where it is read
        return set()
    if not isinstance(kept, dict):  # written by an earlier version, or not to be compared
        return set()
    return {name for name in kept.keys() & texts.keys() if kept[name] != texts[name]}


class _Reader:
    """Goes through everything once. Whatever is no code, no class and no module is passed by."""

    def __init__(self) -> None:
        self.digest, self._met = hashlib.sha256(), list[Any]()  # the things themselves, so that no id is used twice
        self._numbers: dict[int, int] = {}

    def see(self, thing: Any) -> None:
        ways: tuple[tuple[Any, Any], ...] = (
            (types.FunctionType, self._function),
            (types.MethodType, lambda one: self._each(one.__func__, one.__self__)),
            (type, self._class),
            (torch.nn.Module, self._module),
            (functools.partial, lambda one: self._each(one.func, *one.args, *one.keywords.values())),
            (_WRAPPED, lambda one: self._each(one.__func__)),
            (property, lambda one: self._each(one.fget, one.fset, one.fdel)),
        )
        way = next((way for kinds, way in ways if isinstance(thing, kinds)), None)
        if way is None and not callable(thing):
            return
        if id(thing) in self._numbers:
            return self._note("again", str(self._numbers[id(thing)]))
        self._numbers[id(thing)] = len(self._met)
        self._met.append(thing)
        way(thing) if way is not None else self._each(type(thing))

    def _note(self, *words: str) -> None:
        for word in words:
            self.digest.update(f"{len(word)} {word}".encode(errors="surrogatepass"))

    def _each(self, *things: Any) -> None:
        for thing in things:
            self.see(thing)

    def _function(self, function: types.FunctionType) -> None:
        if installed(function.__module__, function.__code__.co_filename):
            return self._note("named", function.__module__ or "", function.__qualname__)
        for code in codes(function.__code__):
            literals = sorted(_literal(one) for one in code.co_consts if not isinstance(one, types.CodeType))
            self._note("code", code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), *literals)
        self._each(*(cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()))
        names = {name for code in codes(function.__code__) for name in code.co_names}
        self._each(*(function.__globals__[name] for name in sorted(names & function.__globals__.keys())))

    def _class(self, own: type) -> None:
        for one in own.__mro__:
            if installed(one.__module__):
                self._note("named", one.__module__, one.__qualname__)
                continue
            self._note("class", one.__qualname__)
            self._each(*(value for _, value in sorted(vars(one).items())))

    def _module(self, model: torch.nn.Module) -> None:
        for name, layer in model.named_modules():
            self._note("layer", name, str(layer.training))
            self._each(type(layer), *(value for _, value in sorted(vars(layer).items())))
        for name, weight in model.named_parameters():
            self._note("weight", name, str(weight.dtype), str(tuple(weight.shape)), str(weight.requires_grad))


def _literal(value: Any) -> str:
    """Alike in every process: a set of literals has an order of its own in each."""
    return f"set {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
