"""The cost of releasing the winner of k runs, each candidate run once (docs/theory.md, Theorems 3 and 2R).

With t = -log(1 - s) the curve g of the base run becomes a(t) = -log(1 - g(1 - e^-t)): what a run loses, at most, in log-chance
of being beaten. Over k different candidates the losses add up to at most (k-1) a^(tau/(k-1)), a^ the least concave majorant of a
on [0, T] and tau the sum of their t; beyond T the winner is so unlikely, e^-T, that it is charged in full:

    delta(e) <= E_R sup_{0 <= tau <= T} [ l k e^-tau - e^e k exp(-(k-1) a^(tau/(k-1))) ]_+  + e^-T,   l = dP/dR.

Candidates that share one law, one score and random ties (one setting, k seeds) need no majorant: phi(x) = x^k, and Theorem 2R
with lambda(s) = [phi'(1-s) - e^{e-c} phi'(1-g)]_+ leaves only the losses above c to be charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from honestdp.accounting.pair import Pair
from honestdp.accounting.steps import Array
from honestdp.selection.counts import Binomial
from honestdp.selection.envelope import Curve, Lines, expected, least_epsilon, turning_points

CELLS = 2**17  # of tau
PARTS = (0.6, 1e-3)  # parts of delta tried for what is charged in full; each gives a valid bound

LinesOf = Callable[[float], Lines | None]
"""The bound's lines where a mass is charged in full; None where there is no such bound."""


def different_epsilon(pair: Pair, candidates: int, delta: float) -> float:
    """Theorem 3, in the direction of this pair: the best of several cuts T."""
    return _best(pair, _different_lines(Curve.of(pair), candidates), candidates, delta, PARTS)


def identical_epsilon(pair: Pair, candidates: int, delta: float) -> float:
    """Theorem 2R for candidates of one law, in the direction of this pair."""
    return _best(pair, _identical_lines(Curve.of(pair), candidates), candidates, delta, (0.0, *PARTS))


def winner_delta(pair: Pair, candidates: int, delta: float, *, identical: bool) -> Callable[[float], float]:
    """Theorem 3, or 2R, as a bound on delta at each epsilon: the least over several masses charged in full."""
    lines_of = (_identical_lines if identical else _different_lines)(Curve.of(pair), candidates)
    # For larger deltas, this one and smaller ones.
    masses = (*[0.0] * identical, 0.6 * math.sqrt(delta), *(part * delta for part in PARTS), 1e-6 * delta)
    bounds = [(mass, lines) for mass in masses if (lines := lines_of(mass)) is not None]

    def delta_of(epsilon: float) -> float:
        best = 1.0
        for mass, lines in bounds:
            if mass < best:
                best = min(best, mass + expected(pair, lines, epsilon))
        return best

    return delta_of


def _best(pair: Pair, lines_of: LinesOf, candidates: int, delta: float, parts: Sequence[float]) -> float:
    """The least epsilon over the parts of delta that may be charged in full."""
    start = pair.epsilon(delta / candidates)
    bounds = [(part, lines) for part in parts if (lines := lines_of(part * delta)) is not None]
    return min((_least(pair, lines, delta * (1 - part), start) for part, lines in bounds), default=math.inf)


def _least(pair: Pair, lines: Lines, delta: float, start: float) -> float:
    return least_epsilon(lambda epsilon: expected(pair, lines, epsilon), delta, start=start)


def _identical_lines(curve: Curve, candidates: int) -> LinesOf:
    slopes, offsets = curve.cells(Binomial(candidates, 1.0))
    width = np.maximum(np.diff(curve.s), -np.diff(curve.x))

    def lines_of(mass: float) -> Lines | None:
        if mass == 0:  # lambda = 0: Theorem 2
            return Lines.hull(slopes, offsets)
        ratio = _ratio(slopes, offsets, width, mass)
        return Lines.hull(np.minimum(slopes, ratio * offsets), offsets) if math.isfinite(ratio) else None

    return lines_of


def _different_lines(curve: Curve, candidates: int) -> LinesOf:
    return lambda mass: _grid_lines(curve, candidates, cut=-math.log(mass))


def _ratio(slopes: Array, offsets: Array, width: Array, mass: float) -> float:
    """The least e^{e-c}, rounded up, for which the integral of lambda(s) = [slope - e^{e-c} offset]_+ is at most `mass`."""

    def over(log_ratio: float) -> bool:
        return float(np.sum(np.maximum(slopes - math.exp(log_ratio) * offsets, 0.0) * width)) > mass

    low, high = 0.0, 1.0
    while over(high):
        low, high = high, 2 * high
        if high > 600:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) else (low, middle)
    return math.exp(high)


def _grid_lines(curve: Curve, candidates: int, *, cut: float) -> Lines | None:
    others = candidates - 1
    at_cut = float(np.interp(math.exp(-cut), curve.x[::-1], curve.y[::-1]))
    if at_cut <= 0:
        return None
    # On [t_i, t_{i+1}] a is at most its value at the right end, which for the last cell is the cut.
    inside = int(np.count_nonzero(curve.x >= math.exp(-cut)))
    t, a = -np.log(curve.x[:inside]), -np.log(np.append(curve.y[1:inside], at_cut))
    last = np.append(np.diff(t) > 0, True)  # of equal t the last has the largest a
    t, a = turning_points(t[last], a[last])
    tau = np.linspace(0.0, cut, CELLS + 1)
    chance = np.exp(-others * np.interp(tau / others, t, a))
    return Lines.hull(candidates * np.exp(-tau[:-1]), candidates * chance[1:])
