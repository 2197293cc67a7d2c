"""Records on their way to the nodes of a cluster: a header, and arrays beside it that processes read where they lie.

What travels are the two sides of a search's records, after the charge. Arrays and tensors are put beside the header as they
are, so that a node holds them once, however many of its processes train: these read the same memory, and cannot write to it. What
a Dataset holds besides, Python objects, every process has a copy of.
"""

from __future__ import annotations

import pickle
import warnings
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.data import PrivateData
from honestdp.boundary.layouts import native, on_disk
from honestdp.boundary.records import as_tensor
from honestdp.gradients import inputs

Array = np.ndarray[Any, Any]
Sides = tuple[PrivateData, PrivateData | None]


def packed(sides: Sides) -> tuple[bytes, list[Array]]:
    """(header, arrays of bytes) for `unpacked`. Raises whatever a Dataset that cannot travel leads to."""
    content, beside = BytesIO(), list[Array]()

    def aside(buffer: pickle.PickleBuffer) -> None:
        beside.append(np.frombuffer(buffer.raw(), np.uint8))

    _pickler()(content, protocol=5, buffer_callback=aside).dump(tuple(_as_tensors(side) for side in sides))
    return content.getvalue(), beside


def unpacked(header: bytes, beside: list[Array]) -> Sides:
    """The sides, over the memory of the arrays."""
    sides: Sides = pickle.loads(header, buffers=beside)
    return sides


def _as_tensors(side: PrivateData | None) -> PrivateData | None:
    """Arrays as the tensors that would be made of them anyhow: of an array that nobody may write to, torch would make a copy."""
    if side is None or side._pair is None or on_disk(side._pair[0]):
        return side
    x, y = (inputs.each(lambda part: as_tensor(native(part)), parts) for parts in side._pair)
    return side._over((x, y), side._people)


@cache
def _pickler() -> Any:
    """Ray's, which also takes functions and classes that no node can import; with tensors as arrays."""
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, thing: Any) -> Any:
            if type(thing) is Tensor and thing.layout == torch.strided and not thing.is_quantized:
                plain = thing.detach().cpu().resolve_conj().resolve_neg().contiguous()
                return _tensor, (plain.view(-1).view(torch.uint8).numpy(), thing.dtype, tuple(thing.shape))
            if type(thing) is np.memmap:
                return _mapped, (np.asarray(thing),)
            return super().reducer_override(thing)

    return Pickler


def _tensor(raw: Array, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not raw.size:
        return torch.empty(shape, dtype=dtype)
    with warnings.catch_warnings(action="ignore"):  # that nobody may write to it, and nobody does
        return torch.from_numpy(raw).view(dtype).view(shape)


def _mapped(array: Array) -> Any:
    """What was an array in a file still counts as one: a lot at a time is read from it."""
    return array.view(np.memmap)
