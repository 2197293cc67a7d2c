"""Gradients of records of several rows: the rows go through the model as examples do, and their gradients add up to the record's.

A record that is a person has k rows and a share of each, s_r: its loss is sum_r s_r loss(row r), so that its gradient is
sum_r s_r g_r. The model and the loss see single rows and need not know of people. The shares are weights of the losses
(`start_of`), or factors of the gradient of the output (`scaled`). Then a form of rows `[runs, lot * k]` is made into one of
records `[runs, lot]` before any norm is taken (`grouped`): rows are positions, like those of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from honestdp.gradients.forms import Dense, Form, Outer, Product, Rows, prefers_gram, silenced
from honestdp.gradients.rules import Names


def grouped(names: Names, form: Form, rows: int) -> Iterator[tuple[Names, Form]]:
    """The form of records of so many rows each, from that of their rows: one after the other, record by record.

    A form that stands for several parameters may come apart into one for each.
    """
    if isinstance(form, Product | Outer):
        yield from _outer(names, form, rows)
    elif isinstance(form, Rows):
        yield names, Rows(_positions(form.index, rows), _positions(form.gradients, rows), form.rows)
    else:  # a user's own may be anything
        yield from (((name,), Dense(added(values, rows))) for name, values in zip(names, form.dense(), strict=True))


def _outer(names: Names, form: Product | Outer, rows: int) -> Iterator[tuple[Names, Form]]:
    left, right = (
        _positions(part.unsqueeze(2) if isinstance(form, Product) else part, rows) for part in (form.left, form.right)
    )
    whole = Outer(left, right, form.shape, form.shift, form.right_finite)
    if prefers_gram(left, right):
        yield names, whole
    else:
        yield from (((name,), Dense(values)) for name, values in zip(names, whole.dense(), strict=True))


def _positions(values: Tensor, rows: int) -> Tensor:
    """`[runs, lot * rows, positions, ...]` as `[runs, lot, rows * positions, ...]`."""
    runs, count, positions = values.shape[:3]
    return values.reshape(runs, count // rows, rows * positions, *values.shape[3:])


def added(values: Tensor, rows: int) -> Tensor:
    """The gradients of rows `[runs, lot * rows, ...]`, added up to those of records `[runs, lot, ...]`."""
    runs, count = values.shape[:2]
    return values.reshape(runs, count // rows, rows, *values.shape[2:]).sum(2)


def shared(values: Tensor, shares: Tensor) -> Tensor:
    """The gradients of rows `[runs, lot * rows, ...]`, each times its share, added up. shares: `[runs, lot, rows]`.

    A row without a share adds nothing, whatever its gradient is.
    """
    flat = shares.flatten(1).to(values.dtype)
    each = silenced(values, flat) * flat.reshape(*flat.shape, *[1] * (values.dim() - 2))
    return added(each, shares.shape[2])


def slopes(
    values: Tensor, wanted: Sequence[Tensor] | Sequence[GradientEdge], weights: Tensor | None = None
) -> tuple[Any, ...]:
    """The gradients of the sum of all values, each times its weight. None where the values do not depend on a wanted tensor.

    From a scalar: to be given the gradient of anything else, torch imports sympy, which takes a second.
    """
    with torch.enable_grad():
        total = (values if weights is None else values * weights).sum()
    return torch.autograd.grad(total, wanted, allow_unused=True)


def start_of(losses: Tensor, shares: Tensor | None) -> Tensor | None:
    """The weights of the losses of all examples: None for ones, or the shares `[runs, lot, rows]` of rows."""
    return None if shares is None else shares.flatten().to(losses.dtype)


def scaled(slope: Tensor, shares: Tensor | None) -> Tensor:
    """The gradient of the losses for an output `[examples, ...]`, each row's times its share."""
    return slope if shares is None else slope * shares.reshape(-1, *[1] * (slope.dim() - 1)).to(slope.dtype)
