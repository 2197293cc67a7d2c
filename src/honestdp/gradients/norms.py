"""Norms of per-example gradients by formula: from the factors of a gradient, without the gradient.

For one example the gradient of a matrix W that was applied once, z = W a, is the outer product (dL/dz) a^T, and
|u a^T| = |u| |a|: two norms of vectors in place of one of a matrix. Where W was applied at positions t = 1..T, as in a
convolution or along a sequence, the gradient is sum_t u_t a_t^T, and

    |sum_t u_t a_t^T|^2 = sum_{s,t} <u_s, u_t> <a_s, a_t>,

the sum over the product of two Gram matrices `[T, T]` (ghost norm: Goodfellow 2015; Li et al. 2022).

The clip holds if no norm comes out below that of what is summed, so every approximation here errs to the larger side.
"""

from __future__ import annotations

import torch
from torch import Tensor

from honestdp import kernels

LONG = 1 << 10
"""Numbers above which squares are summed in float64: a long sum of squares in float32 comes out too small by per cents."""
SHORT_SUM = 64
CANCELS = 32
SHORT = 2.0**-9
"""Above what TensorFloat-32 may add to a product of two rounded factors, as a part of it."""


def norms_of(values: Tensor) -> Tensor:
    """`[runs, lot]`: the norms of `values` `[runs, lot, ...]`, in float32 or float64."""
    flat = values if values.dim() == 3 else values.reshape(*values.shape[:2], -1)
    precision, size = _precision(values), flat.shape[-1]
    if size > LONG and values.dtype == torch.float32 and size % SHORT_SUM == 0 and not values.is_cuda:
        # Norms of short pieces first: to turn all numbers into float64 takes longer than to sum them.
        flat = torch.linalg.vector_norm(flat.view(*flat.shape[:2], -1, SHORT_SUM), dim=-1)
    summed_in = torch.float64 if size > LONG else None if values.dtype == precision else precision
    norms: Tensor = torch.linalg.vector_norm(flat, dim=-1, dtype=summed_in)
    return norms if norms.dtype == precision else norms.to(precision)


def _precision(values: Tensor) -> torch.dtype:
    """The dtype of norms. A model may compute in fewer digits than float32; the sum does not, so no norm may."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def _least_norm(values: Tensor) -> float:
    """The largest norm of a vector whose numbers are all too small to square: their squares are 0, they are not."""
    return float((values.shape[-1] * torch.finfo(_precision(values)).tiny) ** 0.5)


def product_square_norms(left: Tensor, right: Tensor, *, right_norms: Tensor | None, shift: bool) -> Tensor:
    """`[runs, lot]`: |left right^T|^2 of every example, and with `shift` |(left right^T, left)|^2.

    left: `[runs, lot, rows]`; right: `[runs, lot, columns]`; right_norms: `[runs, lot]`, its norms where they are known.
    """
    fused = kernels.on(left.device)
    if fused is not None and left.dtype == right.dtype == torch.float32:
        known = right_norms is not None
        right = right if right_norms is None else right_norms
        return fused.outer_square_norms(left.contiguous(), right.contiguous(), right_is_norms=known, shift=shift)
    # A factor too small to square is counted as what it may be at most: a huge other factor must not meet a zero.
    left_norms = norms_of(left).clamp_(min=_least_norm(left))
    norms = norms_of(right) if right_norms is None else right_norms
    if not shift:
        return (left_norms * norms.clamp(min=_least_norm(right))).square_()
    # |left|^2 (|right|^2 + 1), multiplied out: the square of `right` alone may leave the range where the product does not.
    both = left_norms * norms
    return torch.addcmul(left_norms.square_(), both, both)


def gram_square_norms(left: Tensor, right: Tensor, *, shift: bool) -> Tensor:
    """`[runs, lot]`: |sum_t left_t right_t^T|^2 of every example, from the two Gram matrices.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`. shift: together with |sum_t left_t|^2, as if
    `right` had one more column, of ones.
    """
    fused = kernels.on(left.device) if left.dtype == right.dtype == torch.float32 else None
    if fused is not None and left.shape[2] <= kernels.POSITIONS:
        return fused.gram_square_norms(left.contiguous(), right.contiguous(), shift=shift, slack=SHORT)
    # In float64 whatever the dtype: the double sum cancels where the terms of the gradient do, and what float32 would leave of
    # it is rounding, possibly far below the norm, which would let an example past the clip.
    precise_left, precise_right = left.double(), right.double()
    right_gram = torch.matmul(precise_right, precise_right.mT)
    right_squares = right_gram.diagonal(dim1=-2, dim2=-1).add(float(shift))  # before the next line changes right_gram
    gram = torch.matmul(precise_left, precise_left.mT).mul_(right_gram.add_(1) if shift else right_gram)
    norms = gram.sum((-2, -1)).clamp_(min=0).sqrt_()
    terms = (torch.linalg.vector_norm(precise_left, dim=-1) * right_squares.sqrt()).sum(-1)
    return _as_summed(norms, terms, left).square_().to(_precision(left))


def _as_summed(norms: Tensor, terms: Tensor, like: Tensor) -> Tensor:
    """The norm that an example's part of a sum can have, where that part is itself a sum of terms.

    norms: of the exact sum of the terms; terms: the sum of their norms; like: a factor of them as they are multiplied.
    Terms that cancel exactly do not cancel in floating point. In TensorFloat-32 each of them is off by up to 2^-10 of
    itself. In full precision each rounds what has been summed so far, the other examples' parts too, by its own last
    digit: so a norm below a 32nd of the terms is not believed, which leaves an error of a thousandth at worst.
    """
    if like.is_cuda and like.dtype != torch.float64:
        return norms + SHORT * terms
    return torch.maximum(norms, terms / CANCELS)


def gram_is_cheaper(positions: int, rows: int, columns: int) -> bool:
    """Whether the Gram matrices take less work and memory than the gradient itself, by the shapes alone.

    Per example they take positions^2 (rows + columns) multiplications, against positions * rows * columns for the gradient. They
    have to win by a factor of 2, which is about what their float64 costs.
    """
    return rows * columns > 2 * positions * (rows + columns)
