"""Formulas that are wrong on purpose: each leaves out or turns round one thing that the proofs need.

The searches that find no violation of the bounds must find violations of every one of these.
"""

from __future__ import annotations

import math

import numpy as np

from .brute_force import Array, LawOfK
from .reference_bounds import (
    WHOLE,
    Pair,
    average,
    exponents,
    majorant,
    no_run,
    papernot_steinke_rdp,
    profile_shift,
    refined,
    refined_with,
    trade_off,
    winner,
)


def profile_without_mean(pair: Pair, law: LawOfK, epsilon: float) -> float:
    shift = profile_shift(pair, law)
    return pair.delta(epsilon - shift) + no_run(law, epsilon) if math.isfinite(shift) else 1.0


def profile_with_forward_trade_off(pair: Pair, law: LawOfK, epsilon: float) -> float:
    shift = profile_shift(pair.reversed, law)
    return law.mean * pair.delta(epsilon - shift) + no_run(law, epsilon) if math.isfinite(shift) else 1.0


def profile_with_eta_for_eta_plus_one(pair: Pair, law: LawOfK, epsilon: float) -> float:
    eta = law.parameters[0]
    return law.mean * pair.delta(epsilon - profile_shift(pair, law) * max(eta, 0.0) / (eta + 1))


def profile_without_shift(pair: Pair, law: LawOfK, epsilon: float) -> float:
    return law.mean * pair.delta(epsilon) + no_run(law, epsilon)


def _envelope(pair: Pair, law: LawOfK, epsilon: float, s: Array, g: Array) -> float:
    return average(pair, law.slope(s), math.exp(epsilon) * law.slope(g), law.mean) + no_run(law, epsilon)


def envelope_with_forward_trade_off(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair.reversed)
    return _envelope(pair, law, epsilon, s[:-1], g[1:])


def envelope_without_trade_off(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, _ = trade_off(pair)
    return _envelope(pair, law, epsilon, s[:-1], s[1:])


def envelope_averaged_over_the_reverse(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair)
    return _envelope(pair.reversed, law, epsilon, s[:-1], g[1:])


def envelope_with_slopes_from_the_right_end(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair, WHOLE)
    return _envelope(pair, law, epsilon, s[1:], g[1:])


def envelope_with_offsets_from_the_left_end(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair, WHOLE)
    return _envelope(pair, law, epsilon, s[:-1], g[:-1])


def envelope_with_infinite_losses_counted_once(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair)
    slopes, offsets = law.slope(s[:-1]), math.exp(epsilon) * law.slope(g[1:])
    return average(pair, slopes, offsets, min(1.0, law.mean)) + no_run(law, epsilon)


def envelope_without_reverse_infinite_losses(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair)
    return _envelope(pair, law, epsilon, s[:-1], np.maximum(g - pair.r_inf, s)[1:])


def envelope_without_the_empty_search(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair)
    return average(pair, law.slope(s[:-1]), math.exp(epsilon) * law.slope(g[1:]), law.mean)


def refined_without_what_lambda_costs(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair)
    slopes, offsets = law.slope(s[:-1]), law.slope(g[1:])
    bounds = []
    for c in pair.losses:
        weights = np.maximum(slopes - math.exp(epsilon - c) * offsets, 0.0)
        weights = weights - weights.min()
        bounds.append(refined_with(pair, law, epsilon, weights) - float(weights @ np.diff(s)))
    return min(bounds, default=1.0)


def refined_with_a_smaller_slope_at_infinity(pair: Pair, law: LawOfK, epsilon: float) -> float:
    s, g = trade_off(pair)
    slopes, offsets = law.slope(s[:-1]), law.slope(g[1:])
    return average(pair, slopes, math.exp(epsilon) * offsets, float(slopes.min())) + no_run(law, epsilon)


def _winner(pair: Pair, k: int, epsilon: float, cut: float, t: Array, a: Array, *, tail: float) -> float:
    tau = np.unique(np.concatenate([np.linspace(0, cut, 257), np.minimum((k - 1) * t, cut)]))
    offsets = k * np.exp(-(k - 1) * np.interp(tau[1:] / (k - 1), t, a))
    return average(pair, k * np.exp(-tau[:-1]), math.exp(epsilon) * offsets, k) + tail


def winner_without_majorant(pair: Pair, k: int, epsilon: float) -> float:
    """a itself, which is right for two candidates and for candidates that are all alike only."""
    bounds = [1.0]
    for cut in (4.0, 8.0, 14.0):
        s, g = trade_off(pair)
        inside = (s < -math.expm1(-cut)) & (g < 1)
        if exponents(pair, cut) is not None:
            t, a = -np.log1p(-s[inside]), -np.log1p(-g[inside])
            bounds.append(_winner(pair, k, epsilon, cut, t, a, tail=math.exp(-cut)))
    return min(bounds)


def winner_without_the_cut(pair: Pair, k: int, epsilon: float) -> float:
    """A majorant on [0, T] as if nothing lay beyond T, and e^-T left out."""
    points = [(cut, exponents(pair, cut)) for cut in (0.02, 0.1, 0.5, 1.0)]
    bounds = [_winner(pair, k, epsilon, cut, *majorant(*found), tail=0.0) for cut, found in points if found is not None]
    return min(bounds, default=1.0)


def winner_counted_as_one_run(pair: Pair, k: int, epsilon: float) -> float:
    return winner(pair, k, epsilon) / k


def winner_as_if_all_candidates_had_one_law(pair: Pair, k: int, epsilon: float) -> float:
    """Theorem 2R for a fixed number of runs: equal privacy curves do not make equal laws."""
    return refined(pair, LawOfK("fixed", (k,)), epsilon)


def winner_with_forward_trade_off(pair: Pair, k: int, epsilon: float) -> float:
    bounds = [1.0]
    for cut in (2.0, 4.0, 8.0, 14.0):
        found = exponents(pair.reversed, cut)
        if found is not None:
            bounds.append(_winner(pair, k, epsilon, cut, *majorant(*found), tail=math.exp(-cut)))
    return min(bounds)


def renyi_with_eta_for_eta_plus_one(orders: Array, rdp: Array, reverse: Array, law: LawOfK, back: Pair) -> Array:
    eta, gamma = law.parameters
    hat = np.append((1 - 1 / orders) * reverse + math.log(1 / gamma) / orders, math.log(1 / gamma))
    return rdp + max(eta, 0.0) * hat.min() + math.log(law.mean) / (orders - 1)


def renyi_without_log_mean(orders: Array, rdp: Array, reverse: Array, law: LawOfK, back: Pair) -> Array:
    return papernot_steinke_rdp(orders, rdp, reverse, law, back) - math.log(law.mean) / (orders - 1)


def renyi_without_gamma(orders: Array, rdp: Array, reverse: Array, law: LawOfK, back: Pair) -> Array:
    eta = law.parameters[0]
    return rdp + (1 + eta) * ((1 - 1 / orders) * reverse).min() + math.log(law.mean) / (orders - 1)


def renyi_poisson_without_reverse_delta(orders: Array, rdp: Array, reverse: Array, law: LawOfK, back: Pair) -> Array:
    return rdp + math.log(law.mean) / (orders - 1)


def renyi_poisson_without_the_empty_search(orders: Array, rdp: Array, reverse: Array, law: LawOfK, back: Pair) -> Array:
    gap = np.array([back.delta(math.log(order / (order - 1))) for order in orders])
    return rdp + law.mean * gap + math.log(law.mean) / (orders - 1)
