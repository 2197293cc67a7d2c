"""Distributions of the random number of runs K, by their generating functions.

What a selection costs depends on K through phi' alone: phi'(1) = E K is the mean number of runs, phi'(0) = P(K = 1), and the
chance that one of G candidates, drawn independently with replacement, is ever drawn is 1 - phi(1 - 1/G).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import numpy as np
from scipy import optimize

from honestdp import checks
from honestdp.accounting.steps import Array

MOST_RUNS = 1e6  # mean runs beyond which no search is planned
MOST_SHAPE = 1000.0  # beyond it the law is hardly to be told from Poisson's, and its numbers lose their digits


class Count(Protocol):
    """A law of the number of runs."""

    @property
    def mean(self) -> float: ...

    @property
    def none(self) -> float:
        """P(K = 0)."""

    @property
    def always_one(self) -> bool:
        """Whether K = 1 with certainty, so that the selection is a single run."""

    def generating(self, x: float) -> float:
        """phi(x) = E x^K, 0 <= x <= 1."""

    def drawn(self, s: float) -> float:
        """1 - phi(1 - s): the chance that one of K draws or more has an outcome of probability s."""

    def slope(self, s: Array, x: Array) -> Array:
        """phi'(x) where x = 1 - s, non-increasing in s. Both are given, so that a small one keeps its digits."""

    def draw(self, generator: np.random.Generator) -> int:
        """One K. It is secret: whoever knows it knows more than the guarantee allows."""


@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """P(K = k) proportional to (1 - gamma)^k Gamma(k + shape) / k!, k >= 1 (Papernot & Steinke 2022, Definition 1).

    Shape 1 is the geometric law, shape 0 the logarithmic one; the nearer to -1, the cheaper and the heavier its tail. Take it by
    `count_of`, from a mean number of runs. gamma: the smaller, the more runs.

    >>> from honestdp.selection import TruncatedNegativeBinomial
    >>> TruncatedNegativeBinomial(shape=1.0, gamma=0.025).mean
    40.0
    """

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        if not 0 < self.gamma <= 1:
            raise checks.InvalidArgument("gamma", self.gamma, "above 0 and at most 1")

    @classmethod
    def of_mean(cls, mean: float, *, shape: float) -> TruncatedNegativeBinomial:
        """The law of this shape whose mean number of runs is `mean`."""
        _check_shape(shape)
        if not 1 <= mean <= checks.MOST:
            wanted = f"from 1 to {checks.MOST:.0e}, since a truncated negative binomial count is at least one run"
            raise checks.InvalidArgument("runs", mean, wanted)
        if mean == 1:
            return cls(shape, 1.0)
        if shape == 1:
            return cls(shape, 1 / mean)

        def excess(log_gamma: float) -> float:
            return math.log(_mean(shape, math.exp(log_gamma))) - math.log(mean)

        low = -1.0
        while excess(low) < 0:
            low *= 2
            if low < -700:
                raise checks.InvalidArgument("runs", mean, f"within reach of a law of shape {shape:g}")
        return cls(shape, math.exp(optimize.brentq(excess, low, -1e-300, xtol=1e-15, rtol=1e-14)))

    @property
    def mean(self) -> float:
        return _mean(self.shape, self.gamma)

    @property
    def none(self) -> float:
        return 0.0

    @property
    def always_one(self) -> bool:
        return self.gamma == 1

    def generating(self, x: float) -> float:
        if self.gamma == 1:
            return x
        inner = math.log(self.gamma + (1 - self.gamma) * (1 - x))
        if self.shape == 0:
            return inner / math.log(self.gamma)
        return math.expm1(-self.shape * inner) / math.expm1(-self.shape * math.log(self.gamma))

    def drawn(self, s: float) -> float:
        if self.gamma == 1:
            return s
        grown = math.log1p((1 - self.gamma) * s / self.gamma)
        if self.shape == 0:
            return min(1.0, -grown / math.log(self.gamma))
        return min(1.0, math.expm1(-self.shape * grown) / math.expm1(self.shape * math.log(self.gamma)))

    def slope(self, s: Array, x: Array) -> Array:
        return self.mean * (self.gamma / (self.gamma + (1 - self.gamma) * s)) ** (self.shape + 1)

    def draw(self, generator: np.random.Generator) -> int:
        """The library's negative binomial, again until it is not 0; for shapes that have none, by the masses."""
        if self.gamma == 1:
            return 1
        if self.shape >= 0 and 1 - self.gamma == 1:  # such a law has a price, and no generator draws from it
            wanted = f"fewer for a search: of so many on average, at shape {self.shape:g}, no number can be drawn"
            raise checks.InvalidArgument("runs", self.mean, wanted)
        if self.shape == 0:
            return int(generator.logseries(1 - self.gamma))
        if self.shape < 0:
            return self._walk(generator.random())
        while True:
            k = int(generator.negative_binomial(self.shape, self.gamma))
            if k > 0:
                return k

    def _walk(self, uniform: float) -> int:
        """The least k with P(K <= k) above `uniform`, from P(1) = phi'(0) and P(k+1) / P(k) = (1-gamma) (k+shape) / (k+1)."""
        k, mass = 1, self.mean * self.gamma ** (self.shape + 1)
        below = mass
        while below <= uniform and mass > 0:
            mass *= (1 - self.gamma) * (k + self.shape) / (k + 1)
            k += 1
            below += mass
        return k


def _check_shape(shape: float) -> None:
    if not (math.isfinite(shape) and -1 < shape <= MOST_SHAPE):
        wanted = f"a number above -1 (0 logarithmic, 1 geometric) and at most {MOST_SHAPE:g}, or poisson"
        raise checks.InvalidArgument("shape", shape, wanted)


def _mean(shape: float, gamma: float) -> float:
    if gamma == 1:
        return 1.0
    odds = (1 - gamma) / gamma
    if shape == 0:
        return odds / -math.log(gamma)
    return odds * shape / -math.expm1(shape * math.log(gamma))


@dataclass(frozen=True)
class Poisson:
    """K Poisson: concentrated, so that the time of a search is known. It may draw no run at all: the model is then untrained.
    It costs about twice a geometric law of the same mean. mean: of the number of runs.

    >>> from honestdp.selection import Poisson
    >>> Poisson(mean=40).none < 1e-17
    True
    """

    mean: float

    def __post_init__(self) -> None:
        checks.positive(runs=self.mean)
        if self.mean > checks.MOST:
            raise checks.InvalidArgument("runs", self.mean, f"at most {checks.MOST:.0e}")

    @property
    def none(self) -> float:
        return math.exp(-self.mean)

    @property
    def always_one(self) -> bool:
        return False

    def generating(self, x: float) -> float:
        return math.exp(-self.mean * (1 - x))

    def drawn(self, s: float) -> float:
        return -math.expm1(-self.mean * s)

    def slope(self, s: Array, x: Array) -> Array:
        return self.mean * np.exp(-self.mean * s)

    def draw(self, generator: np.random.Generator) -> int:
        return int(generator.poisson(self.mean))


@dataclass(frozen=True)
class Binomial:
    """K successes of `trials` coins of bias `chance`: never more than `trials` runs. Take it where their number has a limit.

    >>> from honestdp.selection import Binomial
    >>> Binomial(trials=80, chance=0.5).mean
    40.0
    """

    trials: int
    chance: float

    def __post_init__(self) -> None:
        checks.whole(least=1, most=checks.MOST, trials=self.trials)
        if not 0 < self.chance <= 1:
            raise checks.InvalidArgument("chance", self.chance, "above 0 and at most 1")

    @property
    def mean(self) -> float:
        return self.trials * self.chance

    @property
    def none(self) -> float:
        return self.generating(0.0)

    @property
    def always_one(self) -> bool:
        return self.trials == 1 and self.chance == 1

    def generating(self, x: float) -> float:
        return float(1 - self.chance * (1 - x)) ** self.trials

    def drawn(self, s: float) -> float:
        return 1.0 if self.chance * s == 1 else -math.expm1(self.trials * math.log1p(-self.chance * s))

    def slope(self, s: Array, x: Array) -> Array:
        return self.mean * ((1 - self.chance) + self.chance * x) ** (self.trials - 1)

    def draw(self, generator: np.random.Generator) -> int:
        return int(generator.binomial(self.trials, self.chance))


def count_of(*, runs: float, shape: float | str) -> Count:
    """The law named by a mean number of runs and a shape: a number above -1, or "poisson"."""
    if isinstance(shape, str):
        checks.one_of(("poisson",), shape=shape)
        return Poisson(runs)
    return TruncatedNegativeBinomial.of_mean(runs, shape=shape)


def coverage(count: Count, candidates: int) -> float:
    """The chance that a given one of the candidates is drawn at least once."""
    return count.drawn(1 / candidates)


def with_replacement(runs: int, generator: np.random.Generator, candidates: int) -> list[int]:
    """`runs` candidates, each drawn uniformly and independently of the others."""
    return [int(i) for i in generator.integers(candidates, size=runs)]


def mean_for_coverage(wanted: float, *, candidates: int, shape: float | str) -> float | None:
    """The mean number of runs at which a given candidate is drawn with probability `wanted`; None if beyond reach."""
    checks.probability(coverage=wanted)
    least = 1e-9 if isinstance(shape, str) else 1.0

    def lacking(log_mean: float) -> float:
        return wanted - coverage(count_of(runs=math.exp(log_mean), shape=shape), candidates)

    low, high = math.log(least), math.log(MOST_RUNS)
    if lacking(high) > 0:
        return None
    if lacking(low) <= 0:
        return least
    mean = math.exp(optimize.brentq(lacking, low, high, xtol=1e-12, rtol=1e-12))
    return mean * (1 + 1e-9)  # on the side where the coverage is reached


LAWS: dict[str, type[Any]] = {
    "truncated-negative-binomial": TruncatedNegativeBinomial,
    "poisson": Poisson,
    "binomial": Binomial,
}


def as_dict(count: Count) -> dict[str, Any]:
    """The law for JSON, exactly."""
    name = next((name for name, law in LAWS.items() if type(count) is law), None)
    if name is None:
        raise checks.InvalidArgument("count", count, "one that honestdp knows: " + ", ".join(LAWS))
    return {"law": name, **asdict(count)}  # type: ignore[call-overload]


def from_dict(written: Mapping[str, Any]) -> Count:
    """The law that `as_dict` wrote; anything else is refused."""
    law = LAWS.get(str(written.get("law")))
    if law is None:
        raise checks.InvalidArgument("law", written.get("law"), "one of " + ", ".join(LAWS))
    names = {field.name for field in fields(law)}
    if set(written) != {"law", *names}:
        raise checks.InvalidArgument("law", sorted(written), "made of " + ", ".join(sorted(names)))
    count: Count = law(**{name: written[name] for name in names})
    return count
