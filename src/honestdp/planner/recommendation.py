"""`Method`, one way to search with its price, and which of several to take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from honestdp.accounting.calibration import OverBudget
from honestdp.selection import Selection, catalogue

NEARLY = 1.02  # a cost this close to the least is as good, if it takes fewer runs


@dataclass(frozen=True)
class Method:
    """One way to search: either the epsilon at the run's noise, or the noise that meets the budget."""

    selection: Selection
    coverage: float
    equal: str
    epsilon: float
    noise: float

    @property
    def shape(self) -> float | str | None:
        return self.selection.shape


class Limits(NamedTuple):
    """Of what may be recommended; see `plan`."""

    coverage: float
    max_runs: float | None
    published: bool


def eligible(listed: list[tuple[str, Selection]], candidates: int, limits: Limits) -> list[tuple[str, Selection]]:
    """What may be recommended, told without any accounting; for one candidate a single run, for there is nothing to choose."""
    if candidates == 1:
        return [("all", catalogue.one_run())]
    unpriced = [Method(method, method.coverage(candidates), equal, math.nan, math.nan) for equal, method in listed]
    return [(method.equal, method.selection) for method in _covering(unpriced, limits)[0]]


def _covering(methods: list[Method], limits: Limits) -> tuple[list[Method], float]:
    """The methods that are allowed, affordable and cover enough, or as much as can be had; and the most that can be had."""
    coverage, max_runs, published = limits
    allowed = [m for m in methods if not published or m.selection.published is None]
    affordable = [m for m in allowed if max_runs is None or m.selection.runs <= max_runs * (1 + 1e-9)]
    if not affordable:
        raise OverBudget("no method meets this budget: raise epsilon or delta, or ask for fewer steps or candidates")
    most = max(m.coverage for m in affordable)
    enough = coverage - 1e-9 if most >= coverage - 1e-9 else most / 2
    return [m for m in affordable if m.coverage >= enough], most


def recommend(methods: list[Method], limits: Limits) -> tuple[Method, str]:
    """The method to take, by its epsilon at one noise, and why."""
    covering, most = _covering(methods, limits)
    coverage = limits.coverage
    limit = "" if limits.max_runs is None else f" within {limits.max_runs:g} runs on average"
    reason = f"the least epsilon of all methods with a coverage of at least {coverage:g}{limit}"
    if most < coverage - 1e-9:
        enough = f"half of the most, {most:.2g}, or more"
        reason = f"no method has a coverage of {coverage:g}{limit}; the least epsilon of those with {enough}"
    least = min(m.epsilon for m in covering)
    best = min((m for m in covering if m.epsilon <= least * NEARLY), key=lambda m: (m.selection.runs, m.epsilon))
    if best.epsilon > least:
        reason += f", or within {NEARLY - 1:.0%} of it with the fewest runs"
    if best.coverage < 1:
        reason += f"; it makes {best.selection.runs:.4g} runs on average, which cost compute and not privacy"
    return best, reason
