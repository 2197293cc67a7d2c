"""What mechanism and optimizers exchange: `Constants` that are public, a `Query`, its `Release`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from honestdp.boundary.second import SecondQuestion
from honestdp.gradients.layout import Layout

State = dict[str, Tensor]
"""What a rule remembers between steps, by name; every tensor is `[runs, ...]`."""
LEAST_CLIP = 1e-12
"""The squares of numbers below 1e-19 are lost in float32, so a gradient of norm 1e-15 may seem to have none: such norms
must not come near a clip."""


@dataclass(frozen=True)
class Constants:
    """What is public about a population.

    records: N. lot: L, the divisor of every release. steps: T. noise: sigma, `[runs]`. layout: the model's shapes.
    factors: the schedule of the step size, `[steps]`.
    echo: `[runs, norms, shakes]`, how far noise in the initial weights moves the outputs on made-up inputs (`gradients.echo`),
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
