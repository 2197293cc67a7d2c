"""Whether code is the code that was: of a model, a loss, a metric, a schedule, a rule.

A search or a training that goes on with other code would put the noise it has drawn on another function of the records, and two
copies of it would betray the difference without any noise. So what is compared is not a name but what runs: the byte code
of a function with its constants, its defaults, what it closes over, and the functions, classes and constants of the user's own
that it names; of a module, the classes of all its layers and their plain attributes. Byte code is at hand where no source
is (a notebook, an interactive session), and is the same for a changed comment. It differs between versions of Python, which
are compared by name.

Installed packages are taken by name and version. What is written in another language has no byte code: it is listed as unseen.

Numbers in arrays and tensors may be records: they are looked at for `values` alone, whose digest must not leave.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    np.dtype,
    slice,
    type(...),
    enum.Enum,
)
_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OWN_PACKAGE = str(Path(__file__).resolve().parent)


@dataclass(frozen=True)
class Identity:
    """digest: equal for equal code. unseen: names of what the digest does not see into."""

    digest: str
    unseen: tuple[str, ...] = ()


def identity(*things: Any, values: bool = False) -> Identity:
    """What the given functions, modules or objects are. values: with the numbers in their arrays and tensors."""
    walk = _Walk(values)
    for thing in things:
        walk.see(thing)
    return Identity(walk.digest.hexdigest()[:32], tuple(sorted(walk.unseen)))


class _Walk:
    """Goes through everything once, and takes down what it meets in order."""

    def __init__(self, values: bool) -> None:
        self.digest, self.unseen, self._values = hashlib.sha256(), set[str](), values
        self._met: dict[int, tuple[int, Any]] = {}  # the things themselves too, so that no number is used twice

    def see(self, thing: Any) -> None:
        if isinstance(thing, _PLAIN):
            return self._note("plain", type(thing).__name__, repr(thing))
        if id(thing) in self._met:
            return self._note("again", str(self._met[id(thing)][0]))
        self._met[id(thing)] = len(self._met), thing
        for kinds, way in self._ways():
            if isinstance(thing, kinds):
                way(thing)
                return None
        return self._object(thing)

    def _ways(self) -> Iterable[tuple[Any, Any]]:
        return (
            ((torch.Tensor, np.ndarray, np.generic), self._array),
            (types.FunctionType, self._function),
            (types.MethodType, lambda one: self._all("method", [one.__func__, one.__self__])),
            (types.CodeType, self._code),
            (type, self._class),
            (types.ModuleType, lambda one: self._note("module", one.__name__)),
            (partial, lambda one: self._all("partial", [one.func, one.args, one.keywords])),
            ((staticmethod, classmethod), lambda one: self._all("wrapped", [one.__func__])),
            (property, lambda one: self._all("property", [one.fget, one.fset])),
            ((tuple, list), lambda one: self._all(type(one).__name__, one)),
            ((set, frozenset), lambda one: self._all("set", sorted(one, key=repr))),
            (dict, lambda one: self._all("dict", [part for pair in one.items() for part in pair])),
            (types.CellType, self._cell),
        )

    def _note(self, *words: str) -> None:
        for word in words:
            self.digest.update(f"{len(word)} {word}".encode(errors="surrogatepass"))

    def _all(self, kind: str, things: Iterable[Any]) -> None:
        every = list(things)
        self._note(kind, str(len(every)))
        for one in every:
            self.see(one)

    def _array(self, array: Any) -> None:
        self._note("array", str(array.dtype), str(tuple(array.shape)))
        if self._values:
            tensor = torch.as_tensor(array) if isinstance(array, torch.Tensor) else None
            numbers = np.asarray(array) if tensor is None else tensor.detach().cpu().contiguous().view(-1)
            raw = numbers.view(torch.uint8).numpy() if isinstance(numbers, torch.Tensor) else numbers
            self.digest.update(hashlib.sha256(np.ascontiguousarray(raw).tobytes()).digest())

    def _cell(self, cell: types.CellType) -> None:
        try:
            self.see(cell.cell_contents)
        except ValueError:
            self._note("an empty cell")

    def _function(self, function: types.FunctionType) -> None:
        if _installed(function.__module__, function.__code__.co_filename):
            return self._named(function)
        self._code(function.__code__)
        self._all("defaults", [function.__defaults__, function.__kwdefaults__, function.__closure__])
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self._global(name, function.__globals__[name], _names(function.__code__))
        return None

    def _global(self, name: str, value: Any, names: set[str]) -> None:
        self._note("global", name)
        if isinstance(value, types.ModuleType) and not _installed(value.__name__, getattr(value, "__file__", None)):
            for inner in sorted(names & vars(value).keys()):
                self._note(inner)
                self.see(vars(value)[inner])
        else:
            self.see(value)

    def _code(self, code: types.CodeType) -> None:
        self._note("code", code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), repr(code.co_freevars))
        self._all("constants", code.co_consts)

    def _class(self, own: type) -> None:
        for one in own.__mro__:
            if _installed(one.__module__, _file_of(one)):
                self._named(one)
                continue
            self._note("class", one.__qualname__)
            for name, value in sorted(vars(one).items()):
                if name not in _OF_EVERY_CLASS:
                    self._note(name)
                    self.see(value)

    def _object(self, thing: Any) -> None:
        """An object: its class, and its attributes where the class is the user's, or where it is called like a function or holds
        what it was given and no more. What else belongs to a package (a logger, a table) is no code, and differs from one
        process to the next.
        """
        if isinstance(thing, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            return self._note("script", str(thing.code))
        own = not _installed(type(thing).__module__, _file_of(type(thing)))
        given = own or callable(thing) or is_dataclass(thing)
        if inspect.isroutine(thing) or not hasattr(thing, "__dict__") or not given:
            return self._named(thing)
        self._class(type(thing))
        self._note("object", type(thing).__qualname__)
        for name, value in sorted(vars(thing).items()):
            self._note(name)
            self.see(value)
        return None

    def _named(self, thing: Any) -> None:
        """What is known by name alone: of an installed package with its version, else unseen."""
        kind = thing if hasattr(thing, "__qualname__") else type(thing)
        module = getattr(kind, "__module__", None) or "builtins"
        top = sys.modules.get(module.split(".")[0])
        self._note("named", module, kind.__qualname__, str(getattr(top, "__version__", "")))
        if not _installed(module, _file_of(kind)):
            self.unseen.add(f"{module}.{kind.__qualname__}")


_OF_EVERY_CLASS = frozenset(
    (
        *(
            "__module__",
            "__dict__",
            "__weakref__",
            "__doc__",
            "__qualname__",
            "__firstlineno__",
            "__static_attributes__",
        ),
        *(
            "__annotations__",
            "__annotate__",
            "__abstractmethods__",
            "_abc_impl",
            "__dataclass_fields__",
            "__parameters__",
        ),
    )
)


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def _file_of(kind: Any) -> str | None:
    return getattr(sys.modules.get(kind.__module__ or ""), "__file__", None)


def _installed(module: str | None, file: str | None) -> bool:
    """Of the standard library, of an installed package or of this one; these change with their versions alone.

    The code of this package is compared by itself, where a search is resumed.
    """
    top = (module or "").split(".")[0]
    if top in sys.stdlib_module_names or top == "builtins":
        return top != "__main__"
    if file is None:
        return top in ("torch", "numpy", "honestdp")
    path = Path(file).resolve()
    known = any(path.is_relative_to(folder) for folder in (*_INSTALLED, _OWN_PACKAGE))
    return known or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
