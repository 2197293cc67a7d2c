"""Calibration: the least noise that a budget allows; and a temporary cache of epsilons.

Every search returns a value at which the epsilon was computed and found to be within the budget, never an interpolated one.

A search asks for the same epsilons when it calibrates, compares, states and reports. Within `once` it computes each of them once:
they are functions of public values alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting.pld import coarseness
from honestdp.accounting.rdp import AccountingWarning
from honestdp.budget import Budget
from honestdp.run import LEAST_NOISE, MOST_NOISE, Run

CLOSE = 1e-3  # how far below its target a calibrated epsilon may lie, relative
NARROW = 1e-5  # of log noise: where epsilon leaps, it comes no closer than this


class OverBudget(checks.HonestdpError):
    """A budget that allows not even the least of what was asked."""


class Spender(Protocol):
    """What a search spends if each of its runs is the event: a selection."""

    def epsilon(self, event: DpEvent, *, delta: float) -> float: ...


_known: ContextVar[dict[Any, tuple[float, list[warnings.WarningMessage]]] | None] = ContextVar("known", default=None)


@contextmanager
def once() -> Iterator[None]:
    """Remembers until it is left, and nothing beyond: a cache for a whole process would outlive changes of what it holds.
    Within another one it is that one.
    """
    if _known.get() is not None:
        yield
        return
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def epsilon_of(selection: Spender, event: DpEvent, *, delta: float) -> float:
    """The selection's epsilon, with the warnings that belong to it however often it is asked for."""
    known = _known.get()
    if known is None:
        return selection.epsilon(event, delta=delta)
    key = _name(selection), repr(event), delta, coarseness()  # some events hold lists, which have no hash
    if key not in known:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AccountingWarning)
            known[key] = selection.epsilon(event, delta=delta), caught
    epsilon, caught = known[key]
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return epsilon


def _name(selection: Spender) -> tuple[object, ...]:
    """By all of its fields and not by its own word for equality, which may leave some out; else by the object itself."""
    if not is_dataclass(selection) or type(selection).__eq__ is object.__eq__:
        return (selection,)
    return type(selection), *(repr(getattr(selection, field.name)) for field in fields(selection))


def least_noise(budget: Budget, *, records: int, lot: float, steps: int, selection: Spender, start: float = 1.0) -> Run:
    """The run with the least noise whose whole search meets the budget: its epsilon is at most 0.1 % below it, never above.

    records, lot, steps: of every run of the search. selection: how the winner is found, which decides what the search costs.
    start: the noise that is tried first; it decides how soon the noise is found.
    Raises OverBudget where no noise is enough, InvalidArgument for numbers that no run can have.

    >>> from honestdp.selection import Compose
    >>> run = least_noise(Budget(1.0, 1e-5), records=10_000, lot=100, steps=200, selection=Compose(candidates=1))
    >>> round(run.noise, 1)
    1.0
    """
    checks.whole(least=1, most=checks.MOST, steps=steps)

    def run_with(noise: float) -> Run:
        return Run(records=records, lot=lot, steps=steps, noise=noise)

    return run_with(least_multiplier(budget, lambda noise: run_with(noise).event, selection, start))


def least_multiplier(
    budget: Budget, event_of: Callable[[float], DpEvent], selection: Spender, start: float = 1.0
) -> float:
    """The least noise multiplier at which a search whose runs are the event of that noise meets the budget."""

    def excess(log_noise: float) -> float:
        """log epsilon - log target: decreasing in the noise, clamped where epsilon is infinite or zero."""
        noise = min(max(math.exp(log_noise), LEAST_NOISE), MOST_NOISE)
        epsilon = epsilon_of(selection, event_of(noise), delta=budget.delta)
        over = math.log(max(epsilon, 1e-300)) - math.log(budget.epsilon)
        if epsilon > budget.epsilon:  # by less than logarithms can tell, too
            over = max(over, 1e-15)
        return min(max(over, -20.0), 20.0)

    return min(max(math.exp(_crossing(excess, math.log(start))), LEAST_NOISE), MOST_NOISE)


def _crossing(excess: Callable[[float], float], start: float) -> float:
    """The argument at which a decreasing function falls to zero, from the side where it is at most zero."""
    # log epsilon falls at least as fast as log noise rises (but for the clamps), so that one such step brackets the crossing.
    least, most = math.log(LEAST_NOISE), math.log(MOST_NOISE)
    low = high = start
    at_low = at_high = excess(start)
    while at_low <= 0:
        high, at_high = low, at_low
        if low <= least:  # not even the least noise that a run may have costs too much
            return low
        low = max(low + min(at_low, -0.1), least)
        at_low = excess(low)
    while at_high > 0:
        low, at_low = high, at_high
        if high >= most:
            raise OverBudget(
                f"no noise up to {MOST_NOISE:g} meets this budget: raise epsilon or delta, or ask for fewer steps or candidates"
            )
        high = min(high + max(at_high, 0.1), most)
        at_high = excess(high)
    (x0, y0), (x1, y1) = (low, at_low), (high, at_high)
    for _ in range(100):
        slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
        # Where epsilon falls about as fast as the noise rises, close to the budget is close to the least noise.
        if high - low < NARROW or (at_high >= -CLOSE and (high - low < CLOSE or slope < -0.9)):
            break
        middle = x1 + (-CLOSE / 3 - y1) / slope if slope else low
        if not low < middle < high or at_high >= -CLOSE:
            middle = (low + high) / 2
        (x0, y0), (x1, y1) = (x1, y1), (middle, excess(middle))
        if y1 > 0:
            low = middle
        else:
            high, at_high = middle, y1
    return high


def first_above_one(holds: Callable[[int], bool], *, most: int) -> int | None:
    """The least number above 1 from which on something holds that, once true, stays true; None beyond `most` or so."""
    low, high = 1, 2
    while not holds(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
