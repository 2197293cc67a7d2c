"""Records as the mechanism reads them: by number, a lot at a time.

Three homes for records: on the device (tensors and arrays that fit), in host memory or a file (memory-mapped arrays),
and behind a map-style Dataset decoded by worker processes (decoding.py). Whatever the home, the numbers to fetch were
drawn by the sampler; nothing here chooses, orders or counts records.

Images kept as uint8 stay uint8 until a lot is gathered and are then scaled to [0, 1]; floating data takes the model's
precision; other integers (token numbers) pass unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from honestdp import kernels
from honestdp.boundary.seed import Seed

Pair = tuple[Tensor, Tensor]
PIXEL = 1 / 255


class Fetched(NamedTuple):
    """x, y: `[runs, lot, ...]`. norms: `[runs, lot]`, the norm of each x, where it came free with the fetch."""

    x: Tensor
    y: Tensor
    norms: Tensor | None = None


class Records:
    """N records that can be fetched by number: here two arrays or tensors, in memory or in a file."""

    resident = False
    """True where a fetch is device work alone, so that it can be captured."""
    finite = False
    """True where inputs are known to hold finite numbers only."""

    def __init__(self, x: Any, y: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        self._x, self._y, self._device, self._dtype = x, y, device, dtype

    def __len__(self) -> int:
        return len(self._x)

    def fetch(self, indices: Tensor) -> Fetched:
        """indices `[runs, lot]` -> the records, on the device."""
        raise NotImplementedError

    def blank(self) -> Pair:
        """Two made-up examples of the records' shapes and kinds: zeros, on the device."""
        x, y = (as_tensor(part[:0]).to(self._device) for part in (self._x, self._y))
        return two_blanks(x, y, self._dtype)

    def label_range(self) -> tuple[int, int] | None:
        """The lowest and the highest of labels that are classes, or None where there is none. It may read every record."""
        return None if 0 in self._y.shape else (int(self._y.min()), int(self._y.max()))

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        """The indices of coming fetches, in order, so that workers can decode ahead. seed: of what a Dataset draws meanwhile."""

    def close(self) -> None:
        """End the worker processes, if there are any. What is asked for later starts new ones."""


def prepared(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Inputs as a model of precision `dtype` reads them."""
    if x.dtype == torch.uint8:
        # One kernel on a GPU where the product already has the model's precision; on a CPU two passes are faster.
        one_pass = x.is_cuda and dtype == torch.get_default_dtype()
        return x * PIXEL if one_pass else x.to(dtype).mul_(PIXEL)
    if x.dtype.is_floating_point or x.dtype == torch.bool:
        return x.to(dtype)
    return x


def prepared_labels(y: Tensor, dtype: torch.dtype) -> Tensor:
    return y.to(dtype) if y.dtype.is_floating_point else y.long()


def as_read(x: Tensor, y: Tensor, dtype: torch.dtype) -> Pair:
    """Inputs and labels as a model of precision `dtype` reads them."""
    return prepared(x, dtype), prepared_labels(y, dtype)


class DeviceRecords(Records):
    """Records held on the device."""

    resident = True

    def __init__(self, x: Tensor, y: Tensor, *, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(x.to(device).contiguous(), y.to(device).contiguous(), device=device, dtype=dtype)
        self.finite = not x.dtype.is_floating_point
        known = dtype == torch.float32 and x.dtype in (torch.uint8, torch.float16, torch.float32)
        known = known and y.dim() == 1 and y.dtype != torch.bool and x[:1].numel() > 0
        self._kernels = kernels.on(self._x.device) if known else None

    def fetch(self, indices: Tensor) -> Fetched:
        flat = indices.reshape(-1)
        if self._kernels is None:
            return shaped(self._x.index_select(0, flat), self._y.index_select(0, flat), indices, self._dtype)
        scale = PIXEL if self._x.dtype == torch.uint8 else 1.0
        x, y, norms = self._kernels.gather(self._x.flatten(1), self._y, flat, scale)
        x, y = _lots(x.view(-1, *self._x.shape[1:]), indices), _lots(y, indices)
        return Fetched(x, prepared_labels(y, self._dtype), norms.view(indices.shape))


class HostRecords(Records):
    """Records in host memory or in a memory-mapped file; only the lot travels."""

    def __init__(self, x: Any, y: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(_array(x), _array(y), device=device, dtype=dtype)
        self.finite = self._x.dtype.kind in "biu"

    def fetch(self, indices: Tensor) -> Fetched:
        flat = indices.reshape(-1).cpu().numpy()
        rows = (np.ascontiguousarray(part[flat]) for part in (self._x, self._y))
        x, y = (torch.from_numpy(part).to(self._device) for part in rows)
        return shaped(x, y, indices, self._dtype)


def _lots(rows: Tensor, indices: Tensor) -> Tensor:
    """Fetched rows `[runs * lot, ...]` as `[runs, lot, ...]`."""
    return rows.view(*indices.shape, *rows.shape[1:])


def shaped(x: Tensor, y: Tensor, indices: Tensor, dtype: torch.dtype) -> Fetched:
    """Fetched rows `[runs * lot, ...]` as the model reads them."""
    return Fetched(*as_read(_lots(x, indices), _lots(y, indices), dtype))


def _array(values: Any) -> np.ndarray[Any, Any]:
    return values.numpy() if isinstance(values, Tensor) else np.asanyarray(values)


def as_tensor(values: Any) -> Tensor:
    """A tensor over the same memory where torch can have it: an array that is read-only or runs backwards is copied."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy())


def two_blanks(x: Tensor, y: Tensor, dtype: torch.dtype) -> Pair:
    """Zeros in the shape of two examples of x `[0, ...]` and y `[0, ...]`."""
    return as_read(x.new_zeros(2, *x.shape[1:]), y.new_zeros(2, *y.shape[1:]), dtype)


class BlankRecords(Records):
    """Made-up records for timing: zeros of the true ones' shapes, so that no record is read."""

    resident = True

    def __init__(self, like: Records, count: int) -> None:
        """count: how many there are to be, the declared number."""
        self._count, (self._x, self._y), self.finite = count, like.blank(), like.finite

    def __len__(self) -> int:
        return self._count

    def fetch(self, indices: Tensor) -> Fetched:
        x, y = (part[0].expand(*indices.shape, *part.shape[1:]).contiguous() for part in (self._x, self._y))
        return Fetched(x, y)

    def blank(self) -> Pair:
        return self._x, self._y
