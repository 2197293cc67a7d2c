"""Validation metrics of bounded sensitivity: each makes one number of a record, and a score is the sum of these numbers.

A score is a whole number S = sum of u_i over the validation records, one u_i a record, each between -D and D whatever the model,
the labels or a user's function do: `Metric.units` clips and rounds every record's number by itself and the sum is taken in
integers. Adding or removing one record moves S by at most D, the sensitivity; no bound is taken on trust. `scores` is the door
behind which the records are; only numbers with noise (`score_noise`) come out of it.

Numbers are centred, -D to D in place of 0 to 2D, which halves the sensitivity for nothing: a constant times the number of
validation records is no use to a comparison, and that number is declared (fraction times records), not counted. A greater S is
better.

A record on which the model, the loss or the metric fails, or gives NaN, counts as the worst.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from honestdp import checks
from honestdp.boundary.records import zeros_like
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs, outputs
from honestdp.gradients.inputs import Inputs
from honestdp.losses import Loss, cross_entropy, one_number, prediction, squared_error
from honestdp.losses.class_weights import balancing_weights, checked_prevalence

RESOLUTION = 128  # how many units the half of a range is divided into
Numbers = Callable[[Any, Any], Tensor]
"""output, of n rows, and y `[n, ...]` -> one number a record, `[n]`."""
MACHINE = (torch.OutOfMemoryError, MemoryError, torch.AcceleratorError)
"""Failures that are no record's own: they stop the search. After an error of an accelerator it computes nothing more."""
OF_SEVERAL = (
    "for labels of several tensors honestdp.DeclaredMetric(function, low=, high=), whose function(output, y) of one record gets "
    "the tuple or dict of its labels, or honestdp.ClippedLoss(bound)"
)
_LOGITS = (-3.0, -0.3, 0.3, 3.0)
_CALLS = 32  # records that a user's function is checked on, three times each
_MEMORY = "one that gives a record the same number whenever it is called: no memory of other records, no chance"


class Metric(ABC):
    """What every metric does with its numbers: one a record, between `worst` and `best`, counted in whole units from -D to D.

    A metric has `numbers` and `check` of its own, and its range. The rest is not to be overridden: the sensitivity rests on it.
    """

    sensitivity: ClassVar[int] = RESOLUTION
    """D."""

    name: str
    weighs_classes: bool = False
    """Whether a record's number depends on the declared prevalence of its class."""

    @property
    @abstractmethod
    def worst(self) -> float: ...

    @property
    @abstractmethod
    def best(self) -> float: ...

    @abstractmethod
    def numbers(self, loss: Loss) -> Numbers:
        """What the metric makes of the records, or rows of people, of a batch: one number each, of that record alone."""

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:  # noqa: B027 (most metrics of numbers take any)
        """Raise InvalidArgument where the metric cannot score such outputs and labels. output, y: of synthetic records."""

    def asks_user(self, loss: Loss | None) -> bool:
        """Whether a record's number comes from a function of the user. loss: None is one of honestdp's own."""
        return False

    def within(self, numbers: Tensor) -> Tensor:
        """numbers `[n]`, of any size or NaN -> `[n]`, each within the range; the worst in the place of NaN."""
        low, high = sorted((self.worst, self.best))
        return numbers.to(torch.float64, copy=True).nan_to_num_(nan=self.worst).clamp_(low, high)

    def units(self, numbers: Tensor) -> Tensor:
        """numbers `[n]`, of any size or NaN -> `[n]` whole numbers from -D to D. Each depends on its own number alone."""
        most, scale = self.sensitivity, 2 * self.sensitivity / (self.best - self.worst)
        scaled = numbers.to(torch.float64, copy=True).sub_(self.worst).mul_(scale).sub_(most)
        return scaled.nan_to_num_(nan=-most).clamp_(-most, most).round_().long()

    @property
    def limits(self) -> tuple[float, float]:
        """Between which the score of all records lies."""
        return min(self.worst, self.best), max(self.worst, self.best)

    def value(self, total: float, *, records: float) -> float:
        """The mean number of a record, from a noisy S and the declared number of validation records."""
        part = (1 + total / (self.sensitivity * records)) / 2
        low, high = self.limits
        return min(high, max(low, self.worst + (self.best - self.worst) * part))

    def absence(self, plural: str) -> str:
        """What `value` makes of records that are not there, in words: how many those are is private, and is not taken off."""
        middle = (self.worst + self.best) / 2
        return (
            f"the sum is divided by the public number of {plural}, for how many are there or have a label is private: one "
            f"that is not there, or has none, counts as {middle:.4g}, the middle of the range. With many of them the value and "
            "its interval lie nearer to that than the truth does (farther from it where there are more than declared)"
        )

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """How far the value may be from that of all records, of which a coin chose those of the validation side: at most this,
        since u^2 <= D^2, and met where every number is at an end of the range, as in accuracy.
        """
        centred = 2 * (value - self.worst) / (self.best - self.worst) - 1
        return (self.best - self.worst) ** 2 / 4 * (1 - fraction * centred**2) / records


class _UpToABound(Metric):
    """Numbers from 0, the best, to a bound, the worst."""

    bound: float
    best = 0.0

    def __post_init__(self) -> None:
        checks.positive(bound=self.bound)

    @property
    def worst(self) -> float:
        return float(self.bound)


def _of_rows(name: str) -> property:
    return property(lambda self: getattr(self.rows, name))


@dataclass(frozen=True)
class PersonMean(Metric):
    """The mean of a metric over the rows of a person, each row's number within its range: one number a person, and so one that
    moves S by at most D, however many rows they have. It is counted in 1/256 of the range: the mean of rows that are right or
    wrong is neither.

    rows: the metric of one row.
    """

    rows: Metric

    name = _of_rows("name")
    weighs_classes = _of_rows("weighs_classes")
    worst, best, limits = _of_rows("worst"), _of_rows("best"), _of_rows("limits")

    def numbers(self, loss: Loss) -> Numbers:
        return self.rows.numbers(loss)

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        self.rows.check(loss, output, y)

    def asks_user(self, loss: Loss | None) -> bool:
        return self.rows.asks_user(loss)

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """At most that of single rows: the square of a mean is at most the mean of the squares."""
        return self.rows.sampling_variance(value, records=records, fraction=fraction)


# ---- Metrics of classes


class _OfClasses(Metric):
    """A metric of outputs for each class, or of one logit, and one label a record."""

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        if not isinstance(y, Tensor):
            raise InvalidArgument("metric", self.name, OF_SEVERAL)
        predicted = prediction(output)
        aligned(predicted, y)
        if predicted.dim() == 1 or predicted.shape[1] == 1:
            _check_logit(loss, output, y)


@dataclass(frozen=True)
class Accuracy(_OfClasses):
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

    def numbers(self, loss: Loss) -> Numbers:
        return right


@dataclass(frozen=True)
class BalancedAccuracy(_OfClasses):
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
    weighs_classes = True

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

    def numbers(self, loss: Loss) -> Numbers:
        return partial(balanced, self.weights)

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        super().check(loss, output, y)
        self.numbers(loss)(output, y)
        predicted = prediction(output)
        classes = 2 if predicted.dim() == 1 else max(2, predicted.shape[1])
        if len(self.prevalence) != classes:
            wanted = f"of {classes} classes, as the model's outputs have"
            raise InvalidArgument("prevalence", list(self.prevalence), wanted)


@dataclass(frozen=True)
class LogLoss(_UpToABound, _OfClasses):
    """The mean of -log of the probability that the model gives to a record's label (softmax of several outputs, or one logit),
    whatever loss it is trained with; each record's clipped to [0, bound]. For `tune(metric=...)`, also as "log loss".

    bound: the most that a record counts, above 0: at 5, a label that gets less than 0.7 % counts as one that gets 0.7 %.

    >>> import honestdp
    >>> honestdp.LogLoss().bound
    5.0
    """

    bound: float = 5.0
    name: str = "log loss"

    def numbers(self, loss: Loss) -> Numbers:
        return log_loss


def aligned(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs `[n, classes, ...]` and labels `[n, ...]` of the same further dimensions. Labels `[n, 1, ...]` and outputs `[n]`
    are understood; what would have to be broadcast is refused.
    """
    if y.dim() > 1 and 0 in y.shape[1:]:
        wanted = "another than accuracy where a record has no labels: honestdp.LogLikelihood(low=, high=)"
        raise InvalidArgument("metric", "accuracy", wanted)
    if output.dim() == 1:
        output = output[:, None]
    if y.dim() == output.dim() and y.shape[1] == 1:
        y = y[:, 0]
    classes = output.shape[1]
    if y.shape != (len(output), *output.shape[2:]) or classes == 0 or (classes > 1 and y.is_floating_point()):
        wanted = (
            f"another than accuracy for outputs of shape {list(output.shape[1:])} and {y.dtype} labels of shape "
            f"{list(y.shape[1:])} a record. Accuracy takes one whole number as the label of a record (or of a position in it) "
            "and an output for each class, or one logit. Take honestdp.ClippedLoss(bound) or honestdp.DeclaredMetric(function, "
            "low=, high=)"
        )
        raise InvalidArgument("metric", "accuracy", wanted)
    return output, y


def right(output: Any, y: Tensor) -> Tensor:
    """`[n]`: whether a record is classified right, at every position of it. NaN is wrong."""
    scores, y = aligned(prediction(output), y)
    highest, place = scores.max(dim=1)  # NaN is the highest of all
    # One output is a logit. Labels of two classes are 0 and 1, sometimes -1 and 1: above one half is the second class.
    found = (highest > 0) == (y > 0.5) if scores.shape[1] == 1 else place == y
    found &= highest == highest
    return found if found.dim() == 1 else found.flatten(1).all(dim=1)


def balanced(weights: Sequence[float], output: Any, y: Tensor) -> Tensor:
    """`[n]`: 1/2 and half of the weight of a record's class, more where it is right and less where not. NaN for other labels."""
    found = right(output, y)
    scores, label = aligned(prediction(output), y)
    if label.dim() != 1:
        raise InvalidArgument("metric", "balanced accuracy", "another for several labels a record")
    place = (label > 0.5).long() if scores.shape[1] == 1 else label
    fits = (place >= 0) & (place < len(weights))
    weight = torch.tensor(weights, dtype=torch.float64, device=label.device)[torch.where(fits, place, 0)]
    return torch.where(fits, 0.5 + weight * (found.double() - 0.5), torch.nan)


def log_loss(output: Any, y: Tensor) -> Tensor:
    """`[n]`: -log of the probability of a record's label, the mean over its positions. NaN for a label that is no class."""
    scores, label = aligned(prediction(output), y)
    if scores.shape[1] > 1:
        return cross_entropies(scores, label) / max(1, label[0].numel())
    second = torch.where(label > 0.5, 1.0, 0.0).to(torch.float64)
    losses = functional.binary_cross_entropy_with_logits(scores[:, 0].double(), second, reduction="none")
    return losses.reshape(len(label), -1).mean(dim=1)


def cross_entropies(output: Any, y: Tensor) -> Tensor:
    """Cross-entropy, and NaN for a label that is none of the classes: with it the loss would fail for the whole batch."""
    output = prediction(output)
    fits = (y >= 0) & (y < output.shape[1])
    losses = cross_entropy(output, torch.where(fits, y, 0)).double()
    return torch.where(fits.reshape(len(y), -1).all(dim=1), losses, torch.nan)


def _check_logit(loss: Loss, output: Any, y: Tensor) -> None:
    """That one output is a logit to the loss, too: label 1 has the smaller loss above 0, label 0 below."""
    predicted, label = prediction(output), y[:1]

    def at(logit: float) -> Any:
        """The first example's output with this prediction."""
        return outputs.each_tensor(
            lambda part: torch.full_like(part[:1], logit) if part is predicted else part[:1], output
        )

    try:
        losses = [[float(loss(at(one), torch.full_like(label, value)).sum()) for value in (0, 1)] for one in _LOGITS]
        agree = all((second < first) == (one > 0) for one, (first, second) in zip(_LOGITS, losses, strict=True))
    except MACHINE:
        raise
    except Exception:
        agree = False
    if not agree:
        wanted = (
            "another than accuracy for one output and this loss. Accuracy reads one output as a logit, class 1 above 0, and the "
            "loss does not: the labels are no classes, or the output is a probability. Take honestdp.ClippedLoss(bound), "
            "honestdp.DeclaredMetric(function, low=, high=), a loss of logits (binary_cross_entropy_with_logits), or an output "
            "for each class"
        )
        raise InvalidArgument("metric", "accuracy", wanted)


# ---- Metrics of numbers


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

    def numbers(self, loss: Loss) -> Numbers:
        if loss is cross_entropy:
            return cross_entropies
        if loss is squared_error:
            return squared_error
        return OneByOne(lambda output, y: loss(outputs.each_tensor(lambda row: row[None], output), inputs.alone(y)))

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        numbers = self.numbers(loss)
        if isinstance(numbers, OneByOne):
            numbers.check(("loss", "one for ClippedLoss"), output, y)

    def asks_user(self, loss: Loss | None) -> bool:
        return loss is not None and isinstance(self.numbers(loss), OneByOne)


class _InARange(Metric):
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

    def numbers(self, loss: Loss) -> Numbers:
        return log_likelihood

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        log_likelihood(output, y)


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

    def numbers(self, loss: Loss) -> OneByOne:
        return OneByOne(self.function)

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        self.numbers(loss).check(("metric", self.name), output, y)

    def asks_user(self, loss: Loss | None) -> bool:
        return True


def log_likelihood(output: Any, y: Inputs) -> Tensor:
    """`[n]`: what the model gives, one number a record."""
    return one_number(output, len(inputs.first(y)), "the model's output shape, for log-likelihood,").double()


class OneByOne:
    """A user's function of one record, called for every record of a batch without showing it another one.

    By `torch.func.vmap` where the function can be mapped, which is found out on zeros and not on records; else in a loop, each
    call with copies. Shape and number of what comes back are forced: one number a record.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self._mapped: bool | None = None

    def __call__(self, output: Any, y: Inputs) -> Tensor:
        if self._mapped is None:
            zeros = outputs.each_tensor(lambda rows: torch.zeros_like(rows[:2]), output)
            self._mapped = self._can_be_mapped(zeros, zeros_like(y, min(2, len(inputs.first(y)))))
        if self._mapped:
            return self._map(output, y)
        places = range(len(inputs.first(y)))
        return torch.stack([self._alone_or_nan(outputs.row(output, i), inputs.rows(y, i)) for i in places])

    def alone(self, output: Any, y: Inputs) -> Tensor:
        """The number of one record."""
        found = torch.as_tensor(self._function(output, y), device=inputs.first(y).device)
        if found.numel() != 1:
            raise InvalidArgument("metric", f"a result of shape {list(found.shape)}", "one number for one record")
        return found.reshape(()).double()

    def _map(self, output: Any, y: Inputs) -> Tensor:
        """Over copies: a function may write into what it gets."""
        tensors, rebuild = outputs.tensors_in(output)

        def alone(rows: list[Tensor], label: Inputs) -> Tensor:
            return self.alone(rebuild(rows), label)

        copies = [tensor.clone() for tensor in tensors]
        mapped: Tensor = torch.func.vmap(alone, randomness="different")(copies, inputs.each(torch.clone, y))
        return mapped

    def _can_be_mapped(self, output: Any, y: Inputs) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a map is slow
                self._map(output, y)
        except MACHINE:
            raise
        except Exception:
            return False
        return True

    def _alone_or_nan(self, output: Any, y: Inputs) -> Tensor:
        try:
            return self.alone(outputs.each_tensor(torch.clone, output), inputs.each(torch.clone, y))
        except MACHINE:
            raise
        except Exception:
            return torch.full((), torch.nan, dtype=torch.float64, device=inputs.first(y).device)

    def check(self, blamed: tuple[str, str], output: Any, y: Inputs) -> None:
        """Raise InvalidArgument where the function does not give a record one number, the same whenever it is called.

        blamed: the argument that the function came in, and its name.
        """
        forth = list(range(min(_CALLS, len(inputs.first(y)))))
        alone: dict[int, Tensor] = {}
        try:
            for i in [*forth, *reversed(forth), *forth]:
                number = self.alone(
                    outputs.each_tensor(torch.clone, outputs.row(output, i)),
                    inputs.each(torch.clone, inputs.rows(y, i)),
                )
                if all(bool(torch.isfinite(part[i]).all()) for part in outputs.tensors_in(output)[0]) and not bool(
                    torch.isfinite(number)
                ):
                    raise InvalidArgument(
                        *blamed, f"one that gives finite numbers; of a made-up record it is {float(number)}"
                    )
                if not torch.allclose(alone.setdefault(i, number), number, rtol=1e-5, atol=0, equal_nan=True):
                    raise InvalidArgument(*blamed, _MEMORY)
            together = self(output, y)[: len(forth)]
        except (InvalidArgument, *MACHINE):
            raise
        except Exception as trouble:
            shapes = ", ".join(str(list(part.shape[1:])) for part in outputs.tensors_in(output)[0])
            given = f"an output of shape {shapes} and {inputs.in_words(y, 'labels')}"
            wanted = f"one that makes a number of one record, {given} ({' '.join(str(trouble).split())})"
            raise InvalidArgument(*blamed, wanted) from trouble
        if not torch.allclose(together, torch.stack([alone[i] for i in forth]), rtol=1e-3, atol=1e-6, equal_nan=True):
            raise InvalidArgument(*blamed, _MEMORY)


# ---- Which metrics there are

METRICS = (Accuracy, BalancedAccuracy, LogLoss, ClippedLoss, LogLikelihood, DeclaredMetric, PersonMean)


def check_metric(metric: Any) -> None:
    """Raise InvalidArgument for anything but METRICS. A subclass is refused: it could count a record for more than D."""
    if type(metric) is PersonMean:
        check_metric(metric.rows)
    elif type(metric) not in METRICS:
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
