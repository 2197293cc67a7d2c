"""Records as the mechanism reads them: by number, a lot at a time.

Three homes for records: on the device (tensors and arrays that fit), in host memory or a file (memory-mapped arrays),
and behind a map-style Dataset decoded by worker processes. Whatever the home, the numbers to fetch were drawn by the
sampler; nothing here chooses, orders or counts records.

Images kept as uint8 stay uint8 until a lot is gathered and are then scaled to [0, 1]; floating data takes the model's
precision; other integers (token numbers) pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from honestdp import kernels
from honestdp.checks import InvalidArgument

Pair = tuple[Tensor, Tensor]
PIXEL = 1 / 255
_AHEAD = 64  # records that a worker decodes together when all are read once


class Fetched(NamedTuple):
    """x, y: `[runs, lot, ...]`. norms: `[runs, lot]`, the norm of each x, where it came free with the fetch."""

    x: Tensor
    y: Tensor
    norms: Tensor | None = None


class WorkerDied(RuntimeError):
    """A process that decodes a Dataset has ended; no record's fault need be behind it."""


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

    def expect(self, lots: list[Tensor]) -> None:
        """The indices of coming fetches, in order, so that workers can decode ahead."""


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
            return _shaped(self._x.index_select(0, flat), self._y.index_select(0, flat), indices, self._dtype)
        scale = PIXEL if self._x.dtype == torch.uint8 else 1.0
        x, y, norms = self._kernels.gather(self._x.flatten(1), self._y, flat, scale)
        x, y = _lots(x.view(-1, *self._x.shape[1:]), indices), _lots(y, indices)
        return Fetched(x, prepared_labels(y, self._dtype), norms.view(indices.shape))

    def blank(self) -> Pair:
        return _blank(self._x[:0], self._y[:0], self._dtype)

    def label_range(self) -> tuple[int, int] | None:
        return (int(self._y.min()), int(self._y.max())) if self._y.numel() else None

    def expect(self, lots: list[Tensor]) -> None:
        """Nothing to do: a fetch is immediate."""


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
        return _shaped(x, y, indices, self._dtype)

    def blank(self) -> Pair:
        return _blank(_tensor(self._x[:0]).to(self._device), _tensor(self._y[:0]).to(self._device), self._dtype)

    def label_range(self) -> tuple[int, int] | None:
        return (int(self._y.min()), int(self._y.max())) if self._y.size else None

    def expect(self, lots: list[Tensor]) -> None:
        """Nothing to do: a fetch is immediate."""


class DatasetRecords:
    """A map-style Dataset of (x, y) pairs, decoded by worker processes a block of steps ahead."""

    resident = False
    finite = False

    def __init__(self, dataset: Dataset[Any], *, device: torch.device, dtype: torch.dtype, workers: int) -> None:
        self._dataset, self._device, self._dtype = dataset, device, dtype
        self._order = _Order()
        self._loader: DataLoader[Any] = DataLoader(
            dataset, batch_sampler=self._order, num_workers=workers, persistent_workers=workers > 0
        )
        self._coming: Iterator[Any] | None = None

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def expect(self, lots: list[Tensor]) -> None:
        self._order.batches = [lot.reshape(-1).tolist() for lot in lots]
        self._coming = self._asked(iter, self._loader)

    def fetch(self, indices: Tensor) -> Fetched:
        if self._coming is None:
            raise RuntimeError("a fetch from a Dataset must be announced with expect()")
        x, y = self._asked(next, self._coming)
        return _shaped(torch.as_tensor(x).to(self._device), torch.as_tensor(y).to(self._device), indices, self._dtype)

    def blank(self) -> Pair:
        x, y = self._dataset[0]
        return _blank(_tensor(x)[None][:0].to(self._device), _tensor(y)[None][:0].to(self._device), self._dtype)

    def label_range(self) -> tuple[int, int] | None:
        every = torch.split(torch.arange(len(self)), _AHEAD)
        self.expect(list(every))
        labels = [torch.as_tensor(self._asked(next, self._coming)[1]) for _ in every]
        return (int(min(y.min() for y in labels)), int(max(y.max() for y in labels))) if labels else None

    def _asked(self, act: Any, of: Any) -> Any:
        try:
            return act(of)
        except RuntimeError as trouble:
            if not any(words in str(trouble) for words in ("exited unexpectedly", "killed by signal")):
                raise
            wanted = "run again, from a checkpoint if there is one, with workers=0 to see the error in this process"
            raise WorkerDied(
                f"a worker process of the Dataset died while decoding records ({trouble}); no step was released from "
                f"them; {wanted}"
            ) from trouble


class _Order:
    """The batches a DataLoader is to decode next."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _lots(rows: Tensor, indices: Tensor) -> Tensor:
    """Fetched rows `[runs * lot, ...]` as `[runs, lot, ...]`."""
    return rows.view(*indices.shape, *rows.shape[1:])


def _shaped(x: Tensor, y: Tensor, indices: Tensor, dtype: torch.dtype) -> Fetched:
    """Fetched rows `[runs * lot, ...]` as the model reads them."""
    return Fetched(prepared(_lots(x, indices), dtype), prepared_labels(_lots(y, indices), dtype))


def _array(values: Any) -> np.ndarray[Any, Any]:
    return values.numpy() if isinstance(values, Tensor) else np.asanyarray(values)


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values))


def _blank(x: Tensor, y: Tensor, dtype: torch.dtype) -> Pair:
    """Zeros in the shape of two examples of x `[0, ...]` and y `[0, ...]`."""
    two_x, two_y = x.new_zeros(2, *x.shape[1:]), y.new_zeros(2, *y.shape[1:])
    return prepared(two_x, dtype), prepared_labels(two_y, dtype)


def blank(x: Any, y: Any, *, dtype: torch.dtype, device: torch.device) -> Pair:
    """Two made-up examples from arrays or tensors x `[0, ...]` and y `[0, ...]`."""
    return _blank(_tensor(x).to(device), _tensor(y).to(device), dtype)


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


class BlankRecords:
    """Made-up records for timing: zeros of the true ones' shapes, so that no record is read."""

    resident = True

    def __init__(self, like: Records) -> None:
        self._like, (self._x, self._y) = like, like.blank()
        self.finite = like.finite

    def __len__(self) -> int:
        return len(self._like)

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

    def expect(self, lots: list[Tensor]) -> None:
        """Nothing to do."""
