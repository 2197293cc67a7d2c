"""Epsilon and delta for people: what they mean in words, and digits that never say less than was spent or more than is left."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def in_words(epsilon: float, delta: float, who: str = "record") -> tuple[str, str]:
    """What epsilon and delta mean, in two sentences for people who have never met them. who: is protected."""
    share = shown_delta(delta).replace("e-0", "e-") + (f" ({chance(delta)})" if chance(delta) else "")
    return (
        f"Compare this model with one trained without one particular {who}. Anything that could be concluded about that {who} "
        f"from what was published is at most {likelihood(epsilon)} times as likely in one case as in the other, plus a "
        f"probability of {share}.",
        f"Somebody who knows everything else, and for whom that {who} is as likely in the data as not, guesses right with a "
        f"probability of at most {surest_guess(epsilon, delta)} after seeing what was published. Without seeing it, it is "
        "50\u202f%.",
    )


def chance(delta: float) -> str:
    """A small probability as one in so many, where that can be read; never in more, which would be less likely than it is."""
    in_all = math.floor(1 / delta * (1 + 1e-12)) if 1e-9 <= delta <= 0.1 else 0  # 1/1e-5 may lack a rounding
    return f"1 in {in_all:,}".replace(",", "\u202f") if in_all else ""


def likelihood(epsilon: float) -> str:
    """e^epsilon, how many times as likely any conclusion can become through one record."""
    if epsilon >= 14:
        return f"e^{rounded_up(epsilon)}"
    times = rounded_up(math.exp(epsilon), 3)
    return f"{float(times):,.0f}".replace(",", "\u202f") if "e" in times else times


def surest_guess(epsilon: float, delta: float) -> str:
    """How surely anyone can tell whether a record is in the data, if both were as likely: (e^eps + delta)/(e^eps + 1).

    It is half of one plus the greatest distance between the two laws, (e^eps - 1 + 2 delta)/(e^eps + 1).
    """
    return per_cent(min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))))


def per_cent(bound: float) -> str:
    """A probability that must not be quoted too small."""
    return f"{math.ceil(bound * 1000 - 1e-9) / 10:.1f}\u202f%"


def rounded_up(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, never below its value: a quoted epsilon must not be too small."""
    if not math.isfinite(value) or value == 0:
        return "infinite" if value > 0 else "0" if value == 0 else str(value)
    power = math.floor(math.log10(abs(value))) - digits + 1
    scaled = value / 10.0**power
    whole = round(scaled) if abs(scaled - round(scaled)) < 1e-9 else math.ceil(scaled)
    return f"{whole * 10.0**power:.{digits}g}"


def shown_delta(delta: float) -> str:
    """A delta with six significant digits, never below its value; what lies beyond the fifteenth is a rounding."""
    known = Context(prec=15).create_decimal(repr(float(delta)))
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(known)):g}"


def rounded_down(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, never above its value: what is left must not be quoted too large."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(max(value, 0.0)))):.{digits}g}"
