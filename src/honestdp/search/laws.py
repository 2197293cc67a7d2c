"""Laws of a random search: `Uniform`, `LogUniform` and `Choice`, which candidates are drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from honestdp.checks import InvalidArgument


@dataclass(frozen=True)
class Uniform:
    """A hyperparameter of a random search, drawn uniformly between two finite numbers. For `tune(space=...)`.

    `tune(candidates=...)` says how many draws the search amounts to, 64 if it is left out; its price depends on that number.

    low, high: the ends, the lower one first; InvalidArgument otherwise.

    >>> import honestdp
    >>> space = {"lr": honestdp.Uniform(0.1, 1.0), "clip": 1.0}
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InvalidArgument("Uniform", (self.low, self.high), "two finite numbers, the lower one first")

    def draw(self, generator: np.random.Generator) -> float:
        return float(generator.uniform(self.low, self.high))


@dataclass(frozen=True)
class LogUniform:
    """A hyperparameter of a random search, drawn uniformly in the logarithm: as often from 0.001 to 0.01 as from 0.1 to 1. For
    `tune(space=...)`.

    A law has no number of candidates, and the price of a search depends on that number: `tune(candidates=...)` says how many
    draws the search amounts to, 64 if it is left out.

    low, high: the ends, finite and above 0, the lower one first; InvalidArgument otherwise.

    >>> import honestdp
    >>> space = {"lr": honestdp.LogUniform(0.001, 1.0), "clip": 1.0}
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 < self.low < self.high < math.inf):
            wanted = "two finite numbers above 0, the lower one first"
            raise InvalidArgument("LogUniform", (self.low, self.high), wanted)

    def draw(self, generator: np.random.Generator) -> float:
        return float(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))


@dataclass(frozen=True, init=False)
class Choice:
    """A hyperparameter of a random search that is one of several values, each as likely. For `tune(space=...)`.

    values: at least one; InvalidArgument otherwise.

    >>> import honestdp
    >>> honestdp.Choice(0.5, 1.0).values
    (0.5, 1.0)
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        only = values[0] if len(values) == 1 else None
        object.__setattr__(self, "values", tuple(only) if isinstance(only, (list, tuple)) else values)
        if not self.values:
            raise InvalidArgument("Choice", (), "at least one value")

    def draw(self, generator: np.random.Generator) -> Any:
        return self.values[int(generator.integers(len(self.values)))]
