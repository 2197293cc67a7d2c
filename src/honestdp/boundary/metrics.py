"""Validation metrics of bounded sensitivity, the noise of their scores, and the noisy choice of the best.

A score is a whole number S = sum of u_i over the validation records, one u_i a record, each between -D and D whatever the model,
the labels or a user's function do: `Metric.units` clips and rounds every record's number by itself and the sum is taken in
integers. Adding or removing one record moves S by at most D, the sensitivity; no bound is taken on trust. What leaves is S + Z,
Z a discrete Gaussian of scale s D (opendp, exact arithmetic), or, where every candidate is charged anyway, the number of the best
candidate by a noisy maximum. `scores` is the door behind which the records are; only noisy numbers come out of it.

Numbers are centred, -D to D in place of 0 to 2D, which halves the sensitivity for nothing: a constant times the number of
validation records is no use to a comparison, and that number is declared (fraction times records), not counted. A greater S is
better.

A run that failed in training scores minus infinity without a question. A record on which the model, the loss or the metric fails,
or gives NaN, counts as the worst.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from torch import Tensor

from honestdp import checks
from honestdp.checks import InvalidArgument

BATCH = 1024
"""Records in one forward pass of a model that is scored: a public constant, and the last batch is filled up with blank records,
so that no width depends on how many records the coins put on the validation side."""
RESOLUTION = 128  # how many units the half of a range is divided into
CONFIDENCE, DEVIATIONS = 0.95, 1.959964


class _Counted(ABC):
    """What every metric does with its numbers: one a record, between `worst` and `best`, counted in whole units from -D to D.

    Not to be overridden: the sensitivity rests on it.
    """

    sensitivity: ClassVar[int] = RESOLUTION
    """D."""

    @property
    @abstractmethod
    def worst(self) -> float: ...

    @property
    @abstractmethod
    def best(self) -> float: ...

    def units(self, numbers: Tensor) -> Tensor:
        """numbers `[n]`, of any size or NaN -> `[n]` whole numbers from -D to D. Each depends on its own number alone."""
        most, scale = self.sensitivity, 2 * self.sensitivity / (self.best - self.worst)
        scaled = numbers.to(torch.float64, copy=True).sub_(self.worst).mul_(scale).sub_(most)
        return scaled.nan_to_num_(nan=-most).clamp_(-most, most).round_().long()

    def value(self, total: float, *, records: float) -> float:
        """The mean number of a record, from a noisy S and the declared number of validation records."""
        part = (1 + total / (self.sensitivity * records)) / 2
        return self.worst + (self.best - self.worst) * min(1.0, max(0.0, part))

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """How far the value may be from that of all records, of which a coin chose those of the validation side: at most this,
        since u^2 <= D^2, and met where every number is at an end of the range, as in accuracy.
        """
        centred = 2 * (value - self.worst) / (self.best - self.worst) - 1
        return (self.best - self.worst) ** 2 / 4 * (1 - fraction * centred**2) / records


@dataclass(frozen=True)
class Accuracy(_Counted):
    """The part of records that are classified right: the highest of several outputs is the label, or the one output, a logit, is
    above 0 where the label is 1 and not where it is 0. S = right - wrong, so that D = 1.

    For `tune(metric=...)`, which takes it by itself where labels are whole numbers.

    >>> import honestdp
    >>> honestdp.Accuracy().sensitivity
    1
    """

    name: str = "accuracy"
    worst, best = 0.0, 1.0
    sensitivity = 1


@dataclass(frozen=True)
class ClippedLoss(_Counted):
    """The mean loss, each record's clipped to [0, bound] and rounded to 1/256 of it. For `tune(metric=...)`.

    bound: the most that a record counts, above 0; InvalidArgument otherwise.

    >>> import honestdp
    >>> honestdp.ClippedLoss(4.0).worst
    4.0
    """

    bound: float
    name: str = "loss"
    best = 0.0

    def __post_init__(self) -> None:
        checks.positive(bound=self.bound)

    @property
    def worst(self) -> float:
        return float(self.bound)


@dataclass(frozen=True)
class DeclaredMetric(_Counted):
    """A user's own: function(output, y) of ONE record -> a number from low to high, greater is better; the score is its mean.

    output and y are one record's: for ten classes a tensor of ten numbers and a tensor of one. The number is clipped to the range
    and rounded to 1/256 of it. What is not a mean over records (F1, AUC) has no such function and is not offered.

    function, low, high: as above; InvalidArgument for what is no function or no range. name: in results and reports.

    >>> import honestdp
    >>> top_two = honestdp.DeclaredMetric(lambda output, y: y in output.topk(2).indices, low=0, high=1, name="top two")
    """

    function: Callable[[Tensor, Tensor], Any]
    _: KW_ONLY
    low: float
    high: float
    name: str = "metric"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument("function", self.function, "a function of one record's output and label")
        checks.finite(low=self.low, high=self.high)
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise InvalidArgument("high", self.high, f"above low, which is {self.low}, and by a finite number")

    @property
    def worst(self) -> float:
        return self.low

    @property
    def best(self) -> float:
        return self.high


Metric = Accuracy | ClippedLoss | DeclaredMetric


def check_metric(metric: Any) -> None:
    """One of the three, and no subclass: what it counts is computed here, not by it."""
    if type(metric) not in get_args(Metric):
        wanted = (
            "honestdp.Accuracy(), honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, low=, high=) with a function "
            "of one record's output and label"
        )
        raise InvalidArgument("metric", metric, wanted)


def default_metric(label_dtype: torch.dtype) -> Metric:
    if label_dtype.is_floating_point:
        wanted = (
            "given for labels that are not classes: honestdp.ClippedLoss(bound=...), the most that one record may count; for "
            "labels 0.0 and 1.0 of one logit honestdp.Accuracy()"
        )
        raise InvalidArgument("metric", None, wanted)
    return Accuracy()


@dataclass(frozen=True)
class Score:
    """A noisy score: its value, and the interval that holds the score of all records with 95 % confidence."""

    name: str
    value: float
    low: float
    high: float
    noise: float
    """The standard deviation that the noise alone gives the value."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def as_dict(self) -> dict[str, float | str]:
        interval = {"low": self.low, "high": self.high, "confidence": CONFIDENCE}
        return {"name": self.name, "value": self.value, **interval, "noise": self.noise}


def score_of(metric: Metric, noisy: int, *, multiplier: float, records: float, fraction: float) -> Score:
    """The score that a noisy S says. records: the declared number of validation records."""
    value = metric.value(noisy, records=records)
    noise = multiplier * abs(metric.best - metric.worst) / (2 * records)  # where no value is cut to its limits
    reach = DEVIATIONS * math.sqrt(noise**2 + metric.sampling_variance(value, records=records, fraction=fraction))
    low, high = sorted((metric.worst, metric.best))
    return Score(metric.name, value, max(value - reach, low), min(value + reach, high), noise)


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
    dp = _opendp()
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
    dp = _opendp()
    mechanism = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += [int(z) for z in mechanism([0] * count) if z >= 0]
    return drawn[:count]


def best_of(noisy: Mapping[int, int]) -> int:
    """The candidate of the highest S + Z; of equals the first, a rule that looks at no record."""
    return min(noisy, key=lambda candidate: (-noisy[candidate], candidate))


def _opendp() -> Any:
    import opendp.prelude as dp  # here: training alone does not need it

    dp.enable_features("contrib")
    return dp
