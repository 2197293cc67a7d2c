"""Digests of users' code (models, losses, metrics, rules), to notice that it changed before a resume.

A search or a training that goes on with other code would put the noise it has drawn on another function of the records, and two
copies of it would betray the difference without any noise. So what is compared is not a name but what runs: the byte code
of a function with its constants, its defaults, what it closes over, and the functions, classes and constants of the user's own
that it names; of a module, the classes of all its layers and their attributes. Byte code is at hand in a notebook too, and is
the same for a changed comment. It differs between versions of Python, which are compared by name.

A global that holds data (a switch, a table) is compared by its name, so that whoever changed it is told which one it was. A
global that the code itself writes (a count of calls, a cache of positions) is what the code did and not what it is: it changes
with every call, and has no part in the comparison.

An object of any other kind is its class and its state: attributes, slots, and what pickle would write of it; without such a
state it is listed as unseen, and so is what is written in another language. A file of the user's that is reached as a module
counts with all its bytes. Installed packages, known by where their files are, are taken by name and version.

Numbers in arrays and tensors may be records: they are looked at for `values` alone, whose digest must not leave. So are bytes
within objects of packages, for images and tables pickle their contents as bytes.
"""

from __future__ import annotations

import array
import copyreg
import dis
import enum
import functools
import hashlib
import importlib.metadata
import importlib.util
import re
import sys
import sysconfig
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, np.float64)
_PLAIN_KINDS = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype)
_RAW = (torch.Tensor, np.ndarray, np.generic, array.array, bytearray, memoryview)
_PLACES = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_INSTALLED = tuple(Path(place).resolve() for place in (*_PLACES, str(Path(__file__).parent.parent)))
_ROUTINES = tuple(map(type, (len, object.__init__, (1).__add__, str.join, dict.__dict__["fromkeys"])))
_OF_THE_PROCESS = re.compile(r"#.*|___torch_mangle_\d+\.?")  # in code of torch.jit: places in files, numbers of classes
_SLOT = types.MemberDescriptorType
_BUILT_IN = ("built-in", "frozen")
_OF_EVERY_CLASS = (  # decides nothing, or is filled in by Python while the class is used
    " __module__ __dict__ __weakref__ __doc__ __qualname__ __firstlineno__ __static_attributes__ __annotations__ "
    " __annotate__ __annotate_func__ __annotations_cache__ __abstractmethods__ _abc_impl __dataclass_fields__ "
    " __parameters__ __slotnames__ _value2member_map_ "
)
_LATER_BASES = {"honestdp.optimizers.rule.FixedClip"}  # which checkpoints of before it was there do not know


@dataclass(frozen=True)
class Identity:
    """digest: equal for equal code. unseen: names of what the digest does not see into."""

    digest: str
    unseen: tuple[str, ...] = ()
    globals: Mapping[str, str] = field(default_factory=dict)
    """Digests of the data that the code reads as globals, by name, where they are kept apart."""

    @property
    def whole(self) -> str:
        """One digest of the code and of its globals."""
        return hashlib.sha256(repr((self.digest, sorted(self.globals.items()))).encode()).hexdigest()[:32]

    def named(self, whose: str) -> dict[str, str]:
        """The digests of the code and of each of its globals. whose: in words, such as "the model's code"."""
        return {whose: self.digest, **{f"the global {name!r} of {whose}": one for name, one in self.globals.items()}}


def identity(*things: Any, values: bool = False, besides: Iterable[torch.Tensor] = (), apart: bool = False) -> Identity:
    """What the given things are. values: with the numbers in arrays and tensors, but for the tensors `besides`.

    apart: data that functions read as globals are kept by name, without those that the functions write.
    """
    walk = _Walk(values, list(besides), apart=_Apart() if apart else None)
    for thing in things:
        walk.see(thing)
    found = {} if walk.apart is None else walk.apart.found()
    return Identity(walk.digest.hexdigest()[:32], tuple(sorted(walk.unseen)), found)


@dataclass
class _Apart:
    """Globals that hold data, by module and name: their digests, and which of them the code writes."""

    read: dict[tuple[str, str], str] = field(default_factory=dict)
    written: set[tuple[str, str]] = field(default_factory=set)

    def found(self) -> dict[str, str]:
        return {name: one for (module, name), one in sorted(self.read.items()) if (module, name) not in self.written}


class _Walk:  # goes through everything once, and takes down what it meets in order
    def __init__(
        self, values: bool, besides: list[torch.Tensor], outer: _Walk | None = None, apart: _Apart | None = None
    ) -> None:
        self.apart: _Apart | None = apart if outer is None else outer.apart
        self.digest, self.unseen, self._values, self._besides = hashlib.sha256(), set[str](), values, besides
        # The things themselves too, so that no number is used twice; modules by name, with the names used.
        self._met: dict[int, tuple[int, Any]] = dict(outer._met) if outer else {}
        self._modules: set[tuple[str, frozenset[str] | None]] = set(outer._modules) if outer else set()
        self._packaged: bool = outer is not None and outer._packaged  # whether within the state of a package's object

    def see(self, thing: Any, names: frozenset[str] | None = None) -> None:
        """names: those that the code which reaches the thing makes use of, where they are known."""
        if isinstance(thing, types.ModuleType):
            return self._module(thing, names)
        if type(thing) is bytes and self._packaged:
            return self._array(np.frombuffer(thing, np.uint8))
        if type(thing) in _PLAIN or isinstance(thing, _PLAIN_KINDS):
            return self._note("plain", type(thing).__name__, repr(thing))
        if id(thing) in self._met:
            return self._note("again", str(self._met[id(thing)][0]))
        self._met[id(thing)] = len(self._met), thing
        if type(thing) in (tuple, list, dict):
            return self._all(type(thing).__name__, thing)
        return next((way for kinds, way in self._ways() if isinstance(thing, kinds)), self._object)(thing)

    def _ways(self) -> Iterable[tuple[Any, Callable[[Any], None]]]:
        return (
            (_RAW, self._array),
            (types.FunctionType, self._function),
            (types.MethodType, lambda one: self._all("method", [one.__func__, one.__self__])),
            (types.CodeType, self._code),
            (type, self._class),
            ((staticmethod, classmethod), lambda one: self._all("wrapped", [one.__func__])),
            (property, lambda one: self._all("property", [one.fget, one.fset, one.fdel])),
            (types.MappingProxyType, lambda one: self._all("mapping", one)),
            ((set, frozenset), self._set),
            (types.CellType, lambda one: self._all("cell", [] if one == types.CellType() else [one.cell_contents])),
            (enum.Enum, lambda one: self._all("enum", [type(one), one.name, one.value])),
            ((_SLOT, types.GetSetDescriptorType), lambda one: self._note("slot", one.__name__)),
            (type(functools.cache(len)), lambda one: self._all("cached", vars(one))),
            (_ROUTINES, self._routine),
            ((type(threading.Lock()), type(threading.RLock())), lambda one: self._note("lock")),
            (torch.jit.ScriptModule, self._script),
            (torch.jit.ScriptFunction, lambda one: self._note(_OF_THE_PROCESS.sub("", str(one.inlined_graph)))),
        )

    def _note(self, *words: str) -> None:
        for word in words:
            self.digest.update(f"{len(word)} {word}".encode(errors="surrogatepass"))

    def _all(self, kind: str, things: Iterable[Any]) -> None:
        every = [part for pair in things.items() for part in pair] if isinstance(things, Mapping) else list(things)
        self._note(kind, str(len(every)))
        for one in every:
            self.see(one)

    def _set(self, own: set[Any] | frozenset[Any]) -> None:
        """In the order of the digests of its members, for its own differs between processes."""
        members = [_Walk(self._values, self._besides, self) for _ in own]
        for member, one in zip(members, own, strict=True):
            member.see(one)
            self.unseen |= member.unseen
        self._note("set", *sorted(member.digest.hexdigest() for member in members))
        if type(own) not in (set, frozenset):
            self._all("kind", [type(own), _attributes(own)])

    def _array(self, own: Any) -> None:
        tensor = isinstance(own, torch.Tensor)
        numbers = own if tensor or isinstance(own, np.ndarray | np.generic) else np.asarray(own)
        self._note("array", str(numbers.dtype), str(tuple(numbers.shape)))
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
        if installed(function.__module__, function.__code__.co_filename):
            module = function.__globals__.get("__name__", "")  # not __module__: a decorator borrows that
            self._note("named", module, function.__code__.co_qualname, self._version(module.split(".")[0]))
            dispatch = module == "functools" and hasattr(function, "registry")  # the rest of which is a cache
            held = [vars(function)["registry"]] if dispatch else [function.__closure__, vars(function)]
            return self._all("holds", held)
        self._code(function.__code__)
        self._all("defaults", [function.__defaults__, function.__kwdefaults__, function.__closure__, vars(function)])
        names = frozenset(name for code in codes(function.__code__) for name in code.co_names)
        module = str(function.__globals__.get("__name__", ""))
        if self.apart is not None:
            self.apart.written |= {(module, name) for name in _written(function.__code__)}
        for name in sorted(names & function.__globals__.keys()):
            self._note("global", name)
            self._global(module, name, function.__globals__[name], names)
        package = function.__globals__.get("__package__")
        for name, taken in sorted({one for code in codes(function.__code__) for one in _imports(code, package)}):
            self._import(name, taken, names)

    def _global(self, module: str, name: str, value: Any, names: frozenset[str]) -> None:
        if self.apart is None or isinstance(value, types.ModuleType | _SLOT) or callable(value):
            return self.see(value, names)
        if (module, name) not in self.apart.read:
            self.apart.read[module, name] = ""  # a value may lead back to it
            inner = _Walk(self._values, self._besides, self)
            inner.see(value)
            self.unseen |= inner.unseen
            self.apart.read[module, name] = inner.digest.hexdigest()[:32]

    def _import(self, name: str, taken: tuple[str, ...], names: frozenset[str]) -> None:
        """A module that a function imports when it is called. One of the user's own is imported now, as the call would."""
        self._note("import", name, *taken)
        top = name.split(".")[0]
        found = sys.modules.get(top) or importlib.util.find_spec(top)
        where = getattr(found, "__file__", None) or getattr(found, "origin", None)
        if found is None or where in _BUILT_IN or installed(top, where):
            return self._note("absent" if found is None else self._version(top))
        try:
            __import__(name, fromlist=taken)
        except Exception:  # the function may expect it, or never come so far
            self.unseen.add(name)
        else:
            self._module(sys.modules[name], names)

    def _module(self, module: types.ModuleType, names: frozenset[str] | None) -> None:
        """A module with those of its names that are used, or all of them where nobody knows which."""
        name, file = module.__name__, getattr(module, "__file__", None)
        self._note("module", name, self._version(name.split(".")[0]) if installed(name, file) else "")
        if installed(name, file) or (name, names) in self._modules:
            return
        self._modules.add((name, names))
        if file and Path(file).is_file():
            self._note(hashlib.sha256(Path(file).read_bytes()).hexdigest())
        for inner, value in sorted(vars(module).items()):
            if inner == "__getattr__" or (inner in names if names is not None else not inner.startswith("__")):
                self._note(inner)
                self.see(value, names)

    def _code(self, code: types.CodeType) -> None:
        self._note("code", code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), repr(code.co_freevars))
        outer, self._packaged = self._packaged, False
        self._all("constants", code.co_consts)
        self._packaged = outer

    def _class(self, own: type) -> None:
        if type(own) is not type:
            self.see(type(own))
        for one in own.__mro__:
            known = installed(one.__module__)
            if known and installed(own.__module__) and f"{one.__module__}.{one.__qualname__}" in _LATER_BASES:
                continue
            own_names = {} if known else {n: v for n, v in sorted(vars(one).items()) if f" {n} " not in _OF_EVERY_CLASS}
            self._named(one) if known else self._all(f"class {one.__qualname__}", own_names)

    def _script(self, script: Any) -> None:
        """Of every layer the code of its methods, their constants, and the attributes that they name."""
        for name, layer in script.named_modules():
            for method in sorted(layer._c._method_names()):
                code, constants = layer._c._get_method(method).code_with_constants
                named = sorted(one for one in set(re.findall(r"\.(\w+)", code)) if layer._c.hasattr(one))
                self._note("script", name, method, _OF_THE_PROCESS.sub("", code), str(layer.training), *named)
                self._all("constants", [constants[key] for key in sorted(constants)])
                held = [getattr(layer, one) for one in named]
                self._all("attributes", [one for one in held if not isinstance(one, torch.nn.Module)])

    def _object(self, thing: Any) -> None:
        """Its class and its state. That of a package's object is what pickle would write, for the rest (caches, handlers of a
        logger) differs from one process to the next; of the user's own every attribute and slot counts, pickled or not.
        """
        self._all("object", [type(thing)])
        own = not installed(type(thing).__module__)
        if own or callable(thing):
            self._all("attributes", _attributes(thing))
        state = _pickled(thing)
        if state is None:
            self.unseen.add(f"{type(thing).__module__}.{type(thing).__qualname__}")
        outer, self._packaged = self._packaged, not own
        self.see(state)
        self._packaged = outer

    def _routine(self, routine: Any) -> None:
        self._named(routine)
        if getattr(routine, "__module__", None) is None:  # a method, of a list or a tensor
            self.see(getattr(routine, "__self__", None))

    def _named(self, thing: Any) -> None:
        """What is known by name alone: of an installed package with its version, else unseen."""
        kind = thing if hasattr(thing, "__qualname__") else type(thing)
        module = getattr(kind, "__module__", None)
        module = module if module and isinstance(module, str) else "builtins"
        self._note("named", module, kind.__qualname__, self._version(module.split(".")[0]))
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
    members = [name for name, one in every if isinstance(one, _SLOT) and not name.endswith("offset__")]
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
    inner = [codes(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return [code, *(one for several in inner for one in several)]


_CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "subtract", "update",
}  # fmt: skip
"""Methods by which lists, dictionaries, sets and counters are written to."""


def _written(code: types.CodeType) -> set[str]:
    """Globals that the code assigns or writes into: `CALLS += 1`, `CACHE[n] = ...`, `SEEN.add(...)`.

    Whose item is assigned is followed through the stack of the interpreter, as far as there is no jump between.
    """
    found: set[str] = set()
    for one in codes(code):
        stack: list[str | None] = []
        for step in dis.get_instructions(one):
            holder = stack[-1] if stack else None
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                found.add(step.argval)
            elif step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
                found.update(name for name in stack[-2:-1] if name is not None)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and holder is not None and step.argval in _CHANGES:
                found.add(holder)
            _follow(stack, step)
    return found


def _follow(stack: list[str | None], step: dis.Instruction) -> None:
    """The stack after an instruction: names of globals where they lie bare, None for everything else."""
    if step.opname == "COPY":
        return stack.append(stack[-step.arg] if step.arg and step.arg <= len(stack) else None)
    if step.opname == "SWAP" and step.arg and step.arg <= len(stack):
        stack[-1], stack[-step.arg] = stack[-step.arg], stack[-1]
        return
    jumps = None if step.opcode not in dis.hasjrel + dis.hasjabs else False
    change = dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=jumps)
    replaced = step.opname.startswith(
        ("LOAD_ATTR", "LOAD_METHOD", "UNARY", "GET_", "BINARY", "COMPARE", "CALL", "FORMAT")
    )
    taken = max(0, -change) + (1 if replaced or (change < 0 and step.opname.startswith("BUILD")) else 0)
    del stack[max(0, len(stack) - taken) :]
    stack.extend([None] * (change + taken))
    if step.opname == "LOAD_GLOBAL" and stack:
        stack[-1] = step.argval


def _imports(code: types.CodeType, package: str | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Modules that the code imports, each with the names it takes from it."""
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
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
