"""The layouts that data may come in: which parts are a record's inputs, which its label, and how torch reads the arrays.

In memory: a pair (x, y); a TensorDataset, whose last tensor is y; a dict with the label under "labels" or "label". A Dataset's
records: pairs (x, y), or such dicts, as Hugging Face's datasets give. x is one array, or several: a tuple of arrays, which the
model is called with in a row, or a dict of them, which it is called with by name. y likewise: the loss gets the same tuple or
dict of tensors. A label never reaches the model.

Records without labels: one array alone, (x,) or (x, None); a Dataset whose records are (x,). Their label is a tensor of
no numbers, so that they go every other record's way.

`Unread` records are read after the charge, such as the rows of a file. Before it they are publicly known by declarations, or
by counts that look at no value: their number, their shapes, what preprocessing is done to each of them by itself, and what was
spent to learn its bounds. The number of records that are then read need not be the declared one, N: rates and lots follow from N,
each record is in a lot with its own chance L/N whatever the others do, and nothing says how many there were.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from honestdp.boundary.records import Pair, as_tensor
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.run import ROW, Unit

LABELS = ("labels", "label")
"""Keys of a dict under which the label is; the first that is there."""
_INSTEAD = {
    "DataLoader": "loader.dataset, since a DataLoader chooses batches by itself and lots are Poisson here; or else ",
    "IterableDataset": (
        "a map-style Dataset or np.memmap, since lots are drawn by number and a file is read a lot at a time; or else "
    ),
}

# ---- Data as a whole


@dataclass(frozen=True)
class Known:
    """What unread records declare of themselves.

    declared: whether they declare N. preprocessing: in words. spent: epsilon of what was learnt for it. words: public settings
    that shapes do not show, compared on a resume. unit: whose record it is. classes: how many are declared; no label is above.
    """

    declared: bool
    preprocessing: str
    spent: float
    words: str
    unit: Unit = ROW
    classes: int | None = None


class Unread(ABC):
    """Records that nobody has read yet. where: the path of a file, or an object that lives as long as the records."""

    known: Known
    where: Any

    @abstractmethod
    def __len__(self) -> int:
        """N, public."""

    @property
    @abstractmethod
    def none(self) -> tuple[Tensor, Tensor]:
        """No record, `[0, ...]`, in the shapes of the true ones."""

    def scan(self) -> None:  # noqa: B027 - nothing is wrong with what has no file
        """Raise InvalidArgument for what is wrong with the file as a whole, such as one that is cut, without a word of a record.

        Called before the charge, once that can be paid: what would stop every reading costs nothing then.
        """

    @abstractmethod
    def read(self) -> Any:
        """The records, as `train` and `tune` take data: arrays that nobody else holds."""


def pair_of(data: Any) -> tuple[Any, Any] | None:
    """Inputs and labels of records in memory; None for a Dataset and for `Unread` records. InvalidArgument for other data."""
    data = _in_memory(data)
    if not isinstance(data, tuple | list) or len(data) != 2:
        if isinstance(data, Unread) or (_is_dataset(data) and not _kind(data)):
            return None
        wanted = (
            "a pair (x, y) of tensors or arrays, each one of them or a tuple or a dict of them, or a map-style Dataset; x "
            "alone, or (x, None), where there are no labels"
        )
        raise InvalidArgument("data", type(data).__name__, _INSTEAD.get(_kind(data), "") + wanted)
    y = None if data[1] is None else _labels_of(data[1])
    x = _inputs_of(data[0], -1 if y is None else len(inputs.first(y)))
    y = torch.zeros(len(inputs.first(x)), 0) if y is None else y
    for part, label in itertools.product(inputs.leaves(x), inputs.leaves(y)):
        if len(part) != len(label):
            raise InvalidArgument(
                "data",
                f"{len(part)} inputs and {len(label)} labels",
                "one label for each input, or a tuple or a dict of labels",
            )
    return x, y


def _kind(data: object) -> str:
    return next((kind.__name__ for kind in (DataLoader, IterableDataset) if isinstance(data, kind)), "")


def _is_dataset(data: Any) -> bool:
    plain = isinstance(data, Tensor | np.ndarray | dict | str | tuple | list) or hasattr(data, "columns")
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not plain


def _in_memory(data: Any) -> Any:
    """Data as a pair (x, y), y None where there are no labels, if it is in memory in another layout; otherwise as it came."""
    if isinstance(data, Subset) and isinstance(data.dataset, TensorDataset) and len(data.dataset.tensors) > 2:
        data = TensorDataset(*(part[torch.as_tensor(data.indices)] for part in data.dataset.tensors))
    if isinstance(data, TensorDataset) and len(data.tensors) > 1:
        *x, y = data.tensors
        return (x[0] if len(x) == 1 else tuple(x)), y
    if isinstance(data, TensorDataset):
        data = data.tensors
    if _is_array(data):
        return data, None
    if isinstance(data, tuple | list) and len(data) == 1 and (_is_array(data[0]) or isinstance(data[0], Mapping)):
        return data[0], None
    return _parted(data) if isinstance(data, Mapping) else data


def _parted(record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """A dict's inputs and its label."""
    label = next((name for name in LABELS if name in record), None)
    x = {name: value for name, value in record.items() if name != label}
    if label is None or not x:
        wanted = (
            "with the label under the key 'labels' or 'label', and every input under the name of the model's argument; where "
            "there are no labels, (inputs, None)"
        )
        raise InvalidArgument("data", f"dicts with the keys {list(record)}", wanted)
    return x, record[label]


def _inputs_of(x: Any, records: int) -> Any:
    """Inputs of records in memory: an array, a tuple of arrays or a dict of them.

    A list as long as the labels is a list of rows; another list of arrays is several inputs.
    """
    arrays = isinstance(x, tuple | list) and len(x) > 0 and all(_is_array(part) for part in x)
    return _parts_of("data[0]", x, several=arrays and (isinstance(x, tuple) or len(x) != records))


def _labels_of(y: Any) -> Any:
    """Labels of records in memory: an array, a tuple of arrays or a dict of them. A list is one of rows."""
    several = isinstance(y, tuple) and len(y) > 0 and all(_is_array(part) and part.ndim for part in y)
    return _parts_of("data[1]", y, several=several)


def _parts_of(name: str, values: Any, *, several: bool) -> Any:
    if isinstance(values, Mapping) and values:
        return {str(key): _numbers(f"{name}[{key!r}]", value) for key, value in values.items()}
    if several:
        return tuple(_numbers(f"{name}[{place}]", part) for place, part in enumerate(values))
    return _numbers(name, values)


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


def _is_array(part: Any) -> bool:
    return isinstance(part, Tensor | np.ndarray)


# ---- A Dataset's records


def as_pair(record: Any) -> Any:
    """A Dataset's record as (x, y), each an array or several in a tuple or a dict; other records as they are."""
    if isinstance(record, Mapping):
        record = _parted(record)
    if isinstance(record, tuple | list) and len(record) == 1:
        record = record[0], torch.zeros(0)
    if not isinstance(record, tuple | list) or len(record) != 2:
        return record
    x, y = record
    if isinstance(y, tuple | Mapping) and y:
        y = inputs.each(as_tensor, dict(y) if isinstance(y, Mapping) else y)
    if isinstance(x, Mapping) and x:
        return {str(name): as_tensor(value) for name, value in x.items()}, y
    if isinstance(x, tuple | list) and any(_is_array(part) for part in x):
        return tuple(as_tensor(part) for part in x), y
    return x, y


def together(x: Any, y: Any) -> Pair:
    """Records that a DataLoader has put together, which makes lists of tuples."""
    x, y = (inputs.each(torch.as_tensor, tuple(part) if isinstance(part, list) else part) for part in (x, y))
    return x, y


def described(record: Any) -> Pair:
    """No record, `[0, ...]`, in the shape of this one of a Dataset; an error where it has no layout that is understood."""
    pair = as_pair(record)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        size = f" of {len(pair)}" if isinstance(pair, tuple | list) else ""
        wanted = (
            "a Dataset whose records are dicts with the label under 'labels' and each input under the name of the model's "
            "argument, or, with x one input, a tuple (a, b) or a dict of inputs, (x,) without labels, or pairs (x, y)"
        )
        raise InvalidArgument("data", f"a Dataset of {type(pair).__name__}{size}", wanted)
    try:
        x, y = (inputs.each(lambda part: as_tensor(part)[None][:0], part) for part in pair)
    except (TypeError, ValueError, RuntimeError) as trouble:
        kinds = " and ".join(type(part).__name__ for part in pair)
        wanted = "a Dataset whose records are pairs of tensors, arrays or numbers"
        raise InvalidArgument("data", f"a Dataset of pairs of {kinds}", wanted) from trouble
    return x, y


# ---- Arrays


def in_words(x: Any) -> str:
    """Shape and kind of what one record has."""
    if inputs.several(x):
        named = x.items() if isinstance(x, dict) else enumerate(x)
        return ", ".join(f"{name!r} {in_words(part)}" for name, part in named)
    return f"{list(x.shape[1:])} {x.dtype}"


def empty(part: Any) -> Tensor:
    """No record, of the shape and kind of these. A view of none of them would still be a way to their memory."""
    return as_tensor(native(part[:0])).new_empty(0, *part.shape[1:])


def native(array: Any) -> Any:
    """A tensor as it is, an array as torch reads it: in this machine's byte order, of a kind that torch has."""
    if isinstance(array, Tensor):
        return array
    if array.dtype in (np.uint16, np.uint32, np.uint64) and not isinstance(array, np.memmap):
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def on_disk(x: Any) -> bool:
    return any(isinstance(part, np.memmap) for part in inputs.leaves(x))


def too_large(x: Any, device: torch.device) -> bool:
    """Whether x takes more than half of a GPU's free memory, and so stays on the host."""
    bytes_of_all = sum(part.nbytes for part in inputs.leaves(x))
    return device.type == "cuda" and bytes_of_all > torch.cuda.mem_get_info(device)[0] // 2


def blocks(values: Any) -> Iterator[bytes]:
    """The bytes of an array's values, some rows at a time."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().contiguous().view(torch.uint8).numpy()  # numpy has no bfloat16
    array = np.asarray(values)
    for first in range(0, len(array), 65536):
        yield np.ascontiguousarray(array[first : first + 65536]).tobytes()
