"""The noise of scores, what a noisy score says, and the noisy choice of the best.

A score S moves by at most D, the sensitivity of its metric (`metrics`), with one record more or less. What leaves is S + Z, Z a
discrete Gaussian of scale s D (opendp, exact arithmetic), or, where every candidate is charged anyway, the number of the best
candidate by a noisy maximum. A run that failed in training scores minus infinity without a question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from honestdp import checks
from honestdp.boundary.metrics import Metric

NORMAL = 1.959964  # standard deviations of a normal law within which 95 % of it lies


@dataclass(frozen=True)
class Score:
    """A noisy score: its value, and the interval that holds the score of all records with 95 % confidence.

    unlabelled: the value of records none of which has a declared label; None where an earlier version did not say.
    """

    confidence: ClassVar[float] = 0.95

    name: str
    value: float
    low: float
    high: float
    noise: float
    """The standard deviation that the noise alone gives the value."""
    unlabelled: float | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def as_dict(self) -> dict[str, float | str | None]:
        interval = {"low": self.low, "high": self.high, "confidence": self.confidence}
        return {"name": self.name, "value": self.value, **interval, "noise": self.noise, "unlabelled": self.unlabelled}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Score:
        """The score that `as_dict` wrote. Raises InvalidArgument where a number in it is none, such as NaN."""
        checks.finite(**{name: written[name] for name in ("value", "low", "high", "noise")})
        return cls(**{each.name: written[each.name] for each in fields(cls) if each.name in written})

    @property
    def caution(self) -> str:
        """A warning where the score may be that of no answer; empty elsewhere. It follows from public numbers alone."""
        if self.unlabelled is None or not self.low <= self.unlabelled <= self.high:
            return ""
        return (
            f"the interval holds {self.unlabelled:.4g}, also the score where no record has a declared label: compare how "
            "labels are spelled in the data with what was declared (for a file: honestdp check)"
        )

    def in_words(self, *, of_a_winner: bool = False) -> str:
        """The score as results show it. of_a_winner: it was the highest of several."""
        flatters = ["a winner's score flatters it"] if of_a_winner else []
        return "; ".join([f"{self}, noisy, 95 % interval", *flatters, *filter(None, [self.caution])])


def score_of(metric: Metric, noisy: int, *, multiplier: float, records: float, fraction: float) -> Score:
    """The score that a noisy S says. records: the declared number of validation records."""
    value = metric.value(noisy, records=records)
    noise = multiplier * abs(metric.best - metric.worst) / (2 * records)  # where no value is cut to its limits
    reach = NORMAL * math.sqrt(noise**2 + metric.sampling_variance(value, records=records, fraction=fraction))
    low, high = metric.limits
    return Score(
        metric.name, value, max(value - reach, low), min(value + reach, high), noise, metric.value(0, records=records)
    )


def score_noise(count: int, *, multiplier: float, sensitivity: int, generator: np.random.Generator | None) -> list[int]:
    """`count` discrete Gaussians of scale multiplier * sensitivity.

    They are additive, so they can be drawn before the runs and kept, as secret as the records. A generator is a user's fixed
    seed, whose result is NOT PRIVATE: rounded normal numbers do for that.
    """
    scale = multiplier * sensitivity
    if count == 0:
        return []
    if generator is not None:
        return [int(z) for z in np.rint(generator.normal(scale=scale, size=count))]
    dp = opendp()
    mechanism = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64"), scale=scale)
    return [int(z) for z in mechanism([0] * count)]


def choice_noise(count: int, *, epsilon: float, sensitivity: int, generator: np.random.Generator | None) -> list[int]:
    """`count` geometric numbers Z >= 0, P(Z >= z) = exp(-z / s), of scale s = 2D/epsilon: one for each candidate.

    The candidate of the highest S + Z (`best_of`) is an (epsilon, 0) private choice however many candidates there are. Fix the
    noise of all but candidate i: it wins if, and only if, Z_i >= z*, a whole number found from the others' S + Z and its own S,
    ties being settled by the candidates' numbers alone. One record more or less moves each S by at most D and so z* by at most
    2D, and P(Z >= z + 2D) >= exp(-2D / s) P(Z >= z) = exp(-epsilon) P(Z >= z) for every z, also below 0, where P(Z >= z) = 1.

    They are drawn before the runs and kept: two copies of a search make the same choice. Exact by opendp: a discrete Laplace
    number has P(Z = z) in proportion to exp(-|z| / s), so those that are not negative are geometric. With a generator, a user's
    fixed seed, exponential numbers rounded down, which have the same law but for floating point.
    """
    scale = math.nextafter(2 * sensitivity / epsilon, math.inf)  # up: a scale too small would cost more than epsilon
    if generator is not None:
        return [int(z) for z in np.floor(generator.exponential(scale, size=count))]
    if count == 0:
        return []
    dp = opendp()
    mechanism = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += [int(z) for z in mechanism([0] * count) if z >= 0]
    return drawn[:count]


def best_of(noisy: Mapping[int, int]) -> int:
    """The candidate of the highest S + Z; of equals the first, a rule that looks at no record."""
    return min(noisy, key=lambda candidate: (-noisy[candidate], candidate))


def question_noise(*, epsilon: float, sensitivity: int) -> int:
    """Z, for a score that is asked once, by itself: a discrete Laplace number, exact by opendp.

    P(Z = z) is in proportion to exp(-|z| / s), s = D/epsilon. One record more or less moves S by at most D, so P(S + Z = t)
    changes by a factor of at most exp(D / s) = exp(epsilon) for every t, and S + Z is (epsilon, 0) private.
    """
    dp = opendp()
    scale = question_scale(epsilon=epsilon, sensitivity=sensitivity)
    return int(dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)(0))


def question_scale(*, epsilon: float, sensitivity: int) -> float:
    """s = D/epsilon, rounded up: a scale too small would cost more than epsilon."""
    return math.nextafter(sensitivity / epsilon, math.inf)


def opendp() -> SimpleNamespace:
    """opendp's exact mechanisms by name, imported when one is first needed.

    opendp's prelude would import scikit-learn and pandas, which takes a second of every search.
    """
    from opendp import domains, measurements, measures, metrics, mod

    mod.enable_features("contrib")
    return SimpleNamespace(
        m=measurements,
        atom_domain=domains.atom_domain,
        vector_domain=domains.vector_domain,
        absolute_distance=metrics.absolute_distance,
        l1_distance=metrics.l1_distance,
        l2_distance=metrics.l2_distance,
        symmetric_distance=metrics.symmetric_distance,
        max_divergence=measures.max_divergence,
        binary_search_param=mod.binary_search_param,
    )
