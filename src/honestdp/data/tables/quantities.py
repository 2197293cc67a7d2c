"""Columns of quantities: `Range`, `Number`, `Date`, and `Flag`, which is 1 or 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, ClassVar

import numpy as np

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Cells
from honestdp.data.tables.column import DECLARED, LEARNT, PRIVATE, Column, booleans, of_missing


@dataclass(frozen=True)
class Range(Column):
    """Numbers between two declared bounds, as [0, 1]; what lies outside is clipped.

    low, high: public, and not read off the data. log: on a logarithmic scale above low, for amounts that are mostly small.
    fill: what stands for a missing value, or for a text that is no number; the middle of the scale if left out.
    indicator: one more feature, 1 where the value is missing.
    bounds: "declared", or "private", with low and high left out: they are then learnt from the rows, out of the budget
    (`Table.learn`), and are "learnt". InvalidArgument for bounds that are none.

    >>> import honestdp
    >>> honestdp.Range(17, 90, fill=40, indicator=True).describe()
    '17 to 90 as 0 to 1, clipped, missing as 40 and a feature of its own'
    """

    kind: ClassVar[str] = "range"
    low: float | None = None
    high: float | None = None
    log: bool = field(default=False, kw_only=True)
    fill: float | None = field(default=None, kw_only=True)
    indicator: bool = field(default=False, kw_only=True)
    bounds: str = field(default=DECLARED, kw_only=True)

    def __post_init__(self) -> None:
        checks.one_of((DECLARED, PRIVATE, LEARNT), bounds=self.bounds)
        booleans(log=self.log, indicator=self.indicator)
        if self.fill is not None:
            checks.finite(fill=self.fill)
        if self.bounds == PRIVATE:
            if (self.low, self.high) != (None, None):
                raise InvalidArgument(
                    "bounds", PRIVATE, f"left out where low and high are declared, here {self.low} and {self.high}"
                )
            return
        if self.low is None or self.high is None:
            raise InvalidArgument(
                "low and high", (self.low, self.high), 'two numbers, or left out with bounds="private"'
            )
        checks.finite(low=self.low, high=self.high)
        if not (self.low < self.high and math.isfinite(float(self.high) - float(self.low))):
            raise InvalidArgument(
                "high", self.high, f"above low, {self.low}: a column that is constant holds nothing to learn from"
            )
        if self.bounds == DECLARED and self.fill is not None and not self.low <= self.fill <= self.high:
            raise InvalidArgument("fill", self.fill, f"between low and high, {self.low} and {self.high}")

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return float(self.low), float(self.high)

    def stand_in(self) -> Range:
        return replace(self, low=0.0, high=1.0, fill=None, bounds=LEARNT)

    def raw(self, values: Any, cells: Cells) -> Array:
        return cells.numbers(values)

    def scaled(self, raw: Array) -> Array:
        low, high = self._ends
        above = np.clip(raw, low, high) - low
        return np.log1p(above) / math.log1p(high - low) if self.log else above / (high - low)

    def unscaled(self, encoded: Array) -> Array:
        low, high = self._ends
        inside = np.clip(encoded, 0.0, 1.0)
        return low + (np.expm1(inside * math.log1p(high - low)) if self.log else inside * (high - low))

    @property
    def filled(self) -> float:
        return (
            float(self.unscaled(np.array(0.5)))
            if self.fill is None
            else min(max(float(self.fill), self._ends[0]), self._ends[1])
        )

    def describe(self) -> str:
        fill = "the middle" if self.fill is None else f"{self.fill:g}"
        scale = " on a logarithmic scale" if self.log else ""
        if self.private:
            return f"bounds to be learnt privately, as 0 to 1{scale}, clipped{of_missing(self, fill)}"
        how = f"{self.low:g} to {self.high:g}" + (", learnt privately," if self.learnt else "")
        return f"{how} as 0 to 1{scale}, clipped{of_missing(self, fill)}"


@dataclass(frozen=True)
class Number(Column):
    """Numbers around a declared centre, as (value - centre) / scale, clipped to so many scales.

    centre, scale: public, and not read off the data. within: how many scales are kept on either side. fill: what stands for a
    missing value; the centre if left out. indicator: see `Range`. InvalidArgument for numbers that are none.

    >>> import honestdp
    >>> honestdp.Number(centre=120, scale=20).describe()
    '(value - 120) / 20, clipped to 3 on either side, missing as 120'
    """

    kind: ClassVar[str] = "number"
    centre: float
    scale: float
    within: float = field(default=3.0, kw_only=True)
    fill: float | None = field(default=None, kw_only=True)
    indicator: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        checks.finite(centre=self.centre)
        checks.positive(scale=self.scale, within=self.within)
        booleans(indicator=self.indicator)
        if self.fill is not None:
            checks.finite(fill=self.fill)

    def raw(self, values: Any, cells: Cells) -> Array:
        return cells.numbers(values)

    def scaled(self, raw: Array) -> Array:
        reach = self.within * self.scale  # clipped first: a huge number less the centre may not be one
        return (np.clip(raw, self.centre - reach, self.centre + reach) - self.centre) / self.scale

    def unscaled(self, encoded: Array) -> Array:
        return self.centre + np.clip(encoded, -self.within, self.within) * self.scale

    @property
    def filled(self) -> float:
        return float(self.centre if self.fill is None else self.fill)

    def describe(self) -> str:
        how = f"(value - {self.centre:g}) / {self.scale:g}, clipped to {self.within:g} on either side"
        return f"{how}{of_missing(self, f'{self.filled:g}')}"


@dataclass(frozen=True)
class Flag(Column):
    """Yes or no, as 1 or 0: true and false, yes and no, t and f, y and n, 1 and 0, in any case.

    fill: True or False, what stands for a missing value; halfway between them if left out. indicator: see `Range`.
    InvalidArgument for a fill that is none.

    >>> import honestdp
    >>> honestdp.Flag().describe()
    'yes and no as 1 and 0, missing as halfway between'
    """

    kind: ClassVar[str] = "flag"
    fill: bool | None = field(default=None, kw_only=True)
    indicator: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        booleans(indicator=self.indicator)
        if self.fill is not None:
            booleans(fill=self.fill)

    def raw(self, values: Any, cells: Cells) -> Array:
        return cells.flags(values)

    def scaled(self, raw: Array) -> Array:
        return raw

    @property
    def filled(self) -> float:
        return 0.5 if self.fill is None else float(self.fill)

    def describe(self) -> str:
        fill = "halfway between" if self.fill is None else ("yes" if self.fill else "no")
        return f"yes and no as 1 and 0{of_missing(self, fill)}"


@dataclass(frozen=True)
class Date(Column):
    """Days between two declared dates, as [0, 1]; what lies outside is clipped.

    first, last: dates, or texts such as "2020-01-31" (ISO 8601), public. A value is a date, a time stamp, or a text that begins
    with such a date. fill: what stands for a missing value; the middle if left out. indicator: see `Range`.
    InvalidArgument for dates that are none.

    >>> import honestdp
    >>> honestdp.Date("2010-01-01", "2024-12-31").describe()
    '2010-01-01 to 2024-12-31 as 0 to 1, clipped, missing as the middle'
    """

    kind: ClassVar[str] = "date"
    first: str
    last: str
    fill: str | None = field(default=None, kw_only=True)
    indicator: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("first", "last", "fill"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _date(given, name))
        booleans(indicator=self.indicator)
        if not self.first < self.last:
            raise InvalidArgument("last", self.last, f"after first, {self.first}")

    @property
    def _range(self) -> Range:
        first, last = _DAY(self.first), _DAY(self.last)
        fill = None if self.fill is None else min(max(_DAY(self.fill), first), last)
        return Range(first, last, fill=fill)

    def raw(self, values: Any, cells: Cells) -> Array:
        return cells.days(values)

    def scaled(self, raw: Array) -> Array:
        return self._range.scaled(raw)

    @property
    def filled(self) -> float:
        return self._range.filled

    def describe(self) -> str:
        return f"{self.first} to {self.last} as 0 to 1, clipped{of_missing(self, self.fill or 'the middle')}"


_DAY = Cells().day_of


def _date(value: object, name: str) -> str:
    if isinstance(value, datetime):
        value = value.date()
    try:
        return (value if isinstance(value, date) else date.fromisoformat(str(value))).isoformat()
    except ValueError:
        raise InvalidArgument(name, value, 'a date, such as "2020-01-31"') from None
