"""The gradients of a layer for every run and example, in the form whose norms and weighted sums are cheapest.

A piece stands for the per-example gradients `[runs, lot, *shape]` of one parameter, or of a few that are cheaper
together. It answers the two verbs of the package and need not hold those tensors. A weight of exactly 0 removes an
example from the sum, whatever its gradient: 0 times infinity, or times not-a-number, never reaches a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol

import torch
from torch import Tensor

from honestdp import kernels
from honestdp.checks import InvalidArgument


class Piece(Protocol):
    def square_norms(self) -> Tensor:
        """`[runs, lot]`, the squared norm of the gradient of every example, infinite where it leaves the dtype's range."""

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        """Add the sum of the gradients times `weights` `[runs, lot]` to `totals`, `[runs, *shape]` for each parameter.

        counted: `[runs, lot]`, 1 where the weights are not 0 and 0 where they are. None promises that no value of this
        piece is infinite or not a number, so that 0 times it is 0.
        """

    def dense(self) -> tuple[Tensor, ...]:
        """`[runs, lot, *shape]` for each parameter: the gradients themselves, for where nothing cheaper will do."""


def silenced(values: Tensor, counted: Tensor | None) -> Tensor:
    """`values` `[runs, lot, ...]` with zeros for the examples whose `counted` `[runs, lot]` is 0, whatever they held."""
    if counted is None:
        return values
    return torch.where(counted.reshape(*counted.shape, *[1] * (values.dim() - 2)) != 0, values, 0)


_MANY = 1 << 10
CANCELS = 32
SHORT = 2.0**-9
"""Above what TensorFloat-32 may add to a product of two rounded factors, as a part of it."""


def _norms(values: Tensor) -> Tensor:
    """`[runs, lot]`: the norms of `values` `[runs, lot, ...]`."""
    flat = values if values.dim() == 3 else values.reshape(*values.shape[:2], -1)
    # A long sum of squares in float32 comes out too small by per cents.
    told = _precision(values)
    exact = torch.float64 if flat.shape[-1] > _MANY else None if values.dtype == told else told
    norms: Tensor = torch.linalg.vector_norm(flat, dim=-1, dtype=exact)
    return norms if norms.dtype == told else norms.to(told)


def _precision(values: Tensor) -> torch.dtype:
    """What norms are told in. A model may compute in fewer digits than float32; the sum does not, so no norm may."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def _least_norm(values: Tensor) -> float:
    """What a norm may be where every number is too small to square."""
    return float((values.shape[-1] * torch.finfo(_precision(values)).tiny) ** 0.5)


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


def check_weights(weights: Tensor, norms: Tensor) -> None:
    if weights.shape != norms.shape:
        wanted = f"of shape {tuple(norms.shape)}, [runs, lot]: one number for each example"
        raise InvalidArgument("weights", tuple(weights.shape), wanted)


def is_counted(weights: Tensor) -> Tensor:
    """1 where `weights` are not 0, 0 where they are, in their dtype."""
    return torch.ne(weights, 0, out=torch.empty_like(weights))


def joined(pieces: Iterable[Piece]) -> Tensor:
    """`[runs, lot]`, the norm of several pieces together."""
    return reduce(torch.add, (piece.square_norms() for piece in pieces)).sqrt()


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left right, `[runs, rows, columns]`, to `total`, which has as many numbers a run in another shape."""
    product = total.view(left.shape[0], left.shape[1], right.shape[2])
    if left.dtype != total.dtype or right.dtype != total.dtype:
        left, right = left.to(total.dtype), right.to(total.dtype)
    product.baddbmm_(left, right)


@dataclass(frozen=True)
class Dense:
    """The per-example gradients of one parameter themselves, `[runs, lot, *shape]`."""

    gradients: Tensor

    def square_norms(self) -> Tensor:
        return _norms(self.gradients).square_()

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        rows = silenced(self.gradients, counted)
        _add_product(totals[0], weights.unsqueeze(1), rows.reshape(*weights.shape, -1))

    def dense(self) -> tuple[Tensor, ...]:
        return (self.gradients,)


@dataclass(frozen=True)
class Product:
    """The gradient of a matrix that was applied once: left right^T, whose norm is the product of two norms.

    left: `[runs, lot, rows]`; right: `[runs, lot, columns]`. shift: whether the piece also stands for a second parameter
    `[rows]` that was added. Its gradient is `left`, as if `right` had one more column, of ones.
    """

    left: Tensor
    right: Tensor
    shape: tuple[int, ...]
    """Of the parameter, where it is not `[rows, columns]` itself."""
    shift: bool = False
    right_finite: bool = False
    """Whether `right` is known to hold finite numbers only, so that zeros on the left are enough."""
    right_norms: Tensor | None = None
    """`[runs, lot]`, the norms of `right` where they are known."""

    def square_norms(self) -> Tensor:
        # A factor too small to square is counted as what it may be at most: a huge other factor must not meet a zero.
        fused = kernels.on(self.left.device)
        if fused is not None and self.left.dtype == self.right.dtype == torch.float32:
            known = self.right_norms is not None
            right = self.right if self.right_norms is None else self.right_norms
            return fused.outer_square_norms(
                self.left.contiguous(), right.contiguous(), right_is_norms=known, shift=self.shift
            )
        left = _norms(self.left).clamp_(min=_least_norm(self.left))
        right = _norms(self.right) if self.right_norms is None else self.right_norms
        if not self.shift:
            return (left * right.clamp(min=_least_norm(self.right))).square_()
        both = left * right
        return torch.addcmul(left.square_(), both, both)

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        right = self.right if self.right_finite else silenced(self.right, counted)
        fused = kernels.on(self.left.device)
        if fused is not None and self.left.dtype == weights.dtype == torch.float32:
            scaled = fused.weigh(self.left.contiguous(), weights.contiguous())
        else:
            scaled = silenced(self.left, counted) * weights.unsqueeze(-1)
        _add_product(totals[0], scaled.mT, right)
        if self.shift:
            _add_rows_of(scaled, totals[1], ones=counted)

    def dense(self) -> tuple[Tensor, ...]:
        gradients = (self.left.unsqueeze(-1) * self.right.unsqueeze(-2)).reshape(*self.left.shape[:2], *self.shape)
        return (gradients, self.left) if self.shift else (gradients,)


def _add_rows_of(scaled: Tensor, total: Tensor, *, ones: Tensor | None) -> None:
    """Add the sum of `scaled` `[runs, many, rows]` over its second dimension to `total` `[runs, rows]`.

    ones: `[runs, many]`, 1 where `scaled` is not 0, if such are at hand.
    """
    if scaled.is_cuda:  # where a sum takes three times as long as a product with ones
        ones = scaled.new_ones(scaled.shape[:2]) if ones is None else ones
        _add_product(total, ones.unsqueeze(1), scaled)
    else:
        total.add_(scaled.sum(1, dtype=torch.float64))


@dataclass(frozen=True)
class Outer:
    """The gradient of a matrix that was applied at one or more positions: the sum over t of left_t right_t^T.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`; the rest is as for a `Product`, with
    `shift` added at every position: its gradient is the sum over t of left_t.

    With few positions the norm comes from the two Gram matrices (ghost norm: Goodfellow 2015; Li et al. 2022), in float64
    whatever the dtype: their product cancels where the terms of the sum do, and a norm that comes out too small would let
    an example past the clip. Where the terms cancel all but completely it is taken larger than it is (`_as_summed`). Where
    the Gram matrices cost more than the gradients, `outer` makes the gradients.
    """

    left: Tensor
    right: Tensor
    shape: tuple[int, ...]
    shift: bool = False
    right_finite: bool = False

    @property
    def _single(self) -> Product | None:
        """The piece without its positions, if there is but one."""
        if self.left.shape[2] != 1:
            return None
        return Product(self.left.squeeze(2), self.right.squeeze(2), self.shape, self.shift, self.right_finite)

    def square_norms(self) -> Tensor:
        single = self._single
        if single is not None:
            return single.square_norms()
        left, right = self.left.double(), self.right.double()
        seen = torch.matmul(right, right.mT)
        lengths = seen.diagonal(dim1=-2, dim2=-1).add(float(self.shift))
        gram = torch.matmul(left, left.mT).mul_(seen.add_(1) if self.shift else seen)
        norms = gram.sum((-2, -1)).clamp_(min=0).sqrt_()
        terms = (torch.linalg.vector_norm(left, dim=-1) * lengths.sqrt()).sum(-1)
        return _as_summed(norms, terms, self.left).square_().to(_precision(self.left))

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        single = self._single
        if single is not None:
            return single.add_weighted_sum(totals, weights, counted=counted)
        right = self.right if self.right_finite else silenced(self.right, counted)
        # In float64: an example's terms may be far larger than their sum, and would round what others have given.
        scaled = (silenced(self.left, counted) * weights[..., None, None]).flatten(1, 2).double()
        product = torch.matmul(scaled.mT, right.flatten(1, 2).double())
        totals[0].add_(product.view(totals[0].shape))
        if self.shift:
            _add_rows_of(scaled, totals[1], ones=None)
        return None

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

    @cached_property
    def _added(self) -> tuple[Tensor, Tensor]:
        """Rows and gradients in which an example has a row once: what it received in several places is added up there, and
        zeros are in the others. `[runs, lot, positions]` and `[runs, lot, positions, width]`.

        The sum that is released is made of these too: a norm after the adding up would not bound a sum before it.
        """
        runs, lot, positions, width = self.gradients.shape
        ordered, order = self.index.sort(dim=-1)
        moved = self.gradients.gather(2, order.unsqueeze(-1).expand(-1, -1, -1, width))
        fresh = torch.ones_like(ordered, dtype=torch.bool)
        fresh[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        group = fresh.flatten().cumsum(0) - 1  # the first position of an example is fresh, so no two examples share one
        summed = add_rows(moved.new_zeros(runs * lot * positions, width), group, moved.reshape(-1, width))
        return ordered, torch.where(fresh.unsqueeze(-1), summed[group].view(runs, lot, positions, width), 0)

    def square_norms(self) -> Tensor:
        return _norms(self._added[1]).square_()

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        runs, _, _, width = self.gradients.shape
        index, rows = self._added
        scaled = silenced(rows, counted) * weights[..., None, None]
        offset = torch.arange(runs, device=index.device)[:, None, None] * self.rows
        table = scaled.new_zeros(runs * self.rows, width, dtype=totals[0].dtype)
        add_rows(table, (index + offset).flatten(), scaled.reshape(-1, width).to(table.dtype))
        totals[0].add_(table.view(totals[0].shape))

    def dense(self) -> tuple[Tensor, ...]:
        runs, lot, _, width = self.gradients.shape
        offset = torch.arange(runs * lot, device=self.index.device).reshape(runs, lot, 1) * self.rows
        table = self.gradients.new_zeros(runs * lot * self.rows, width)
        add_rows(table, (self.index + offset).flatten(), self.gradients.reshape(-1, width))
        return (table.reshape(runs, lot, self.rows, width),)
