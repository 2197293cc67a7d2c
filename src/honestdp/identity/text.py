"""Digests of text that `search.json` may hold for everybody to read: of users' code and of this package's source.

*Users' code.* Only what a person wrote counts: byte code with its literals, the layers of a model, what is frozen, modes and
precision. Numbers in attributes, defaults and closures, arrays and tensors are never read, since they may come from records;
`identity` digests those, and its digests stay secret. The text digest may merge two different models and never splits one; the
log says so to whoever reads a finished result.

*This package.* A search continues only with the source that started it. The digest covers every file that the front door of a
search imports, in functions too; reports, the command line and the named datasets decide nothing and are left out.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from honestdp import __version__
from honestdp.identity.values import codes, installed

_WRAPPED = (staticmethod, classmethod)


def text_digest(*things: Any) -> str:
    """Of functions, classes, modules and dataclasses, with what they name. What is installed counts by its name alone."""
    reader = _Reader()
    for thing in things:
        if is_dataclass(thing) and not isinstance(thing, type):
            reader.see(type(thing))
            for part in vars(thing).values():
                reader.see(part)
        else:
            reader.see(thing)
    return reader.digest.hexdigest()[:32]


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


PACKAGE = Path(__file__).parents[1]
FRONT_DOOR = "honestdp.search.tune"
UNDECISIVE = ("report", "cli", "data")
_MENTIONED = re.compile(r"honestdp(?:\.\w+)+")
_FROM = re.compile(r"^\s*from (honestdp[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@lru_cache(maxsize=1)
def source_digest(package: Path = PACKAGE) -> str:
    digest = hashlib.sha256()
    for path in deciding_files(package):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
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


def deciding_files(package: Path = PACKAGE) -> list[Path]:
    """The files of this package that decide what a search does, in a fixed order."""
    reached: set[Path] = set()
    waiting = [FRONT_DOOR]
    while waiting:
        for path in _files(package, waiting.pop()):
            if path not in reached:
                reached.add(path)
                waiting += _imported(path)
    return sorted(reached)


def _files(package: Path, name: str) -> list[Path]:
    """The file of a module, and those of the packages that it lies in, which are run before it; none where it decides nothing.

    The package's own front, `honestdp/__init__.py`, only names what lies elsewhere.
    """
    parts = name.split(".")[1:]
    if not parts or parts[0] in UNDECISIVE:
        return []
    places = [package.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return [path for place in places for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()]


def _imported(path: Path) -> Iterator[str]:
    """Every name of this package that a file imports or mentions; some are no modules, and have no file."""
    text = path.read_text(encoding="utf-8")
    yield from _MENTIONED.findall(text)
    for module, names in _FROM.findall(text):
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))
