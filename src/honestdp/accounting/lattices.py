"""A Gaussian answer of known multiplier whose lattice is not known: the accountant's step for `AnyGaussianDpEvent`.

Noise of multiplier m is added to a number that one record changes by 1: continuous noise, or discrete Gaussian noise on the
multiples of h = 1/D, which are the whole numbers of a score of sensitivity D. At the same m these laws have different
profiles, which cross: each may be the dearest. With g(x) = [phi(x - 1) - e^e phi(x)]_+, phi the density of N(0, m^2),

    delta_D(e) <= h sum_{x in hZ} g(x) <= integral g + h max g = delta(e) + h max g,    delta that of the continuous law:

the sum of exp(-x^2 / 2 m^2) over hZ is at least its integral over h (Poisson's summation has positive terms alone), and g is
log-concave where it is positive, so that it rises and falls once. The few coarsest lattices are counted as they are, and all
finer ones by this bound. Each law is symmetric about 1/2, so that both directions have one profile.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from honestdp.accounting.discrete import AtomStep, Profile, step_of
from honestdp.accounting.pair import Pair
from honestdp.accounting.steps import Array, Step, StepMasses, TooFine

POINTS = 4000  # of the profile between epsilon 0 and its end
MOST_COUNTED = 64  # lattices that are counted as they are, the coarsest first
FINE = 256  # cells to a standard deviation, from which on the bound for all finer lattices is as good
REACH = 40.0  # standard deviations beyond which a law has no mass that a float could hold
ROUNDING = 1e-9  # relative: more than floats take from any number here
LARGEST = 350.0  # epsilon at which a profile may end: beyond it e^epsilon r is no number to trust


@dataclass(frozen=True)
class AnyGaussianStep(Step):
    """`count` Gaussian queries of this multiplier, each of any lattice or of none."""

    multiplier: float
    count: int

    def loss_range(self, tail: float) -> tuple[float, float]:
        if _end(self.multiplier, tail) > LARGEST:
            return -math.inf, math.inf
        return _dominating(self.multiplier, tail, self.count).loss_range(tail)

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        if _end(self.multiplier, tail) > LARGEST:
            raise TooFine(math.inf)
        return _dominating(self.multiplier, tail, self.count).discretised(grid=grid, tail=tail)


@functools.lru_cache(maxsize=16)
def _dominating(multiplier: float, tail: float, count: int) -> AtomStep:
    """The step that dominates every one of these laws, down to deltas of `tail`."""
    epsilons = np.linspace(0.0, _end(multiplier, tail), POINTS)
    profile = Profile(epsilons, deltas(multiplier, epsilons))
    return step_of(profile, profile, count=count)


def _end(multiplier: float, tail: float) -> float:
    """Where every such law has fallen to `tail`: the curve of all is a / 2 m^2 at order a (Canonne, Kamath & Steinke 2020)."""
    rho = 1 / (2 * multiplier**2)
    return rho + 2 * math.sqrt(-rho * math.log(tail))


def deltas(multiplier: float, epsilons: Array) -> Array:
    """A bound on delta at each of the epsilons, of the continuous law and of the discrete ones of every sensitivity."""
    counted = min(MOST_COUNTED, int(FINE / multiplier))
    finer = continuous(multiplier, epsilons) + _peak(multiplier, epsilons) / (counted + 1)
    coarse = [_counted(multiplier, cells, epsilons) for cells in range(1, counted + 1)]
    bound: Array = np.minimum(np.max([finer, *coarse], axis=0) * (1 + ROUNDING), 1.0)
    return bound


def continuous(multiplier: float, epsilons: Array) -> Array:
    """delta of the continuous law, rounded up: phi(a) (M(a) - M(b)) by Mills' ratio M, which keeps its digits in the tail."""
    a, b = (epsilons * multiplier + shift for shift in (-0.5 / multiplier, 0.5 / multiplier))
    mills = [math.sqrt(math.pi / 2) * special.erfcx(z / math.sqrt(2)) for z in (a, b)]
    density = np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    bound: Array = density * np.maximum(mills[0] * (1 + 5e-15) - mills[1] * (1 - 5e-15), 0.0)
    return bound


def _peak(multiplier: float, epsilons: Array) -> Array:
    """max g, rounded up. It lies where (x - x0) / m^2 = log(x / (x - 1)), x0 = m^2 e + 1/2: within m above max(1, x0)."""
    start = multiplier**2 * epsilons + 0.5
    base = np.maximum(start, 1.0)
    low, high = np.zeros_like(base), np.full_like(base, multiplier)
    for _ in range(60):
        middle = (low + high) / 2
        with np.errstate(divide="ignore"):
            past = (base - start + middle) / multiplier**2 >= np.log1p(1 / (base - 1 + middle))
        low, high = np.where(past, low, middle), np.where(past, middle, high)
    density = np.exp(-(((base - 1 + low) / multiplier) ** 2) / 2) / (math.sqrt(2 * math.pi) * multiplier)
    peak: Array = density * -np.expm1(-(base - start + high) / multiplier**2)
    return peak


def _counted(multiplier: float, sensitivity: int, epsilons: Array) -> Array:
    """delta of the discrete law of this sensitivity, outcome by outcome."""
    scale = multiplier * sensitivity
    reach = math.ceil(REACH * scale) + sensitivity
    x = np.arange(-reach, reach + sensitivity + 1, dtype=np.float64)
    p, r = (np.exp(-((x - at) ** 2) / (2 * scale**2)) for at in (sensitivity, 0))
    losses = (2 * x * sensitivity - sensitivity**2) / (2 * scale**2)
    total = float(p.sum())
    return Pair(losses, p / total, r / total, p_inf=0.0, r_inf=0.0).deltas(epsilons)
