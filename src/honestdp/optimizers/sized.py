"""What rules share that set their steps by the size of the records, n: the question for it, what is known of it, and the decay.

n belongs to the data. It is released: every step asks, beside the gradient, for the mean of ln sqrt(1 + |x|^2) over its lot,
clipped to a public range (`boundary.second`), with noise 7.124 sigma, which leaves 1.01 sigma to the gradient: both together
are one Gaussian of noise sigma, and are accounted as the step. What is known of n at a step is the mean of all its
releases so far and of a public guess, weighed by their variances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Query
from honestdp.boundary.second import HALF_RANGE, InputNorm
from honestdp.optimizers.learnt import DIRECTION_NOISE, SHARED
from honestdp.optimizers.rule import FixedClip, State

GUESS = 0.35
"""Of the root mean square of a record's numbers: what images and tables of numbers in [0, 1] have."""
ASKED = (
    "beside its gradient every step releases the mean logarithm of the norms of its lot's inputs, clipped to "
    f"[0, {2 * HALF_RANGE:.2f}]; {SHARED}; of tokens it asks nothing"
)
"""What a statement says of such a rule."""


@dataclass(frozen=True)
class Sized(FixedClip):
    """A rule with nothing to tune that sets its own pace, and keeps in its state's `size` the sum of what was released of n."""

    clip = 1.0
    own_pace = True

    def __post_init__(self) -> None:
        """There is nothing to check."""

    def query(self, state: State, constants: Constants) -> Query:
        plain = super().query(state, constants)
        if not constants.layout.entering:
            return plain
        return replace(plain, second=InputNorm(DIRECTION_NOISE * HALF_RANGE * constants.noise))


def ahead(state: State, constants: Constants) -> Tensor:
    """h(t), a column."""
    left = (1 - state["step"].double() / constants.steps).clamp(min=0)
    return left.sqrt().to(state["size"].dtype)[:, None]


def known(size: Tensor, count: Tensor, constants: Constants) -> Tensor:
    """ln n, `[runs]`: the public guess, of variance 1, and `count` releases that add up to `size`, by their variances."""
    entering = constants.layout.entering
    if not entering:
        return torch.zeros_like(size)
    guess = min(math.log1p(entering * GUESS**2) / 2, 2 * HALF_RANGE)
    drawn = (DIRECTION_NOISE * constants.noise / constants.lot).square() + 1 / constants.lot
    weight = 1 / (HALF_RANGE**2 * drawn)
    return ((guess + weight * size) / (1 + weight * count.to(size.dtype))).clamp(0, 2 * HALF_RANGE)


def mixing(constants: Constants) -> list[bool]:
    """Which layers mix their inputs: those with a matrix, but for a table that rows are looked up in."""
    layout = constants.layout
    matrices = [False] * len(layout.fan_in)
    for shape, layer in zip(layout.shapes, layout.layers, strict=True):
        matrices[layer] |= len(shape) > 1
    return matrices
