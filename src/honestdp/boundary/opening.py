"""Records from what a user has."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from honestdp.boundary.decoding import DatasetRecords
from honestdp.boundary.records import DeviceRecords, HostRecords, Records
from honestdp.checks import InvalidArgument


def open_records(data: Any, *, device: torch.device, dtype: torch.dtype, workers: int) -> Records:
    """Records from what a user has: (x, y) of tensors, arrays or memory-mapped arrays, or a map-style Dataset."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if isinstance(data, tuple | list) and len(data) == 2:
        return _open_pair(data[0], data[1], device, dtype)
    plain = isinstance(data, Tensor | np.ndarray | dict | str | tuple | list) or hasattr(data, "columns")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not plain:
        return DatasetRecords(data, device=device, dtype=dtype, workers=workers)
    raise InvalidArgument("data", type(data).__name__, "a pair (x, y) of tensors or arrays, or a map-style Dataset")


def _open_pair(x: Any, y: Any, device: torch.device, dtype: torch.dtype) -> Records:
    x, y = _native("data[0]", x), _native("data[1]", y)
    if len(x) != len(y):
        raise InvalidArgument("data", f"{len(x)} inputs and {len(y)} labels", "one label for each input")
    if isinstance(x, np.memmap) or _too_large(x, device):
        return HostRecords(x, y, device=device, dtype=dtype)
    return DeviceRecords(_tensor_of(x), _tensor_of(y), device=device, dtype=dtype)


def _native(name: str, values: Any) -> Any:
    """A tensor as it is, anything else as an array that torch reads: numbers, in this machine's byte order."""
    if isinstance(values, Tensor):
        if values.is_complex() or values.dim() == 0:
            raise InvalidArgument(name, f"a tensor of {values.dtype}", "an array or a tensor of real numbers")
        return values
    array = np.asanyarray(values)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise InvalidArgument(name, f"{type(values).__name__} of {array.dtype}", "an array or a tensor of numbers")
    if array.dtype in (np.uint16, np.uint32, np.uint64) and not isinstance(array, np.memmap):
        return array.astype(np.int64)
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return array if min(array.strides) >= 0 else array.copy()


def _tensor_of(values: Any) -> Tensor:
    """A tensor over the same memory where that is possible (a read-only array is copied)."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _too_large(x: Any, device: torch.device) -> bool:
    """More than half of a GPU's free memory stays on the host."""
    return device.type == "cuda" and x.nbytes > torch.cuda.mem_get_info(device)[0] // 2
