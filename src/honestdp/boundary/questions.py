"""The noise of a score that is asked once, by itself: discrete Laplace, pure epsilon.

A score S moves by at most D, its metric's sensitivity, for one record more or less (`metrics`). What leaves is S + Z with
P(Z = z) in proportion to exp(-|z| / s), s = D/epsilon: P(S + Z = t) then changes by a factor of at most exp(D / s) = exp(epsilon)
for every t, so that S + Z is (epsilon, 0) private.
"""

from __future__ import annotations

import math

from honestdp.boundary.exact import opendp


def question_noise(*, epsilon: float, sensitivity: int) -> int:
    """Z, exact by opendp."""
    dp = opendp()
    scale = question_scale(epsilon=epsilon, sensitivity=sensitivity)
    return int(dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)(0))


def question_scale(*, epsilon: float, sensitivity: int) -> float:
    """s = D/epsilon, rounded up: a scale too small would cost more than epsilon."""
    return math.nextafter(sensitivity / epsilon, math.inf)
