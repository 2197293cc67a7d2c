"""Schedules: the factor by which the step size of step t = 0, 1, ..., T-1 is multiplied. Functions of public numbers
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from honestdp.checks import InvalidArgument
from honestdp.run import Run

Schedule = Callable[[int], float]


def constant(run: Run) -> Schedule:
    """No change."""
    return lambda step: 1.0


def decay(run: Run) -> Schedule:
    """Koskela & Honkela 2020, (5.1): constant for 50 epochs, then 1 / (1 + 0.1 (k - 50)) in epoch k.

    An epoch is N/L steps and epochs count from 1.
    """
    return lambda step: 1 / (1 + 0.1 * max(0, math.floor(step * run.rate) + 1 - 50))


def cosine(run: Run) -> Schedule:
    """From 1 down to 0 along half a cosine over the whole run (Loshchilov & Hutter 2017)."""
    return lambda step: (1 + math.cos(math.pi * step / run.steps)) / 2


NAMED = {"constant": constant, "decay": decay, "cosine": cosine}


def factors(schedule: str | Schedule, run: Run) -> list[float]:
    """The factor of every step. `schedule` is a name or a function of the step's number."""
    if isinstance(schedule, str):
        if schedule not in NAMED:
            raise InvalidArgument("schedule", schedule, f"one of {', '.join(NAMED)}, or a function of the step")
        schedule = NAMED[schedule](run)
    return [_factor(schedule, step) for step in range(run.steps)]


def _factor(schedule: Schedule, step: int) -> float:
    answer = schedule(step)
    try:
        value = float(answer)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InvalidArgument(f"schedule({step})", answer, "a finite number")
    return value
