"""Schedules: the factor by which the step size of step t = 0, 1, ..., T-1 is multiplied. Functions of public numbers
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from honestdp.checks import InvalidArgument
from honestdp.run import Run

Schedule = Callable[[int], float]
HELD = 50
"""Epochs before a decay begins, unless told."""


def constant(run: Run) -> Schedule:
    """No change."""
    return lambda step: 1.0


def decay(run: Run, held: float = HELD) -> Schedule:
    """Koskela & Honkela 2020, (5.1): constant for 50 epochs, or as many as are held, then 1 / (1 + 0.1 (k - 50)) in epoch k.

    An epoch is N/L steps and epochs count from 1.
    """
    # A thousandth of a step is added, for epochs whose steps no float divides by.
    return lambda step: 1 / (1 + 0.1 * max(0, math.floor((step + 1e-3) * run.rate - held) + 1))


def cosine(run: Run) -> Schedule:
    """From 1 down to 0 along half a cosine over the whole run (Loshchilov & Hutter 2017)."""
    return lambda step: (1 + math.cos(math.pi * step / run.steps)) / 2


def warmup(run: Run, part: float) -> Schedule:
    """Up in equal strides over the first part of the run, W steps, from 1/W to 1 at step W, then constant (Goyal et al. 2017)."""
    rising = _rising(run, part)
    return lambda step: min(1.0, (step + 1) / rising)


def warmup_cosine(run: Run, part: float) -> Schedule:
    """Up as in `warmup`, then down to 0 along half a cosine over what is left of the run."""
    rising, up = _rising(run, part), warmup(run, part)
    falling = max(1, run.steps - rising)
    return lambda step: up(step) if step < rising else (1 + math.cos(math.pi * (step - rising) / falling)) / 2


def _rising(run: Run, part: float) -> int:
    return max(1, round(part * run.steps))


NAMED: dict[str, Callable[[Run], Schedule]] = {"constant": constant, "decay": decay, "cosine": cosine}
WARM = {"warmup": warmup, "warmup-cosine": warmup_cosine}
PART = 0.1  # of the steps that a warm-up takes, unless told
WANTED = (
    f"one of {', '.join((*NAMED, *WARM))}, a warm-up with the part of the steps that it takes (warmup-cosine:0.05; "
    f"{PART:g} if left out), a decay with the epochs before it (decay:20; {HELD} if left out), or a function of the step"
)


def named(schedule: str, run: Run) -> Schedule:
    """The schedule of a name; after a colon a warm-up may have its part of the steps, and a decay the epochs before it."""
    name, colon, words = schedule.partition(":")
    if name in NAMED and not colon:
        return NAMED[name](run)
    try:
        part = float(words) if colon else PART
    except ValueError:
        part = math.nan
    if name == "decay" and 0 <= part < math.inf:
        return decay(run, part)
    if name not in WARM or not 0 < part < 1:
        raise InvalidArgument("schedule", schedule, WANTED)
    return WARM[name](run, part)


def factors(schedule: str | Schedule, run: Run) -> list[float]:
    """The factor of every step. `schedule` is a name or a function of the step's number."""
    if isinstance(schedule, str):
        schedule = named(schedule, run)
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
