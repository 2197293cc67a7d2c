"""Axes: where a value lies, in per cent of a chart's width, so that a drawing fits any screen and its text keeps its size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LOGARITHMIC_FROM = 40.0  # the ratio of the greatest value to the least from which on a linear bar could not be seen


@dataclass(frozen=True)
class Axis:
    """low and high are its ends; ticks are what is written along it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The place of a value in per cent, from 0 to 100; beyond the ends, the end."""
        if value >= self.high:
            return 100.0
        if value <= self.low:
            return 0.0
        if self.logarithmic:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)


def for_bars(values: Iterable[float]) -> Axis:
    """An axis for bars: from zero, or by powers of ten where the least bar would vanish beside the greatest."""
    drawn = sorted(value for value in values if 0 < value < math.inf)
    if not drawn:
        return Axis(0.0, 1.0, (0.0, 1.0))
    least, most = drawn[0], drawn[-1]
    if most / least <= LOGARITHMIC_FROM:
        return linear(0.0, most)
    subs = (1.0, 2.0, 5.0) if most / least < 200 else (1.0,)
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    ladder = [sub * 10.0**power for power in decades for sub in subs]
    low = max(tick for tick in ladder if tick < least / 1.2)
    high = min(tick for tick in ladder if tick >= most)
    shown = [tick for tick in ladder if low <= tick <= high]
    return Axis(low, high, tuple(shown[:: math.ceil(len(shown) / 8)]), logarithmic=True)


def linear(low: float, high: float, *, steps: int = 5) -> Axis:
    """An axis with round ticks that holds both numbers."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / steps)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(float(f"{step * k:.12g}") for k in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(sub * power for sub in (1.0, 2.0, 2.5, 5.0, 10.0) if sub * power >= least * (1 - 1e-9))
