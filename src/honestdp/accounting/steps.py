"""The `Step` interface of the PLD accountant, and its main case: the Poisson-sampled Gaussian on a grid of losses.

A step adds N(0, sigma^2) to a sum of sensitivity 1 over a Poisson lot of rate q. For neighbours that differ in one record
the worst pair is (Zhu, Dong & Wang 2022)

    P = (1 - q) N(0, sigma^2) + q N(1, sigma^2)   with the record,      R = N(0, sigma^2)   without it,

and the swapped pair for the other direction. The loss l(x) = log dP/dR (x) increases in x, so a grid of losses l_i = i h is
a grid of outcomes x_i. The masses (Pc, Rc) of a cell are moved to its two ends so that both are kept:

    r_right = (Pc - t_i Rc) / (t_{i+1} - t_i),    r_left = Rc - r_right,    p = t r,    t = e^l.

By Jensen's inequality this raises E_R F(dP/dR) for every convex F, hence every hockey-stick divergence, in both directions
and at every real epsilon: the discrete pair dominates (P, R) (the "connect the dots" of Doroshenko et al. 2022). What lies
outside the grid is charged in full: its P-mass as loss +infinity, its R-mass as loss -infinity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

MOST_CELLS = 2**21
"""Of any one grid of losses, whatever the arguments. With what is kept of earlier calls, no call needs more than 1 GiB."""


class TooFine(ArithmeticError):
    """A grid of more than MOST_CELLS losses. `factor`: by how much it must at least be coarser."""

    def __init__(self, cells: float) -> None:
        self.factor = cells / MOST_CELLS
        super().__init__(f"a grid of {cells:.3g} losses, and {MOST_CELLS} are the most")


def grid_over(low: float, high: float, grid: float) -> tuple[int, int]:
    """The first multiple of the grid, and how many there are, that cover [low, high]. Every grid is measured here first."""
    if not (high - low) / grid <= MOST_CELLS - 2:
        raise TooFine((high - low) / grid + 2)
    first = math.floor(low / grid)
    return first, math.ceil(high / grid) - first + 1


class Step(ABC):
    """`count` equal queries, as the accountant composes them. Subclasses are frozen dataclasses."""

    count: int
    lattice: float | None = None  # a grid on which the losses lie as they are, if there is one

    @property
    def noiseless(self) -> bool:
        """Whether the answer is given as it is, at an infinite loss."""
        return False

    def simplified(self) -> Step:
        """The same losses by fewer queries, where that is known."""
        return self

    def at_least(self, loss: float, tail: float) -> Step:
        """A step that dominates it and whose losses reach at least about so far."""
        return self

    @abstractmethod
    def loss_range(self, tail: float) -> tuple[float, float]:
        """The losses outside of which P and R each have at most about `tail` of mass."""

    @abstractmethod
    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        """A pair on the losses `grid * i` that dominates one of the queries."""


@dataclass(frozen=True)
class GaussianStep(Step):
    """`count` Poisson-sampled Gaussian queries of the same rate and noise."""

    rate: float
    noise: float
    count: int

    @property
    def noiseless(self) -> bool:
        return self.noise**2 == 0  # so little that its square is no float counts as none

    def simplified(self) -> GaussianStep:
        """At rate one, T Gaussians of noise sigma are one Gaussian of noise sigma / sqrt(T)."""
        if self.rate == 1 and self.count > 1:
            return GaussianStep(1.0, self.noise / math.sqrt(self.count), 1)
        return self

    def at_least(self, loss: float, tail: float) -> GaussianStep:
        """With less noise, where losses would be too small for floats: less noise dominates more."""
        step = self
        while -np.subtract(*step.loss_range(tail)) < loss:
            step = replace(step, noise=step.noise / 2)
        return step

    def loss_range(self, tail: float) -> tuple[float, float]:
        reach = -float(special.ndtri(tail)) * self.noise
        return self._loss(-reach), self._loss(1 + reach)

    def _loss(self, x: float) -> float:
        exponent = (2 * x - 1) / (2 * self.noise**2)
        if self.rate == 1 or exponent > 600:
            return exponent + math.log(self.rate)
        return math.log1p(self.rate * math.expm1(exponent))

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        low, high = self.loss_range(tail)
        first, size = grid_over(low, high, grid)
        loss: Array = (first + np.arange(size, dtype=np.float64)) * grid
        # w = e^{(2x-1)/2 sigma^2} = 1 + (e^l - 1)/q; where it is negative, l < log(1-q) and no outcome has that loss.
        w = np.exp(loss) if self.rate == 1 else 1 + np.expm1(loss) / self.rate
        with np.errstate(divide="ignore"):
            log_w = loss if self.rate == 1 else np.log1p(np.maximum(np.expm1(loss) / self.rate, -1.0))
            x = self.noise**2 * log_w + 0.5
        base = _cell_masses(x / self.noise)
        shifted = _cell_masses((x - 1) / self.noise)
        # Pc - t_i Rc = q (B - w_i Rc) with B the mass of N(1, sigma^2): no cancellation of nearly equal masses.
        right = self.rate * (shifted - w[:-1] * base) * np.exp(-loss[:-1]) / math.expm1(grid)
        right = np.clip(right, 0, base)
        r = np.zeros(len(loss))
        r[:-1] += base - right
        r[1:] += right
        p = r * np.exp(loss)
        r_inf = float(special.ndtr(x[0] / self.noise) + special.ndtr(-x[-1] / self.noise))
        shifted_outside = float(special.ndtr((x[0] - 1) / self.noise) + special.ndtr((1 - x[-1]) / self.noise))
        p_inf = (1 - self.rate) * r_inf + self.rate * shifted_outside
        # Rounding leaves sum p within 1e-12 of its value; what is exact by construction is restored.
        return StepMasses(loss, p * ((1 - p_inf) / p.sum()), p_inf=p_inf, r_inf=r_inf, count=self.count)


def _cell_masses(z: Array) -> Array:
    """Phi(z_{i+1}) - Phi(z_i), taken in the tail where the difference keeps its digits."""
    below, above = special.ndtr(z), special.ndtr(-z)
    return np.where(z[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])


@dataclass(frozen=True)
class StepMasses:
    """P-masses at the losses (multiples of the grid), P at +infinity, R at -infinity; R has mass p e^-loss elsewhere."""

    losses: Array
    p: Array
    p_inf: float
    r_inf: float
    count: int

    def log_moment(self, theta: float) -> float:
        """count * log E_P e^{theta L}, over the finite losses."""
        exponents = theta * self.losses + self._log_p
        peak = exponents.max()
        return self.count * float(peak + np.log(np.exp(exponents - peak).sum()))

    def tilted(self, theta: float) -> Array:
        """Masses proportional to p e^{theta l}, summing to one."""
        exponents = theta * self.losses + self._log_p
        weights: Array = np.exp(exponents - exponents.max())
        return weights / float(weights.sum())

    @cached_property
    def _log_p(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.p)
