"""Composes many steps into one pair, by FFT with exponential tilting.

The P-masses of a sum of independent losses are a convolution, taken as a power of a discrete Fourier transform. Plain
transforms have a floor: rounding leaves about 1e-16 of the peak everywhere, useless where delta is smaller. So the
transform is taken of p_i e^{theta l_i} / M(theta), M(theta) = E_P e^{theta L}, and untilted after: an error eta of the
tilted masses is an error eta M(theta) e^{-theta l} of the masses at loss l, small against the tail itself where theta is
the Chernoff tilt of that tail. Four tilts serve both directions of the relation: P's bulk (0) and upper tail, R's bulk
(-1, for R is P tilted by -1) and lower tail. Each loss takes its masses from the tilt with the least error there.

What could make the result too small is added back: the mass outside the window of the transform and the mass wrapped
around it (Chernoff's bound), rounding (a multiple of what the transform is seen to lose) and the infinite losses of every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import fft, optimize

from honestdp.accounting.pair import Pair, Slack
from honestdp.accounting.steps import Array, Step, StepMasses, grid_over

OUTSIDE = 1e-15  # the mass that a tilted distribution may have outside the window
EDGE = math.log(1e7)  # of the tilts that are tried first
LARGEST_EXPONENT = 1e4  # a tilt beyond the edge, times the largest loss: its rounding must be nothing beside 1
ROUNDING = 2.0**-50  # what a step may add to the relative error of a Fourier coefficient


class Quantile(NamedTuple):
    """Chernoff's bound P_theta(L >= loss) <= mass, and the tilt beyond theta that gives it."""

    loss: float
    tilt: float


def chernoff(steps: Sequence[StepMasses], *, mass: float, theta: float = 0.0, sign: int = 1) -> Quantile:
    """The least loss (greatest, for sign -1) beyond which P tilted by theta has at most `mass`, by Chernoff's bound.

    Every tilt gives a valid bound, so the search for the best one decides how tight it is and not whether it holds.
    """
    here = sum(step.log_moment(theta) for step in steps)

    def bound(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        there = sum(step.log_moment(theta + sign * tilt) for step in steps)
        return (there - here - math.log(mass)) / tilt

    best = optimize.minimize_scalar(bound, bounds=(math.log(1e-3), EDGE), options={"xatol": 0.05})
    if best.x > EDGE - 1:  # of losses that end, any tilt; of losses that are tiny, one beyond the edge
        most = math.log(LARGEST_EXPONENT / sum(step.count * float(np.abs(step.losses).max()) for step in steps))
        if most > EDGE:
            best = optimize.minimize_scalar(bound, bounds=(EDGE - 2, most), options={"xatol": 0.05})
    return Quantile(loss=sign * float(best.fun), tilt=math.exp(best.x))


def discretise(steps: Sequence[Step], *, grid: float, delta: float) -> list[StepMasses]:
    """The steps on one grid, with so little mass at infinite losses that all steps together stay far below delta."""
    tail = delta * 1e-6 / sum(step.count for step in steps)
    return [step.discretised(grid=grid, tail=tail) for step in steps]


class Window(NamedTuple):
    """The losses that a transform covers, and the tilts that it is taken with: R's tail and bulk, P's bulk and tail."""

    low: float
    high: float
    thetas: tuple[float, float, float, float]


def window(steps: Sequence[StepMasses], *, delta: float) -> Window:
    """What leaves out at most OUTSIDE of the mass of each tilted distribution, the tails tilted towards this delta."""
    up = chernoff(steps, mass=delta).tilt
    down = chernoff(steps, mass=delta, theta=-1.0, sign=-1).tilt
    thetas = (-1 - down, -1.0, 0.0, up)
    low = min(chernoff(steps, mass=OUTSIDE, theta=theta, sign=-1).loss for theta in thetas)
    high = max(chernoff(steps, mass=OUTSIDE, theta=theta).loss for theta in thetas)
    return Window(low, high, thetas)


def compose(steps: Sequence[StepMasses], *, grid: float, delta: float) -> Pair:
    """The pair that dominates all `steps` together, accurate where its delta is of the order of the given one."""
    p_inf = -math.expm1(sum(step.count * math.log1p(-step.p_inf) for step in steps))
    r_inf = -math.expm1(sum(step.count * math.log1p(-step.r_inf) for step in steps))
    if len(steps) == 1 and steps[0].count == 1:
        losses, p = steps[0].losses, steps[0].p
        return Pair(losses, p, p * np.exp(-losses), p_inf, r_inf)
    covered = window(steps, delta=delta)
    first, least = grid_over(covered.low, covered.high, grid)
    size = fft.next_fast_len(least, real=True)
    losses = (first + np.arange(size, dtype=np.float64)) * grid
    p, log_scale, least_error = np.zeros(size), np.zeros(size), np.full(size, np.inf)
    slacks = []
    for theta in covered.thetas:
        masses, error = _tilted_power(steps, theta, first=first, size=size, grid=grid)
        log_moment = sum(step.log_moment(theta) for step in steps)
        slacks.append(Slack(theta=theta, log_mass=log_moment + math.log(error)))
        log_error = slacks[-1].log_mass - theta * losses
        better = log_error < least_error
        p[better], least_error[better] = masses[better], log_error[better]
        log_scale[better] = log_moment - theta * losses[better]
    p *= np.exp(log_scale)
    # Of R, tilted by -1, the slack is seen from the other end: the reversed pair has losses -l and tilts -1 - theta.
    lower = tuple(Slack(theta=-1 - slack.theta, log_mass=slack.log_mass) for slack in slacks[:2])
    upper = tuple(slacks[2:])
    # The window leaves out at most OUTSIDE of each tilted mass, which every error already counts.
    p_inf += float(min(slack.above(losses[-1:])[0] for slack in upper))
    r_inf += float(min(slack.above(-losses[:1])[0] for slack in lower))
    with np.errstate(divide="ignore"):  # by logarithms, for e^-loss alone may overflow where p is 0
        r = np.exp(np.log(p) - losses)
    return Pair(losses, p, r, p_inf, r_inf, upper=upper, lower=lower)


def _tilted_power(
    steps: Sequence[StepMasses], theta: float, *, first: int, size: int, grid: float
) -> tuple[Array, float]:
    """The tilted masses of all steps together at the losses (first + j) grid, and a bound on their total error."""
    log_modulus, phase = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    offset = 0
    for step in steps:
        start = round(step.losses[0] / grid)
        tilted = step.tilted(theta)
        # Centred on its mean, so that the phase stays small and a power of it exact.
        centre = round(float(np.sum(tilted * np.arange(len(tilted)))))
        wrapped = np.bincount((np.arange(len(tilted)) - centre) % size, weights=tilted, minlength=size)
        spectrum = fft.rfft(wrapped)
        with np.errstate(divide="ignore"):
            log_modulus += step.count * np.log(np.abs(spectrum))
        phase += step.count * np.angle(spectrum)
        offset += step.count * (start + centre)
    masses = fft.irfft(np.exp(log_modulus + 1j * phase), size)
    error = 10 * abs(float(masses.sum()) - 1) + sum(step.count for step in steps) * ROUNDING + OUTSIDE
    return np.roll(np.maximum(masses, 0), (offset - first) % size), error
