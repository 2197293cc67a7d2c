"""Metrics of numbers: a clipped loss, a log-likelihood, and a user's own function, which sees one record at a time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from honestdp import checks
from honestdp.boundary.class_metrics import cross_entropies
from honestdp.boundary.counted import MACHINE, Counted, Numbers, UpToABound
from honestdp.boundary.records import zeros_like
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs, outputs
from honestdp.gradients.inputs import Inputs
from honestdp.losses import Loss, cross_entropy, one_number, squared_error

_CALLS = 32  # records that a user's function is checked on, three times each
_MEMORY = "one that gives a record the same number whenever it is called: no memory of other records, no chance"


@dataclass(frozen=True)
class ClippedLoss(UpToABound):
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
