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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.counted import Counted, PersonMean
from honestdp.boundary.exact import opendp
from honestdp.checks import InvalidArgument
from honestdp.losses.class_weights import balancing_weights, checked_prevalence

OF_SEVERAL = (
    "for labels of several tensors honestdp.DeclaredMetric(function, low=, high=), whose function(output, y) of one record gets "
    "the tuple or dict of its labels, or honestdp.ClippedLoss(bound)"
)
BATCH = 1024
"""Records in one forward pass of a model that is scored: a public constant, and the last batch is filled up with blank records,
so that no width depends on how many records the coins put on the validation side."""
CONFIDENCE, DEVIATIONS = 0.95, 1.959964


@dataclass(frozen=True)
class Accuracy(Counted):
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


class _UpToABound(Counted):
    """Numbers from 0, the best, to a bound, the worst."""

    bound: float
    best = 0.0

    def __post_init__(self) -> None:
        checks.positive(bound=self.bound)

    @property
    def worst(self) -> float:
        return float(self.bound)


@dataclass(frozen=True)
class ClippedLoss(_UpToABound):
    """The mean loss, each record's clipped to [0, bound] and rounded to 1/256 of it. For `tune(metric=...)`.

    bound: the most that a record counts, above 0; InvalidArgument otherwise.

    >>> import honestdp
    >>> honestdp.ClippedLoss(4.0).worst
    4.0
    """

    bound: float
    name: str = "loss"


@dataclass(frozen=True)
class LogLoss(_UpToABound):
    """The mean of -log of the probability that the model gives to a record's label (softmax of several outputs, or one logit),
    whatever loss it is trained with; each record's clipped to [0, bound]. For `tune(metric=...)`, also as "log loss".

    bound: the most that a record counts, above 0: at 5, a label that gets less than 0.7 % counts as one that gets 0.7 %.

    >>> import honestdp
    >>> honestdp.LogLoss().bound
    5.0
    """

    bound: float = 5.0
    name: str = "log loss"


class _InARange(Counted):
    """Numbers from low, the worst, to high, the best."""

    low: float
    high: float

    def __post_init__(self) -> None:
        checks.finite(low=self.low, high=self.high)
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise InvalidArgument("high", self.high, f"above low, which is {self.low}, and by a finite number")

    @property
    def worst(self) -> float:
        return self.low

    @property
    def best(self) -> float:
        return self.high


@dataclass(frozen=True)
class LogLikelihood(_InARange):
    """The mean held-out log-likelihood, for a model whose output in eval() mode is the log-likelihood of the record (or
    a bound of it), one number; each record's clipped to [low, high] and rounded to 1/256 of it. For `tune(metric=...)`.

    low, high: DECLARED, the least and the most that a record counts. A density may be above 1 and its log above 0. The
    noise is in proportion to high - low: choose them from what the model can reach, never from these records.

    >>> import honestdp
    >>> honestdp.LogLikelihood(low=-8.0, high=-2.0).worst
    -8.0
    """

    _: KW_ONLY
    low: float
    high: float
    name: str = "log-likelihood"


@dataclass(frozen=True)
class BalancedAccuracy(Counted):
    """The mean over K classes of the part of each that is classified right. For `tune(metric=...)`, also as "balanced accuracy"
    with `prevalence=`.

    prevalence: the part of the records in each class, in order, DECLARED from public knowledge: counted from these records it
        would be a private quantity that no noise protects.

    With weights w_c = 1/(K p_c) a record of class c counts 1/2 + w_c/2 where it is right and 1/2 - w_c/2 where not; where the
    declared parts are the true ones, the mean of that is balanced accuracy. A record of the rarest class moves the sum the most,
    by D, and the noise is as large as that: one part in 100 of two classes costs 50 times the noise of accuracy.

    >>> import honestdp
    >>> honestdp.BalancedAccuracy([0.75, 0.25]).weights
    (0.6666666666666666, 2.0)
    """

    prevalence: Sequence[float]
    name: str = "balanced accuracy"
    limits = (0.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prevalence", checked_prevalence(self.prevalence))

    @property
    def weights(self) -> tuple[float, ...]:
        return balancing_weights(self.prevalence)

    @property
    def worst(self) -> float:
        return (1 - max(self.weights)) / 2

    @property
    def best(self) -> float:
        return (1 + max(self.weights)) / 2

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """At most, by the declared parts: a record of class c is w_c/2 from the middle."""
        return sum(part * weight**2 / 4 for part, weight in zip(self.prevalence, self.weights, strict=True)) / records


@dataclass(frozen=True)
class DeclaredMetric(_InARange):
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
        super().__post_init__()


OfRows = Accuracy | BalancedAccuracy | ClippedLoss | LogLoss | LogLikelihood | DeclaredMetric
Metric = OfRows | PersonMean


def of_rows(metric: Metric) -> OfRows:
    """What is computed of one row."""
    row: OfRows = metric.rows if isinstance(metric, PersonMean) else metric
    return row


def check_metric(metric: Any) -> None:
    """One of these, and no subclass: what it counts is computed here, not by it."""
    if type(metric) not in get_args(Metric):
        wanted = (
            "honestdp.Accuracy(), BalancedAccuracy(prevalence), LogLoss(), ClippedLoss(bound), LogLikelihood(low=, high=) or "
            "DeclaredMetric(function, low=, high=) with a function of one record's output and label"
        )
        raise InvalidArgument("metric", metric, wanted)


def default_metric(label_dtype: torch.dtype | None) -> Metric:
    """Accuracy for classes. label_dtype: None where labels are several tensors."""
    if label_dtype is None:
        raise InvalidArgument("metric", None, OF_SEVERAL)
    if label_dtype.is_floating_point:
        wanted = (
            "given for labels that are not classes: honestdp.ClippedLoss(bound=...), the most that one record may count; for "
            "labels 0.0 and 1.0 of one logit honestdp.Accuracy(); for a model that gives a record's log-likelihood "
            "honestdp.LogLikelihood(low=, high=)"
        )
        raise InvalidArgument("metric", None, wanted)
    return Accuracy()


@dataclass(frozen=True)
class Score:
    """A noisy score: its value, and the interval that holds the score of all records with 95 % confidence.

    unlabelled: the value of records none of which has a declared label; None where an earlier version did not say.
    """

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
        interval = {"low": self.low, "high": self.high, "confidence": CONFIDENCE}
        return {"name": self.name, "value": self.value, **interval, "noise": self.noise, "unlabelled": self.unlabelled}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Score:
        """The score that `as_dict` wrote."""
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
    reach = DEVIATIONS * math.sqrt(noise**2 + metric.sampling_variance(value, records=records, fraction=fraction))
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
