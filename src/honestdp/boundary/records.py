"""Records as the mechanism reads them: by number, a lot at a time.

Three homes for records: on the device (tensors and arrays that fit), in host memory or a file (memory-mapped arrays),
and behind a map-style Dataset decoded by worker processes (decoding.py). Whatever the home, the numbers to fetch were
drawn by the sampler; nothing here chooses, orders or counts records.

The inputs x of a record are one tensor, or several in a tuple or a dict (`gradients/inputs.py`), and so are its labels y. One
tensor of images kept as uint8 stays uint8 until a lot is gathered and is then scaled to [0, 1], and one of bools becomes
floating; of several inputs whole numbers and bools (token numbers, masks) pass unchanged, since each of them may mean another
thing. Floating data takes the model's precision, and other integers pass unchanged, always.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import kernels
from honestdp.augment import Augmentation, blank_variants
from honestdp.boundary.seed import Seed
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs

Pair = tuple[Inputs, Inputs]
PIXEL = 1 / 255


class Fetched(NamedTuple):
    """x, y: `[runs, lot, ...]`. norms: `[runs, lot]`, the norm of each x, where it came free with the fetch.

    shares: `[runs, lot, rows]` where a record is a person; x, y and norms are then of their rows, `[runs, lot * rows]`.
    """

    x: Inputs
    y: Inputs
    norms: Tensor | None = None
    shares: Tensor | None = None


class Examples(NamedTuple):
    """Some of a step's lot. x, y: `[runs, width, ...]`. present: `[runs, width]`, 1 for members and 0 for padding.

    finite: whether x is known to hold finite numbers only, as whole numbers do. norms: `[runs, width]` of x, where known.
    shares: `[runs, width, rows]` where members are people; x, y and norms are then of their rows, `[runs, width * rows]`.
    """

    x: Inputs
    y: Inputs
    present: Tensor
    finite: bool = False
    norms: Tensor | None = None
    shares: Tensor | None = None


class Records:
    """N records that can be fetched by number: here arrays or tensors, in memory or in a file."""

    resident = False
    """True where a fetch is device work alone, so that it can be captured."""
    finite = False
    """True where inputs are known to hold finite numbers only."""
    augment: Augmentation | None = None
    """How the records of a lot are to be varied; `fetch` gives them as they are."""
    rows = 0
    """Of every record, where it is a person: the cap. 0 where a row is the record."""

    def __init__(self, x: Any, y: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        self._x, self._y, self._device, self._dtype = x, y, device, dtype

    def __len__(self) -> int:
        return len(inputs.first(self._y))

    def drawn(self, seed: Seed) -> Records:
        """The same once it is drawn which rows of people count, where that is not so yet."""
        return self

    def fetch(self, indices: Tensor) -> Fetched:
        """indices `[runs, lot]` -> the records, on the device."""
        raise NotImplementedError

    def blank(self, model: nn.Module) -> Pair:
        """Two made-up examples for the model of the records' shapes and kinds, on the device."""
        x, y = (inputs.each(self._none, part) for part in (self._x, self._y))
        x, y = two_blanks(model, x, y, self._dtype)
        return blank_variants(self.augment, x), y

    def _none(self, part: Any) -> Tensor:
        return as_tensor(part[:0]).to(self._device)

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        """The indices of coming fetches, in order, so that workers can decode ahead. seed: of what a Dataset draws meanwhile."""

    def close(self) -> None:
        """End the worker processes, if there are any. What is asked for later starts new ones."""


def prepared(x: Inputs, dtype: torch.dtype) -> Inputs:
    """Inputs as a model of precision `dtype` reads them."""
    if not isinstance(x, Tensor):
        several: Inputs = inputs.each(lambda part: part.to(dtype) if part.dtype.is_floating_point else part, x)
        return several
    if x.dtype == torch.uint8:
        # One kernel on a GPU where the product already has the model's precision; on a CPU two passes are faster.
        one_pass = x.is_cuda and dtype == torch.get_default_dtype()
        return x * PIXEL if one_pass else x.to(dtype).mul_(PIXEL)
    if x.dtype.is_floating_point or x.dtype == torch.bool:
        return x.to(dtype)
    return x


def prepared_labels(y: Inputs, dtype: torch.dtype) -> Inputs:
    """Labels as a loss reads them: whole numbers keep all of their digits."""
    labels: Inputs = inputs.each(lambda part: part.to(dtype) if part.dtype.is_floating_point else part.long(), y)
    return labels


def as_read(x: Inputs, y: Inputs, dtype: torch.dtype) -> Pair:
    """Inputs and labels as a model of precision `dtype` reads them."""
    return prepared(x, dtype), prepared_labels(y, dtype)


class DeviceRecords(Records):
    """Records held on the device."""

    resident = True

    def __init__(self, x: Inputs, y: Inputs, *, device: torch.device, dtype: torch.dtype) -> None:
        x, y = (inputs.each(lambda part: part.to(device).contiguous(), parts) for parts in (x, y))
        super().__init__(x, y, device=device, dtype=dtype)
        self.finite = not any(part.dtype.is_floating_point for part in inputs.leaves(x))
        known = isinstance(x, Tensor) and x.dtype in (torch.uint8, torch.float16, torch.float32) and x[:1].numel() > 0
        known = known and dtype == torch.float32 and isinstance(y, Tensor) and y.dim() == 1 and y.dtype != torch.bool
        self._kernels = kernels.on(device) if known else None

    def fetch(self, indices: Tensor) -> Fetched:
        flat = indices.reshape(-1)
        if self._kernels is None:
            x, y = (inputs.each(lambda part: part.index_select(0, flat), parts) for parts in (self._x, self._y))
            return shaped(x, y, indices, self._dtype)
        scale = PIXEL if self._x.dtype == torch.uint8 else 1.0
        x, y, norms = self._kernels.gather(self._x[..., None].flatten(1), self._y, flat, scale)
        x, y = _lots(x.view(-1, *self._x.shape[1:]), indices), _lots(y, indices)
        return Fetched(x, prepared_labels(y, self._dtype), norms.view(indices.shape))


class HostRecords(Records):
    """Records in host memory or in a memory-mapped file; only the lot travels."""

    def __init__(self, x: Any, y: Any, *, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(inputs.each(_array, x), inputs.each(_array, y), device=device, dtype=dtype)
        self.finite = all(part.dtype.kind in "biu" for part in inputs.leaves(self._x))

    def fetch(self, indices: Tensor) -> Fetched:
        flat = indices.reshape(-1).cpu().numpy()

        def rows(part: Any) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(part[flat])).to(self._device)

        return shaped(inputs.each(rows, self._x), inputs.each(rows, self._y), indices, self._dtype)


def _lots(rows: Tensor, indices: Tensor) -> Tensor:
    """Fetched rows `[runs * lot, ...]` as `[runs, lot, ...]`."""
    return rows.view(*indices.shape, *rows.shape[1:])


def shaped(x: Inputs, y: Inputs, indices: Tensor, dtype: torch.dtype) -> Fetched:
    """Fetched rows `[runs * lot, ...]` as the model reads them."""
    x, y = (inputs.each(lambda rows: _lots(rows, indices), parts) for parts in (x, y))
    return Fetched(*as_read(x, y, dtype))


def _array(values: Any) -> np.ndarray[Any, Any]:
    return values.numpy() if isinstance(values, Tensor) else np.asanyarray(values)


def as_tensor(values: Any) -> Tensor:
    """A tensor over the same memory where torch can have it: an array that is read-only or runs backwards is copied."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    return torch.from_numpy(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy())


def two_blanks(model: nn.Module, x: Inputs, y: Inputs, dtype: torch.dtype) -> Pair:
    """Two made-up examples for the model in the shape of those of x `[0, ...]` and y `[0, ...]`: zeros, and masks of ones."""
    return as_read(inputs.blank(model, x, 2), zeros_like(y, 2), dtype)


def zeros_like(y: Inputs, examples: int) -> Inputs:
    """So many labels of zeros in the shape of those of y `[n, ...]`."""
    zeros: Inputs = inputs.each(lambda part: part.new_zeros(examples, *part.shape[1:]), y)
    return zeros


class BlankRecords(Records):
    """Made-up records for timing, of the true ones' shapes, so that no record is read."""

    resident = True

    def __init__(self, like: Records, model: nn.Module, count: int) -> None:
        """count: how many there are to be, the declared number."""
        self._count, (self._x, self._y), self.finite, self.rows = count, like.blank(model), like.finite, like.rows

    def __len__(self) -> int:
        return self._count

    def fetch(self, indices: Tensor) -> Fetched:
        runs, lot = indices.shape

        def alike(part: Tensor) -> Tensor:
            return part[0].expand(runs, lot * max(1, self.rows), *part.shape[1:]).contiguous()

        shares = torch.full((runs, lot, self.rows), 1 / self.rows, device=indices.device) if self.rows else None
        return Fetched(inputs.each(alike, self._x), inputs.each(alike, self._y), shares=shares)

    def blank(self, model: nn.Module) -> Pair:
        return self._x, self._y
