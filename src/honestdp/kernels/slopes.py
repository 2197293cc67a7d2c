"""GPU kernels for the gradient of a convolution's output: spread over its pool, or behind its ReLU and with its channels last.

Layouts and `counts` are as in honestdp.kernels.convolution.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from honestdp.kernels import Shape


@triton.jit(do_not_specialize=["lot", "examples"])
def _unpool(
    grad, chosen, out, counts, lot, examples, g_n, g_c, g_h, g_w, R: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, POOL: tl.constexpr, COUNTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < examples.to(tl.int64) * (R * H * W)
    o, place = (at % R).to(tl.int32), at // R
    column, above = (place % W).to(tl.int32), place // W
    row, example = (above % H).to(tl.int32), above // H
    y, z = row // POOL, column // POOL
    seen = inside & (y < OH) & (z < OW)
    if COUNTED:  # the others are zeros, and nothing is read of them
        seen = seen & (example % lot < tl.load(counts + example // lot, mask=inside, other=0))
    picked = tl.load(chosen + (example * (OH * OW) + y * OW + z) * R + o, mask=seen, other=255).to(tl.int32)
    values = tl.load(grad + example * g_n + o * g_c + y * g_h + z * g_w, mask=seen, other=0.0)
    mine = seen & (picked == (row % POOL) * POOL + column % POOL)
    tl.store(out + at, tl.where(mine, values, 0.0), mask=inside)


@triton.jit(do_not_specialize=["lot"])
def _channels_last(
    grad, after, out, counts, lot, R: tl.constexpr, P: tl.constexpr, RELU: tl.constexpr, COUNTED: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    example = tl.program_id(0).to(tl.int64)
    r = (tl.program_id(1) % ((R + BLOCK_R - 1) // BLOCK_R)) * BLOCK_R + tl.arange(0, BLOCK_R)
    p = (tl.program_id(1) // ((R + BLOCK_R - 1) // BLOCK_R)) * BLOCK_P + tl.arange(0, BLOCK_P)
    inside = (r < R)[:, None] & (p < P)[None, :]
    seen = inside
    if COUNTED:  # nothing is read of the others
        seen = (r < R)[:, None] & (p < tl.where(example % lot < tl.load(counts + example // lot), P, 0))[None, :]
    at = example * (R * P) + r[:, None] * P + p[None, :]
    values = tl.load(grad + at, mask=seen, other=0.0)
    if RELU:  # what it has put to zero sends nothing back
        values = tl.where(tl.load(after + at, mask=seen, other=1.0) <= 0, 0.0, values)
    tl.store(out + example * (R * P) + p[None, :] * R + r[:, None], values, mask=inside)


def unpool(grad: Tensor, chosen: Tensor, shape: Shape, *, counts: Tensor | None = None) -> Tensor:
    """The gradient of the output before its pool, `[examples, rows, out_height, out_width]`, from that of the pool's.

    counts: as for `forward`; the others are zeros.
    """
    out = torch.empty(len(grad), shape.out_height, shape.out_width, shape.rows, dtype=torch.float32, device=grad.device)
    sizes = (shape.rows, *shape.pooled, shape.out_height, shape.out_width, shape.pool)
    wanted, lot = (out.view(torch.int32), 1) if counts is None else (counts, len(grad) // len(counts))
    _unpool[(triton.cdiv(out.numel(), 1024),)](
        grad, chosen, out, wanted, lot, len(grad), *grad.stride(), *sizes, COUNTED=counts is not None, BLOCK=1024
    )
    return out.permute(0, 3, 1, 2)


def channels_last(grad: Tensor, after: Tensor | None, *, counts: Tensor | None = None) -> Tensor:
    """The gradient `[examples, rows, height, width]`, which lies with its channels first, with its channels last.

    after: what a ReLU gave, where the gradient of what went into that is wanted; it lies with its channels first too.
    counts: as for `unpool`.
    """
    grad, after = grad.contiguous(), None if after is None else after.contiguous()
    examples, rows, height, width = grad.shape
    out = torch.empty(examples, height, width, rows, dtype=torch.float32, device=grad.device)
    r, p = (min(64, triton.next_power_of_2(size)) for size in (rows, height * width))
    wanted, lot = (out.view(torch.int32), 1) if counts is None else (counts, examples // len(counts))
    _channels_last[(examples, triton.cdiv(rows, r) * triton.cdiv(height * width, p))](
        grad, grad if after is None else after, out, wanted, lot, rows, height * width, RELU=after is not None,
        COUNTED=counts is not None, BLOCK_R=r, BLOCK_P=p,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)
