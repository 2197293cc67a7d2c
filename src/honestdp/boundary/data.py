"""`PrivateData`: a user's records behind one name, their public shapes, and their split into training and validation.

Two sides of the records are chosen by coins that depend on no record. The number of records is public: it is declared, and
compared with how many there are.
"""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from honestdp.augment import Augmentation
from honestdp.boundary.augmenting import check_augment
from honestdp.boundary.decoding import DatasetRecords, Guarded, decoded_once
from honestdp.boundary.layouts import described, in_memory, inputs_of, no_labels
from honestdp.boundary.records import DeviceRecords, HostRecords, Pair, Records, as_read, as_tensor, two_blanks
from honestdp.boundary.seed import Seed
from honestdp.boundary.unread import Known, Unread, in_two
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.losses import check_labels

Coins = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Shapes:
    """What is known of records without reading one: arrays of no record, `[0, ...]`, for inputs and labels."""

    x: Inputs
    y: Tensor
    words: tuple[str, str]
    """Shape and kind of inputs and labels, for people and for comparison."""
    augment: Augmentation | None = None

    def blanks(self, module: nn.Module) -> Pair:
        """Two made-up examples, as the module reads them."""
        parameter = next(module.parameters())
        x, y = _moved(self.x, parameter.device), _moved(self.y, parameter.device)
        return two_blanks(module, x, y, parameter.dtype)

    def made_up(self, records: int = 2) -> PrivateData:
        """Records of zeros in these shapes."""
        x, y = (inputs.each(lambda part: part.new_zeros(records, *part.shape[1:]), parts) for parts in (self.x, self.y))
        return PrivateData((x, y)).augmented(self.augment)


class PrivateData:
    """Records that a user brings: a pair (x, y) of tensors, arrays or memory-mapped arrays, or a map-style Dataset of pairs.

    x may also be a tuple or a dict of them, for models of several inputs, and there may be no y (`layouts` says what is
    understood). augment: how the records of a lot are varied in training; what scores a run is read as it is.
    """

    def __init__(self, data: Any) -> None:
        self.augment: Augmentation | None = None
        self._own = False
        if isinstance(data, PrivateData):
            self.augment, self._own, data = data.augment, data._own, data._data
        data = in_memory(data)
        self._pair: tuple[Any, Any] | None = None
        if isinstance(data, tuple | list) and len(data) == 2:
            y = None if data[1] is None else _numbers("data[1]", data[1])
            x = inputs_of(data[0], -1 if y is None else len(y), _numbers)
            y = no_labels(x) if y is None else y
            for part in inputs.leaves(x):
                if len(part) != len(y):
                    raise InvalidArgument("data", f"{len(part)} inputs and {len(y)} labels", "one label for each input")
            data = self._pair = x, y
        elif not isinstance(data, Unread) and not _is_dataset(data):
            wanted = (
                "a pair (x, y) of tensors or arrays, x one of them or a tuple or a dict of them, or a map-style Dataset; x "
                "alone, or (x, None), where there are no labels"
            )
            raise InvalidArgument("data", type(data).__name__, wanted)
        self._data: Any = data

    def __len__(self) -> int:
        return len(self._data if self._pair is None else self._pair[1])

    @property
    def known(self) -> Known | None:
        """What records that are still to be read say of themselves; None where they are here."""
        return self._data.known if isinstance(self._data, Unread) else None

    @property
    def exact(self) -> bool:
        """Whether they must be as many as is declared. Those that were read after the charge need not."""
        return not self._own and self.known is None

    def read(self) -> PrivateData:
        """The records themselves, for use after the charge alone; those that are here already as they are."""
        if not isinstance(self._data, Unread):
            return self
        here = PrivateData(self._data.read())
        here._own, here.augment = True, self.augment
        return here

    @property
    def shapes(self) -> Shapes | None:
        """None for a Dataset, of which nothing is known before a record of it is read; unless it has the attribute `made_up`, in
        which its owner put a record of nobody, in the layout of the true ones.
        """
        if self._pair is not None:
            x, y = self._pair
            return Shapes(inputs.each(_empty, x), _empty(y), (_words(x), _words(y)), self.augment)
        if isinstance(self._data, Unread):
            x, y = self._data.none
            return Shapes(x, y, (f"{_words(x)} {self._data.known.words}", _words(y)), self.augment)
        dataset = self._data
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        made_up = getattr(dataset, "made_up", None)
        if made_up is None:
            return None
        x, y = described(made_up)
        return Shapes(inputs.each(_empty, x), _empty(y), (_words(x), _words(y)), self.augment)

    def augmented(self, augment: object) -> PrivateData:
        """The same records, varied in training. What cannot be used for them is refused, without reading one."""
        same, shapes = PrivateData(self), self.shapes
        same.augment = check_augment(augment, None if shapes is None else shapes.x)
        return same

    def decoders(self) -> list[Any]:
        """What decodes the records of a Dataset: its class, and the functions and plain settings that it was made with."""
        return [] if self._pair is not None or self.known is not None else _decoders(self._data)

    def _open(self, *, device: torch.device, dtype: torch.dtype, workers: int) -> Records:
        """As the mechanism reads them, by number."""
        records = self._records(device=device, dtype=dtype, workers=workers)
        records.augment = self.augment
        return records

    def _records(self, *, device: torch.device, dtype: torch.dtype, workers: int) -> Records:
        if self._pair is None:
            return DatasetRecords(self._data, device=device, dtype=dtype, workers=workers)
        x, y = (inputs.each(_native, part) for part in self._pair)
        if _on_disk(x) or _too_large(x, device):
            return HostRecords(x, y, device=device, dtype=dtype)
        return DeviceRecords(inputs.each(as_tensor, x), as_tensor(y), device=device, dtype=dtype)

    def _gathered(self, *, dtype: torch.dtype, device: torch.device, workers: int, seed: Seed) -> Pair:
        """All of them as a model reads them, on the device. seed: of what a Dataset draws meanwhile."""
        if self._pair is None:
            x, y = decoded_once(self._data, workers=workers, seed=seed)
        else:
            x, y = (inputs.each(lambda part: as_tensor(_native(part)), parts) for parts in self._pair)
        return as_read(_moved(x, device), _moved(y, device), dtype)

    def check_labels(self, classes: int) -> None:
        """An error where a label of records in memory is none of the classes. Its words are for the records' owner alone."""
        if self._pair is not None and len(self):
            check_labels(int(self._pair[1].min()), int(self._pair[1].max()), classes)

    def fingerprint(self) -> str:
        """A hash of records in memory, so that nothing goes on with others. As secret as the records."""
        digest = hashlib.sha256(str(len(self)).encode())
        x, y = self._pair or ((), ())
        if inputs.several(x):
            digest.update(_words(x).encode())
        for part in (*inputs.leaves(x), *inputs.leaves(y)):
            if not isinstance(part, np.memmap):  # on a disk, and too large to read for this
                for block in _blocks(part):
                    digest.update(block)
        return digest.hexdigest()

    def guarded(self) -> PrivateData:
        """The same records; what a Dataset raises on one of them is a `RecordFailed`, which says nothing of it."""
        return self if self._pair is not None else self._varied_alike(PrivateData(Guarded(self._data)))

    def _varied_alike(self, other: PrivateData) -> PrivateData:
        other.augment = self.augment
        return other

    def split(self, held_out: Coins) -> tuple[PrivateData, PrivateData]:
        """(training, validation): the records whose coin is false, and those whose coin is true."""
        if self._own and self._pair is not None:
            first, second = in_two(*self._pair, held_out)
            return self._varied_alike(PrivateData(first)), self._varied_alike(PrivateData(second))
        training, validation = (self._part(np.flatnonzero(side)) for side in (~held_out, held_out))
        return training, validation

    def _part(self, numbers: np.ndarray[Any, Any]) -> PrivateData:
        if self._pair is None or _on_disk(self._pair[0]):
            rows = Subset(self._data if self._pair is None else _Rows(*self._pair), numbers.tolist())
            return self._varied_alike(PrivateData(rows))

        def some(part: Any) -> Any:
            return part[torch.from_numpy(numbers).to(part.device) if isinstance(part, Tensor) else numbers]

        x, y = (inputs.each(some, part) for part in self._pair)
        return self._varied_alike(PrivateData((x, y)))


def coins(records: int, *, fraction: float, seed: int) -> Coins:
    """For each record whether its coin puts it on the validation side."""
    return np.random.default_rng(seed).random(records) < fraction


class _Rows(Dataset[Any]):
    """Arrays too large to copy, row by row."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return inputs.each(lambda part: np.array(part[index]), self._x), np.array(self._y[index])


def _moved(x: Any, device: torch.device) -> Any:
    return inputs.each(lambda part: part.to(device), x)


def _on_disk(x: Any) -> bool:
    return any(isinstance(part, np.memmap) for part in inputs.leaves(x))


def _words(x: Any) -> str:
    """Shape and kind of what one record has."""
    if inputs.several(x):
        named = x.items() if isinstance(x, dict) else enumerate(x)
        return ", ".join(f"{name!r} {_words(part)}" for name, part in named)
    return f"{list(x.shape[1:])} {x.dtype}"


def _empty(part: Any) -> Tensor:
    """No record, of the shape and kind of these. A view of none of them would still be a way to their memory."""
    return as_tensor(_native(part[:0])).new_empty(0, *part.shape[1:])


def _is_dataset(data: Any) -> bool:
    plain = isinstance(data, Tensor | np.ndarray | dict | str | tuple | list) or hasattr(data, "columns")
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not plain


def _numbers(name: str, values: Any) -> Any:
    """A tensor or an array of numbers."""
    if isinstance(values, Tensor):
        if values.dtype.is_complex or values.dim() == 0:
            raise InvalidArgument(name, f"a tensor of {values.dtype}", "an array or a tensor of real numbers")
        return values
    array = np.asanyarray(values)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise InvalidArgument(name, f"{type(values).__name__} of {array.dtype}", "an array or a tensor of numbers")
    return array


def _native(array: Any) -> Any:
    """A tensor as it is, an array as torch reads it: in this machine's byte order, of a kind that torch has."""
    if isinstance(array, Tensor):
        return array
    if array.dtype in (np.uint16, np.uint32, np.uint64) and not isinstance(array, np.memmap):
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _too_large(x: Any, device: torch.device) -> bool:
    """More than half of a GPU's free memory stays on the host."""
    bytes_of_all = sum(part.nbytes for part in inputs.leaves(x))
    return device.type == "cuda" and bytes_of_all > torch.cuda.mem_get_info(device)[0] // 2


def _blocks(values: Any) -> Iterator[bytes]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        unknown = values.is_floating_point() and values.dtype not in (torch.float16, torch.float32, torch.float64)
        values = (values.contiguous().view(torch.uint8) if unknown else values).numpy()  # numpy has no bfloat16
    array = np.asarray(values)
    for first in range(0, len(array), 65536):
        yield np.ascontiguousarray(array[first : first + 65536]).tobytes()


def _decoders(data: Any) -> list[Any]:
    parts: list[Any] = [type(data)]
    for _, value in sorted(vars(data).items()) if hasattr(data, "__dict__") else []:
        inner = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Dataset)]
        parts += [part for one in inner for part in _decoders(one)]
        if not inner and (callable(value) or isinstance(value, bool | int | float | str | ModuleType | Namespace)):
            parts.append(value)
    return parts
