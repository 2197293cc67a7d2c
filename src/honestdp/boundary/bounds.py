"""Private bounds of a column: quantiles and histograms by opendp, with pure differential privacy and exact arithmetic.

What comes in is one number a record, or one bucket; what leaves are two numbers of a public grid, or the numbers of some buckets.
Each question is (epsilon, 0) private under the adding or removing of one record, as opendp's own map of it says, and several
questions add up. Of a person with several rows one row is asked, chosen by a coin that depends on no row, so that one number a
person comes in. How many records are asked is bounded by a coin a record, too, for speed: that costs nothing and no cost is
saved by it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from honestdp.boundary.score_noise import opendp

Array = np.ndarray[Any, Any]
GRID = tuple(sorted({0.0, *(s * m * 10.0**e for s in (-1, 1) for m in (1, 1.5, 2, 3, 5, 7.5) for e in range(-6, 13))}))
"""Edges of public bins, of both signs, from a millionth to some trillions."""
FINE = 101  # candidates of a quantile between two edges
TAIL = 0.01  # of the records on either side are clipped, about
MOST_ASKED = 500_000


def private_range(values: Array, *, epsilon: float, declared: int) -> tuple[float, float]:
    """Two numbers between which most of the values lie. values: one a record; NaN where it is missing.

    First the bins of the grid that hold more than noise would: from the lowest to the highest of them. Then, with the other half
    of epsilon, two quantiles between these; left out where noise would drown them, which follows from N, declared and public.
    """
    known = np.clip(values[~np.isnan(values)], GRID[0], GRID[-1])
    drowned = 8 * math.log(FINE) / (epsilon * min(declared, MOST_ASKED)) > TAIL
    bins = np.clip(np.searchsorted(GRID, known, side="right") - 1, 0, len(GRID) - 2)
    noisy, level = _noisy_counts(bins, len(GRID) - 1, epsilon if drowned else epsilon / 2)
    full = np.flatnonzero(noisy > level) if bool((noisy > level).any()) else np.array([noisy.argmax()])
    low, high = GRID[full[0]], GRID[full[-1] + 1]
    if drowned:
        return low, high
    candidates = np.linspace(low, high, FINE)
    least, most = sorted(float(_quantile(part, epsilon / 4, candidates)(known)) for part in (TAIL, 1 - TAIL))
    return (least, most) if least < most else (low, high)


def private_frequent(buckets: Array, *, count: int, most: int, epsilon: float) -> tuple[int, ...]:
    """Up to so many buckets with the highest noisy counts, of those above what noise alone would reach, in order of number.

    buckets: one a record, from 0 to count - 1; others are passed over. One record moves one count by 1.
    """
    noisy, level = _noisy_counts(buckets[(buckets >= 0) & (buckets < count)], count, epsilon)
    seen = np.flatnonzero(noisy > level)
    return tuple(sorted(int(each) for each in seen[np.argsort(-noisy[seen], kind="stable")[:most]]))


def asked(records: int, whose: Array | None, declared: int) -> Array:
    """Numbers of the records that are asked, by coins: one row a person, and of all about MOST_ASKED at most.

    whose: the number of each row's person, -1 for nobody, whose rows are not asked.
    declared: N, public, from which the chance of a record follows.
    """
    coins = np.random.default_rng()
    rows = np.arange(records)
    if whose is not None:
        order = np.lexsort((coins.random(records), whose))
        first = np.ones(records, bool)
        first[1:] = whose[order][1:] != whose[order][:-1]
        rows = np.sort(order[first & (whose[order] >= 0)])
    return rows[coins.random(len(rows)) < MOST_ASKED / max(declared, MOST_ASKED)]


def _noisy_counts(places: Array, count: int, epsilon: float) -> tuple[Array, float]:
    """How many records are in each of so many places, with discrete Laplace noise, and a level that noise alone reaches in one of
    them once in a thousand times. One record moves one count by 1.
    """
    dp = opendp()
    scale = math.nextafter(1 / epsilon, math.inf)  # up: a scale too small would cost more than epsilon
    mechanism = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)
    if mechanism.map(1) > epsilon:
        raise AssertionError("a scale that costs more than it was given")
    noisy = np.array(mechanism(np.bincount(places, minlength=count).tolist()), np.int64)
    return noisy, scale * math.log(500 * count)


def _quantile(part: float, epsilon: float, candidates: Array) -> Any:
    """opendp's private quantile among these, with the least noise that costs no more than epsilon."""
    dp = opendp()
    domain, metric = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()

    def make(scale: float) -> Any:
        return dp.m.make_private_quantile(
            domain, metric, dp.max_divergence(), candidates.tolist(), alpha=part, scale=scale
        )

    return make(dp.binary_search_param(make, d_in=1, d_out=epsilon, T=float))
