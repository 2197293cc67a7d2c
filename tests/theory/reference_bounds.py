"""The bounds of docs/theory.md on a discrete pair (P, R), written for clarity: every formula as the page states it.

All take the pair that dominates (Q, Q') and bound A||A'; the other direction is `pair.reversed`. The trade-off g is
piecewise linear here, so a piece may be cut into as many cells as one likes: `cells` only moves the bounds down towards
the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .brute_force import Array, LawOfK, Mechanism, delta, renyi

FINE = np.unique(np.concatenate([np.linspace(0, 1, 21), np.geomspace(1e-4, 1, 16)]))
WHOLE = np.array([0.0, 1.0])
ORDERS = np.concatenate([1 + np.geomspace(0.05, 60, 24), [200.0, 1000.0]])


@dataclass(frozen=True)
class Pair:
    """Masses p and r = p e^-loss at increasing losses; P has p_inf at +infinity, R has r_inf at -infinity."""

    losses: Array
    p: Array
    r: Array
    p_inf: float
    r_inf: float

    @classmethod
    def of(cls, mechanism: Mechanism) -> Pair:
        """The mechanism's own pair: dominating and nothing more."""
        q, q_prime = mechanism.q, mechanism.q_prime
        both = (q > 0) & (q_prime > 0)
        losses, group = np.unique(np.round(np.log(q[both] / q_prime[both]), 12), return_inverse=True)
        p, r = (np.bincount(group, mass[both], minlength=len(losses)) for mass in (q, q_prime))
        return cls(losses, p, r, float(q[q_prime == 0].sum()), float(q_prime[q == 0].sum()))

    @property
    def reversed(self) -> Pair:
        return Pair(-self.losses[::-1], self.r[::-1], self.p[::-1], self.r_inf, self.p_inf)

    @property
    def masses(self) -> tuple[Array, Array]:
        """P and R as vectors over the same outcomes."""
        return np.append(self.p, [self.p_inf, 0.0]), np.append(self.r, [0.0, self.r_inf])

    def delta(self, epsilon: float) -> float:
        return delta(*self.masses, epsilon)


def trade_off(pair: Pair, cells: Array = FINE) -> tuple[Array, Array]:
    """Points (s, g(s)) of the largest R-mass of a test of P-mass s: lowest losses first, pieces cut at `cells`."""
    s = np.minimum(np.concatenate([[0.0], np.cumsum(pair.p), [1.0]]), 1.0)
    g = np.minimum(pair.r_inf + np.concatenate([[0.0], np.cumsum(pair.r), [1.0]]), 1.0)
    if len(cells) == 2:
        return s, g
    piece = (np.diff(s) > 0) | (np.diff(g) > 0)
    starts, steps = (s[:-1][piece], g[:-1][piece]), (np.diff(s)[piece], np.diff(g)[piece])
    return tuple(  # type: ignore[return-value]
        np.append((a[:, None] + d[:, None] * cells[None, :-1]).ravel(), 1.0) for a, d in zip(starts, steps, strict=True)
    )


def no_run(law: LawOfK, epsilon: float) -> float:
    """What the symbol released when K = 0 adds: nothing for epsilon >= 0."""
    return law.none * max(0.0, 1 - math.exp(epsilon))


def average(pair: Pair, slopes: Array, offsets: Array, infinite: float) -> float:
    """D_F(P||R) for F(x) = max(0, max_j slopes_j x - offsets_j) and the slope `infinite` at infinity."""
    ratio = np.exp(pair.losses)
    values = np.maximum((slopes[:, None] * ratio - offsets[:, None]).max(axis=0), 0.0)
    return float(pair.r @ values) + infinite * pair.p_inf


def profile_shift(pair: Pair, law: LawOfK) -> float:
    """e2 = sup_s log phi'(1-s) / phi'(1-g(s)). The ratio is monotone on the pieces of g for all laws but `pmf`."""
    if law.kind == "fixed":
        if law.parameters[0] == 1:
            return 0.0
        if pair.p_inf > 0:
            return math.inf  # the ratio is ((1-s)/(1-g))^(k-1), and g is 1 before s is
        at_least = [np.cumsum(mass[pair.p > 0][::-1]) for mass in (pair.p, pair.r)]
        return max(0.0, (law.parameters[0] - 1) * float(np.log(at_least[0] / at_least[1]).max()))
    s, g = trade_off(pair, FINE if law.kind == "pmf" else WHOLE)
    with np.errstate(divide="ignore", invalid="ignore"):
        if law.kind == "pmf":
            ratios = np.where(law.slope(s[:-1]) > 0, np.log(law.slope(s[:-1]) / law.slope(g[1:])), 0.0)
        else:
            ratios = np.log(law.slope(s) / law.slope(g))
    return float(max(0.0, ratios.max()))


def profile(pair: Pair, law: LawOfK, epsilon: float) -> float:
    shift = profile_shift(pair, law)
    if not math.isfinite(shift):
        return 1.0
    return law.mean * pair.delta(epsilon - shift) + no_run(law, epsilon)


def envelope(pair: Pair, law: LawOfK, epsilon: float, cells: Array = FINE) -> float:
    s, g = trade_off(pair, cells)
    slopes, offsets = law.slope(s[:-1]), law.slope(g[1:])
    return average(pair, slopes, math.exp(epsilon) * offsets, law.mean) + no_run(law, epsilon)


def refined_with(pair: Pair, law: LawOfK, epsilon: float, weights: Array, cells: Array = FINE) -> float:
    """Theorem 2R for the step function lambda = `weights` on the cells; only its excess over its minimum matters."""
    s, g = trade_off(pair, cells)
    weights = weights - weights.min()
    slopes, offsets = law.slope(s[:-1]) - weights, math.exp(epsilon) * law.slope(g[1:])
    # The other branch of [.]_+, -lambda r, has its largest value 0 where lambda is least.
    spent = float(weights @ np.diff(s))
    return spent + average(pair, slopes, offsets, float(slopes.max())) + no_run(law, epsilon)


def refined(pair: Pair, law: LawOfK, epsilon: float, cells: Array = FINE) -> float:
    """Theorem 2R, the least over lambda = 0 and some thresholds c: lambda = [phi'(1-s) - e^{e-c} phi'(1-g)]_+."""
    s, g = trade_off(pair, cells)
    slopes, offsets = law.slope(s[:-1]), law.slope(g[1:])
    thresholds = pair.losses[pair.p > 0][:: 1 + len(pair.losses) // 4]
    weights = [np.maximum(slopes - math.exp(epsilon - c) * offsets, 0.0) for c in thresholds]
    return min(refined_with(pair, law, epsilon, w, cells) for w in [np.zeros_like(slopes), *weights])


def majorant(t: Array, a: Array) -> tuple[Array, Array]:
    """The corners of the least concave majorant of the points (t, a), t increasing."""
    hull: list[int] = []
    for i in range(len(t)):
        while len(hull) > 1:
            j, k = hull[-2], hull[-1]
            if (a[k] - a[j]) * (t[i] - t[j]) > (a[i] - a[j]) * (t[k] - t[j]):
                break
            hull.pop()
        hull.append(i)
    return t[hull], a[hull]


def exponents(pair: Pair, cut: float) -> tuple[Array, Array] | None:
    """a(t) = -log(1 - g(1 - e^-t)) at the corners of g and at the cut T; None where a(T) is infinite."""
    s, g = trade_off(pair, WHOLE)
    end = -math.expm1(-cut)
    at_end = float(np.interp(end, s, g))
    if at_end >= 1:
        return None
    inside = s < end
    return np.append(-np.log1p(-s[inside]), cut), np.append(-np.log1p(-g[inside]), -math.log1p(-at_end))


def winner_at(pair: Pair, k: int, epsilon: float, cut: float) -> float:
    """Theorem 3 for one cut T. Between corners of g the function a is convex: the corners carry its majorant."""
    if k == 1:
        return pair.delta(epsilon)
    points = exponents(pair, cut)
    if points is None:
        return 1.0
    t, a = majorant(*points)
    tau = np.unique(np.concatenate([np.linspace(0, cut, 257), np.minimum((k - 1) * t, cut)]))
    slopes = k * np.exp(-tau[:-1])
    offsets = k * np.exp(-(k - 1) * np.interp(tau[1:] / (k - 1), t, a))
    return average(pair, slopes, math.exp(epsilon) * offsets, k) + math.exp(-cut)


def winner(pair: Pair, k: int, epsilon: float) -> float:
    return min(winner_at(pair, k, epsilon, cut) for cut in (1.0, 2.0, 4.0, 8.0, 14.0, 22.0))


def papernot_steinke_rdp(orders: Array, rdp: Array, reverse: Array, law: LawOfK, reverse_profile: Pair) -> Array:
    """Renyi bounds at the orders > 1. `rdp` belongs to the direction asked for, `reverse` to the other one."""
    if law.kind == "tnb":
        eta, gamma = law.parameters
        hat = np.append((1 - 1 / orders) * reverse + math.log(1 / gamma) / orders, math.log(1 / gamma))
        return rdp + (1 + eta) * hat.min() + math.log(law.mean) / (orders - 1)
    assert law.kind == "poisson"
    gap = np.array([reverse_profile.delta(math.log(order / (order - 1))) for order in orders])
    return poisson_rdp(orders, rdp + law.mean * gap, law.mean)


def poisson_rdp(orders: Array, inner: Array, mu: float) -> Array:
    """log(e^-mu + mu e^{(order-1) inner}) / (order - 1): K = 0 is an outcome too, and matters when mu < 1."""
    return np.logaddexp(-mu, math.log(mu) + (orders - 1) * inner) / (orders - 1)


def pair_rdp(pair: Pair) -> Array:
    return renyi(*pair.masses, ORDERS)


def papernot_steinke(pair: Pair, law: LawOfK, epsilon: float) -> float:
    """The Renyi bound turned into delta by the conversion of Canonne, Kamath & Steinke 2020."""
    bounds = papernot_steinke_rdp(ORDERS, pair_rdp(pair), pair_rdp(pair.reversed), law, pair.reversed)
    log_delta = (ORDERS - 1) * (bounds - epsilon) + ORDERS * np.log1p(-1 / ORDERS) - np.log(ORDERS - 1)
    return float(min(1.0, math.exp(min(0.0, log_delta.min()))))
