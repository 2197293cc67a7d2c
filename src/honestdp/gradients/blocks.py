"""Forms of a parameter that is used in parts or several times: blocks of rows, and factors laid side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from honestdp.gradients.forms import Form, Outer, Product, prefers_gram


@dataclass(frozen=True)
class Block:
    """The gradient of a parameter of which one use read the rows from `first` on: `form` there, and zero in all other rows."""

    form: Form
    first: int
    count: int
    rows: int
    """Of the whole parameter."""

    def square_norms(self) -> Tensor:
        return self.form.square_norms()

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        parts = [total.narrow(1, self.first, self.count) for total in totals]
        self.form.add_weighted_sum(parts, weights, counted=counted)

    def dense(self) -> tuple[Tensor, ...]:
        return tuple(self._padded(value) for value in self.form.dense())

    def _padded(self, value: Tensor) -> Tensor:
        whole = value.new_zeros(*value.shape[:2], self.rows, *value.shape[3:])
        whole.narrow(2, self.first, self.count).copy_(value)
        return whole


@dataclass(frozen=True)
class Blocks:
    """Several blocks of one parameter that have no row in common, so that their squares add."""

    blocks: Sequence[Block]

    def square_norms(self) -> Tensor:
        return reduce(torch.add, (block.square_norms() for block in self.blocks))

    def add_weighted_sum(self, totals: Sequence[Tensor], weights: Tensor, *, counted: Tensor | None) -> None:
        for block in self.blocks:
            block.add_weighted_sum(totals, weights, counted=counted)

    def dense(self) -> tuple[Tensor, ...]:
        return tuple(reduce(torch.add, parts) for parts in zip(*(b.dense() for b in self.blocks), strict=True))


def joined(forms: Sequence[Form]) -> Form | None:
    """One form for several uses of the same parameters, where that is cheaper than adding up their gradients."""
    blocks = [form for form in forms if isinstance(form, Block)]
    if len(blocks) == len(forms):
        order = sorted(blocks, key=lambda block: block.first)
        apart = all(one.first + one.count <= other.first for one, other in pairwise(order))
        return Blocks(order) if apart else None
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
