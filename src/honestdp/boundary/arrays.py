"""Arrays and tensors that a user's records lie in: which are taken, how torch reads them, where they are, and their words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.records import as_tensor
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs


def on_disk(x: Any) -> bool:
    return any(isinstance(part, np.memmap) for part in inputs.leaves(x))


def in_words(x: Any) -> str:
    """Shape and kind of what one record has."""
    if inputs.several(x):
        named = x.items() if isinstance(x, dict) else enumerate(x)
        return ", ".join(f"{name!r} {in_words(part)}" for name, part in named)
    return f"{list(x.shape[1:])} {x.dtype}"


def empty(part: Any) -> Tensor:
    """No record, of the shape and kind of these. A view of none of them would still be a way to their memory."""
    return as_tensor(native(part[:0])).new_empty(0, *part.shape[1:])


def is_dataset(data: Any) -> bool:
    plain = isinstance(data, Tensor | np.ndarray | dict | str | tuple | list) or hasattr(data, "columns")
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not plain


def as_numbers(name: str, values: Any) -> Any:
    """A tensor or an array of numbers."""
    if isinstance(values, Tensor):
        if values.dtype.is_complex or values.dim() == 0:
            raise InvalidArgument(name, f"a tensor of {values.dtype}", "an array or a tensor of real numbers")
        return values
    array = np.asanyarray(values)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise InvalidArgument(name, f"{type(values).__name__} of {array.dtype}", "an array or a tensor of numbers")
    return array


def native(array: Any) -> Any:
    """A tensor as it is, an array as torch reads it: in this machine's byte order, of a kind that torch has."""
    if isinstance(array, Tensor):
        return array
    if array.dtype in (np.uint16, np.uint32, np.uint64) and not isinstance(array, np.memmap):
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def too_large(x: Any, device: torch.device) -> bool:
    """More than half of a GPU's free memory stays on the host."""
    bytes_of_all = sum(part.nbytes for part in inputs.leaves(x))
    return device.type == "cuda" and bytes_of_all > torch.cuda.mem_get_info(device)[0] // 2


def blocks(values: Any) -> Iterator[bytes]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        unknown = values.is_floating_point() and values.dtype not in (torch.float16, torch.float32, torch.float64)
        values = (values.contiguous().view(torch.uint8) if unknown else values).numpy()  # numpy has no bfloat16
    array = np.asarray(values)
    for first in range(0, len(array), 65536):
        yield np.ascontiguousarray(array[first : first + 65536]).tobytes()
