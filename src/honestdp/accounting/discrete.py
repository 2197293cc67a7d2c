"""Steps with finitely many privacy losses: discrete Gaussian, pure mechanisms, and any mechanism known by its
`Profile`.

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

from honestdp.accounting.pair import Pair
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import Array, Step, StepMasses, TooFine, grid_over

REACH, BEYOND = 10.5, 1e-24  # in scales, and the mass of a discrete Gaussian that lies beyond
MOST_ATOMS = 2**17  # beyond, outcomes of a discrete Gaussian are taken together
MOST_OUTCOMES = 2**27  # beyond, they are not counted


@dataclass(frozen=True, eq=False)
class AtomStep(Step):
    """`count` queries, each dominated by P-masses `p` at increasing `losses`, p_inf at +infinity and R's r_inf at -infinity."""

    losses: Array
    p: Array
    p_inf: float = 0.0
    r_inf: float = 0.0
    count: int = 1
    lattice: float | None = None

    def loss_range(self, tail: float) -> tuple[float, float]:
        return float(self.losses[0]), float(self.losses[-1])

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        """Every atom moved to the two losses of the grid around it, so that its masses under P and under R are kept."""
        first, size = grid_over(float(self.losses[0]), float(self.losses[-1]) + grid, grid)
        cell = np.floor(self.losses / grid).astype(np.int64)
        with np.errstate(under="ignore"):
            r = self.p * np.exp(-self.losses)
            right = r * np.clip(np.expm1(self.losses - cell * grid) / math.expm1(grid), 0.0, 1.0)
        at = cell - first
        losses = (first + np.arange(size, dtype=np.float64)) * grid
        r_grid = np.bincount(at, weights=r - right, minlength=size) + np.bincount(at + 1, weights=right, minlength=size)
        p = r_grid * np.exp(np.minimum(losses, 700.0))  # the last of them may lie beyond every atom
        total = p.sum()
        if not total > 0:  # all of P lies where no float holds R's share of it: an infinite loss on every grid
            raise TooFine(math.inf)
        return StepMasses(losses, p * ((1 - self.p_inf) / total), p_inf=self.p_inf, r_inf=self.r_inf, count=self.count)


@dataclass(frozen=True)
class OutOfReach(Step):
    """`count` queries whose losses no array here could hold: the tight accountant leaves them to a Renyi bound."""

    count: int

    def loss_range(self, tail: float) -> tuple[float, float]:
        return -math.inf, math.inf

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        raise TooFine(math.inf)


@functools.lru_cache(maxsize=16)
def discrete_gaussian(multiplier: float, *, sensitivity: int = 1, count: int = 1) -> AtomStep | OutOfReach:
    """Integer noise P(x) ~ exp(-x^2 / 2 s^2), s = multiplier * sensitivity (Canonne, Kamath & Steinke 2020), against its shift.

    The losses are exact, (2 x D - D^2) / 2 s^2 at the outcome x for sensitivity D. A smaller change of the sum loses less:
    the law is log-concave, so that its hockey-stick divergences from its shifts increase with the shift.

    Of very many outcomes, runs of neighbours are moved to the losses at their ends, as cells of a grid are, so that a wide law
    takes no more memory than a narrow one.
    """
    scale = multiplier * sensitivity
    reach = math.ceil(REACH * scale) + sensitivity
    outcomes = 2 * reach + sensitivity + 1
    width = math.ceil(outcomes / MOST_ATOMS)
    if width > 1 and (outcomes > MOST_OUTCOMES or multiplier < 0.01):
        return OutOfReach(count)
    first = np.arange(-reach, reach + sensitivity + 1, width, dtype=np.float64)
    ends = first if width == 1 else np.append(first, first[-1] + width)
    apart = sensitivity / scale**2  # the losses of two neighbours
    p = np.zeros(len(ends))
    for offset in range(width):
        weight = np.exp(-((first + offset - sensitivity) ** 2) / (2 * scale**2))
        right = 0.0 if offset == 0 else math.expm1(offset * apart) / math.expm1(width * apart)  # of R's mass
        p[: len(first)] += weight * ((1 - right) * math.exp(-offset * apart))
        if offset:
            p[1:] += weight * (right * math.exp((width - offset) * apart))
    losses = (2 * ends * sensitivity - sensitivity**2) / (2 * scale**2)
    return AtomStep(losses, p / p.sum(), p_inf=BEYOND, r_inf=BEYOND, count=count)


@functools.lru_cache(maxsize=64)
def randomised_response(epsilon: float, *, count: int = 1) -> AtomStep:
    """The pair that dominates every (epsilon, 0) private query: an answer that is right with odds e^epsilon."""
    right, wrong = 1 / (1 + math.exp(-epsilon)), math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return AtomStep(np.array([-epsilon, epsilon]), np.array([wrong, right]), count=count, lattice=epsilon)


@dataclass(frozen=True)
class Profile:
    """Points on or above a privacy profile: delta(e) at increasing epsilons e >= 0, the first of them 0."""

    epsilons: Array
    deltas: Array

    def hull(self) -> Profile:
        """The corners of the greatest convex function of e^e below the points."""
        t, h = np.exp(np.minimum(self.epsilons, 700.0)), np.minimum.accumulate(np.minimum(self.deltas, 1.0))
        corners: list[int] = []
        for i in range(len(t)):
            while len(corners) > 1:
                a, b = corners[-2], corners[-1]
                if (h[b] - h[a]) * (t[i] - t[b]) < (h[i] - h[b]) * (t[b] - t[a]):
                    break
                corners.pop()
            corners.append(i)
        return Profile(self.epsilons[corners], h[corners])


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


POINTS = 4000  # of the profile between epsilon 0 and its end


@dataclass(frozen=True)
class WorstStep(Step):
    """`count` times one of the alternatives, each a composition of steps."""

    alternatives: tuple[tuple[Step, ...], ...]
    count: int

    @property
    def noiseless(self) -> bool:
        return any(step.noiseless for steps in self.alternatives for step in steps)

    def loss_range(self, tail: float) -> tuple[float, float]:
        step = _dominating(self.alternatives, tail, self.count)
        return (-math.inf, math.inf) if step is None else step.loss_range(tail)

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        step = _dominating(self.alternatives, tail, self.count)
        if step is None:
            raise TooFine(math.inf)
        return step.discretised(grid=grid, tail=tail)


@functools.lru_cache(maxsize=512)
def _dominating(alternatives: tuple[tuple[Step, ...], ...], tail: float, count: int) -> AtomStep | None:
    """The step that dominates every alternative, down to deltas of `tail`; None where no float could hold it."""
    pairs = [dominating_pair(steps, delta=tail) for steps in alternatives if steps]
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    return step_of(_worst_profile(known, tail), _worst_profile([pair.reversed for pair in known], tail), count=count)


def _worst_profile(pairs: list[Pair], tail: float) -> Profile:
    end = max(min(pair.epsilon(tail), float(pair.losses[-1])) for pair in pairs)
    epsilons = np.linspace(0.0, max(end, 1e-12), POINTS)
    return Profile(epsilons, np.max([pair.deltas(epsilons) for pair in pairs], axis=0))
