"""A pair of discrete distributions (P, R) on a grid of privacy losses, and its privacy profile.

The pair dominates a mechanism on neighbouring records: delta_{P||R}(e) >= delta_{Q||Q'}(e) for every real e, where
delta_{P||R}(e) = sup_S P(S) - e^e R(S). The other direction of the relation is the swapped pair, `pair.reversed`: losses
change their sign and P and R their places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from honestdp.accounting.steps import Array


@dataclass(frozen=True)
class Slack:
    """A bound e^{log_mass - theta l} on what rounding may have taken from the masses at losses of at least l."""

    theta: float
    log_mass: float

    def above(self, loss: Array) -> Array:
        return np.exp(np.minimum(self.log_mass - self.theta * loss, 0.0))


@dataclass(frozen=True)
class Pair:
    """Masses p and r = p e^-loss at increasing `losses`; P has p_inf at +infinity, R has r_inf at -infinity.

    upper, lower: bounds on what rounding may have taken from the masses of P and of R, which every delta has added.

    Randomised response at epsilon 1: a right answer with odds e.

    >>> losses = np.array([-1.0, 1.0])
    >>> p = np.array([1, math.e]) / (1 + math.e)
    >>> Pair(losses, p, p[::-1], p_inf=0.0, r_inf=0.0).epsilon(0.0)
    1.0
    """

    losses: Array
    p: Array
    r: Array
    p_inf: float
    r_inf: float
    upper: tuple[Slack, ...] = ()
    lower: tuple[Slack, ...] = ()

    @cached_property
    def reversed(self) -> Pair:
        """The pair (R, P): the other direction of the neighbouring relation."""
        losses, p, r = -self.losses[::-1], self.r[::-1], self.p[::-1]
        return Pair(losses, p, r, self.r_inf, self.p_inf, upper=self.lower, lower=self.upper)

    def slack(self, loss: Array) -> Array:
        """A bound on the P-mass at losses of at least `loss` that the numbers may lack."""
        if not self.upper:
            return np.zeros_like(loss)
        least: Array = np.minimum.reduce([slack.above(loss) for slack in self.upper])
        return 3 * least

    @cached_property
    def above(self) -> tuple[Array, Array]:
        """P- and R-mass at the finite losses strictly above each loss of the grid, summed from the small end."""
        p, r = (np.cumsum(mass[::-1])[::-1] for mass in (self.p, self.r))
        return np.append(p[1:], 0.0), np.append(r[1:], 0.0)

    @cached_property
    def profile(self) -> Array:
        """An upper bound on delta_{P||R} at each loss of the grid."""
        p, r = self.above
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.where(r > 0, p - np.exp(self.losses) * r, p)
        return np.maximum(finite, 0) + self.p_inf + self.slack(self.losses)

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta_{P||R}(epsilon)."""
        high = self.losses > epsilon
        finite = float(np.sum(self.p[high] * -np.expm1(epsilon - self.losses[high])))
        return min(1.0, finite + self.p_inf + float(self.slack(np.array(epsilon))))

    def deltas(self, epsilons: Array) -> Array:
        """An upper bound on delta_{P||R} at each of the epsilons."""
        index = np.searchsorted(self.losses, epsilons, side="right")
        p, r = (np.append(np.cumsum(mass[::-1])[::-1], 0.0)[index] for mass in (self.p, self.r))
        finite = np.maximum(p - np.exp(epsilons) * r, 0.0)
        bound: Array = np.minimum(finite + self.p_inf + self.slack(epsilons), 1.0)
        return bound

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose delta is at most the given one; infinite where no loss of the grid reaches it."""
        start = int(np.searchsorted(self.losses, 0.0))
        if self.delta(0.0) <= delta:
            return 0.0
        reached = np.flatnonzero(self.profile[start:] <= delta)
        if len(reached) == 0:
            return math.inf
        index = start + int(reached[0])
        # Between two losses delta(e) = p - e^e r + constants, so that e can be solved for.
        low = self.losses[index - 1] if index > start else 0.0
        p, r = self.above[0][index] + self.p[index], self.above[1][index] + self.r[index]
        excess = p + self.p_inf + float(self.slack(np.array(low))) - delta
        if excess <= 0 or r <= 0:
            return max(0.0, float(self.losses[index]))
        return min(float(self.losses[index]), max(0.0, low, math.log(excess) - math.log(r)))

    def worst_epsilon(self, delta: float) -> float:
        """The larger epsilon of the two directions."""
        return max(self.epsilon(delta), self.reversed.epsilon(delta))

    def steepness(self, epsilon: float) -> float:
        """-d log delta / d epsilon: the Chernoff tilt of the tail above epsilon; infinite where nothing is left above."""
        delta = self.delta(epsilon)
        if delta == 0:
            return math.inf
        r = float(np.sum(self.r[self.losses > epsilon]))
        return math.exp(min(epsilon, 700.0)) * r / delta
