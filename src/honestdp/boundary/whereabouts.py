"""Where records lie: enough to know the same data again, without reading a record or keeping one alive.

Two places that overlap, both of which are still held by somebody, are the same memory: no allocator gives it out twice. What
lies in a file is known by the file. No value is looked at: addresses, shapes and strides alone.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from honestdp.boundary.data import PrivateData
from honestdp.boundary.layouts import Unread
from honestdp.boundary.people import ByPerson

_FEW = 64  # parts that data may be made of; a longer list is one of records


@dataclass(frozen=True)
class Place:
    """Bytes from `start` up to `stop` of a memory or a file. held: by whom, None for a file."""

    space: str
    start: int
    stop: int
    held: weakref.ref[Any] | None = None

    def overlaps(self, other: Place) -> bool:
        apart = self.space != other.space or self.stop <= other.start or other.stop <= self.start
        return not apart and all(place.held is None or place.held() is not None for place in (self, other))


@dataclass(frozen=True)
class Whereabouts:
    """The places of one user's data."""

    places: tuple[Place, ...]

    def overlap(self, other: Whereabouts) -> bool:
        """Whether some of the memory, files or Datasets are the same."""
        return any(one.overlaps(another) for one in self.places for another in other.places)


def whereabouts(data: Any) -> Whereabouts:
    """Of records, or of data as `train` and `tune` take it. What cannot be placed, such as a list of numbers, is left out."""
    return Whereabouts(tuple(place for part in _parts(data) if (place := _place(part)) is not None))


def _parts(data: Any, depth: int = 4) -> Iterator[Any]:
    if isinstance(data, PrivateData):
        data = data._data
    if isinstance(data, ByPerson):
        data = data._data
    if isinstance(data, Unread):
        data = data.where
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, dict):
        data = tuple(data.values())
    if isinstance(data, tuple | list):
        for part in data if len(data) <= _FEW and depth else ():
            yield from _parts(part, depth - 1)
    else:
        yield data


def _place(part: Any) -> Place | None:
    try:
        if isinstance(part, Tensor):
            with torch._C.DisableTorchFunctionSubclass():  # a user's own kind of tensor need not know
                step, start = part.element_size(), part.data_ptr()
                reach = sum((size - 1) * stride * step for size, stride in zip(part.size(), part.stride(), strict=True))
                held = weakref.ref(part.untyped_storage())
                return Place(str(part.device), start, start + reach + step, held) if part.numel() else None
        if isinstance(part, Path):
            return Place(os.path.realpath(part), 0, part.stat().st_size)
        if isinstance(part, np.ndarray):
            return _of_array(part) if part.size else None
        return Place("object", id(part), id(part) + 1, weakref.ref(part))
    except (TypeError, RuntimeError, NotImplementedError, OSError):  # nothing to refer to, or no memory of its own
        return None


def _of_array(array: np.ndarray[Any, Any]) -> Place:
    (start, stop), root = np.lib.array_utils.byte_bounds(array), array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if isinstance(root, np.memmap) and root.filename is not None:
        shift = root.offset - root.__array_interface__["data"][0]
        return Place(os.path.realpath(root.filename), start + shift, stop + shift)
    return Place("cpu", start, stop, weakref.ref(root))
