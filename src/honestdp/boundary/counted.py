"""`Counted`: what every metric does with its numbers, one a record, on which the sensitivity of a score rests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from honestdp import checks
from honestdp.gradients.inputs import Inputs
from honestdp.losses import Loss

RESOLUTION = 128  # how many units the half of a range is divided into
Numbers = Callable[[Any, Any], Tensor]
"""output, of n rows, and y `[n, ...]` -> one number a record, `[n]`."""
MACHINE = (torch.OutOfMemoryError, MemoryError, torch.AcceleratorError)
"""Failures that are no record's own: they stop the search. After an error of an accelerator it computes nothing more."""


class Counted(ABC):
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


class UpToABound(Counted):
    """Numbers from 0, the best, to a bound, the worst."""

    bound: float
    best = 0.0

    def __post_init__(self) -> None:
        checks.positive(bound=self.bound)

    @property
    def worst(self) -> float:
        return float(self.bound)


@dataclass(frozen=True)
class PersonMean(Counted):
    """The mean of a metric over the rows of a person, each row's number within its range: one number a person, and so one that
    moves S by at most D, however many rows they have. It is counted in 1/256 of the range: the mean of rows that are right or
    wrong is neither.

    rows: the metric of one row.
    """

    rows: Counted

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.rows.name

    @property
    def weighs_classes(self) -> bool:  # type: ignore[override]
        return self.rows.weighs_classes

    def numbers(self, loss: Loss) -> Numbers:
        return self.rows.numbers(loss)

    def check(self, loss: Loss, output: Any, y: Inputs) -> None:
        self.rows.check(loss, output, y)

    def asks_user(self, loss: Loss | None) -> bool:
        return self.rows.asks_user(loss)

    @property
    def worst(self) -> float:
        return self.rows.worst

    @property
    def best(self) -> float:
        return self.rows.best

    @property
    def limits(self) -> tuple[float, float]:
        return self.rows.limits

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """At most that of single rows: the square of a mean is at most the mean of the squares."""
        return self.rows.sampling_variance(value, records=records, fraction=fraction)
