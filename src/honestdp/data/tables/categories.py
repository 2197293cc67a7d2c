"""`Categories`: a column of declared categories, or of frequent ones that are learnt privately and known by a public hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from honestdp import checks
from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Cells
from honestdp.data.tables.column import DECLARED, LEARNT, PRIVATE, Column, booleans, of_missing

MOST_CATEGORIES = 10_000
BUCKETS = 1 << 16
"""Of the categories that are learnt: a value is known by the number that a public hash gives it."""
Value = str | int | float | bool


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
        booleans(other=other, indicator=indicator)
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
            text = _KNOWN_AS(value) if isinstance(value, str | int | float) else None
            if not text:
                raise InvalidArgument("values", value, "texts, whole numbers or booleans, and none of them empty")
            if text in known:
                wanted = f"named once: it is the same as {known[text]!r}, for tools respell numbers and booleans"
                raise InvalidArgument("values", value, wanted)
            known[text] = value
        if self.fill is not None and _KNOWN_AS(self.fill) not in known:
            raise InvalidArgument("fill", self.fill, "one of the declared categories")

    def stand_in(self) -> Categories:
        return Categories(other=self.other, indicator=self.indicator, bounds=LEARNT, most=self.most)

    @property
    def count(self) -> int:
        """Features of categories, without those of others and of missing ones."""
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
        """int64 `[rows]`: which category, -1 for none of them, -2 where it is missing."""
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

    def describe(self) -> str:
        fill = "none of them" if self.fill is None else str(self.fill)
        more = " and any other" if self.other else ""
        what = f"{len(self.values)} categories"
        if self.bounds != DECLARED:
            what = f"up to {self.most} frequent categories, "
            what += "learnt privately, by a public hash" if self.learnt else "to be learnt privately"
        return f"{what}{more}{of_missing(self, fill)}"


def buckets(values: Any, cells: Cells) -> Array:
    """int64 `[rows]`: the bucket of each value by a public hash of what it is known as, BUCKETS where it is missing."""
    missing = float(BUCKETS)
    read = cells.each(values, lambda text: missing if cells.is_missing(text) else _hashed(text), missing=missing)
    return read.astype(np.int64)


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:2], "big")


_KNOWN_AS = Cells().known_as


def _like_a_number(value: Value) -> bool:
    """Whether a value of a numeric or boolean column could be this category."""
    try:
        float(value)
    except ValueError:
        return str(value).strip() in ("True", "False")
    return True
