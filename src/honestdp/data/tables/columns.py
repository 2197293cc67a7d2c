"""Columns of a table, as declared: `Range`, `Number`, `Date`, `Flag`, `Categories` and `Ignore`.

Everything that a column holds is public: bounds, categories, fills. A value outside declared bounds is clipped to them, a missing
value gets the declared fill, and a value that nobody declared counts as none of the categories: no value of a row can change the
encoding of another row, nor make it fail. Bounds and categories that nobody declares are learnt privately, on request and for a
price (`bounds="private"`), before anything is encoded.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Cells

DECLARED, PRIVATE, LEARNT = "declared", "private", "learnt"
MOST_CATEGORIES = 10_000
BUCKETS = 1 << 16
"""Numbers that the public hash of a learnt category can have."""
Value = str | int | float | bool


@dataclass(frozen=True)
class Column(ABC):
    """What every kind of column has."""

    kind: ClassVar[str] = ""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features that the column becomes."""

    @abstractmethod
    def names(self, name: str) -> list[str]:
        """The names of the features. name: of the column."""

    @abstractmethod
    def encode(self, values: Any, out: Array, cells: Cells) -> None:
        """Write the features of these values into `out`, `[rows, width]`."""

    @abstractmethod
    def describe(self) -> str:
        """The encoding in words, for statement and report."""

    @property
    def private(self) -> bool:
        """Whether bounds or categories are still to be learnt."""
        return getattr(self, "bounds", DECLARED) == PRIVATE

    @property
    def learnt(self) -> bool:
        """Whether bounds or categories were learnt privately."""
        return getattr(self, "bounds", DECLARED) == LEARNT

    @property
    def classes(self) -> tuple[Value, ...] | None:
        """The declared classes, where the column is a target of classes."""
        return None

    def labels(self, values: Any, cells: Cells) -> Array:
        """The column as a target: see `Table.encode_target`."""
        raise NotImplementedError

    def stand_in(self) -> Column:
        """A column of the same width with nothing to be learnt."""
        return self

    def as_dict(self) -> dict[str, Any]:
        """The settings that differ from their defaults, in plain numbers and texts, for JSON and TOML."""
        each_of = sorted(fields(self), key=lambda each: bool(each.kw_only))
        given = {each.name: (getattr(self, each.name), each.default) for each in each_of}
        return {"kind": self.kind} | {
            name: plain(value) for name, (value, default) in given.items() if value != default
        }


Fill = TypeVar("Fill", bound=float | str)


@dataclass(frozen=True)
class Quantity(Column, Generic[Fill]):
    """A column with one number a row, and one more feature where the absence of a value is declared to be one.

    A number is clipped to `limits` and scaled; unless a kind says otherwise, to [0, 1] in a straight line.
    """

    fill: Fill | None = field(default=None, kw_only=True)
    indicator: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_booleans(indicator=self.indicator)

    def raw(self, values: Any, cells: Cells) -> Array:
        """float64 `[rows]` in the user's units, NaN where a value is missing."""
        return cells.numbers(values)

    @property
    @abstractmethod
    def limits(self) -> tuple[float, float]:
        """The numbers in the user's units beyond which a value is clipped."""

    def scaled(self, raw: Array) -> Array:
        """The numbers as a model sees them."""
        low, high = self.limits
        return (np.clip(raw, low, high) - low) / (high - low)

    def unscaled(self, encoded: Array) -> Array:
        """The numbers in the user's units."""
        low, high = self.limits
        return low + np.clip(encoded, 0.0, 1.0) * (high - low)

    @property
    def filled(self) -> float:
        """The number that a missing value counts as, in the user's units: the middle where none is declared."""
        if self.fill is None:
            return float(self.unscaled(np.array(0.5)))
        return float(np.clip(float(self.fill), *self.limits))

    @property
    def width(self) -> int:
        return 1 + self.indicator

    def names(self, name: str) -> list[str]:
        return [name, *([f"{name} is missing"] * self.indicator)]

    def encode(self, values: Any, out: Array, cells: Cells) -> None:
        raw = self.raw(values, cells)
        gone = np.isnan(raw)
        out[:, 0] = self.scaled(np.where(gone, self.filled, raw))
        if self.indicator:
            out[:, 1] = gone

    def labels(self, values: Any, cells: Cells) -> Array:
        return self.scaled(self.raw(values, cells)).astype(np.float32)  # NaN stays


@dataclass(frozen=True)
class Range(Quantity[float]):
    """Numbers between two declared bounds, as [0, 1]; a number outside is clipped.

    low, high: public, and not read off the data. log: on a logarithmic scale above low, for amounts that are mostly small.
    fill: the number that a missing value, or a text that is no number, counts as; the middle of the scale if left out.
    indicator: one more feature, 1 where the value is missing.
    bounds: "declared", or "private", with low and high left out: they are then learnt from the rows, out of the budget
    (`Table.learn`), and are "learnt". InvalidArgument for bounds that contradict each other.

    >>> import honestdp
    >>> honestdp.Range(17, 90, fill=40, indicator=True).describe()
    '17 to 90 as 0 to 1, clipped, missing as 40 and a feature of its own'
    """

    kind: ClassVar[str] = "range"
    low: float | None = None
    high: float | None = None
    log: bool = field(default=False, kw_only=True)
    bounds: str = field(default=DECLARED, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of((DECLARED, PRIVATE, LEARNT), bounds=self.bounds)
        _check_booleans(log=self.log)
        if self.fill is not None:
            checks.finite(fill=self.fill)
        low, high = self.low, self.high
        if self.bounds == PRIVATE:
            if (low, high) != (None, None):
                wanted = f"left out where low and high are declared, here {low} and {high}"
                raise InvalidArgument("bounds", PRIVATE, wanted)
            return
        if low is None or high is None:
            wanted = 'two numbers, or left out with bounds="private"'
            raise InvalidArgument("low and high", (low, high), wanted)
        checks.finite(low=low, high=high)
        if not (low < high and math.isfinite(float(high) - float(low))):
            wanted = f"above low, {low}: a column that is constant holds nothing to learn from"
            raise InvalidArgument("high", high, wanted)
        if self.bounds == DECLARED and self.fill is not None and not low <= self.fill <= high:
            raise InvalidArgument("fill", self.fill, f"between low and high, {low} and {high}")

    def stand_in(self) -> Range:
        return replace(self, low=0.0, high=1.0, fill=None, bounds=LEARNT)

    @property
    def limits(self) -> tuple[float, float]:
        assert self.low is not None
        assert self.high is not None
        return float(self.low), float(self.high)

    def scaled(self, raw: Array) -> Array:
        if not self.log:
            return super().scaled(raw)
        low, high = self.limits
        return np.log1p(np.clip(raw, low, high) - low) / math.log1p(high - low)

    def unscaled(self, encoded: Array) -> Array:
        if not self.log:
            return super().unscaled(encoded)
        low, high = self.limits
        return low + np.expm1(np.clip(encoded, 0.0, 1.0) * math.log1p(high - low))

    def describe(self) -> str:
        fill = "the middle" if self.fill is None else f"{self.fill:g}"
        scale = " on a logarithmic scale" if self.log else ""
        if self.private:
            return f"bounds to be learnt privately, as 0 to 1{scale}, clipped{_missing_as(self, fill)}"
        ends = f"{self.low:g} to {self.high:g}" + (", learnt privately," if self.learnt else "")
        return f"{ends} as 0 to 1{scale}, clipped{_missing_as(self, fill)}"


@dataclass(frozen=True)
class Number(Quantity[float]):
    """Numbers around a declared centre, as (value - centre) / scale, clipped to so many scales.

    centre, scale: public, and not read off the data. within: how many scales are kept on either side. fill: the number that a
    missing value counts as; the centre if left out. indicator: see `Range`. InvalidArgument for numbers that contradict each
    other.

    >>> import honestdp
    >>> honestdp.Number(centre=120, scale=20).describe()
    '(value - 120) / 20, clipped to 3 on either side, missing as 120'
    """

    kind: ClassVar[str] = "number"
    centre: float
    scale: float
    within: float = field(default=3.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.finite(centre=self.centre)
        checks.positive(scale=self.scale, within=self.within)
        if self.fill is not None:
            checks.finite(fill=self.fill)

    @property
    def limits(self) -> tuple[float, float]:
        reach = self.within * self.scale
        return self.centre - reach, self.centre + reach

    def scaled(self, raw: Array) -> Array:
        # Clipped first: a huge number less the centre may overflow.
        return (np.clip(raw, *self.limits) - self.centre) / self.scale

    def unscaled(self, encoded: Array) -> Array:
        return self.centre + np.clip(encoded, -self.within, self.within) * self.scale

    @property
    def filled(self) -> float:
        return float(self.centre if self.fill is None else self.fill)

    def describe(self) -> str:
        scaled = f"(value - {self.centre:g}) / {self.scale:g}, clipped to {self.within:g} on either side"
        return f"{scaled}{_missing_as(self, f'{self.filled:g}')}"


@dataclass(frozen=True)
class Flag(Quantity[bool]):
    """Yes or no, as 1 or 0: true and false, yes and no, t and f, y and n, 1 and 0, in any case.

    fill: True or False, which a missing value counts as; halfway between them if left out. indicator: see `Range`.
    InvalidArgument for any other fill.

    >>> import honestdp
    >>> honestdp.Flag().describe()
    'yes and no as 1 and 0, missing as halfway between'
    """

    kind: ClassVar[str] = "flag"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fill is not None:
            _check_booleans(fill=self.fill)

    @property
    def classes(self) -> tuple[Value, ...]:
        return False, True

    @property
    def limits(self) -> tuple[float, float]:
        return 0.0, 1.0

    def raw(self, values: Any, cells: Cells) -> Array:
        return cells.flags(values)

    def labels(self, values: Any, cells: Cells) -> Array:
        return np.nan_to_num(self.raw(values, cells), nan=-1.0).astype(np.int64)

    def describe(self) -> str:
        fill = "halfway between" if self.fill is None else ("yes" if self.fill else "no")
        return f"yes and no as 1 and 0{_missing_as(self, fill)}"


@dataclass(frozen=True)
class Date(Quantity[str]):
    """Days between two declared dates, as [0, 1]; a day outside is clipped.

    first, last: dates, or texts such as "2020-01-31" (ISO 8601), public. A value is a date, a time stamp, or a text that begins
    with such a date. fill: the day that a missing value counts as; the middle if left out. indicator: see `Range`.
    InvalidArgument for any other text, or a last day that is not after the first.

    >>> import honestdp
    >>> honestdp.Date("2010-01-01", "2024-12-31").describe()
    '2010-01-01 to 2024-12-31 as 0 to 1, clipped, missing as the middle'
    """

    kind: ClassVar[str] = "date"
    first: str
    last: str

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "last", "fill"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _date(given, name))
        if not self.first < self.last:
            raise InvalidArgument("last", self.last, f"after first, {self.first}")

    def raw(self, values: Any, cells: Cells) -> Array:
        return cells.days(values)

    @property
    def limits(self) -> tuple[float, float]:
        return _PLAIN.day_of(self.first), _PLAIN.day_of(self.last)

    @property
    def filled(self) -> float:
        return super().filled if self.fill is None else float(np.clip(_PLAIN.day_of(self.fill), *self.limits))

    def describe(self) -> str:
        return f"{self.first} to {self.last} as 0 to 1, clipped{_missing_as(self, self.fill or 'the middle')}"


@dataclass(frozen=True, init=False)
class Categories(Column):
    """Declared categories, one feature each, 1 where the value is that category.

    values: texts, whole numbers or booleans, at least two; 1, 1.0 and "1" are the same, and spaces around a text do not count.
    other: one more feature, for every value that is none of these; without it such a value has 0 everywhere. fill: the category
    that a missing value counts as; without it, it has 0 everywhere. indicator: one more feature, 1 where the value is missing.
    bounds: "declared", or "private", with no values: up to `most` frequent ones are then learnt from the rows, out of the budget
    (`Table.learn`), and are known by their public hash alone: no name of a private category is kept. InvalidArgument for
    categories that contradict each other.

    >>> import honestdp
    >>> honestdp.Categories("Male", "Female", other=True).describe()
    '2 categories and any other, missing as none of them'
    """

    kind: ClassVar[str] = "categories"
    values: tuple[Value, ...] = ()
    other: bool = False
    fill: Value | None = None
    indicator: bool = False
    bounds: str = DECLARED
    most: int = 20

    def __init__(
        self,
        *values: Value,
        other: bool = False,
        fill: Value | None = None,
        indicator: bool = False,
        bounds: str = DECLARED,
        most: int = 20,
    ) -> None:
        given = {"values": values, "other": other, "fill": fill, "indicator": indicator, "bounds": bounds, "most": most}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        checks.one_of((DECLARED, PRIVATE, LEARNT), bounds=bounds)
        _check_booleans(other=other, indicator=indicator)
        checks.whole(least=1, most=most)
        if most > MOST_CATEGORIES:
            raise InvalidArgument("most", most, f"at most {MOST_CATEGORIES}: each is a feature of every row")
        if bounds == DECLARED:
            self._check_declared()
        elif bounds == PRIVATE and (values or fill is not None):
            raise InvalidArgument("bounds", PRIVATE, "left out where categories or a fill are declared")

    def _check_declared(self) -> None:
        if len(self.values) == 1 and isinstance(self.values[0], list | tuple | set):
            raise InvalidArgument("values", self.values[0], 'given one by one, as in Categories("Male", "Female")')
        if len(self.values) + self.other < 2:
            wanted = 'at least two, or one with other=True: one category alone is a constant; or bounds="private"'
            raise InvalidArgument("values", self.values, wanted)
        if len(self.values) > MOST_CATEGORIES:
            wanted = (
                f"at most {MOST_CATEGORIES} categories, each of which is a feature of every row: group them, declare the "
                'frequent ones with other=True, or let some be learnt with bounds="private"'
            )
            raise InvalidArgument("values", f"{len(self.values)} categories", wanted)
        known: dict[str, Value] = {}
        for value in self.values:
            text = _PLAIN.known_as(value) if isinstance(value, str | int | float) else None
            if not text:
                raise InvalidArgument("values", value, "texts, whole numbers or booleans, and none of them empty")
            if text in known:
                wanted = f"named once: it is the same as {known[text]!r}, for tools respell numbers and booleans"
                raise InvalidArgument("values", value, wanted)
            known[text] = value
        if self.fill is not None and _PLAIN.known_as(self.fill) not in known:
            raise InvalidArgument("fill", self.fill, "one of the declared categories")

    @property
    def classes(self) -> tuple[Value, ...]:
        return self.values

    def stand_in(self) -> Categories:
        return Categories(other=self.other, indicator=self.indicator, bounds=LEARNT, most=self.most)

    @property
    def count(self) -> int:
        """The number of features without those of other and of missing values."""
        return len(self.values) if self.bounds == DECLARED else self.most

    @property
    def width(self) -> int:
        return self.count + self.other + self.indicator

    @property
    def only_texts(self) -> bool:
        """Whether the categories are declared, and none of them is a number or a boolean, or reads like one."""
        return self.bounds == DECLARED and not any(_like_a_number(value) for value in self.values)

    def names(self, name: str) -> list[str]:
        named = [f"{name}={value}" for value in self.values]
        named += [f"{name} (unused {i})" for i in range(len(named), self.count)]
        return [*named, *([f"{name} is another"] * self.other), *([f"{name} is missing"] * self.indicator)]

    def places(self, values: Any, cells: Cells) -> Array:
        """int64 `[rows]`: the number of each value's category, -1 for none of them, -2 where the value is missing."""
        if self.bounds == DECLARED:
            return cells.places(values, self.values)
        where = np.full(BUCKETS + 1, -1, np.int64)
        where[[int(value) for value in self.values]] = np.arange(len(self.values))
        where[-1] = -2
        return where[buckets(values, cells)]

    def encode(self, values: Any, out: Array, cells: Cells) -> None:
        found = self.places(values, cells)
        missing = found == -2
        if self.fill is not None:
            found[missing] = cells.places([self.fill], self.values)
        rows = np.flatnonzero(found >= 0)
        out[:, :] = 0
        out[rows, found[rows]] = 1
        if self.other:
            out[:, self.count] = found == -1
        if self.indicator:
            out[:, -1] = missing

    def labels(self, values: Any, cells: Cells) -> Array:
        return np.maximum(self.places(values, cells), -1)

    def describe(self) -> str:
        fill = "none of them" if self.fill is None else str(self.fill)
        more = " and any other" if self.other else ""
        known = f"{len(self.values)} categories"
        if self.bounds != DECLARED:
            known = f"up to {self.most} frequent categories, "
            known += "learnt privately, by a public hash" if self.learnt else "to be learnt privately"
        return f"{known}{more}{_missing_as(self, fill)}"


@dataclass(frozen=True)
class Ignore(Column):
    """A column that is not used: it is there, and no model sees it.

    >>> import honestdp
    >>> honestdp.Ignore().width
    0
    """

    kind: ClassVar[str] = "ignore"

    @property
    def width(self) -> int:
        return 0

    def names(self, name: str) -> list[str]:
        return []

    def encode(self, values: Any, out: Array, cells: Cells) -> None:
        return

    def describe(self) -> str:
        return "not used"


KINDS: dict[str, type[Column]] = {each.kind: each for each in (Range, Number, Flag, Date, Categories, Ignore)}
"""Every kind of column, by its name in schemas."""
_PLAIN = Cells()


def buckets(values: Any, cells: Cells) -> Array:
    """int64 `[rows]`: the public hash of the text that each value is known as, BUCKETS where the value is missing."""
    missing = float(BUCKETS)
    read = cells.each(values, lambda text: missing if cells.is_missing(text) else _hashed(text), missing=missing)
    return read.astype(np.int64)


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:2], "big")


def _like_a_number(value: Value) -> bool:
    """Whether a value of a numeric or boolean column could be this category."""
    try:
        float(value)
    except ValueError:
        return str(value).strip() in ("True", "False")
    return True


def _date(value: object, name: str) -> str:
    if isinstance(value, datetime):
        value = value.date()
    try:
        return (value if isinstance(value, date) else date.fromisoformat(str(value))).isoformat()
    except ValueError:
        raise InvalidArgument(name, value, 'a date, such as "2020-01-31"') from None


def _missing_as(column: Quantity[Any] | Categories, fill: object) -> str:
    return f", missing as {fill}" + (" and a feature of its own" if column.indicator else "")


def _check_booleans(**arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise InvalidArgument(name, value, "True or False")


def plain(value: Any) -> Any:
    """A setting as JSON and TOML know it: numpy's numbers as Python's, tuples as lists."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, bool | str) or value is None:
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value
