"""Detects code whose control flow or shapes depend on the values of tensors.

Such code would choose once for a whole lot, by the numbers of all its examples, so that one example could decide how another
is computed. Where `Reads` has seen it, every example is shown to the code by itself.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_OUT = {
    "numpy", "tolist", "__array__", "__dlpack__", "untyped_storage", "storage", "data_ptr", "__contains__", "__format__",
}  # fmt: skip
_INDEXED = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default}
_NUMBER, _SHAPE = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations whose result is a number of Python's, or has a shape, that depends on what a tensor holds."""

    seen = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled within: else torch would import its compiler, for more than a second, at the first operation."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shaped = _SHAPE in func.tags and (func not in _INDEXED or _masked(args))
        self.seen = self.seen or shaped or _NUMBER in func.tags
        return func(*args, **(kwargs or {}))


def _masked(args: Any) -> bool:
    """Whether an indexing takes what a mask of True and False says."""
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])


class Reads(TorchFunctionMode):
    """Notes whether numbers of a tensor decided something in Python: a branch, a shape, what is computed elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._operations, self._out = _Operations(), False  # type: ignore[no-untyped-call]

    @property
    def seen(self) -> bool:
        return self._out or self._operations.seen

    def __enter__(self) -> Reads:
        self._operations.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *trouble: Any) -> None:
        super().__exit__(*trouble)  # type: ignore[no-untyped-call]
        self._operations.__exit__(*trouble)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self._out = self._out or (name in _OUT and not (name == "data_ptr" and _flattens_weights()))
        return func(*args, **(kwargs or {}))


def _flattens_weights() -> bool:
    """Whether torch's recurrent layers ask where their weights lie, as they do on a GPU whenever others are put in: that says
    nothing of the numbers in them.
    """
    frame = sys._getframe(2)
    callers = (frame, frame.f_back)  # a comprehension may be a frame of its own
    return any(caller is not None and caller.f_code is nn.RNNBase.flatten_parameters.__code__ for caller in callers)
