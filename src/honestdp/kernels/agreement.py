"""Whether the kernels of norms of groups give torch's numbers on this device, tried on a small one before any record is read.

They multiply number by number, with all digits in any precision, and lots of every size share a kernel: so the kernels of a
model's own shapes are those that its trial holds against autograd. Those of convolutions are compared one by one
(honestdp.kernels.tried).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp.kernels import Normalisations

_MOST = 1e-4
"""How far off a kernel may be, as a share of what is right."""

Pair = tuple[str, "Tensor | None", Tensor]
"""What was made, as the kernel made it, and as torch did."""


def disagreements(kernels: Normalisations, device: torch.device) -> list[str]:
    """Which kernels are off, and how far; none of them where all may be used."""
    with torch.autocast(device.type, enabled=False):
        pairs = list(_pairs(kernels, device))
    return [f"{what} by {off:.1e}" for what, off in map(_off, pairs) if not off <= _MOST]


def _off(pair: Pair) -> tuple[str, float]:
    what, made, right = pair
    if made is None or made.shape != right.shape:
        return f"{what} (missing, or of another shape)", float("inf")
    return what, float((made.double() - right).norm() / right.norm())


def numbers(device: torch.device, *sizes: int) -> Tensor:
    """Made-up numbers between -1 and 1, the same ones each time."""
    count = torch.Size(sizes).numel()
    # Not equally spaced: no two positions of a pool are as large.
    made = torch.linspace(-1, 1, count, dtype=torch.float64, device=device).mul(7 + count).sin()
    return made.view(sizes)


def _pairs(found: Normalisations, device: torch.device) -> Iterator[Pair]:
    gain, shift = (numbers(device, 2, 4).roll(i) for i in range(2))
    with torch.enable_grad():
        x = (3 * numbers(device, 4, 4, 3, 5) + 1).requires_grad_()
        each = [value.repeat_interleave(2, 0).requires_grad_() for value in (gain, shift)]
        y = F.group_norm(x, 2, eps=1e-5) * each[0][..., None, None] + each[1][..., None, None]
        slopes = numbers(device, *y.shape).roll(1)
        right = torch.autograd.grad(y, [x, *each], slopes)
    values, grad = (value.detach().float().contiguous(memory_format=torch.channels_last) for value in (x, slopes))
    out, means, scales = found.forward(values, gain.float(), shift.float(), 2, 1e-5)
    yield "the norm of groups", out, y.detach()
    names = ("its way back", "the gradient of its gain", "the gradient of its shift")
    yield from zip(names, found.back(values, grad, gain.float(), means, scales, 2), right, strict=True)
