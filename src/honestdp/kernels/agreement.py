"""Whether the kernels give torch's numbers on this device, tried on small made-up ones before any record is read.

In both precisions that are used: trials compare with all digits, steps are taken in TensorFloat-32. Norms too: what is clipped by
a norm that is too small is more than its clip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from honestdp.kernels import Convolutions, Normalisations, Shape

PRECISIONS = (("highest", 1e-4), ("high", 0.01))
"""As torch names them, and how far off a kernel may then be, as a share of what is right. TensorFloat-32 has three digits."""
_SHAPE = Shape(16, 6, 6, 16, 4, 4, (3, 3), (1, 1), (0, 0), (1, 1), 2)

Pair = tuple[str, "Tensor | None", Tensor]
"""What was made, as the kernel made it, and as torch did."""


def disagreements(name: str, kernels: Any, device: torch.device) -> list[str]:
    """Which kernels are off in which precision, and how far; none of them where all may be used.

    name: of the module, "convolution" or "normalisation".
    """
    ways: dict[str, Callable[[Any, torch.device], Iterator[Pair]]]
    ways = {"convolution": _convolutions, "normalisation": _norms}
    before, found = torch.get_float32_matmul_precision(), []
    for precision, most in PRECISIONS:
        torch.set_float32_matmul_precision(precision)
        try:
            with torch.autocast(device.type, enabled=False):
                pairs = list(ways[name](kernels, device))
        finally:
            torch.set_float32_matmul_precision(before)
        found += [f"{what} by {off:.1e} ({precision})" for what, off in map(_off, pairs) if not off <= most]
    return found


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


def _convolutions(found: Convolutions, device: torch.device) -> Iterator[Pair]:
    """A convolution with a pool, and all that is made of it. torch's gradients are of the positions that the kernel chose, once
    these are known to be the largest: of two that differ by a rounding either may be.
    """
    shape, slopes = _SHAPE, numbers(device, 2, 16, 2, 2)
    with torch.enable_grad():
        x, weight, bias = (numbers(device, *size).requires_grad_() for size in ((2, 16, 6, 6), (16, 16, 3, 3), (16,)))
        before = F.conv2d(x, weight / 4, bias)
    values, matrix, shift = x.detach().float(), weight.detach().float()[None] / 4, bias.detach().float()[None]
    counts = _counts(device)
    for relu in (False, True):
        out, chosen = found.forward(values, matrix, shift, shape, relu=relu, first=relu, counts=counts)
        largest = F.max_pool2d(before.detach(), 2)
        yield f"forward{' with ReLU' * relu}", out, largest.relu() if relu else largest
        if not relu:
            kept = chosen
    assert kept is not None
    index = _index(kept, shape)
    yield "the positions of a pool", before.detach().flatten(2).gather(2, index.flatten(2)).view_as(largest), largest
    spread = F.max_unpool2d(slopes, index, (2, 2), output_size=(4, 4))
    with torch.enable_grad():
        wanted = torch.autograd.grad(before, [x, weight, bias], spread, retain_graph=True)
        alone = [
            torch.autograd.grad(before[i], [weight, bias], spread[i], retain_graph=True) for i in range(len(before))
        ]
    grad = slopes.float()
    flat = found.unpool(grad, kept, shape, counts=counts)
    yield "unpool", flat, spread
    after = largest.relu().float()
    yield "channels last", found.channels_last(grad, after, counts=counts), torch.where(after <= 0, 0, slopes)
    yield "back of a pool", found.back(grad, kept, matrix, shape, counts=counts), wanted[0]
    yield "back", found.back(flat, None, matrix, shape._replace(pool=1), counts=counts), wanted[0]
    masked = torch.where(x.detach() <= 0, 0, wanted[0])
    yield "back with ReLU", found.back(grad, kept, matrix, shape, x=values, counts=counts), masked
    # The weight that was multiplied is a quarter of the leaf: its gradient is four times the leaf's.
    right = torch.stack([torch.cat([4 * of_weight.flatten(), of_bias]) for of_weight, of_bias in alone])
    yield from _gradients(found, values, grad, kept, right)
    # Of a gradient that was spread out, as steps have it of many channels: it may be made by other kernels.
    how: dict[str, Any] = {"runs": 1, "bias": True, "keep": True, "counts": counts}
    squares, rows = found.square_norms(values, flat, None, shape._replace(pool=1), **how)
    yield "square_norms without a pool", squares[0].sqrt(), right.norm(dim=1)
    ordered = torch.cat([4 * alone[0][0].permute(0, 2, 3, 1).flatten(), alone[0][1]])
    yield "what is kept without a pool", None if rows is None else rows[0, 0], ordered


def _counts(device: torch.device) -> Tensor:
    """Both examples are wanted. Steps always say how many are, so that it is that way which is tried here."""
    return torch.full((1,), 2, dtype=torch.int32, device=device)


def _index(chosen: Tensor, shape: Shape) -> Tensor:
    """Where in the output before its pool the chosen positions are, as torch counts them."""
    side, (height, width) = shape.pool, shape.pooled
    part = chosen.long()
    rows = torch.arange(height, device=part.device)[:, None] * side + part // side
    return rows * shape.out_width + torch.arange(width, device=part.device) * side + part % side


def picked(before: Tensor, chosen: Tensor, shape: Shape) -> Tensor:
    """Of an output before its pool the numbers at the chosen positions."""
    return before.flatten(2).gather(2, _index(chosen, shape).flatten(2)).view(chosen.shape)


def _gradients(found: Convolutions, x: Tensor, grad: Tensor, chosen: Tensor, right: Tensor) -> Iterator[Pair]:
    """right: `[examples, numbers]`, the gradients of weight and bias."""
    weights = torch.tensor([[0.5, 2.0]], device=x.device)
    total = (weights.double().T * right).sum(0)
    for dtype in (torch.float32, torch.float64):
        for keep in (False, True):
            how: dict[str, Any] = {"runs": 1, "bias": True, "keep": keep, "counts": _counts(x.device)}
            squares, kept = found.square_norms(x, grad, chosen, _SHAPE, **how)
            if kept is None:
                name = "weighted_sum"
                made, shift = found.weighted_sum(x, grad, chosen, weights, _SHAPE, bias=True, dtype=dtype)
            else:
                name = "sum_rows"
                made, shift = found.sum_rows(kept, weights, _SHAPE, bias=True, dtype=dtype)
            yield "square_norms", squares[0].sqrt(), right.norm(dim=1)
            yield name, made[0].flatten(), total[:-16]
            yield f"{name} of a bias", None if shift is None else shift[0], total[-16:]


def _norms(found: Normalisations, device: torch.device) -> Iterator[Pair]:
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
