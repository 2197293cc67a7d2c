"""What a server sends, before it is believed: weights by name, as a row of numbers that fit the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import Layout

Weights = Mapping[str, Any]
"""Arrays or tensors by their names in the model's `state_dict`."""


def row_of(weights: Weights, layout: Layout, dtype: torch.dtype) -> Tensor:
    """`[1, d]`, checked: what comes is any number of any shape until then. Errors name `weights`, and nothing of a client."""
    row = torch.zeros(1, layout.width, dtype=dtype)
    for name, view in layout.views(row).items():
        if name not in weights:
            raise InvalidArgument("weights", sorted(weights), f"named as the model's own: {name!r} is missing")
        value = _real(name, weights[name])
        if value.shape != view[0].shape:
            raise InvalidArgument(f"weights[{name!r}]", list(value.shape), f"of shape {list(view[0].shape)}")
        view[0] = value
        if not bool(torch.isfinite(view).all()):  # as they are here: what float64 holds may be too large for float32
            raise InvalidArgument(f"weights[{name!r}]", "numbers that are not finite", "finite numbers alone")
    return row


def _real(name: str, sent: Any) -> Tensor:
    try:
        value = torch.as_tensor(sent)
    except (TypeError, ValueError, RuntimeError) as trouble:
        raise InvalidArgument(f"weights[{name!r}]", type(sent).__name__, "an array or a tensor of numbers") from trouble
    if value.is_complex():
        raise InvalidArgument(f"weights[{name!r}]", "complex numbers", "real numbers alone")
    return value
