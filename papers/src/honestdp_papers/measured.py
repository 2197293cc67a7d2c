"""Numbers of kept trainings with their standard errors.

Errors are the jackknife's over the repeats: a number is computed again without each repeat of each optimizer, and what it
moves by is its error. So a number such as the best of many candidates, which is no average, has one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from honestdp_papers.claims import ERRORS
from honestdp_papers.parts import Array
from honestdp_papers.registry import Finished

UNKNOWN = "one training of each candidate, so that ± 0.0 stands for an error that is not known"
"""What a quick version says of its errors."""


@dataclass(frozen=True)
class Measured:
    """A number and its standard error; the error of a single training is not known, and told as 0.

    Where some repeats diverged and the number hangs on which, the error is infinite, and nothing can be told.
    """

    value: float
    error: float

    def above(self, limit: float) -> bool | None:
        """Whether it is; None where that cannot be told."""
        if not math.isfinite(self.error) or abs(self.value - limit) < ERRORS * self.error:
            return None
        return self.value > limit

    def at_most(self, limit: float) -> bool | None:
        above = self.above(limit)
        return None if above is None else not above

    def within(self, limit: float) -> bool | None:
        """Whether it is that near to 0, on either side."""
        return Measured(abs(self.value), self.error).at_most(limit)

    def __str__(self) -> str:
        return f"{self.value:+z.1f} ± {self.error:.1f}"

    @property
    def size(self) -> str:
        """Of a number that has no sign to tell."""
        return f"{self.value:z.1f} ± {self.error:.1f}"


def accuracy(parts: Finished, name: str) -> Array:
    """In per cent, `[repeats, candidates, looks]`."""
    kept = parts[name]
    found: Array = 100 * kept["right"].astype(float) / float(kept["tests"])
    return found


def jackknifed(groups: Sequence[Array], number: Callable[[Sequence[Array]], float]) -> Measured:
    """A number of the means over the repeats of independent groups, each `[repeats, ...]`."""
    means = [group.mean(axis=0) for group in groups]
    value, variance = float(number(means)), 0.0
    for place, group in enumerate(groups):
        count = len(group)
        without = [
            number([*means[:place], np.delete(group, i, axis=0).mean(axis=0), *means[place + 1 :]])
            for i in range(count)
            if count > 1
        ]
        if not np.isfinite([value, *without]).all():
            variance += 0.0 if all(one == value for one in without) else math.inf
        elif without:
            variance += (count - 1) / count * float(np.square(np.array(without) - np.mean(without)).sum())
    return Measured(value, math.sqrt(variance))


def counted(cases: Sequence[bool | None]) -> str:
    return f"{sum(case is True for case in cases)} of {len(cases)}"
