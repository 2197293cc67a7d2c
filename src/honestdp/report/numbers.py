"""Numbers as a report writes and draws them: what is spent never too small, what is left never too great.

An axis says where a value lies in per cent of a chart's width, so that a drawing fits any screen and its text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from honestdp.plain_words import rounded_down, rounded_up, shown_delta

ACCOUNTANTS = {
    "pld": "pld: the distribution of the privacy loss, composed numerically with every error charged",
    "rdp": "rdp: Rényi differential privacy, converted to epsilon and delta",
    "moments": "moments: Rényi differential privacy with the classic conversion, as in the first papers",
}


def accountant(name: str) -> str:
    """An accountant by its name and in words."""
    return ACCOUNTANTS.get(name, name)


def short(value: float) -> str:
    """A number without the padding that an exponent gets: 1e-5, not 1e-05."""
    text = f"{value:.6g}"
    if "e" not in text:
        return text
    digits, power = text.split("e")
    return f"{digits}e{int(power)}"


def short_delta(delta: float) -> str:
    """The same of a delta, never below its value."""
    return short(float(shown_delta(delta)))


def aligned(values: Iterable[float], *, down: Iterable[float] = ()) -> list[str]:
    """Numbers for one column with the same decimals, at least four digits of the least one.

    values: rounded up. down: rounded down, and listed after the others.
    """
    upwards, downwards = [*values], [*down]
    drawn = [value for value in (*upwards, *downwards) if 0 < value < math.inf]
    decimals = max(0, 3 - math.floor(math.log10(min(drawn)))) if drawn else 0
    if decimals > 6 or (drawn and max(drawn) >= 1e9):
        return [*map(rounded_up, upwards), *map(rounded_down, downwards)]
    return [*(_fixed_up(value, decimals) for value in upwards), *(_fixed_down(value, decimals) for value in downwards)]


def _fixed_up(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return "infinite"
    scaled = value * 10**decimals
    whole = round(scaled) if abs(scaled - round(scaled)) < 1e-9 * max(1.0, abs(scaled)) else math.ceil(scaled)
    return f"{whole / 10**decimals:.{decimals}f}"


def _fixed_down(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return "infinite"
    return f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR):f}"


def plain(value: object) -> str:
    """A value of a configuration in words. Numbers are exact, so that they can be used again."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {plain(part)}" for key, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(plain(part) for part in value) or "none"
    return str(value)


def printable(text: str) -> str:
    """Text that any file can hold: control characters and halves of characters are shown as a replacement sign."""
    return "".join(c if c in "\n\t" or not _unprintable(ord(c)) else "\ufffd" for c in text)


def _unprintable(code: int) -> bool:
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xDFFF or code & 0xFFFE == 0xFFFE


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
