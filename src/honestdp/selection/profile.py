"""Privacy profiles (delta at every epsilon) of pairs, events and selections, sampled so that searches compose.

An epsilon at one delta does not compose with what else was spent; a profile does. Each selection gives two, for the record
added and the record removed, sampled where the profile bends. Every point is a valid bound, and the true profile is convex in
e^e, so that the chord between two points lies above it: fewer points make the profile larger, never smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from dp_accounting import DpEvent

from honestdp import accounting
from honestdp.accounting import RenyiCurve
from honestdp.accounting.discrete import Profile
from honestdp.accounting.pair import Pair
from honestdp.accounting.pld import LARGEST_LOSS
from honestdp.accounting.steps import Array

TAIL = 1e-4  # the part of delta down to which a profile is followed; what lies below counts as infinite loss
BEND = 0.2  # the greatest fall of log delta between two points
STRAIGHT = 1e-8  # a bend, relative to delta, that is none
FINEST = 1e-3  # the least distance of two points, as a part of the whole range
CELLS = 10_000  # losses of a base run's pair

Profiles = tuple[Profile, Profile]
"""The record added and the record removed."""


def sampled(delta_of: Callable[[float], float], *, delta: float) -> Profile:
    """Points of a bound on delta(e), from e = 0 to where it has fallen to TAIL * delta or falls no more."""
    end = _end(delta_of, TAIL * delta)
    known = {e: min(1.0, delta_of(e)) for e in (0.0, end)}
    open_intervals = [(0.0, end)] if end > 0 else []
    while open_intervals:
        low, high = open_intervals.pop()
        fall = math.log(max(known[low], 1e-300)) - math.log(max(known[high], 1e-300))
        if fall > BEND and high - low > FINEST * end:
            middle = (low + high) / 2
            known[middle] = min(1.0, delta_of(middle))
            open_intervals += [(low, middle), (middle, high)]
    epsilons = np.array(sorted(known))
    return corners(Profile(epsilons, np.array([known[e] for e in epsilons])))


def _end(delta_of: Callable[[float], float], floor: float) -> float:
    """An epsilon, at most 5 % larger than it need be, at which the bound is at most `floor`, or at its own least."""
    if delta_of(0.0) <= floor:
        return 0.0
    floor = max(floor, (1 + 1e-6) * delta_of(LARGEST_LOSS))
    low, high = 0.0, 1e-3
    while delta_of(high) > floor:
        low, high = high, min(2 * high, LARGEST_LOSS)
    for _ in range(60):
        if high <= 1.05 * low:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= floor else (middle, high)
    return high


def base_pair(event: DpEvent, *, delta: float, tolerance: float) -> Pair | None:
    """The pair of a base run, on a grid of at least CELLS losses.

    The theorems take suprema over the cells of that grid, so that the few cells that do for a single query cost percents.
    """
    pair = accounting.privacy_loss(event, delta=delta, tolerance=tolerance)
    if pair is None or len(pair.losses) >= CELLS:
        return pair
    finer = tolerance * (len(pair.losses) / CELLS) ** 2  # the width of a cell goes with the root of the tolerance
    return accounting.privacy_loss(event, delta=delta, tolerance=finer)


def of_pair(pair: Pair, *, delta: float) -> Profiles:
    """Of a pair itself: what is spent if everything may leave."""
    return sampled(pair.delta, delta=delta), sampled(pair.reversed.delta, delta=delta)


def of_curve(curve: RenyiCurve, *, delta: float) -> Profiles:
    """Of a Renyi curve, which holds in both directions."""
    profile = sampled(curve.delta, delta=delta)
    return profile, profile


def of_event(event: DpEvent, *, delta: float) -> Profiles:
    """Of an event by itself."""
    known = accounting.at_once(event)
    if known is not None:
        return constant(0.0 if known == 0 else 1.0)
    pair = accounting.privacy_loss(event, delta=delta)
    if pair is None or math.isinf(pair.worst_epsilon(delta)):
        return of_curve(accounting.renyi_curve(event), delta=delta)
    return of_pair(pair, delta=delta)


def constant(value: float) -> Profiles:
    profile = Profile(np.zeros(1), np.full(1, value))
    return profile, profile


def worst(first: Profiles, second: Profiles) -> Profiles:
    """The larger of two profiles at every epsilon: of a choice between them that depends on no record."""
    return _worst(first[0], second[0]), _worst(first[1], second[1])


def _worst(first: Profile, second: Profile) -> Profile:
    epsilons = np.union1d(first.epsilons, second.epsilons)
    return corners(Profile(epsilons, np.maximum(at(first, epsilons), at(second, epsilons))))


def least(first: Profile, second: Profile) -> Profile:
    """The lesser of two bounds on one profile, at the points of both."""
    epsilons = np.union1d(first.epsilons, second.epsilons)
    return corners(Profile(epsilons, np.minimum(at(first, epsilons), at(second, epsilons))))


def corners(profile: Profile) -> Profile:
    """The points that bend the profile by more than rounding could; to leave others out can only raise it."""
    t, h = np.expm1(profile.epsilons).tolist(), np.minimum.accumulate(np.minimum(profile.deltas, 1.0)).tolist()
    kept: list[int] = []
    for i in range(len(t)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            chord = h[a] + (h[i] - h[a]) * (t[b] - t[a]) / (t[i] - t[a])
            if h[b] < (1 - STRAIGHT) * chord:
                break
            kept.pop()
        kept.append(i)
    return Profile(profile.epsilons[kept], np.array(h)[kept])


def at(profile: Profile, epsilons: Array) -> Array:
    """The chord between the points around each epsilon; beyond the last point, its value."""
    hull = profile.hull()
    deltas: Array = np.interp(np.expm1(epsilons), np.expm1(hull.epsilons), hull.deltas)
    return deltas
