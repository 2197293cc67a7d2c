"""Where a backward pass begins: at the sum of the losses, or at the sum of each row's loss times its share in a record."""

from __future__ import annotations

import torch
from torch import Tensor


def start_of(losses: Tensor, shares: Tensor | None) -> Tensor:
    """What a backward pass from the losses of all examples begins with: ones, or the shares `[runs, lot, rows]` of rows."""
    return torch.ones_like(losses) if shares is None else shares.flatten().to(losses.dtype)


def scaled(slope: Tensor, shares: Tensor | None) -> Tensor:
    """The gradient of the losses for an output `[examples, ...]`, each row's times its share."""
    return slope if shares is None else slope * shares.reshape(-1, *[1] * (slope.dim() - 1)).to(slope.dtype)
