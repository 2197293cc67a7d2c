"""The layouts that data may come in: what of them are a record's inputs, and what is its label.

In memory: a pair (x, y); a TensorDataset, whose last tensor is y; a dict with the label under "labels" or "label". A Dataset's
records: pairs (x, y), or such dicts, as Hugging Face's datasets give. x is one array, or several: a tuple of arrays, which the
model is called with in a row, or a dict of them, which it is called with by name. y likewise: the loss gets the same tuple or
dict of tensors. A label never reaches the model.

Records without labels: one array alone, (x,) or (x, None); a Dataset whose records are (x,). Their label is a tensor of
no numbers, so that they go every other record's way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from honestdp.boundary.records import Pair, as_tensor
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs

LABELS = ("labels", "label")
"""Keys of a dict under which the label is; the first that is there."""


def in_memory(data: Any) -> Any:
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


def inputs_of(x: Any, records: int, checked: Callable[[str, Any], Any]) -> Any:
    """Inputs of records in memory: an array, a tuple of arrays or a dict of them. checked: of a name and an array, the array.

    A list as long as the labels is a list of rows, as it always was; another list of arrays is several inputs.
    """
    if isinstance(x, Mapping) and x:
        return {str(name): checked(f"data[0][{name!r}]", value) for name, value in x.items()}
    arrays = isinstance(x, tuple | list) and len(x) > 0 and all(_is_array(part) for part in x)
    if arrays and (isinstance(x, tuple) or len(x) != records):
        return tuple(checked(f"data[0][{place}]", part) for place, part in enumerate(x))
    return checked("data[0]", x)


def labels_of(y: Any, checked: Callable[[str, Any], Any]) -> Any:
    """Labels of records in memory: an array, a tuple of arrays or a dict of them. A list is one of rows."""
    if isinstance(y, Mapping) and y:
        return {str(name): checked(f"data[1][{name!r}]", value) for name, value in y.items()}
    if isinstance(y, tuple) and y and all(_is_array(part) and part.ndim for part in y):
        return tuple(checked(f"data[1][{place}]", part) for place, part in enumerate(y))
    return checked("data[1]", y)


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


def no_labels(x: Any) -> Tensor:
    """The labels `[records, 0]` of records that have none. x: their inputs."""
    return torch.zeros(len(inputs.first(x)), 0)


def _is_array(part: Any) -> bool:
    return isinstance(part, Tensor | np.ndarray)


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
