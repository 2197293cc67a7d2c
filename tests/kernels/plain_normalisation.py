"""What the kernels of norms compute, in tensor operations: their stand-in where there is no GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def takes(x: Tensor, groups: int) -> bool:
    return True


def _each(value: Tensor | None, x: Tensor) -> Tensor:
    """A parameter `[runs, channels]` for every example."""
    if value is None:
        return torch.ones(1, 1, 1, 1, dtype=torch.float64)
    return value.double().repeat_interleave(len(x) // len(value), 0)[..., None, None]


def forward(
    x: Tensor, gain: Tensor | None, shift: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    deep = x.shape[1] // groups
    grouped = x.double().reshape(len(x), groups, -1)
    means, spread = grouped.mean(2), grouped.var(2, correction=0)
    normal = F.group_norm(x.double(), groups, None, None, eps) * _each(gain, x)
    out = normal if shift is None else normal + _each(shift, x)
    stats = [value.repeat_interleave(deep, 1).float() for value in (means, (spread + eps).rsqrt())]
    return out.float(), stats[0], stats[1]


def back(
    x: Tensor, grad: Tensor, gain: Tensor | None, means: Tensor, scales: Tensor, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    normal = ((x - means[..., None, None]) * scales[..., None, None]).double()
    slopes = grad.double()
    sums = (slopes * normal).sum((2, 3)), slopes.sum((2, 3))
    slopes = slopes * _each(gain, x)
    by_group = (len(x), groups, -1)
    level = slopes.reshape(by_group).mean(2, keepdim=True)
    along = (slopes * normal).reshape(by_group).mean(2, keepdim=True)
    found = (slopes.reshape(by_group) - level - normal.reshape(by_group) * along).view(x.shape)
    return (found * scales[..., None, None]).float(), sums[0].float(), sums[1].float()
