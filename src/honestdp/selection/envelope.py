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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize

from honestdp.accounting.pair import Pair
from honestdp.accounting.pld import LARGEST_LOSS
from honestdp.accounting.steps import Array
from honestdp.selection.counts import Count

CELLS = 4  # cells of s to a cell of the grid of losses, where these are many
MOST_CELLS = 2**20  # of s, but for those of a long piece
LONG, FINE = 1e-3, 40_000  # a piece of g that is cut in a way of its own; the cells that s and g have at the least
STRIDES = (1, 1, 1, 4, 16, 64, 256, 1, 1)  # distances at which points are compared before a hull is walked
PRECISION = 1e-6  # of the search for epsilon, relative, upwards


@dataclass(frozen=True)
class Curve:
    """Points of s -> g(s) from s = 0 to s = 1, with the complements x = 1 - s and y = 1 - g, each to its own precision.

    The corners of g take the lowest losses first: s = P(L <= l), g = R(L <= l). What the numbers may lack is taken from s and
    given to g, so that g is never too small for its s. Between corners the best test is a mixture and g a straight line;
    since every corner errs upwards and to the left, so does the line between two of them.
    """

    s: Array
    x: Array
    g: Array
    y: Array

    @classmethod
    def of(cls, pair: Pair) -> Curve:
        """The curve of this pair; the latest are remembered, for several bounds at one noise share a pair."""
        for known, curve in _latest:
            if known is pair:
                return curve
        _latest.append((pair, cls._of(pair)))
        return _latest[-1][1]

    @classmethod
    def _of(cls, pair: Pair) -> Curve:
        p_above, r_above = pair.above
        other = pair.reversed
        # A rounding of P's masses by e is one of R's by e e^-l, and the other way round.
        scale = np.exp(np.clip(pair.losses, -700.0, 700.0))
        p_error, r_error = pair.slack(pair.losses), other.slack(-pair.losses)
        s_below = np.cumsum(pair.p) - r_error * scale
        x_above = p_above + pair.p_inf + p_error
        g_below = np.cumsum(pair.r) + pair.r_inf + r_error
        y_above = r_above - p_error / scale
        s, x = np.maximum(s_below, 1 - x_above), np.minimum(x_above, 1 - s_below)
        g, y = np.minimum(g_below, 1 - y_above), np.maximum(y_above, 1 - g_below)
        corners = np.array(
            (
                _corners(np.maximum.accumulate(s), 0.0, 1.0),
                _corners(np.minimum.accumulate(x), 1.0, 0.0),
                _corners(np.minimum.accumulate(g[::-1])[::-1], pair.r_inf, 1.0),
                _corners(np.maximum.accumulate(y[::-1])[::-1], 1 - pair.r_inf, 0.0),
            )
        )
        return cls(*_subdivided(corners))

    def cells(self, count: Count) -> tuple[Array, Array]:
        """phi' at the left end of each cell in s and at the right end in g: their difference bounds that of the cell."""
        return count.slope(self.s[:-1], self.x[:-1]), count.slope(self.g[1:], self.y[1:])


_latest: deque[tuple[Pair, Curve]] = deque(maxlen=4)


def _corners(values: Array, first: float, last: float) -> Array:
    return np.concatenate(([first], np.clip(values, 0.0, 1.0), [last]))


def _subdivided(corners: Array) -> tuple[Array, Array, Array, Array]:
    """Points on the straight pieces between the corners (columns of s, x, g, y), so many that the cells between are narrow.

    A smooth loss has many corners, close together, and a few points on each piece do. An outcome that alone has much of the
    mass makes a long piece, which is cut finer and finer towards both its ends: phi' may fall within a tiny part of it.
    """
    moved = np.append(True, np.abs(np.diff(corners, axis=1)).max(axis=0) > 0)
    corners = corners[:, moved]
    length = np.abs(np.diff(corners, axis=1)).max(axis=0)
    long = length > LONG
    fine = _towards_both_ends(FINE // max(1, int(np.count_nonzero(long))))
    few = max(1, min(CELLS, MOST_CELLS // len(long)))
    even = np.maximum(few, np.ceil(FINE * length)).astype(np.int64)
    if not long.any() and (even == few).all():
        part = np.arange(few) / few
        s, x, g, y = (np.append(np.outer(row[:-1], 1 - part) + np.outer(row[1:], part), row[-1]) for row in corners)
        return _ordered(s, x, g, y)
    points = np.where(long, fine.shape[1], even)
    piece = np.repeat(np.arange(len(long)), points)
    within = np.arange(len(piece)) - np.repeat(np.cumsum(points) - points, points)
    part = within / even[piece]
    rest = 1 - part
    at = np.flatnonzero(long[piece])
    part[at], rest[at] = fine[:, within[at]]
    s, x, g, y = (np.append(row[piece] * rest + row[piece + 1] * part, row[-1]) for row in corners)
    return _ordered(s, x, g, y)


def _ordered(s: Array, x: Array, g: Array, y: Array) -> tuple[Array, Array, Array, Array]:
    """Where rounding turned two neighbours round: s and y the lesser, x and g the larger."""
    s, x = np.minimum.accumulate(s[::-1])[::-1], np.maximum.accumulate(x[::-1])[::-1]
    return s, x, np.maximum.accumulate(g), np.minimum.accumulate(y)


def _towards_both_ends(points: int) -> Array:
    """Numbers from 0 to below 1, and what they lack to 1, `[2, about points]`: half of them even, half close to an end."""
    half = np.union1d(np.linspace(0.0, 0.5, 2 + points // 4), np.geomspace(1e-15, 0.5, 2 + points // 4))
    return np.array((np.append(half[:-1], 1 - half[:0:-1]), np.append(1 - half[:-1], half[:0:-1])))


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

    @cached_property
    def _meet(self) -> Array:
        """Where each line takes over from the next flatter one."""
        meet: Array = np.diff(self.offsets[::-1]) / np.diff(self.slopes[::-1])
        return meet

    def active(self, z: Array) -> tuple[Array, Array]:
        """Slope and offset of the highest line at each z."""
        index = len(self.slopes) - 1 - np.searchsorted(self._meet, z)
        return self.slopes[index], self.offsets[index]


def turning_points(x: Array, y: Array) -> tuple[Array, Array]:
    """The corners of the convex or concave chain through the ends of (x, y) that no point passes on the side of its turn.

    x and y both increase (the least concave majorant of the points) or both decrease (the lines y = x z - offset that are
    somewhere the highest). In both cases a middle point of three goes where dy1 dx2 <= dy2 dx1.
    """
    for stride in STRIDES:  # thins at once what lies inside the chord of two others; the walk finishes
        if len(x) <= 2 * stride:
            continue
        near, far = slice(stride, -stride), slice(2 * stride, None)
        dx, dy = x[near] - x[: -2 * stride], y[near] - y[: -2 * stride]
        inside = dy * (x[far] - x[near]) <= (y[far] - y[near]) * dx
        if stride == 1 and not inside.any():  # every point turns between its neighbours: the chain is the hull already
            return x, y
        keep = np.full(len(x), True)
        keep[near] = ~inside
        x, y = x[keep], y[keep]
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
    """The least epsilon, rounded up, at which a non-increasing bound on delta is met; the search begins at `start`."""
    start = min(start, LARGEST_LOSS / 2) if math.isfinite(start) else 1.0
    if delta_of(start) <= delta:
        low, high = 0.0, start
        if delta_of(0.0) <= delta:
            return 0.0
    else:
        low, high = start, max(2 * start, 1e-3)
        while delta_of(high) > delta:
            if high >= LARGEST_LOSS:
                return math.inf
            low, high = high, min(2 * high, LARGEST_LOSS)
    above, below = _narrowed(delta_of, delta, low, high)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        met = middle >= below or (middle > above and delta_of(middle) <= delta)
        low, high = (low, middle) if met else (middle, high)
    return high


def _narrowed(delta_of: Callable[[float], float], delta: float, low: float, high: float) -> tuple[float, float]:
    """Closer ends (above, below) of the interval within which the bound falls to delta.

    They spare the halving most of its values and change none of its answers: the bound does not increase.
    """

    def excess(epsilon: float) -> float:
        return math.log(max(delta_of(epsilon), 1e-300)) - math.log(delta)

    if low > 0 and excess(high) < 0:
        crossing = optimize.brentq(excess, low, high, xtol=PRECISION / 10 * low, rtol=PRECISION / 10)
        for point in (crossing * (1 - PRECISION / 5), crossing * (1 + PRECISION / 5)):
            if low < point < high:
                low, high = (low, point) if delta_of(point) <= delta else (point, high)
    return low, high


def envelope_delta(pair: Pair, count: Count) -> Callable[[float], float]:
    """Theorem 2: a bound on delta at each epsilon, in the direction of this pair."""
    lines = Lines.hull(*Curve.of(pair).cells(count))
    return lambda epsilon: min(1.0, expected(pair, lines, epsilon))


def envelope_epsilon(pair: Pair, count: Count, delta: float) -> float:
    """Theorem 2: the least epsilon of the envelope bound, in the direction of this pair."""
    start = pair.epsilon(min(1.0, delta / count.mean))
    return least_epsilon(envelope_delta(pair, count), delta, start=start)


def profile_epsilon(pair: Pair, count: Count, delta: float) -> float:
    """Theorem 1: e1 + e2, in the direction of this pair. Infinite where the count has no such bound."""
    if count.mean <= delta:
        return 0.0
    return pair.epsilon(min(1.0, delta / count.mean)) + _shift(pair, count)


def profile_delta(pair: Pair, count: Count) -> Callable[[float], float]:
    """Theorem 1: E[K] delta(e - e2) at each epsilon e, in the direction of this pair."""
    shift = _shift(pair, count)
    return lambda epsilon: min(1.0, count.mean * pair.delta(epsilon - shift)) if math.isfinite(shift) else 1.0


def _shift(pair: Pair, count: Count) -> float:
    """e2 = sup_s log phi'(1-s) / phi'(1-g(s))."""
    above, below = Curve.of(pair).cells(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(above > 0, np.log(above / below), 0.0)
    return max(0.0, float(ratios.max()))
