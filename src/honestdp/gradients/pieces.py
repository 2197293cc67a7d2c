"""The gradients of one parameter for every run and example, in the form whose norms and weighted sums are cheapest.

A piece stands for a tensor of per-example gradients `[runs, lot, *shape]` of one parameter. It answers the two verbs of
the package and need not hold that tensor. A weight of exactly 0 removes an example from the sum, whatever its gradient:
0 times infinity, or times not-a-number, never reaches a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Piece(Protocol):
    def square_norms(self) -> Tensor:
        """`[runs, lot]`, the squared norm of this parameter's gradient for every example."""

    def weighted_sum(self, weights: Tensor, *, finite: bool) -> Tensor:
        """`[runs, *shape]`, the sum of the gradients times `weights` `[runs, lot]`.

        `finite` promises that no value of this piece is infinite or not a number, so that 0 times it is 0.
        """

    def dense(self) -> Tensor:
        """`[runs, lot, *shape]`, the gradients themselves, for where nothing cheaper will do."""


def silence(values: Tensor, weights: Tensor) -> Tensor:
    """`values` `[runs, lot, ...]` with the examples of weight 0 replaced by zeros, whatever they held."""
    kept = (weights != 0).reshape(*weights.shape, *[1] * (values.dim() - 2))
    return torch.where(kept, values, 0)


def _square_sum(values: Tensor) -> Tensor:
    """`[runs, lot]`: the sum of squares of `values` `[runs, lot, ...]`."""
    norms: Tensor = torch.linalg.vector_norm(values.reshape(*values.shape[:2], -1), dim=-1)
    return norms.square()


@dataclass(frozen=True)
class Dense:
    """The per-example gradients themselves, `[runs, lot, *shape]`."""

    gradients: Tensor

    def square_norms(self) -> Tensor:
        return _square_sum(self.gradients)

    def weighted_sum(self, weights: Tensor, *, finite: bool) -> Tensor:
        rows = self.gradients if finite else silence(self.gradients, weights)
        runs, lot, *shape = rows.shape
        return torch.bmm(weights.unsqueeze(1), rows.reshape(runs, lot, -1)).reshape(runs, *shape)

    def dense(self) -> Tensor:
        return self.gradients


@dataclass(frozen=True)
class Outer:
    """The gradient of a matrix that was applied at one or more positions: the sum over t of left_t right_t^T.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`; shape: of the parameter, where it
    is not `[rows, columns]` itself.

    With one position the norm is the product of two norms. With few positions it comes from the two Gram matrices
    (ghost norm: Goodfellow 2015; Li et al. 2022), in float64 whatever the dtype: their product cancels where the terms
    of the sum do, and a norm that comes out too small would let an example past the clip. Where the Gram matrices cost
    more than the gradients, `outer` makes the gradients.
    """

    left: Tensor
    right: Tensor
    shape: tuple[int, ...]
    right_finite: bool = False
    """Whether `right` is known to hold finite numbers only, so that zeros on the left are enough."""

    def square_norms(self) -> Tensor:
        if self.left.shape[2] == 1:
            # A factor too small to square is counted as the smallest number: a huge other factor must not meet a zero.
            tiny = torch.finfo(self.left.dtype).tiny
            return _square_sum(self.left).clamp(min=tiny) * _square_sum(self.right).clamp(min=tiny)
        left, right = self.left.double(), self.right.double()
        gram = torch.matmul(left, left.mT) * torch.matmul(right, right.mT)
        return gram.sum((-2, -1)).clamp(min=0).to(self.left.dtype)

    def weighted_sum(self, weights: Tensor, *, finite: bool) -> Tensor:
        scaled = self.left * weights[..., None, None]
        if finite:
            right = self.right
        else:
            scaled = silence(scaled, weights)
            right = self.right if self.right_finite else silence(self.right, weights)
        total = torch.bmm(scaled.flatten(1, 2).mT, right.flatten(1, 2))
        return total.reshape(total.shape[0], *self.shape)

    def dense(self) -> Tensor:
        gradients = torch.matmul(self.left.mT, self.right)
        return gradients.reshape(*self.left.shape[:2], *self.shape)


def outer(left: Tensor, right: Tensor, *, shape: tuple[int, ...] | None = None) -> Piece:
    """The cheaper of the two forms of sum over t of left_t right_t^T, by the shapes alone.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`.
    """
    positions, rows, columns = left.shape[2], left.shape[3], right.shape[3]
    shape = (rows, columns) if shape is None else shape
    if positions == 1 or rows * columns > 2 * positions * (rows + columns):
        return Outer(left, right, shape)
    return Dense(Outer(left, right, shape).dense())


def add_rows(table: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Add `rows` `[n, width]` to the rows `index` `[n]` of `table`, in an order that is the same every time."""
    if table.is_cuda:
        return table.index_put_((index,), rows, accumulate=True)
    return table.index_add_(0, index, rows)


@dataclass(frozen=True)
class Rows:
    """The gradient of a table that was looked up.

    index: `[runs, lot, positions]`, which row; gradients: `[runs, lot, positions, width]`, the gradient it received;
    rows: how many rows the table has.
    """

    index: Tensor
    gradients: Tensor
    rows: int

    def square_norms(self) -> Tensor:
        """An example's repeated rows add before they are squared: equal rows are sorted together and summed."""
        runs, lot, positions, width = self.gradients.shape
        ordered, order = self.index.sort(dim=-1)
        moved = self.gradients.gather(2, order.unsqueeze(-1).expand(-1, -1, -1, width))
        fresh = torch.ones_like(ordered)
        fresh[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        group = fresh.flatten().cumsum(0) - 1  # the first position of an example is fresh, so no two examples share one
        summed = add_rows(moved.new_zeros(runs * lot * positions, width), group, moved.reshape(-1, width))
        squares = torch.linalg.vecdot(summed, summed)
        return torch.where(fresh.flatten() == 1, squares[group], 0).reshape(runs, lot, positions).sum(-1)

    def weighted_sum(self, weights: Tensor, *, finite: bool) -> Tensor:
        runs, _, _, width = self.gradients.shape
        scaled = self.gradients * weights[..., None, None]
        scaled = scaled if finite else silence(scaled, weights)
        offset = torch.arange(runs, device=self.index.device)[:, None, None] * self.rows
        table = scaled.new_zeros(runs * self.rows, width)
        add_rows(table, (self.index + offset).flatten(), scaled.reshape(-1, width))
        return table.reshape(runs, self.rows, width)

    def dense(self) -> Tensor:
        runs, lot, _, width = self.gradients.shape
        offset = torch.arange(runs * lot, device=self.index.device).reshape(runs, lot, 1) * self.rows
        table = self.gradients.new_zeros(runs * lot * self.rows, width)
        add_rows(table, (self.index + offset).flatten(), self.gradients.reshape(-1, width))
        return table.reshape(runs, lot, self.rows, width)
