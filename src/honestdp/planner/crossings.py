"""From how many candidates on one selection costs less than another."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from honestdp.accounting.calibration import first_above_one
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
        return first_above_one(lambda k: epsilon(cheaper, k) < epsilon(dearer, k), most=MOST_CANDIDATES)

    with comparing():
        firsts = [(name, dearer, crossing(name, dearer)) for name in lines for dearer in lines[name].undercuts]
    return [Crossover(cheaper, dearer, first) for cheaper, dearer, first in firsts if first is not None]
