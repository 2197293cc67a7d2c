"""Records that cry out: a watch over everything computed from them, and over the frames in which that is touched.

Every tensor computed from a record is marked, through every operation of torch, until noise is added to it by the one function
that does so. It is a cry when a marked tensor is touched in a frame of honestdp outside the boundary, when a function of the
boundary returns one to a caller outside it, and when one is turned into a number of Python anywhere but in the places listed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any

import pytest
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from honestdp.boundary import release
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import Intake
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.scores import ScoreDoor

TOOLS = ("honestdp.gradients", "honestdp.kernels", "honestdp.losses")
INSIDE = ("honestdp.boundary", *TOOLS)
CLOSED = (PrivateData, Intake, Mechanism, ScoreDoor)
"""Objects with records behind them. That they give none out is for the other tests."""
SHAPES_ONLY = ("new_", "zeros_like", "empty_like", "ones_like", "full_like", "rand_like")
METADATA = frozenset(
    {
        "__get__", "__hash__", "__len__", "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
        "is_floating_point", "is_same_size", "ndimension", "nelement", "numel", "size", "storage_offset", "stride", "type",
        "untyped_storage",
    }
)  # fmt: skip
"""What tells of a tensor without reading it."""
SIZES = frozenset({"argwhere", "masked_select", "nonzero", "unique", "unique_consecutive"})
"""What makes a shape of values."""
WAYS_OUT = frozenset(
    {
        ("honestdp.boundary.scores", "_noisy"),
        ("honestdp.boundary.rounding", "noisy"),
        ("honestdp.boundary.layouts", "blocks"),
    }
)
"""Where a number of Python is made from records: with noise in it, or for a secret fingerprint."""


class CriedOut(AssertionError):
    """A record was touched, or left."""


class Watch(TorchDispatchMode):
    """Marks what is computed from records."""

    def __init__(self, *records: Tensor) -> None:
        super().__init__()
        self._marked: dict[int, Any] = {}
        self.touched: set[str] = set()
        self.cries: list[str] = []
        for one in records:
            self.mark(one)

    def mark(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._marked[storage._cdata] = storage  # kept: its number must not be used again

    def clear(self, tensor: Tensor) -> None:
        self._marked.pop(tensor.untyped_storage()._cdata, None)

    def is_marked(self, thing: Any) -> bool:
        if not isinstance(thing, Tensor):
            return False
        try:
            return thing.untyped_storage()._cdata in self._marked
        except (NotImplementedError, RuntimeError):  # a wrapper of torch.func, whose inside the dispatcher sees
            return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if any(self.is_marked(one) for one in tree_leaves((args, kwargs))):
            self.touch(func)
            if not func._schema.name.removeprefix("aten::").startswith(SHAPES_ONLY):
                written = [
                    one
                    for one, about in zip(args, func._schema.arguments, strict=False)
                    if about.alias_info is not None and about.alias_info.is_write
                ]
                for one in tree_leaves((result, written)):
                    if isinstance(one, Tensor):
                        self.mark(one)
        return result

    def touch(self, func: Any) -> None:
        frame = nearest(sys._getframe(2))
        if frame is None:
            return
        module = frame.f_globals["__name__"]
        self.touched.add(module)
        if not module.startswith(INSIDE):
            self.cries.append(f"{func} touches a record in {module}, line {frame.f_lineno}")

    def leave(self, function: Any, value: Any) -> None:
        """Called when a function of the boundary returns."""
        caller = nearest(sys._getframe(2))
        if caller is not None and not caller.f_globals["__name__"].startswith(INSIDE) and holds(self, value):
            where = f"{function.__module__}.{function.__qualname__}"
            self.cries.append(f"{where} returns a record to {caller.f_globals['__name__']}")


class Calls(TorchFunctionMode):
    """Watches what the dispatcher does not see: tensors that become something of Python. Denied by default."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        if _tells(func, value) and any(self._watch.is_marked(one) for one in tree_leaves((args, kwargs))):
            frame = nearest(sys._getframe(1))
            where = ("", "") if frame is None else (frame.f_globals["__name__"], frame.f_code.co_name)
            if not where[0].startswith(TOOLS) and frame is not None and where not in WAYS_OUT:
                self._watch.cries.append(f"a record becomes a number in {'.'.join(where)}")
        return value


def _tells(func: Any, value: Any) -> bool:
    """Whether a function of torch gives something else than tensors: a number, a text, an array, or a shape of values."""
    name = getattr(func, "__name__", "")
    return name in SIZES or (
        name not in METADATA and any(not isinstance(one, Tensor | None) for one in tree_leaves(value))
    )


def nearest(frame: FrameType | None) -> FrameType | None:
    """The frame of honestdp in which something happens: torch's own and a user's are passed over."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith("honestdp."):
        frame = frame.f_back
    return frame


def holds(watch: Watch, thing: Any, depth: int = 4) -> bool:
    """Whether something that is returned holds a marked tensor."""
    if isinstance(thing, Tensor):
        return watch.is_marked(thing)
    if depth == 0 or isinstance(thing, (CLOSED, str, bytes, int, float, type(None), type)):
        return False
    if isinstance(thing, dict):
        return any(holds(watch, one, depth - 1) for one in thing.values())
    if isinstance(thing, tuple | list | set):
        return any(holds(watch, one, depth - 1) for one in thing)
    if is_dataclass(thing):
        return any(holds(watch, getattr(thing, field.name), depth - 1) for field in fields(thing))
    return any(holds(watch, one, depth - 1) for one in vars(thing).values()) if hasattr(thing, "__dict__") else False


@contextmanager
def crying(*records: Tensor) -> Iterator[Watch]:
    """Within, these records and what is computed from them are watched; at the end the first cry is raised."""
    watch = Watch(*records)
    noisy = release.noisy

    def declassified(*args: Any, **named: Any) -> Tensor:
        answer = noisy(*args, **named)
        watch.clear(answer)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "noisy", declassified)
        _watch_returns(patch, watch)
        _watch_threads(patch, watch)
        try:
            with watch, Calls(watch):
                yield watch
        finally:
            if watch.cries:
                raise CriedOut(watch.cries[0])


def _watch_threads(patch: pytest.MonkeyPatch, watch: Watch) -> None:
    """What torch does in another thread is not watched, so that honestdp may start none while it has records at hand."""
    start = threading.Thread.start

    def watched(thread: threading.Thread) -> None:
        caller = sys._getframe(1)
        if str(caller.f_globals.get("__name__")).startswith(INSIDE):
            watch.cries.append(f"{caller.f_globals['__name__']} starts a thread")
        start(thread)

    patch.setattr(threading.Thread, "start", watched)


def _watch_returns(patch: pytest.MonkeyPatch, watch: Watch) -> None:
    """Every function of the boundary, wherever its name has been imported to."""

    def watched(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            value = function(*args, **named)
            watch.leave(function, value)
            return value

        return call

    loaded = [module for name, module in sys.modules.items() if name.startswith("honestdp.")]
    for module in loaded:
        for name, thing in list(vars(module).items()):
            home = str(getattr(thing, "__module__", ""))
            if inspect.isfunction(thing) and home.startswith("honestdp.boundary"):
                patch.setattr(module, name, watched(thing))
            elif inspect.isclass(thing) and home == module.__name__ and home.startswith("honestdp.boundary"):
                for method, own in list(vars(thing).items()):
                    if inspect.isfunction(own):
                        patch.setattr(thing, method, watched(own))


def planted(patch: pytest.MonkeyPatch, module: Any, owner: Any, name: str, before: str, after: str) -> None:
    """A function of the boundary with other text in it, as if its file said so."""
    source = textwrap.dedent(inspect.getsource(vars(owner)[name]))
    assert before in source, source
    space: dict[str, Any] = {}
    exec(compile(source.replace(before, after), module.__file__, "exec"), module.__dict__, space)
    patch.setattr(owner, name, space[name])
