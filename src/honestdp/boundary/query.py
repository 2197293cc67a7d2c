"""What mechanism and optimizers exchange: `Constants` that are public, a `Query`, its `Release`.

A query may hold a `SecondQuestion`: one more sum over the lot of the step, beside that of the clipped gradients. The question
says what each record adds to its sum, how much that is at most (`sensitivity`), and how much noise the rule wants on it. The
mechanism adds that noise, and takes its price from the gradient (`clipping.gradient_multiplier`): together the two answers are
one Gaussian query of multiplier sigma. Terms are computed from private norms and inputs, so the mechanism answers the questions
of this file and no others: a rule chooses one and its noise, and cannot define one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from honestdp.boundary.records import Examples
from honestdp.gradients import inputs
from honestdp.gradients.layout import Layout

State = dict[str, Tensor]
"""What a rule remembers between steps, by name; every tensor is `[runs, ...]`."""
LEAST_CLIP = 1e-12
"""The squares of numbers below 1e-19 are lost in float32, so a gradient of norm 1e-15 may seem to have none: such norms
must not come near a clip."""
HALF_RANGE = 3.453125
"""Half of the range [0, 6.90625] that the logarithm of an input's norm is clipped to: norms up to 999."""
_FINE = 2.0**16
"""Logarithms are rounded to multiples of its inverse, so that their sums are exact in float64, whatever their order."""


@dataclass(frozen=True)
class Constants:
    """What is public about a population.

    records: N. lot: L, the divisor of every release. steps: T. noise: sigma, `[runs]`. layout: the model's shapes.
    factors: the schedule of the step size, `[steps]`.
    echo: `[runs, norms, shakes]`, how far noise in the initial weights moves the outputs on made-up inputs (`optimizers.echo`),
        for a rule that goes by it; None where the weights are not known yet.
    """

    records: int
    lot: float
    steps: int
    noise: Tensor
    layout: Layout
    factors: Tensor
    echo: Tensor | None = None

    def copy(self) -> Constants:
        """The same with tensors of its own: who writes to those of one changes nothing of the other."""
        echo = None if self.echo is None else self.echo.clone()
        return replace(self, noise=self.noise.clone(), factors=self.factors.clone(), echo=echo)


@dataclass(frozen=True)
class SecondQuestion:
    """noise: the standard deviation of the noise on the sum, `[runs]`."""

    noise: Tensor

    name: ClassVar[str]
    sensitivity: ClassVar[float]
    """One record adds a vector of this norm to the sum, at most."""
    centre: ClassVar[float] = 0.0
    """The middle of the range of a record's number, added to the released mean."""
    weighs_gradients: ClassVar[bool] = False
    """Whether `terms` weigh the records' gradients, of which the sum is then made; else the sum is that of the terms."""

    def terms(self, norms: Tensor, examples: Examples, clip: Tensor) -> Tensor:
        """One number for each record, `[runs, width]`; 0 for padding.

        Args:
            norms: Norms of the records' gradients, `[runs, width]`.
            examples: The records.
            clip: C, `[runs]`.
        """
        raise NotImplementedError

    def zeros(self, params: Tensor) -> Tensor:
        """An answer of zeros, to try a rule on. params: `[runs, d]`."""
        return torch.zeros_like(params) if self.weighs_gradients else params.new_zeros(len(params))


class Direction(SecondQuestion):
    """The sum of g_i/n_i over the records with n_i > C, divided by L: `[runs, d]` (Galli et al. 2024)."""

    name = "direction"
    sensitivity = 1.0
    weighs_gradients = True

    def terms(self, norms: Tensor, examples: Examples, clip: Tensor) -> Tensor:
        usable = examples.present.bool() & _finite(norms) & (norms > clip[:, None])
        return torch.where(usable, 1 / norms, 0)


class WithinClip(SecondQuestion):
    """The fraction of the lot with n_i <= C, `[runs]`: the mean of 1[n_i <= C] - 1/2, and 1/2 (Andrew et al. 2021)."""

    name = "quantile"
    sensitivity = centre = 0.5

    def terms(self, norms: Tensor, examples: Examples, clip: Tensor) -> Tensor:
        usable = examples.present.bool() & _finite(norms)
        return torch.where(usable, (norms <= clip[:, None]).double() - 0.5, 0)


class InputNorm(SecondQuestion):
    """The mean of ln sqrt(1 + |x_i|^2) over the lot, `[runs]`: how large records are as they enter the model.

    Each logarithm is clipped to [0, 2 HALF_RANGE]. A person's is the mean over their rows.
    """

    name = "norm"
    sensitivity = centre = HALF_RANGE

    def terms(self, norms: Tensor, examples: Examples, clip: Tensor) -> Tensor:
        sizes = input_norms(examples).double()
        usable = _finite(sizes)
        logs = torch.log1p(torch.where(usable, sizes, 0).clamp(max=1e100).square()) / 2 - HALF_RANGE
        logs = torch.where(usable, logs.clamp(-HALF_RANGE, HALF_RANGE), 0)
        if examples.shares is not None:
            logs = (logs.view(examples.shares.shape) * examples.shares).sum(2)
        logs = (logs * _FINE).round() / _FINE
        return torch.where(examples.present.bool(), logs.clamp(-HALF_RANGE, HALF_RANGE), 0)


ANSWERED: tuple[type[SecondQuestion], ...] = (Direction, WithinClip, InputNorm)
"""The questions that the mechanism answers: these classes, and no subclass of them."""


def _finite(norms: Tensor) -> Tensor:
    """Neither infinite nor NaN, in one operation: a norm is never negative."""
    return norms < math.inf


def input_norms(examples: Examples) -> Tensor:
    """|x| of each example, `[runs, width]`, over all of its inputs that are quantities; 0 where none is."""
    if examples.norms is not None:
        return examples.norms
    squares = torch.zeros(inputs.first(examples.x).shape[:2], dtype=torch.float64, device=examples.present.device)
    for part in inputs.quantities(examples.x):
        squares += part[..., None].flatten(2).double().square().sum(2)
    return squares.sqrt()


@dataclass(frozen=True)
class Query:
    """What a rule asks of one step. The mechanism scales the noise; a rule cannot.

    clip: C_t, `[runs]`; the sensitivity of the gradient sum. The mechanism takes LEAST_CLIP for a smaller one, and 1 for
        automatic clipping.
    automatic: weights 1/(n + 0.01) in place of min(1, C/n).
    second: a second question about the same lot, with the noise that the rule wants on its answer.
    """

    clip: Tensor
    automatic: bool = False
    second: SecondQuestion | None = None


@dataclass(frozen=True)
class Release:
    """All that leaves one step of a population.

    gradient: g~, `[runs, d]`. second: the answer to the second question, if one was asked; `SecondQuestion` has its shape.
    """

    gradient: Tensor
    second: Tensor | None = None


class Steps(Protocol):
    """A rule as the mechanism knows it: what to ask next, and what becomes of weights and state after the answer."""

    def query(self, state: State, constants: Constants) -> Query: ...

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]: ...
