"""The cost of keeping the best of K runs, from the privacy-loss distribution of one (docs/theory.md).

One run has the laws Q, Q' on neighbouring records, dominated by the pair (P, R). The winner of K runs has density
phi'(1 - s) with respect to Q at an outcome that a fresh run beats with probability s, and on the other records the same
outcome is beaten with probability at most g(s), the best test of size s against (P, R). So

    delta(e) <= E_R sup_s [ l phi'(1-s) - e^e phi'(1-g(s)) ]_+ ,   l = dP/dR        (envelope)
    delta(e1 + e2) <= E[K] delta_{P||R}(e1),   e2 = sup_s log phi'(1-s) / phi'(1-g(s))   (profile).

The supremum over s becomes one over the cells of the pair's own grid, with phi' taken at the end of the cell that makes the
bound larger: at most as tight as the grid, never below the theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from honestdp.accounting.pair import Pair
from honestdp.accounting.steps import Array
from honestdp.selection.counts import Count

CELLS = 4  # cells of s to a cell of the grid of losses
PRECISION = 1e-6  # of the search for epsilon, relative, upwards


@dataclass(frozen=True)
class Curve:
    """Break points of s -> g(s) as complements x = 1 - s and y = 1 - g, both non-increasing, from s = 0 to s = 1.

    x is rounded up and y down by what the numbers may lack, so that g is never too small for its s.
    """

    x: Array
    y: Array

    @classmethod
    def of(cls, pair: Pair) -> Curve:
        p, r = pair.above
        missing_p = pair.p_inf + pair.slack(pair.losses)
        x = np.minimum(1.0, np.concatenate(([1.0], p + missing_p, [0.0])))
        # R-mass above a loss may be overstated by the rounding of the P-masses there, times e^-loss.
        overstated = pair.slack(pair.losses) * np.exp(-np.maximum(pair.losses, -700.0))
        rest = np.clip(r - overstated, 0.0, 1.0)
        y = np.concatenate(([max(0.0, 1 - pair.r_inf)], rest, [0.0]))
        return cls(np.maximum.accumulate(x[::-1])[::-1], np.minimum.accumulate(y))._refined()

    def _refined(self) -> Curve:
        """With points between the break points, where the best test is a mixture and g is a straight line."""
        index = np.arange(CELLS * (len(self.x) - 1) + 1) / CELLS
        breaks = np.arange(len(self.x))
        return Curve(np.interp(index, breaks, self.x), np.interp(index, breaks, self.y))


@dataclass(frozen=True)
class Lines:
    """The convex function max(0, max_j slope_j z - offset_j), as the lines that touch it, steepest first."""

    slopes: Array
    offsets: Array

    @classmethod
    def hull(cls, slopes: Array, offsets: Array) -> Lines:
        """Keeps the lines of the upper envelope. `slopes` and `offsets` must not increase."""
        slopes, offsets = np.append(slopes, 0.0), np.append(offsets, 0.0)
        keep = np.append(np.diff(slopes) < 0, True)  # of equal slopes the last has the least offset
        slopes, offsets = slopes[keep], offsets[keep]
        return cls(*turning_points(slopes, offsets))

    @property
    def root(self) -> float:
        """The largest z at which the function is still zero."""
        if len(self.slopes) < 2:
            return math.inf
        return float(self.offsets[-2] / self.slopes[-2])

    def active(self, z: Array) -> tuple[Array, Array]:
        """Slope and offset of the highest line at each z."""
        meet = np.diff(self.offsets[::-1]) / np.diff(self.slopes[::-1])
        index = len(self.slopes) - 1 - np.searchsorted(meet, z)
        return self.slopes[index], self.offsets[index]


def turning_points(x: Array, y: Array) -> tuple[Array, Array]:
    """The corners of the convex or concave chain through the ends of (x, y) that no point passes on the side of its turn.

    x and y both increase (the least concave majorant of the points) or both decrease (the lines y = x z - offset that are
    somewhere the highest). In both cases a middle point of three goes where dy1 dx2 <= dy2 dx1.
    """
    while len(x) > 2:  # thins at once what lies inside its neighbours; the walk finishes
        dx, dy = np.diff(x), np.diff(y)
        inside = dy[:-1] * dx[1:] <= dy[1:] * dx[:-1]
        keep = np.concatenate(([True], ~inside, [True]))
        x, y = x[keep], y[keep]
        if np.count_nonzero(inside) < 0.01 * len(inside):
            break
    kept: list[tuple[float, float]] = []
    for here, value in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2], kept[-1]
            if (y1 - y0) * (here - x1) > (value - y1) * (x1 - x0):
                break
            kept.pop()
        kept.append((here, value))
    corners = np.array(kept)
    return corners[:, 0], corners[:, 1]


def expected(pair: Pair, lines: Lines, epsilon: float) -> float:
    """D_F(P||R) for F(z) = e^eps F_lines(z e^-eps), the P-mass at infinite loss charged with the steepest slope."""
    threshold = epsilon + math.log(lines.root) if lines.root > 0 else -math.inf
    start = int(np.searchsorted(pair.losses, threshold, side="right"))
    losses, p, r = pair.losses[start:], pair.p[start:], pair.r[start:]
    slope, offset = lines.active(np.exp(losses - epsilon))
    finite = float(np.sum(np.maximum(slope * p - offset * math.exp(epsilon) * r, 0.0)))
    lacking = float(pair.slack(np.array(max(threshold, float(pair.losses[0])))))
    return finite + float(lines.slopes[0]) * (pair.p_inf + lacking)


def least_epsilon(delta_of: Callable[[float], float], delta: float, *, start: float) -> float:
    """The least epsilon, rounded up, at which a non-increasing bound on delta is met."""
    if delta_of(start) <= delta:
        low, high = 0.0, start
        if delta_of(0.0) <= delta:
            return 0.0
    else:
        low, high = start, max(2 * start, 1e-3)
        while delta_of(high) > delta:
            low, high = high, 2 * high
            if high > 1e4:
                return math.inf
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if delta_of(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def envelope_epsilon(pair: Pair, count: Count, delta: float) -> float:
    """Theorem 2: the least epsilon of the envelope bound, in the direction of this pair."""
    curve = Curve.of(pair)
    lines = Lines.hull(count.slope(curve.x[:-1]), count.slope(curve.y[1:]))
    start = pair.epsilon(delta / count.mean) if count.mean >= 1 else pair.epsilon(delta)
    return least_epsilon(lambda epsilon: expected(pair, lines, epsilon), delta, start=start)


def profile_epsilon(pair: Pair, count: Count, delta: float) -> float:
    """Theorem 1: e1 + e2, in the direction of this pair. Infinite where the count has no such bound."""
    curve = Curve.of(pair)
    above, below = count.slope(curve.x[:-1]), count.slope(curve.y[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(above > 0, np.log(above / below), 0.0)
    if count.mean <= delta:
        return 0.0
    return pair.epsilon(min(1.0, delta / count.mean)) + max(0.0, float(ratios.max()))
