"""GPU kernels for the norm of groups of channels with its gain and shift: one pass forward, and one back.

A program holds one example. On the way back the sums over a channel that the gradient of the input needs are also the example's
gradients of gain and shift.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST = 1 << 15
"""Numbers of an example that a program can hold."""


@triton.jit
def _of_groups(values, GROUPS: tl.constexpr, DEEP: tl.constexpr):
    """`[channels]`: for every channel the sum of `values` `[channels]` over its group."""
    sums = tl.sum(tl.reshape(values, [GROUPS, DEEP]), 1)
    return tl.reshape(tl.broadcast_to(sums[:, None], [GROUPS, DEEP]), [GROUPS * DEEP])


@triton.jit(do_not_specialize=["lot"])
def _forward(
    x, gain, shift, out, means, scales, lot, eps, P: tl.constexpr, GROUPS: tl.constexpr, DEEP: tl.constexpr,
    GAIN: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = GROUPS * DEEP
    example = tl.program_id(0).to(tl.int64)
    p, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, C)
    at = example * (P * C) + p * C + c[None, :]
    inside = p < P
    values = tl.load(x + at, mask=inside, other=0.0)
    mean = _of_groups(tl.sum(values, 0), GROUPS, DEEP) / (P * DEEP)
    values = tl.where(inside, values - mean[None, :], 0.0)
    scale = 1 / tl.sqrt_rn(_of_groups(tl.sum(values * values, 0), GROUPS, DEEP) / (P * DEEP) + eps)
    values = values * scale[None, :]
    if GAIN:
        values = values * tl.load(gain + (example // lot) * C + c)[None, :]
    if SHIFT:
        values = values + tl.load(shift + (example // lot) * C + c)[None, :]
    tl.store(out + at, values, mask=inside)
    tl.store(means + example * C + c, mean)
    tl.store(scales + example * C + c, scale)


@triton.jit(do_not_specialize=["lot"])
def _back(
    x, grad, gain, means, scales, out, gains, shifts, lot, P: tl.constexpr, GROUPS: tl.constexpr, DEEP: tl.constexpr,
    GAIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    C: tl.constexpr = GROUPS * DEEP
    example = tl.program_id(0).to(tl.int64)
    p, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, C)
    at = example * (P * C) + p * C + c[None, :]
    inside = p < P
    slopes = tl.load(grad + at, mask=inside, other=0.0)
    mean, scale = tl.load(means + example * C + c), tl.load(scales + example * C + c)
    normal = tl.where(inside, (tl.load(x + at, mask=inside, other=0.0) - mean[None, :]) * scale[None, :], 0.0)
    of_gain, of_shift = tl.sum(slopes * normal, 0), tl.sum(slopes, 0)
    tl.store(gains + example * C + c, of_gain)
    tl.store(shifts + example * C + c, of_shift)
    if GAIN:
        factor = tl.load(gain + (example // lot) * C + c)
        slopes = slopes * factor[None, :]
        of_gain, of_shift = of_gain * factor, of_shift * factor
    along = _of_groups(of_gain, GROUPS, DEEP) / (P * DEEP)
    level = _of_groups(of_shift, GROUPS, DEEP) / (P * DEEP)
    tl.store(out + at, (slopes - level[None, :] - normal * along[None, :]) * scale[None, :], mask=inside)


def takes(x: Tensor, groups: int) -> bool:
    """Whether the kernels take x `[examples, channels, height, width]`: powers of two alone, and an example that fits."""
    channels, positions = x.shape[1], x.shape[2] * x.shape[3]
    powers = channels & (channels - 1) == 0 and groups & (groups - 1) == 0
    return powers and 0 < triton.next_power_of_2(positions) * channels <= MOST


def _sizes(x: Tensor, groups: int) -> tuple[dict[str, int], int]:
    channels, positions = x.shape[1], x.shape[2] * x.shape[3]
    block = triton.next_power_of_2(positions)
    sizes = {"P": positions, "GROUPS": groups, "DEEP": channels // groups, "BLOCK": block}
    return sizes, max(1, min(16, block * channels // 1024))


def forward(
    x: Tensor, gain: Tensor | None, shift: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """x `[examples, channels, height, width]`, channels last in memory; gain, shift `[runs, channels]`, of the examples' runs.

    The output in the same layout; and `[examples, channels]`, the mean of each channel's group, and one over its deviation.
    """
    out = torch.empty_like(x)
    means, scales = (torch.empty(x.shape[:2], dtype=torch.float32, device=x.device) for _ in range(2))
    runs = len(gain) if gain is not None else len(shift) if shift is not None else 1
    sizes, warps = _sizes(x, groups)
    _forward[(len(x),)](
        x, x if gain is None else gain.contiguous(), x if shift is None else shift.contiguous(), out, means, scales,
        max(1, len(x) // runs), eps, GAIN=gain is not None, SHIFT=shift is not None, **sizes, num_warps=warps,
    )  # fmt: skip
    return out, means, scales


def back(
    x: Tensor, grad: Tensor, gain: Tensor | None, means: Tensor, scales: Tensor, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the input, and `[examples, channels]`, every example's gradients of gain and shift; grad lies as x does."""
    out = torch.empty_like(x)
    gains, shifts = torch.empty_like(means), torch.empty_like(means)
    sizes, warps = _sizes(x, groups)
    lot = max(1, len(x) // (1 if gain is None else len(gain)))
    _back[(len(x),)](
        x, grad, x if gain is None else gain.contiguous(), means, scales, out, gains, shifts, lot,
        GAIN=gain is not None, **sizes, num_warps=warps,
    )  # fmt: skip
    return out, gains, shifts
