"""Private validation scores: the second and last place where records are seen.

A score is a whole number S computed from a model and the validation records, of sensitivity D: adding or removing one
record moves it by at most D. What leaves is S + Z, Z a discrete Gaussian of scale s D (opendp, exact arithmetic), or, where
every candidate is charged anyway, the number of the best candidate by a noisy maximum.

Contributions are centred, -D to D in place of 0 to 2D, which halves the sensitivity for nothing: a constant times the number
of validation records is no use to a comparison, and that number is declared (fraction times records), not counted. All
scores are "greater is better".

A run that failed in training scores minus infinity without a question. A record on which model or loss fails counts as none; a
user's metric that fails counts as 0. That it does not fail is part of the bound that is declared for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.gradients import mapped_outputs
from honestdp.losses import Loss

FINENESS = 128  # how many units the half-range of a loss, or a user's sensitivity, is divided into
CONFIDENCE, DEVIATIONS = 0.95, 1.959964
SPREAD = 9.0e18  # what 64 bits hold


class Metric(Protocol):
    """What a model is scored by."""

    @property
    def name(self) -> str: ...

    @property
    def sensitivity(self) -> int:
        """D, in the units of `total`."""

    def total(self, output: Tensor, y: Tensor, losses: Tensor) -> int:
        """S. output, y, losses: one row for each validation record."""

    def value(self, total: float, *, records: float) -> float:
        """The score in words that people use, from a noisy S and the declared number of validation records."""

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        """How far the value may be from that of all records: validation records are a coin's choice among them."""


@dataclass(frozen=True)
class Accuracy:
    """The part of records whose highest output is their label. S = right - wrong, so that D = 1."""

    name: str = "accuracy"
    sensitivity: int = 1

    def total(self, output: Tensor, y: Tensor, losses: Tensor) -> int:
        right = (output.argmax(dim=1) == y).reshape(len(y), -1).all(dim=1)
        return int(2 * right.sum().item() - len(y))

    def value(self, total: float, *, records: float) -> float:
        return min(1.0, max(0.0, (1 + total / records) / 2))

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        return (1 - fraction * (2 * value - 1) ** 2) / (4 * records)


@dataclass(frozen=True)
class ClippedLoss:
    """The mean loss, each record's clipped to [0, bound] and rounded to 1/256 of it. What is no number counts as the bound."""

    bound: float
    name: str = "loss"
    sensitivity: int = FINENESS

    def __post_init__(self) -> None:
        checks.positive(bound=self.bound)

    def total(self, output: Tensor, y: Tensor, losses: Tensor) -> int:
        clipped = torch.nan_to_num(losses.double(), nan=self.bound, posinf=self.bound, neginf=0.0).clamp(0, self.bound)
        return int((FINENESS - torch.round(clipped / self.bound * (2 * FINENESS))).long().sum().item())

    def value(self, total: float, *, records: float) -> float:
        return min(self.bound, max(0.0, self.bound / 2 * (1 - total / (FINENESS * records))))

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        return self.bound**2 / (4 * records)


@dataclass(frozen=True)
class DeclaredMetric:
    """A user's own: function(output, y) -> a number, greater is better, that one record moves by at most `bound`.

    That bound is taken on trust and named in the statement. Rounding to bound/128 adds one unit to D.
    """

    function: Callable[[Tensor, Tensor], float]
    bound: float
    name: str = "metric"

    def __post_init__(self) -> None:
        checks.positive(bound=self.bound)

    @property
    def sensitivity(self) -> int:
        return FINENESS + 1

    def total(self, output: Tensor, y: Tensor, losses: Tensor) -> int:
        try:
            units = float(self.function(output, y)) / self.bound * FINENESS
        except Exception:  # an error that depends on the records would betray them
            return 0
        return round(min(max(units, -SPREAD / 4), SPREAD / 4)) if math.isfinite(units) else 0

    def value(self, total: float, *, records: float) -> float:
        return total * self.bound / FINENESS

    def sampling_variance(self, value: float, *, records: float, fraction: float) -> float:
        return 0.0


def default_metric(label_dtype: torch.dtype | np.dtype[Any]) -> Metric:
    kind = label_dtype.kind if isinstance(label_dtype, np.dtype) else "f" if label_dtype.is_floating_point else "i"
    if kind == "f":
        wanted = (
            "given for labels that are not classes: honestdp.ClippedLoss(bound=...), the most that one record may count"
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
        own: dict[str, float | str] = {"name": self.name, "value": self.value, "low": self.low, "high": self.high}
        return {**own, "confidence": CONFIDENCE, "noise": self.noise}


def score_of(metric: Metric, noisy: int, *, multiplier: float, records: float, fraction: float) -> Score:
    """The score that a noisy S says. records: the declared number of validation records."""
    scale = multiplier * metric.sensitivity
    value = metric.value(noisy, records=records)
    small = records / 1000  # where no value is cut to its limits
    noise = scale * abs(metric.value(small, records=records) - metric.value(-small, records=records)) / (2 * small)
    reach = DEVIATIONS * math.sqrt(noise**2 + metric.sampling_variance(value, records=records, fraction=fraction))
    limits = [metric.value(side * SPREAD, records=records) for side in (-1, 1)]
    low, high = max(value - reach, min(limits)), min(value + reach, max(limits))
    return Score(metric.name, value, low, high, noise)


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


def private_choice(
    totals: Sequence[int], *, epsilon: float, sensitivity: int, generator: np.random.Generator | None
) -> int:
    """The number of the candidate with the highest S plus exponential noise of scale 2D/epsilon.

    (epsilon, 0) private however many candidates there are, and never less accurate than the exponential mechanism (it is
    the permute-and-flip of McKenna & Sheldon 2020, by opendp's noisy max).
    """
    scale = 2 * sensitivity / epsilon
    if generator is not None:
        return int(np.argmax(np.array(totals) + generator.exponential(scale, size=len(totals))))
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=False)
    return int(dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)(list(totals)))


def _opendp() -> Any:
    import opendp.prelude as dp  # here: training alone does not need it

    dp.enable_features("contrib")
    return dp


BATCH = 8192
"""Records in one forward pass of a model that is scored."""


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = model(x)
    return found


class Validation:
    """The validation records, with exact totals as their only way out; the caller adds the noise before anything leaves."""

    def __init__(
        self, x: Tensor, y: Tensor, *, loss: Loss, metric: Metric, batch: int = BATCH, strict: bool = False
    ) -> None:
        """strict: each record goes through the model under a map of its own."""
        self._x, self._y, self._loss, self._metric, self._batch = x, y, loss, metric, batch
        self._output = mapped_outputs if strict else _outputs

    @torch.no_grad()
    def total(self, model: nn.Module) -> int:
        """S for a model. Secret."""
        model.eval()
        if len(self._x) == 0:
            return 0
        batches = zip(torch.split(self._x, self._batch), torch.split(self._y, self._batch), strict=True)
        answers = [answer for x, y in batches for answer in self._answers(model, x, y)]
        if not answers:
            return 0
        return self._metric.total(*(torch.cat(parts) for parts in zip(*answers, strict=True)))

    def _answers(self, model: nn.Module, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """(output, y, losses) of the records on which model and loss do not fail. Of one that does nothing is seen: it must not
        take the others with it, for then it alone would move the total by all of theirs.
        """
        try:
            output = self._output(model, x)
            return [(output, y, self._loss(output, y))]
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception:
            if len(x) == 1:
                return []
        half = len(x) // 2
        return [*self._answers(model, x[:half], y[:half]), *self._answers(model, x[half:], y[half:])]
