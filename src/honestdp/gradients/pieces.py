"""The gradients of a layer for every run and example, in the form whose norms and weighted sums are cheapest.

A piece stands for the per-example gradients `[runs, lot, *shape]` of one parameter, or of a few that are cheaper
together. It answers the two verbs of the package and need not hold those tensors. A weight of exactly 0 removes an
example from the sum, whatever its gradient: 0 times infinity, or times not-a-number, never reaches a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor


class Piece(Protocol):
    def norms(self) -> Tensor:
        """`[runs, lot]`, the norm of the gradient of every example."""

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, finite: bool) -> None:
        """Add the sum of the gradients times `weights` `[runs, lot]` to `totals`, `[runs, *shape]` for each parameter.

        `finite` promises that no value of this piece is infinite or not a number, so that 0 times it is 0.
        """

    def dense(self) -> tuple[Tensor, ...]:
        """`[runs, lot, *shape]` for each parameter: the gradients themselves, for where nothing cheaper will do."""


def silence(values: Tensor, weights: Tensor) -> Tensor:
    """`values` `[runs, lot, ...]` with the examples of weight 0 replaced by zeros, whatever they held."""
    kept = (weights != 0).reshape(*weights.shape, *[1] * (values.dim() - 2))
    return torch.where(kept, values, 0)


def _norms(values: Tensor) -> Tensor:
    """`[runs, lot]`: the norms of `values` `[runs, lot, ...]`."""
    norms: Tensor = torch.linalg.vector_norm(values.reshape(*values.shape[:2], -1), dim=-1)
    return norms


def joined(norms: Iterable[Tensor]) -> Tensor:
    """The norm of several gradients together, from that of each `[runs, lot]`."""
    return reduce(torch.hypot, norms)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left right, `[runs, rows, columns]`, to `total`, which has as many numbers a run in another shape."""
    product = total.view(left.shape[0], left.shape[1], right.shape[2])
    product.baddbmm_(left.to(total.dtype), right.to(total.dtype))


@dataclass(frozen=True)
class Dense:
    """The per-example gradients of one parameter themselves, `[runs, lot, *shape]`."""

    gradients: Tensor

    def norms(self) -> Tensor:
        return _norms(self.gradients)

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, finite: bool) -> None:
        rows = self.gradients if finite else silence(self.gradients, weights)
        _add_product(totals[0], weights.unsqueeze(1), rows.reshape(*weights.shape, -1))

    def dense(self) -> tuple[Tensor, ...]:
        return (self.gradients,)


@dataclass(frozen=True)
class Outer:
    """The gradient of a matrix that was applied at one or more positions: the sum over t of left_t right_t^T.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`; shape: of the parameter, where it
    is not `[rows, columns]` itself. shift: whether the piece also stands for a second parameter `[rows]` that was added
    at every position. Its gradient is the sum over t of left_t, as if `right` had one more column, of ones.

    With one position the norm is the product of two norms. With few positions it comes from the two Gram matrices
    (ghost norm: Goodfellow 2015; Li et al. 2022), in float64 whatever the dtype: their product cancels where the terms
    of the sum do, and a norm that comes out too small would let an example past the clip. Where the Gram matrices cost
    more than the gradients, `outer` makes the gradients.
    """

    left: Tensor
    right: Tensor
    shape: tuple[int, ...]
    shift: bool = False
    right_finite: bool = False
    """Whether `right` is known to hold finite numbers only, so that zeros on the left are enough."""

    def norms(self) -> Tensor:
        if self.left.shape[2] == 1:
            # A factor too small to square is counted as the smallest number: a huge other factor must not meet a zero.
            tiny = torch.finfo(self.left.dtype).tiny ** 0.5
            left, right = _norms(self.left).clamp_(min=tiny), _norms(self.right)
            return torch.hypot(left * right, left) if self.shift else left * right.clamp_(min=tiny)
        left, right = self.left.double(), self.right.double()
        seen = torch.matmul(right, right.mT)
        gram = torch.matmul(left, left.mT).mul_(seen.add_(1) if self.shift else seen)
        return gram.sum((-2, -1)).clamp_(min=0).sqrt_().to(self.left.dtype)

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, finite: bool) -> None:
        scaled = (self.left * weights[..., None, None]).flatten(1, 2)
        right = self.right
        if not finite:
            # What is not finite has weight 0, and 0 times a finite number is 0 already.
            scaled.nan_to_num_(nan=0, posinf=0, neginf=0)
            right = right if self.right_finite else silence(right, weights)
        _add_product(totals[0], scaled.mT, right.flatten(1, 2))
        if self.shift:
            # A product with ones: a GPU's sum over the lot takes three times as long.
            _add_product(totals[1], scaled.new_ones(scaled.shape[0], 1, scaled.shape[1]), scaled)

    def dense(self) -> tuple[Tensor, ...]:
        gradients = torch.matmul(self.left.mT, self.right).reshape(*self.left.shape[:2], *self.shape)
        return (gradients, self.left.sum(2)) if self.shift else (gradients,)


def prefers_gram(left: Tensor, right: Tensor) -> bool:
    """Whether the norms of an outer piece come cheaper without the gradients, by the shapes alone."""
    positions, rows, columns = left.shape[2], left.shape[3], right.shape[3]
    return positions == 1 or rows * columns > 2 * positions * (rows + columns)


def outer(left: Tensor, right: Tensor, *, shape: tuple[int, ...] | None = None) -> Piece:
    """The cheaper of the two forms of sum over t of left_t right_t^T.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`.
    """
    piece = Outer(left, right, (left.shape[3], right.shape[3]) if shape is None else shape)
    return piece if prefers_gram(left, right) else Dense(*piece.dense())


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

    def norms(self) -> Tensor:
        """An example's repeated rows add before they are squared: equal rows are sorted together and summed."""
        runs, lot, positions, width = self.gradients.shape
        ordered, order = self.index.sort(dim=-1)
        moved = self.gradients.gather(2, order.unsqueeze(-1).expand(-1, -1, -1, width))
        fresh = torch.ones_like(ordered)
        fresh[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        group = fresh.flatten().cumsum(0) - 1  # the first position of an example is fresh, so no two examples share one
        summed = add_rows(moved.new_zeros(runs * lot * positions, width), group, moved.reshape(-1, width))
        squares = torch.linalg.vecdot(summed, summed)
        return torch.where(fresh.flatten() == 1, squares[group], 0).reshape(runs, lot, positions).sum(-1).sqrt_()

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, finite: bool) -> None:
        runs, _, _, width = self.gradients.shape
        scaled = self.gradients * weights[..., None, None]
        if not finite:
            scaled.nan_to_num_(nan=0, posinf=0, neginf=0)
        offset = torch.arange(runs, device=self.index.device)[:, None, None] * self.rows
        table = scaled.new_zeros(runs * self.rows, width)
        add_rows(table, (self.index + offset).flatten(), scaled.reshape(-1, width))
        totals[0].add_(table.view(totals[0].shape))

    def dense(self) -> tuple[Tensor, ...]:
        runs, lot, _, width = self.gradients.shape
        offset = torch.arange(runs * lot, device=self.index.device).reshape(runs, lot, 1) * self.rows
        table = self.gradients.new_zeros(runs * lot * self.rows, width)
        add_rows(table, (self.index + offset).flatten(), self.gradients.reshape(-1, width))
        return (table.reshape(runs, lot, self.rows, width),)
