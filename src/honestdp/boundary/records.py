"""Records as the mechanism reads them: by number, a lot at a time.

Three homes for records: on the device (tensors and arrays that fit), in host memory or a file (memory-mapped arrays),
and behind a map-style Dataset decoded by worker processes (decoded.py). Whatever the home, the numbers to fetch were
drawn by the sampler; nothing here chooses, orders or counts records.

Images kept as uint8 stay uint8 until a lot is gathered and are then scaled to [0, 1]; floating data takes the model's
precision; other integers (token numbers) pass unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

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


class Records(Protocol):
    """N records that can be fetched by number."""

    resident: bool
    """True where a fetch is device work alone, so that it can be captured."""

    finite: bool
    """True where inputs are known to hold finite numbers only."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Tensor) -> Fetched:
        """indices `[runs, lot]` -> the records, on the device."""

    def blank(self) -> Pair:
        """Two made-up examples of the records' shapes and kinds: zeros, on the device."""

    def label_range(self) -> tuple[int, int] | None:
        """The lowest and the highest of labels that are classes, or None where there is none. It may read every record."""

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


class DeviceRecords:
    """Records held on the device."""

    resident = True

    def __init__(self, x: Tensor, y: Tensor, *, device: torch.device, dtype: torch.dtype) -> None:
        self._x, self._y, self._dtype = x.to(device).contiguous(), y.to(device).contiguous(), dtype
        self.finite = not x.dtype.is_floating_point
        known = dtype == torch.float32 and x.dtype in (torch.uint8, torch.float16, torch.float32)
        known = known and y.dim() == 1 and y.dtype != torch.bool and x[:1].numel() > 0
        self._kernels = kernels.on(self._x.device) if known else None

    def __len__(self) -> int:
        return len(self._x)

    def fetch(self, indices: Tensor) -> Fetched:
        flat = indices.reshape(-1)
        if self._kernels is None:
            return shaped(self._x.index_select(0, flat), self._y.index_select(0, flat), indices, self._dtype)
        scale = PIXEL if self._x.dtype == torch.uint8 else 1.0
        x, y, norms = self._kernels.gather(self._x.flatten(1), self._y, flat, scale)
        x, y = _lots(x.view(-1, *self._x.shape[1:]), indices), _lots(y, indices)
        return Fetched(x, prepared_labels(y, self._dtype), norms.view(indices.shape))

    def blank(self) -> Pair:
        return two_blanks(self._x[:0], self._y[:0], self._dtype)

    def label_range(self) -> tuple[int, int] | None:
        return (int(self._y.min()), int(self._y.max())) if self._y.numel() else None

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        """Nothing to do: a fetch is immediate."""

    def close(self) -> None:
        """Nothing to do."""


class HostRecords:
    """Records in host memory or in a memory-mapped file; only the lot travels."""

    resident = False

    def __init__(self, x: Any, y: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        self._x, self._y, self._device, self._dtype = _array(x), _array(y), device, dtype
        self.finite = self._x.dtype.kind in "biu"

    def __len__(self) -> int:
        return len(self._x)

    def fetch(self, indices: Tensor) -> Fetched:
        flat = indices.reshape(-1).cpu().numpy()
        x = torch.from_numpy(np.ascontiguousarray(self._x[flat])).to(self._device)
        y = torch.from_numpy(np.ascontiguousarray(self._y[flat])).to(self._device)
        return shaped(x, y, indices, self._dtype)

    def blank(self) -> Pair:
        return two_blanks(as_tensor(self._x[:0]).to(self._device), as_tensor(self._y[:0]).to(self._device), self._dtype)

    def label_range(self) -> tuple[int, int] | None:
        return (int(self._y.min()), int(self._y.max())) if self._y.size else None

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        """Nothing to do: a fetch is immediate."""

    def close(self) -> None:
        """Nothing to do."""


def _lots(rows: Tensor, indices: Tensor) -> Tensor:
    """Fetched rows `[runs * lot, ...]` as `[runs, lot, ...]`."""
    return rows.view(*indices.shape, *rows.shape[1:])


def shaped(x: Tensor, y: Tensor, indices: Tensor, dtype: torch.dtype) -> Fetched:
    """Fetched rows `[runs * lot, ...]` as the model reads them."""
    return Fetched(prepared(_lots(x, indices), dtype), prepared_labels(_lots(y, indices), dtype))


def _array(values: Any) -> np.ndarray[Any, Any]:
    return values.numpy() if isinstance(values, Tensor) else np.asanyarray(values)


def as_tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values))


def two_blanks(x: Tensor, y: Tensor, dtype: torch.dtype) -> Pair:
    """Zeros in the shape of two examples of x `[0, ...]` and y `[0, ...]`."""
    two_x, two_y = x.new_zeros(2, *x.shape[1:]), y.new_zeros(2, *y.shape[1:])
    return prepared(two_x, dtype), prepared_labels(two_y, dtype)


def blank(x: Any, y: Any, *, dtype: torch.dtype, device: torch.device) -> Pair:
    """Two made-up examples from arrays or tensors x `[0, ...]` and y `[0, ...]`."""
    return two_blanks(as_tensor(x).to(device), as_tensor(y).to(device), dtype)


class BlankRecords:
    """Made-up records for timing: zeros of the true ones' shapes, so that no record is read."""

    resident = True

    def __init__(self, like: Records, count: int) -> None:
        """count: how many there are to be, the declared number."""
        self._count, (self._x, self._y) = count, like.blank()
        self.finite = like.finite

    def __len__(self) -> int:
        return self._count

    def fetch(self, indices: Tensor) -> Fetched:
        x, y = (
            self._x[0].expand(*indices.shape, *self._x.shape[1:]),
            self._y[0].expand(*indices.shape, *self._y.shape[1:]),
        )
        return Fetched(x.contiguous(), y.contiguous())

    def blank(self) -> Pair:
        return self._x, self._y

    def label_range(self) -> tuple[int, int] | None:
        return None

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""
