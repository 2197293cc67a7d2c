"""Digests of users' code (models, losses, metrics, rules), to notice that it changed before a resume.

A search or a training that goes on with other code would put the noise it has drawn on another function of the records, and two
copies of it would betray the difference without any noise. So what is compared is not a name but what runs: the byte code
of a function with its constants, its defaults, what it closes over, and the functions, classes and constants of the user's own
that it names; of a module, the classes of all its layers and their attributes. Byte code is at hand in a notebook too, and is
the same for a changed comment. It differs between versions of Python, which are compared by name.

A global that holds data (a switch, a table) is compared by its name, so that the message says which one changed. A global that
the code itself writes (a count of calls, a cache of positions) changes with every call and has no part in the comparison.

An object of any other kind is its class and its state: attributes, slots, and what pickle would write of it; without such a
state it is listed as unseen, and so is what is written in another language. A file of the user's that is reached as a module
counts with all its bytes. Installed packages, known by where their files are, are taken by name and version.

Numbers in arrays, tensors and bytes may be records: they are read for `values` alone, whose digest must not leave.
"""

from __future__ import annotations

import array
import ast
import copy
import copyreg
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import sysconfig
import textwrap
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PLAIN = (bool, int, float, complex, str, type(None), type(...), type(NotImplemented), range, np.float64)
_PLAIN_KINDS = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype)
_RAW = (torch.Tensor, np.ndarray, np.generic, array.array, bytes, bytearray, memoryview)
_PLACES = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_INSTALLED = tuple(Path(place).resolve() for place in (*_PLACES, str(Path(__file__).parent.parent)))
_ROUTINES = tuple(map(type, (len, object.__init__, (1).__add__, str.join, dict.__dict__["fromkeys"])))
_BUILT_IN = ("built-in", "frozen")
_OF_EVERY_CLASS = (  # decides nothing, or is filled in by Python while the class is used
    " __module__ __dict__ __weakref__ __doc__ __qualname__ __firstlineno__ __static_attributes__ __annotations__ "
    " __annotate__ __annotate_func__ __annotations_cache__ __abstractmethods__ _abc_impl __dataclass_fields__ "
    " __parameters__ __slotnames__ _value2member_map_ "
)
_LATER_BASES = {"honestdp.optimizers.rule.FixedClip"}  # which checkpoints of before it was there do not know


@dataclass(frozen=True)
class Identity:
    """digest: equal for equal code. unseen: names of what the digest does not see into. globals: digests of the data that the
    code reads as globals, by name; written: of those that the code itself writes.
    """

    digest: str
    unseen: tuple[str, ...] = ()
    globals: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """One digest of the code and of the globals that it reads alone."""
        return _joined(self.digest, self.globals)

    @property
    def everything(self) -> str:
        """The same with the globals that the code writes."""
        return _joined(self.whole, self.written)

    def named(self, whose: str) -> dict[str, str]:
        """The digests of the code and of each of its globals. whose: in words, such as "the model's code"."""
        return {whose: self.digest, **{f"the global {name!r} of {whose}": one for name, one in self.globals.items()}}


def identity(*things: Any, values: bool = False, besides: Iterable[torch.Tensor] = ()) -> Identity:
    """What the given things are. values: with the numbers in arrays and tensors, but for the tensors `besides`."""
    walk = _Walk(values, list(besides))
    for thing in things:
        walk.see(thing)
    read: tuple[dict[str, str], dict[str, str]] = {}, {}
    for place, digest in sorted(walk.globals.items()):
        read[place in walk.written][place[1]] = digest
    return Identity(walk.digest.hexdigest()[:32], tuple(sorted(walk.unseen)), *read)


def _joined(digest: str, more: Mapping[str, str]) -> str:
    return hashlib.sha256(repr((digest, sorted(more.items()))).encode()).hexdigest()[:32]


class Reader:
    """Goes through everything once, and notes what it meets in order."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._met: dict[int, tuple[int, Any]] = {}  # the things themselves too, so that no id is used twice

    def note(self, *words: str) -> None:
        for word in words:
            self.digest.update(f"{len(word)} {word}".encode(errors="surrogatepass"))

    def again(self, thing: Any) -> bool:
        """Whether the thing was met before, which is then noted."""
        if id(thing) in self._met:
            self.note("again", str(self._met[id(thing)][0]))
            return True
        self._met[id(thing)] = len(self._met), thing
        return False


class _Walk(Reader):
    def __init__(self, values: bool, besides: list[torch.Tensor]) -> None:
        super().__init__()
        self.unseen, self._values, self._besides = set[str](), values, besides
        self.globals: dict[tuple[str, str], str] = {}  # by module and name
        self.written: set[tuple[str, str]] = set()
        self._modules: set[tuple[str, frozenset[str] | None]] = set()

    def see(self, thing: Any, names: frozenset[str] | None = None) -> None:
        """names: those that the code which reaches the thing makes use of, where they are known."""
        if isinstance(thing, types.ModuleType):
            return self._module(thing, names)
        if type(thing) in _PLAIN or isinstance(thing, _PLAIN_KINDS):
            return self.note("plain", type(thing).__name__, repr(thing))
        if self.again(thing):
            return None
        if type(thing) in (tuple, list, dict):
            return self._all(type(thing).__name__, thing)
        return next((way for kinds, way in self._ways() if isinstance(thing, kinds)), self._object)(thing)

    def _ways(self) -> Iterable[tuple[Any, Callable[[Any], None]]]:
        return (
            (_RAW, self._array),
            (types.FunctionType, self._function),
            (types.CodeType, self._code),
            (type, self._class),
            ((staticmethod, classmethod), lambda one: self._all("wrapped", [one.__func__])),
            (property, lambda one: self._all("property", [one.fget, one.fset, one.fdel])),
            (types.MappingProxyType, lambda one: self._all("mapping", one)),
            ((set, frozenset), self._set),
            (types.CellType, lambda one: self._all("cell", [] if one == types.CellType() else [one.cell_contents])),
            (_ROUTINES, self._routine),
            ((type(threading.Lock()), type(threading.RLock())), lambda one: self.note("lock")),
        )

    def _all(self, kind: str, things: Iterable[Any]) -> None:
        every = [part for pair in things.items() for part in pair] if isinstance(things, Mapping) else list(things)
        self.note(kind, str(len(every)))
        for one in every:
            self.see(one)

    def _apart(self, thing: Any) -> str:
        """A digest of the thing by itself, by a walk that knows what this one has met."""
        inner = copy.copy(self)
        inner.digest, inner._met, inner._modules = hashlib.sha256(), dict(self._met), set(self._modules)
        inner.see(thing)
        return inner.digest.hexdigest()[:32]

    def _set(self, own: set[Any] | frozenset[Any]) -> None:
        """In the order of the digests of its members, for its own differs between processes."""
        self.note("set", *sorted(self._apart(one) for one in own))
        if type(own) not in (set, frozenset):
            self._all("kind", [type(own), _attributes(own)])

    def _array(self, own: Any) -> None:
        tensor = isinstance(own, torch.Tensor)
        numbers = own if tensor or isinstance(own, np.ndarray | np.generic) else np.asarray(own)
        self.note("array", str(numbers.dtype), str(tuple(numbers.shape)))
        self.see(type(own))
        if not self._values or any(own is one for one in self._besides):
            return
        if tensor:
            numbers = own.detach().to_dense() if own.layout != torch.strided else own.detach()
            numbers = numbers.cpu().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy()
        if numbers.dtype == object:
            return self._all("objects", np.asarray(numbers).ravel().tolist())
        self.digest.update(hashlib.sha256(np.ascontiguousarray(numbers).tobytes()).digest())

    def _function(self, function: types.FunctionType) -> None:
        code, space = function.__code__, function.__globals__
        module = str(space.get("__name__", ""))  # not __module__: a decorator borrows that
        if installed(function.__module__, code.co_filename):
            self.note("named", module, code.co_qualname, self._version(module.split(".")[0]))
            return self._all("holds", [function.__closure__, vars(function)])
        self._code(code)
        self._all("defaults", [function.__defaults__, function.__kwdefaults__, function.__closure__, vars(function)])
        names = frozenset(name for part in codes(code) for name in part.co_names)
        self.written |= {(module, name) for name in _written(code)}
        for name in sorted(names & space.keys()):
            self.note("global", name)
            if isinstance(space[name], types.ModuleType) or callable(space[name]):
                self.see(space[name], names)
            elif (module, name) not in self.globals:
                self.globals[module, name] = ""  # a value may lead back to it
                self.globals[module, name] = self._apart(space[name])
        for name, taken in sorted(set(_imports(code, space.get("__package__")))):
            self._import(name, taken, names)

    def _import(self, name: str, taken: tuple[str, ...], names: frozenset[str]) -> None:
        """A module that a function imports when it is called. One of the user's own is imported now, as the call would."""
        self.note("import", name, *taken)
        top = name.split(".")[0]
        found = sys.modules.get(top) or importlib.util.find_spec(top)
        where = getattr(found, "__file__", None) or getattr(found, "origin", None)
        if found is None or where in _BUILT_IN or installed(top, where):
            return self.note("absent" if found is None else self._version(top))
        try:
            __import__(name, fromlist=taken)
        except Exception:  # the function may expect it, or never come so far
            self.unseen.add(name)
        else:
            self._module(sys.modules[name], names)

    def _module(self, module: types.ModuleType, names: frozenset[str] | None) -> None:
        """A module with those of its names that are used, or all of them where nobody knows which."""
        name, file = module.__name__, getattr(module, "__file__", None)
        self.note("module", name, self._version(name.split(".")[0]) if installed(name, file) else "")
        if installed(name, file) or (name, names) in self._modules:
            return
        self._modules.add((name, names))
        if file and Path(file).is_file():
            self.note(hashlib.sha256(Path(file).read_bytes()).hexdigest())
        for inner, value in sorted(vars(module).items()):
            if inner == "__getattr__" or (inner in names if names is not None else not inner.startswith("__")):
                self.note(inner)
                self.see(value, names)

    def _code(self, code: types.CodeType) -> None:
        self.note("code", code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), repr(code.co_freevars))
        self._all("constants", code.co_consts)

    def _class(self, own: type) -> None:
        if type(own) is not type:
            self.see(type(own))
        for one in own.__mro__:
            if installed(one.__module__):
                if not installed(own.__module__) or f"{one.__module__}.{one.__qualname__}" not in _LATER_BASES:
                    self._named(one)
            else:
                names = {name: value for name, value in vars(one).items() if f" {name} " not in _OF_EVERY_CLASS}
                self._all(f"class {one.__qualname__}", dict(sorted(names.items())))

    def _object(self, thing: Any) -> None:
        """Its class and its state. That of a package's object is what pickle would write, for the rest (caches, handlers of a
        logger) differs from one process to the next; of the user's own every attribute and slot counts, pickled or not.
        """
        self._all("object", [type(thing)])
        if callable(thing) or not installed(type(thing).__module__):
            self._all("attributes", _attributes(thing))
        state = _pickled(thing)
        if state is None:
            self.unseen.add(f"{type(thing).__module__}.{type(thing).__qualname__}")
        self.see(state)

    def _routine(self, routine: Any) -> None:
        self._named(routine)
        if getattr(routine, "__module__", None) is None:  # a method, of a list or a tensor
            self.see(getattr(routine, "__self__", None))

    def _named(self, thing: Any) -> None:
        """What is known by name alone: of an installed package with its version, else unseen."""
        kind = thing if hasattr(thing, "__qualname__") else type(thing)
        module = getattr(kind, "__module__", None)
        module = module if module and isinstance(module, str) else "builtins"
        self.note("named", module, kind.__qualname__, self._version(module.split(".")[0]))
        if not installed(module):
            self.unseen.add(f"{module}.{kind.__qualname__}")

    def _version(self, top: str) -> str:
        """Empty for the standard library, whose version is Python's. A package of no version is unseen."""
        if top in sys.stdlib_module_names and installed(top):
            return ""
        found = str(getattr(sys.modules.get(top), "__version__", "")) or _distributed(top)
        self.unseen |= set() if found else {top}
        return found


def _attributes(thing: Any) -> dict[str, Any]:
    """Attributes and slots, by name; without those in which C keeps addresses (`__vectorcalloffset__` of a partial)."""
    every = ((name, one) for kind in type(thing).__mro__ for name, one in vars(kind).items())
    slot = types.MemberDescriptorType
    members = [name for name, one in every if isinstance(one, slot) and not name.endswith("offset__")]
    slots = {name: getattr(thing, name) for name in members if hasattr(thing, name)}
    return dict(sorted({**slots, **getattr(thing, "__dict__", {})}.items(), key=lambda one: str(one[0])))


def _pickled(thing: Any) -> list[Any] | None:
    """What pickle would write of the object itself, if it can be pickled."""
    try:
        with warnings.catch_warnings(action="ignore"):
            own: Any = copyreg.dispatch_table.get(type(thing))
            found = own(thing) if own else thing.__reduce_ex__(4)
    except Exception:
        return None
    make, arguments, state, items, pairs = (((found,) if isinstance(found, str) else found) + (None,) * 4)[:5]
    return [make, arguments, state, list(items or ()), [list(pair) for pair in pairs or ()]]


def codes(code: types.CodeType) -> list[types.CodeType]:
    """The code and all that is defined within it."""
    return [code, *(part for one in code.co_consts if isinstance(one, types.CodeType) for part in codes(one))]


_CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "subtract", "update",
}  # fmt: skip
"""Methods by which lists, dictionaries, sets and counters are written to."""


def _written(code: types.CodeType) -> set[str]:
    """Globals that the code assigns or writes into: `CALLS += 1`, `CACHE[n] = ...`, `STATE.n += 1`, `SEEN[n].append(...)`. None
    without its source.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        holder: ast.expr | None = None
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            holder = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            holder = node.func.value
        while isinstance(holder, ast.Subscript | ast.Attribute):
            holder = holder.value
        found |= {holder.id} if isinstance(holder, ast.Name) else set()
    return found - {name for part in codes(code) for name in (*part.co_varnames, *part.co_cellvars, *part.co_freevars)}


def _imports(code: types.CodeType, package: str | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Modules that the code imports, each with the names it takes from it."""
    for part in codes(code):
        steps = [step for step in dis.get_instructions(part) if step.opname != "EXTENDED_ARG"]
        for place, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                dots, taken, name = (one.argval for one in steps[place - 2 : place + 1])
                yield importlib.util.resolve_name("." * dots + name, package), tuple(taken or ())


@functools.cache
def _distributed(top: str) -> str:
    names = importlib.metadata.packages_distributions().get(top, [])
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


def installed(module: Any, file: str | None = None) -> bool:
    """Of the standard library, of a package or of this one, whose code is compared by itself. Where the file lies decides, not
    the name: a user's `random.py` is the user's.
    """
    if isinstance(module, types.GetSetDescriptorType):
        return True  # of a class of C whose instances name a module; since Python 3.12
    module = module if isinstance(module, str) else ""
    top = module.split(".")[0]
    if file is None or file.startswith("<"):  # built in, frozen, or compiled from a string
        loaded = None if top in ("__main__", "__mp_main__") else sys.modules.get(module) or sys.modules.get(top)
        file = getattr(loaded, "__file__", None)
        if file is None:
            return getattr(getattr(loaded, "__spec__", None), "origin", None) in _BUILT_IN
    return _among_packages(file)


@functools.cache
def _among_packages(file: str) -> bool:
    path = Path(file).resolve()
    by_name = {"site-packages", "dist-packages"}.intersection(path.parts)
    return bool(by_name) or any(path.is_relative_to(place) for place in _INSTALLED)
