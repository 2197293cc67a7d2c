"""`Column`: what every kind of column has, and `Ignore`, a column that no model sees.

Everything that a column holds is public: bounds, categories, fills. A value outside declared bounds is clipped to them, one that
is missing gets the declared fill, and one that nobody declared counts as none of the categories: no value of a row can change the
encoding of another, nor make it fail. What is not declared is learnt privately, on request and for a price (`bounds="private"`),
before anything is encoded.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Cells

DECLARED, PRIVATE, LEARNT = "declared", "private", "learnt"


@dataclass(frozen=True)
class Column:
    """What every kind of column has.

    indicator: one more feature, 1 where the value is missing.
    """

    kind: ClassVar[str] = ""

    @property
    def width(self) -> int:
        """Features that it becomes."""
        return 1 + self._indicated

    @property
    def _indicated(self) -> int:
        return int(getattr(self, "indicator", False))

    @property
    def private(self) -> bool:
        """Whether something of it is still to be learnt."""
        return getattr(self, "bounds", DECLARED) == PRIVATE

    @property
    def learnt(self) -> bool:
        return getattr(self, "bounds", DECLARED) == LEARNT

    def stand_in(self) -> Column:
        """One of the same width with nothing to be learnt."""
        return self

    def names(self, name: str) -> list[str]:
        """Of its features."""
        return [name, *([f"{name} is missing"] * self._indicated)]

    def encode(self, values: Any, out: Array, cells: Cells) -> None:
        """Write its features into `out`, `[rows, width]`."""
        raw = self.raw(values, cells)
        gone = np.isnan(raw)
        out[:, 0] = self.scaled(np.where(gone, self.filled, raw))
        if self._indicated:
            out[:, 1] = gone

    def raw(self, values: Any, cells: Cells) -> Array:
        """float64 `[rows]` in the user's units, NaN where it is missing."""
        raise NotImplementedError

    def scaled(self, raw: Array) -> Array:
        raise NotImplementedError

    def unscaled(self, encoded: Array) -> Array:
        raise NotImplementedError

    @property
    def filled(self) -> float:
        """What stands for a missing value, in the user's units."""
        raise NotImplementedError

    def describe(self) -> str:
        """How it is encoded, for statement and report."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        """For JSON and TOML: what differs from the defaults."""
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        return {"kind": self.kind, **{name: list(v) if isinstance(v, tuple) else v for name, v in given.items()}}


def of_missing(column: Any, fill: object) -> str:
    return f", missing as {fill}" + (" and a feature of its own" if column.indicator else "")


def booleans(**arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise InvalidArgument(name, value, "True or False")


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
