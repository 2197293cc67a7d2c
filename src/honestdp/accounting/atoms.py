"""A step known by its losses: a pair of discrete distributions at any losses, or one made from a privacy profile.

A mechanism's privacy profile h(t) = sup_S P(S) - t R(S) is convex in t = e^e, falls from h(0) = 1 and determines the pair: h
is E_R [dP/dR - t]_+, so that R's mass at the likelihood ratio t is the change of h's slope there (Zhu, Dong & Wang 2022). From
points that lie on or above a profile, the greatest convex function below the points lies on or above it too, and the
pair with that function as its profile dominates. For t < 1 the other direction speaks: h(t) = 1 - t + t h'(1/t), h' the
profile of (R, P).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from honestdp.accounting.steps import Array, StepMasses

REACH, BEYOND = 10.5, 1e-24  # in scales, and the mass of a discrete Gaussian that lies beyond


@dataclass(frozen=True, eq=False)
class AtomStep:
    """`count` queries, each dominated by P-masses `p` at increasing `losses`, p_inf at +infinity and R's r_inf at -infinity."""

    losses: Array
    p: Array
    p_inf: float = 0.0
    r_inf: float = 0.0
    count: int = 1

    @property
    def noiseless(self) -> bool:
        return False

    def simplified(self) -> AtomStep:
        return self

    def loss_range(self, tail: float) -> tuple[float, float]:
        return float(self.losses[0]), float(self.losses[-1])

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        """Every atom moved to the two losses of the grid around it, so that its masses under P and under R are kept."""
        cell = np.floor(self.losses / grid).astype(np.int64)
        first, size = int(cell[0]), int(cell[-1] - cell[0]) + 2
        with np.errstate(under="ignore"):
            r = self.p * np.exp(-self.losses)
            right = r * np.clip(np.expm1(self.losses - cell * grid) / math.expm1(grid), 0.0, 1.0)
        at = cell - first
        losses = (first + np.arange(size, dtype=np.float64)) * grid
        r_grid = np.bincount(at, weights=r - right, minlength=size) + np.bincount(at + 1, weights=right, minlength=size)
        p = r_grid * np.exp(losses)
        return StepMasses(
            losses, p * ((1 - self.p_inf) / p.sum()), p_inf=self.p_inf, r_inf=self.r_inf, count=self.count
        )


@functools.lru_cache(maxsize=64)
def discrete_gaussian(multiplier: float, *, sensitivity: int = 1, count: int = 1) -> AtomStep:
    """Integer noise P(x) ~ exp(-x^2 / 2 s^2), s = multiplier * sensitivity (Canonne, Kamath & Steinke 2020), against its shift.

    The losses are exact, (2 x D - D^2) / 2 s^2 at the outcome x for sensitivity D. A smaller change of the sum loses less:
    the law is log-concave, so that its hockey-stick divergences from its shifts increase with the shift.
    """
    scale = multiplier * sensitivity
    reach = math.ceil(REACH * scale) + sensitivity
    x = np.arange(-reach, reach + sensitivity + 1, dtype=np.float64)
    weight = np.exp(-((x - sensitivity) ** 2) / (2 * scale**2))
    losses = (2 * x * sensitivity - sensitivity**2) / (2 * scale**2)
    return AtomStep(losses, weight / weight.sum(), p_inf=BEYOND, r_inf=BEYOND, count=count)


@functools.lru_cache(maxsize=64)
def randomised_response(epsilon: float, *, count: int = 1) -> AtomStep:
    """The pair that dominates every (epsilon, 0) private query: an answer that is right with odds e^epsilon."""
    right = 1 / (1 + math.exp(-epsilon))
    return AtomStep(np.array([-epsilon, epsilon]), np.array([1 - right, right]), count=count)


@dataclass(frozen=True)
class Profile:
    """Points on or above a privacy profile: delta(e) at increasing epsilons e >= 0, the first of them 0."""

    epsilons: Array
    deltas: Array

    def hull(self) -> Profile:
        """The corners of the greatest convex function of e^e below the points."""
        t, h = np.exp(np.minimum(self.epsilons, 700.0)), np.minimum.accumulate(np.minimum(self.deltas, 1.0))
        kept: list[int] = []
        for i in range(len(t)):
            while len(kept) > 1:
                a, b = kept[-2], kept[-1]
                if (h[b] - h[a]) * (t[i] - t[b]) < (h[i] - h[b]) * (t[b] - t[a]):
                    break
                kept.pop()
            kept.append(i)
        return Profile(self.epsilons[kept], h[kept])


def step_of(up: Profile, down: Profile, *, count: int = 1) -> AtomStep:
    """The pair with profiles at most `up` in the direction of (P, R) and `down` in that of (R, P), as one step."""
    nothing = min(up.deltas[0], down.deltas[0], 1.0)  # the total variation distance, one number for both directions
    while True:
        up, down = (_from(side, nothing).hull() for side in (up, down))
        steepness = [-_slopes(side)[0] if len(side.deltas) > 1 else 0.0 for side in (up, down)]
        at_zero = 1 - nothing - sum(steepness)
        if at_zero >= -1e-12:
            break
        # Not convex at e = 0: h(1) is lowered onto the line between its neighbours on the two sides.
        ends = [(math.expm1(side.epsilons[1]), side.deltas[1]) for side in (up, down) if len(side.deltas) > 1]
        level = (1 + sum(delta / gap for gap, delta in ends)) / (1 + sum(1 / gap for gap, _ in ends))
        nothing = min(level, math.nextafter(nothing, 0.0))
    # Masses at the corners beyond e = 0. Where two corners are as close as rounding, a slope may fall back by a rounding.
    r_up, r_down = (np.maximum(np.diff(np.append(_slopes(side), 0.0)), 0.0) for side in (up, down))
    p_up = r_up * np.exp(up.epsilons[1:])
    losses = np.concatenate((-down.epsilons[:0:-1], [0.0], up.epsilons[1:]))
    p = np.concatenate((r_down[::-1], [max(at_zero, 0.0)], p_up))
    return AtomStep(losses, p, p_inf=float(up.deltas[-1]), r_inf=float(down.deltas[-1]), count=count)


def _from(profile: Profile, nothing: float) -> Profile:
    return Profile(profile.epsilons, np.append(nothing, np.minimum(profile.deltas[1:], nothing)))


def _slopes(profile: Profile) -> Array:
    """dh/dt between the corners, t = e^e."""
    gaps: Array = np.exp(profile.epsilons[:-1]) * np.expm1(np.diff(profile.epsilons))
    return np.diff(profile.deltas) / gaps
