"""Forms of per-example gradients: dense, product, sum of outer products and looked-up rows; each with its norm and its sum.

A form stands for the gradients `[runs, lot, *shape]` of one parameter, or of a few that are cheaper together. It answers the
two verbs of the package, and only `Dense` holds those tensors: the others hold factors, which are far smaller. A weight of
exactly 0 removes an example from the sum, whatever its gradient: 0 times infinity, or times NaN, never reaches a sum.

Norms come from the factors. For one example the gradient of a matrix W that was applied once, z = W a, is the outer product
(dL/dz) a^T, and |u a^T| = |u| |a|: two norms of vectors in place of one of a matrix. Where W was applied at positions t = 1..T,
as in a convolution or along a sequence, the gradient is sum_t u_t a_t^T, and

    |sum_t u_t a_t^T|^2 = sum_{s,t} <u_s, u_t> <a_s, a_t>,

the sum over the product of two Gram matrices `[T, T]` (ghost norm: Goodfellow 2015; Li et al. 2022).

The clip holds if no norm is below that of the gradient that is summed, so every approximation here errs to the larger side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol

import torch
from torch import Tensor

from honestdp import kernels
from honestdp.checks import InvalidArgument

Params = Mapping[str, Tensor]
"""Parameters of a population or of a layer in it, by name: `[runs, ...]`."""


class PerExample:
    """The gradients of every example in every run, behind two verbs. params: those of the population."""

    params: Params
    norms: Tensor
    """`[runs, lot]`, the norm of every example's gradient over all trainable parameters.

    Infinite or NaN where the gradient is, or where its square leaves the range of the dtype: such an example has to get weight 0.
    """

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        """The sum over the lot of `weights` `[runs, lot]` times the gradients: name -> `[runs, ...]`.

        An example of weight 0 contributes nothing at all, even where its gradient is infinite or NaN. Any
        other example that is not finite has to get weight 0: what it would give is not defined.
        """
        totals = {name: torch.zeros_like(value) for name, value in self.params.items()}
        self.add_weighted_sum(totals, weights)
        return totals

    def add_weighted_sum(self, totals: Mapping[str, Tensor], weights: Tensor) -> None:
        """Add that sum to `totals` in place: name -> `[runs, ...]`."""
        raise NotImplementedError


class Form(Protocol):
    """The per-example gradients of one or more parameters, as the two verbs see them."""

    def square_norms(self) -> Tensor:
        """`[runs, lot]`, the squared norm of the gradient of every example, infinite where it leaves the dtype's range."""

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        """Add the sum of the gradients times `weights` `[runs, lot]` to `totals`, `[runs, *shape]` for each parameter.

        counted: `[runs, lot]`, 1 where the weights are not 0 and 0 where they are. None promises that no value of this
        form is infinite or NaN, so that 0 times it is 0.
        """

    def dense(self) -> tuple[Tensor, ...]:
        """`[runs, lot, *shape]` for each parameter: the gradients themselves, for where several uses of one are added up."""


def silenced(values: Tensor, counted: Tensor | None) -> Tensor:
    """`values` `[runs, lot, ...]` with zeros for the examples whose `counted` `[runs, lot]` is 0, whatever they held."""
    if counted is None:
        return values
    return torch.where(counted.reshape(*counted.shape, *[1] * (values.dim() - 2)) != 0, values, 0)


def check_weights(weights: Tensor, norms: Tensor) -> None:
    if weights.shape != norms.shape:
        wanted = f"of shape {tuple(norms.shape)}, [runs, lot]: one number for each example"
        raise InvalidArgument("weights", tuple(weights.shape), wanted)


def is_counted(weights: Tensor) -> Tensor:
    """1 where `weights` are not 0, 0 where they are, in their dtype."""
    return torch.ne(weights, 0, out=torch.empty_like(weights))


def joint_norms(forms: Iterable[Form]) -> Tensor:
    """`[runs, lot]`, the norm of several forms together: the clip is for the gradient of all parameters."""
    return reduce(torch.add, (form.square_norms() for form in forms)).sqrt()


@contextmanager
def _as_matrix(total: Tensor, rows: int, columns: int) -> Iterator[Tensor]:
    """`total` `[runs, ...]` as `[runs, rows, columns]`, to be added to. Weights that lie channels last have no rows and columns:
    there it is a tensor of zeros, which is then added.
    """
    size = len(total), rows, columns
    if total[0].is_contiguous():
        yield total.view(size)
    else:
        matrix = total.new_zeros(size)
        yield matrix
        total.add_(matrix.view(total.shape))


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left right to `total` `[runs, rows, columns]`. A model may compute in fewer digits than its weights; a sum may not."""
    total.baddbmm_(left.to(total.dtype), right.to(total.dtype))


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


@dataclass(frozen=True)
class Dense:
    """The per-example gradients of one parameter themselves, `[runs, lot, *shape]`."""

    gradients: Tensor

    def square_norms(self) -> Tensor:
        return norms_of(self.gradients).square_()

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        rows = silenced(self.gradients, counted)
        rows = rows.reshape(*weights.shape, -1)
        with _as_matrix(totals[0], 1, rows.shape[2]) as total:
            _add_product(total, weights.unsqueeze(1), rows)

    def dense(self) -> tuple[Tensor, ...]:
        return (self.gradients,)


@dataclass(frozen=True)
class Product:
    """The gradient of a matrix that was applied once: left right^T, whose norm is the product of two norms.

    left: `[runs, lot, rows]`; right: `[runs, lot, columns]`. shift: whether the form also stands for a second parameter
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
        left, right, known = self.left, self.right, self.right_norms
        fused = kernels.on(left.device)
        if fused is not None and left.dtype == right.dtype == torch.float32:
            given = left.contiguous(), (right if known is None else known).contiguous()
            return fused.outer_square_norms(*given, right_is_norms=known is not None, shift=self.shift)
        # A factor too small to square is counted as what it may be at most: a huge other factor must not meet a zero.
        left_norms = norms_of(left).clamp_(min=_least_norm(left))
        norms = norms_of(right) if known is None else known
        if not self.shift:
            return (left_norms * norms.clamp(min=_least_norm(right))).square_()
        # |left|^2 (|right|^2 + 1), multiplied out: the square of `right` alone may leave the range where the product does not.
        both = left_norms * norms
        return torch.addcmul(left_norms.square_(), both, both)

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        fused = kernels.on(self.left.device) if self.left.dtype == weights.dtype == torch.float32 else None
        if fused is None:
            scaled = silenced(self.left, counted) * weights.unsqueeze(-1)
        else:
            scaled = fused.weigh(self.left.contiguous(), weights.contiguous())
        with _as_matrix(totals[0], scaled.shape[2], self.right.shape[2]) as total:
            if fused is not None and (self.right.dtype, total.dtype) == (torch.float32, torch.float64):
                # Silenced and converted in one pass.
                _add_product(total, scaled.mT, fused.widened(self.right.contiguous(), weights.contiguous()))
            else:
                _add_product(total, scaled.mT, self.right if self.right_finite else silenced(self.right, counted))
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
        _add_product(total.unsqueeze(1), ones.unsqueeze(1), scaled)
    else:
        total.add_(scaled.sum(1, dtype=torch.float64))


@dataclass(frozen=True)
class Outer:
    """The gradient of a matrix that was applied at one or more positions: the sum over t of left_t right_t^T.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`; the rest is as for a `Product`, with
    `shift` added at every position: its gradient is the sum over t of left_t.

    With few positions the norm comes from the two Gram matrices; where they cost more than the gradients, `outer` makes the
    gradients. Where the terms cancel all but completely the norm is taken larger than it is (`_as_summed`).
    """

    left: Tensor
    right: Tensor
    shape: tuple[int, ...]
    shift: bool = False
    right_finite: bool = False

    def square_norms(self) -> Tensor:
        # In float64 whatever the dtype: the double sum cancels where the terms of the gradient do, and what float32 would leave
        # of it is rounding, possibly far below the norm, which would let an example past the clip.
        left, right = self.left.double(), self.right.double()
        right_gram = torch.matmul(right, right.mT)
        right_squares = right_gram.diagonal(dim1=-2, dim2=-1).add(
            float(self.shift)
        )  # before the next line changes right_gram
        gram = torch.matmul(left, left.mT).mul_(right_gram.add_(1) if self.shift else right_gram)
        norms = gram.sum((-2, -1)).clamp_(min=0).sqrt_()
        terms = (torch.linalg.vector_norm(left, dim=-1) * right_squares.sqrt()).sum(-1)
        return _as_summed(norms, terms, self.left).square_().to(_precision(self.left))

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        right = self.right if self.right_finite else silenced(self.right, counted)
        # In float64: an example's terms may be far larger than their sum, and would round what others have given.
        scaled = (silenced(self.left, counted) * weights[..., None, None]).flatten(1, 2).double()
        product = torch.matmul(scaled.mT, right.flatten(1, 2).double())
        totals[0].add_(product.view(totals[0].shape))
        if self.shift:
            _add_rows_of(scaled, totals[1], ones=None)

    def dense(self) -> tuple[Tensor, ...]:
        gradients = torch.matmul(self.left.mT, self.right).reshape(*self.left.shape[:2], *self.shape)
        return (gradients, self.left.sum(2)) if self.shift else (gradients,)


def prefers_gram(left: Tensor, right: Tensor) -> bool:
    """Whether an `Outer` of these factors is cheaper than the gradients; with one position it is a `Product`, always cheaper."""
    positions, rows, columns = left.shape[2], left.shape[3], right.shape[3]
    return positions == 1 or gram_is_cheaper(positions, rows, columns)


def outer(left: Tensor, right: Tensor, *, shape: tuple[int, ...] | None = None) -> Form:
    """The cheaper of the two forms of sum over t of left_t right_t^T: by its factors or the gradients themselves.

    left: `[runs, lot, positions, rows]`; right: `[runs, lot, positions, columns]`. shape: of the parameter, where it is not
    `[rows, columns]`.
    """
    form = Outer(left, right, (left.shape[3], right.shape[3]) if shape is None else shape)
    return form if prefers_gram(left, right) else Dense(*form.dense())


def add_rows(table: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Add `rows` `[n, width]` to the rows `index` `[n]` of `table`, in an order that is the same every time."""
    if table.is_cuda:
        return table.index_put_((index,), rows, accumulate=True)
    return table.index_add_(0, index, rows)


def add_to_tables(totals: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add `rows` `[runs, lot, positions, width]` to the rows `index` `[runs, lot, positions]` of every run's table in `totals`,
    `[runs, rows, width]`.
    """
    runs, count, width = totals.shape
    offset = torch.arange(runs, device=index.device)[:, None, None] * count
    table = rows.new_zeros(runs * count, width, dtype=totals.dtype)
    add_rows(table, (index + offset).flatten(), rows.reshape(-1, width).to(table.dtype))
    totals.add_(table.view(totals.shape))


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
    def added(self) -> tuple[Tensor, Tensor]:
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
        return norms_of(self.added[1]).square_()

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        index, rows = self.added
        add_to_tables(totals[0], index, silenced(rows, counted) * weights[..., None, None])

    def dense(self) -> tuple[Tensor, ...]:
        runs, lot, _, width = self.gradients.shape
        offset = torch.arange(runs * lot, device=self.index.device).reshape(runs, lot, 1) * self.rows
        table = self.gradients.new_zeros(runs * lot * self.rows, width)
        add_rows(table, (self.index + offset).flatten(), self.gradients.reshape(-1, width))
        return (table.reshape(runs, lot, self.rows, width),)


def joined(forms: Sequence[Form]) -> Form | None:
    """One form for several uses of the same parameters, where that is cheaper than adding up their gradients."""
    factors = [_positions(form) for form in forms if isinstance(form, Product | Outer)]
    if len(factors) != len(forms) or len({(form.shape, form.shift) for form in factors}) != 1:
        return None
    # Uses add up as positions do: the gradient is the sum over all of them.
    left, right = torch.cat([form.left for form in factors], 2), torch.cat([form.right for form in factors], 2)
    return Outer(left, right, factors[0].shape, factors[0].shift) if prefers_gram(left, right) else None


def _positions(form: Product | Outer) -> Outer:
    """The form with a dimension for its positions."""
    if isinstance(form, Outer):
        return form
    return Outer(form.left.unsqueeze(2), form.right.unsqueeze(2), form.shape, form.shift)
