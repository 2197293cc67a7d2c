"""`Counted`: what every metric does with its numbers, one a record, on which the sensitivity of a score rests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

RESOLUTION = 128  # how many units the half of a range is divided into


class Counted(ABC):
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

    @property
    def limits(self) -> tuple[float, float]:
        """Between which the score of all records lies."""
        return min(self.worst, self.best), max(self.worst, self.best)

    def value(self, total: float, *, records: float) -> float:
        """The mean number of a record, from a noisy S and the declared number of validation records."""
        part = (1 + total / (self.sensitivity * records)) / 2
        low, high = self.limits
        return min(high, max(low, self.worst + (self.best - self.worst) * part))

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """How far the value may be from that of all records, of which a coin chose those of the validation side: at most this,
        since u^2 <= D^2, and met where every number is at an end of the range, as in accuracy.
        """
        centred = 2 * (value - self.worst) / (self.best - self.worst) - 1
        return (self.best - self.worst) ** 2 / 4 * (1 - fraction * centred**2) / records
