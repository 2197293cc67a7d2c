"""Records as two sides, chosen by coins that depend on no record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from honestdp.boundary.decoding import decoded_once
from honestdp.boundary.records import prepared, prepared_labels
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument

Coins = np.ndarray[Any, np.dtype[np.bool_]]


class _Rows(Dataset[Any]):
    """Arrays too large to copy, row by row."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.array(self._x[index]), np.array(self._y[index])


def as_pair(data: Any) -> tuple[Any, Any] | None:
    """(x, y) where the data are arrays or tensors, None where they are a Dataset."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors[0], data.tensors[1]
    if isinstance(data, tuple | list) and len(data) == 2:
        x, y = (part if hasattr(part, "dtype") else np.asarray(part) for part in data)
        return x, y
    return None


def count(data: Any) -> int:
    """How many records there are: their number, which no record is read for."""
    pair = as_pair(data)
    if pair is not None:
        x, y = pair
        if len(x) != len(y):
            raise InvalidArgument("data", f"{len(x)} inputs and {len(y)} labels", "one label for each input")
        return len(x)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return len(data)
    raise InvalidArgument("data", type(data).__name__, "a pair (x, y) of tensors or arrays, or a map-style Dataset")


def coins(records: int, *, fraction: float, seed: int) -> Coins:
    """For each record whether its coin puts it on the validation side."""
    return np.random.default_rng(seed).random(records) < fraction


def split(data: Any, held_out: Coins) -> tuple[Any, Any]:
    """(training, validation): the records whose coin is false, and those whose coin is true."""
    pair = as_pair(data)
    sides = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if pair is not None and isinstance(pair[0], np.memmap):
        data, pair = _Rows(*pair), None
    if pair is None:
        return Subset(data, sides[0].tolist()), Subset(data, sides[1].tolist())
    x, y = pair
    return (_rows(x, sides[0]), _rows(y, sides[0])), (_rows(x, sides[1]), _rows(y, sides[1]))


def _rows(values: Any, side: np.ndarray[Any, Any]) -> Any:
    return values[torch.from_numpy(side).to(values.device)] if isinstance(values, Tensor) else values[side]


def gathered(data: Any, *, dtype: torch.dtype, device: torch.device, workers: int, seed: Seed) -> tuple[Tensor, Tensor]:
    """All records of one side as a model reads them, on the device. seed: of what a Dataset draws meanwhile."""
    pair = as_pair(data)
    if pair is not None:
        x, y = (torch.as_tensor(part).to(device) for part in pair)
        return prepared(x, dtype), prepared_labels(y, dtype)
    x, y = decoded_once(data, workers=workers, seed=seed)
    return prepared(x.to(device), dtype), prepared_labels(y.to(device), dtype)


def fingerprint(data: Any) -> str:
    """A hash of records in memory, so that a search does not go on with others. As secret as the records."""
    digest = hashlib.sha256(str(count(data)).encode())
    for part in as_pair(data) or ():
        if not isinstance(part, np.memmap):  # on a disk, and too large to read for this
            for block in _blocks(part):
                digest.update(block)
    return digest.hexdigest()


def _blocks(values: Any) -> Iterator[bytes]:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    for first in range(0, len(array), 65536):
        yield np.ascontiguousarray(array[first : first + 65536]).tobytes()
