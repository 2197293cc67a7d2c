"""From how many candidates on one selection costs less than another."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from honestdp.accounting.pld import comparing
from honestdp.run import Run
from honestdp.selection import catalogue

MOST_CANDIDATES = 4096  # beyond which crossovers are not looked for


class Crossover(NamedTuple):
    """From `candidates` on, `cheaper` costs less than `dearer`."""

    cheaper: str
    dearer: str
    candidates: int


def crossovers(run: Run, *, delta: float, coverage: float) -> list[Crossover]:
    """From how many candidates on one method costs less than another, at one noise."""
    lines = {line.name: line for line in catalogue.series(coverage=coverage)}

    @cache
    def epsilon(name: str, candidates: int) -> float:
        return lines[name].make(candidates).epsilon(run.event, delta=delta)

    def crossing(cheaper: str, dearer: str) -> int | None:
        return _first(lambda candidates: epsilon(cheaper, candidates) < epsilon(dearer, candidates))

    with comparing():
        firsts = [(name, dearer, crossing(name, dearer)) for name in lines for dearer in lines[name].undercuts]
    return [Crossover(cheaper, dearer, first) for cheaper, dearer, first in firsts if first is not None]


def _first(holds: Callable[[int], bool]) -> int | None:
    """The least number of candidates from which on something holds that, once true, stays true."""
    low, high = 1, 2
    while not holds(high):
        low, high = high, 2 * high
        if high > MOST_CANDIDATES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
