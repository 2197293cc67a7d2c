"""Numbers and values as a report writes them: what is spent never too small, what is left never too great."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
