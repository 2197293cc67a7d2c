"""Triton's interpreter with guarded memory: a kernel that reads or writes beyond a tensor that it was given is an error.

A GPU's allocator rounds sizes up and puts tensors side by side, so that a read beyond an end mostly finds other numbers and no
fault. Here every pointer carries, in bits that no address has, which argument of the kernel it came from: what is read or written
through it has to lie within that argument, and not in another one beside it. What a mask takes out is not looked at.

It needs Triton with TRITON_INTERPRET=1 in the environment before it is imported.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import triton.runtime.interpreter as interpreter
from torch import Tensor

_ADDRESS = np.uint64((1 << 48) - 1)
_TAG = np.uint64(48)
_ENDS = 2
"""Programs at either end of every dimension of a grid that are run where only its ends are."""


class OutsideError(Exception):
    """A kernel has read or written beyond an argument, which is named."""


class _Launch:
    """One launch of a kernel: the tensors that it was given, by name, and where they begin and end."""

    def __init__(self, kernel: str, given: dict[str, Tensor]) -> None:
        self.kernel, self.names = kernel, list(given)
        self._spans = np.array([(0, 0), *map(_span, given.values())], np.uint64)
        self.shapes = [tuple(value.shape) for value in given.values()]

    def checked(self, pointers: Any, mask: Any, what: str) -> Any:
        """The pointers without their tags, once each that is used has been found within its tensor."""
        tags = (pointers.data >> _TAG).astype(np.int64)
        address = pointers.data & _ADDRESS
        size = np.uint64(pointers.get_element_ty().primitive_bitwidth // 8 or 1)
        known = (tags > 0) & (tags < len(self._spans))
        spans = self._spans[np.where(known, tags, 0)]
        wrong = np.asarray(mask, bool) & ~(known & (address >= spans[..., 0]) & (address + size <= spans[..., 1]))
        if wrong.any():
            raise OutsideError(self._words(what, tags[wrong], address[wrong], int(size), int(wrong.sum())))
        return interpreter.TensorHandle(address, pointers.dtype)

    def _words(self, what: str, tags: Any, address: Any, size: int, count: int) -> str:
        tag = int(tags[0])
        if not 0 < tag < len(self._spans):
            return f"{self.kernel} {what} through a pointer that is none of its arguments"
        first, last = (int(edge) for edge in self._spans[tag])
        at = int(address[0])
        far = f"{(first - at) // size} before its first" if at < first else f"{(at - last) // size + 1} beyond its last"
        name, shape = self.names[tag - 1], self.shapes[tag - 1]
        return f"{self.kernel} {what} {name} {shape} {far} number ({count} places of a block)"


def _span(value: Tensor) -> tuple[int, int]:
    """Where the numbers of a tensor begin and end in memory; of one without numbers, nowhere."""
    if value.numel() == 0:
        return value.data_ptr(), value.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()


@contextmanager
def guarded(*, ends: bool = False) -> Iterator[Counter[str]]:
    """Within, every launch of a kernel is checked; which there were, by module and name.

    ends: run the programs at the ends of a grid alone, for sizes that would take the interpreter days. Of tensors of such sizes
    only those pages are in memory that these programs read or write.
    """
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    loads, stores, swap, change = (
        getattr(builder, f"create_{name}") for name in ("masked_load", "masked_store", "atomic_cas", "atomic_rmw")
    )
    launches: list[_Launch] = []
    counts: Counter[str] = Counter()

    def load(self: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        return loads(self, launches[-1].checked(pointers, mask.data, "reads"), mask, *others)

    def store(self: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        return stores(self, launches[-1].checked(pointers, mask.data, "writes"), value, mask, *others)

    def compare_and_swap(self: Any, pointers: Any, *others: Any) -> Any:
        return swap(self, launches[-1].checked(pointers, True, "swaps"), *others)

    def read_and_write(self: Any, kind: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        return change(self, kind, launches[-1].checked(pointers, mask.data, "changes"), value, mask, *others)

    def call(self: Any, *args: Any, **named: Any) -> None:
        named = {name: value for name, value in named.items() if name in inspect.getfullargspec(self.fn).args}
        given = inspect.getcallargs(self.fn, *args, **named)
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        launches.append(_Launch(self.fn.__name__, tensors))
        counts[f"{self.fn.__module__.rpartition('.')[2]}.{self.fn.__name__}"] += 1
        tags = {name: np.uint64(number) << _TAG for number, name in enumerate(tensors, 1)}
        scope = interpreter._patch_lang(self.fn)
        try:
            for name, value in given.items():
                if name not in self.constexprs:
                    given[name] = interpreter._implicit_cvt(value)
                if name in tags:
                    given[name].handle.data = given[name].handle.data | tags[name]
            _run(self, given, ends)
        finally:
            scope.restore()
            launches.pop()

    with ExitStack() as patches:
        for name, made in (
            ("masked_load", load), ("masked_store", store), ("atomic_cas", compare_and_swap), ("atomic_rmw", read_and_write),
        ):  # fmt: skip
            patches.enter_context(mock.patch.object(builder, f"create_{name}", made))
        patches.enter_context(mock.patch.object(executor, "__call__", call))
        yield counts


def _run(executor: Any, given: dict[str, Any], ends: bool) -> None:
    grid = (*executor.grid, 1, 1)[:3]
    interpreter.interpreter_builder.set_grid_dim(*grid)
    for place in product(*(_some(size) if ends else range(size) for size in grid)):
        interpreter.interpreter_builder.set_grid_idx(*place)
        try:
            executor.fn(**given)
        except interpreter.InterpreterError as trouble:
            raise _cause(trouble) from None


def _some(size: int) -> list[int]:
    return sorted({*range(min(size, _ENDS)), *range(max(0, size - _ENDS), size)})


def _cause(trouble: BaseException) -> BaseException:
    """What went wrong in a function that a kernel calls; the interpreter wraps it once for every call."""
    while isinstance(trouble, interpreter.InterpreterError) and trouble.__cause__ is not None:
        trouble = trouble.__cause__
    return trouble
