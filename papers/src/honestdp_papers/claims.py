"""The outcome of reproducing a figure or table: claims with computed verdicts, tables, notes. Verdicts are computed,
never typed.

Standard errors of numbers of kept trainings are the jackknife's over the repeats: a number is computed again without
each repeat of each optimizer, and what it moves by is its error. So a number such as the best of many candidates, which
is no average, has one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from honestdp_papers.parts import Array, Finished

HOLDS, IN_PART, FAILS, UNTOLD = "holds", "holds in part", "does not hold", "cannot be told"
VERDICTS = (HOLDS, IN_PART, FAILS, UNTOLD)
SENTENCE, NUMBERS, OURS = "sentence", "numbers", "ours"
"""What a claim is: a sentence of the paper, numbers that it prints, or a claim of our own, beyond the paper."""
ERRORS = 2.0
"""Standard errors within which two numbers cannot be told apart."""
RULE = (
    "**How a verdict is made.** A claim is judged by cases (datasets and models, settings, printed numbers), and one rule makes "
    "every verdict. A case agrees, does not agree, or cannot be told: where trainings are compared, a difference carries the "
    f"standard error of its repeats, and what is decided by less than {ERRORS:g} of them is not decided. Cases that cannot be "
    "told count for neither side. Of the others, a claim of all cases holds if all of them agree, holds in part if more than "
    "half do, and does not hold if half or fewer do; a claim that says most cases holds if more than half agree, and does not "
    "hold otherwise. Where fewer than half of the cases can be told, the claim cannot be told. A sentence and the numbers "
    "printed for it are judged apart. What counts as agreeing is said beside our number; where the paper gives no number for "
    "it, the tolerance is ours."
)
"""How verdicts are made, for a reader of them."""


@dataclass(frozen=True)
class Claim:
    """The paper's claim in our words, what we found, and the verdict."""

    claim: str
    found: str
    verdict: str
    kind: str = SENTENCE


def judged(claim: str, cases: Sequence[bool | None], found: str, *, most: bool = False, kind: str = SENTENCE) -> Claim:
    """A claim about several cases, by `RULE`; None is a case that cannot be told, and without any case nothing can.

    most: it says itself that it is of most.
    """
    told = [bool(case) for case in cases if case is not None]
    if len(told) < len(cases):
        found += f"; {len(cases) - len(told)} of {len(cases)} cannot be told"
    if not told or 2 * len(told) < len(cases):
        return Claim(claim, found, UNTOLD, kind)
    agree = sum(told)
    if 2 * agree <= len(told):
        return Claim(claim, found, FAILS, kind)
    return Claim(claim, found, HOLDS if most or agree == len(told) else IN_PART, kind)


def plain(value: Any) -> Any:
    """The same with None in the place of every number that JSON has no word for (infinity, not a number)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Table:
    """A table of the results. Rows hold text or numbers; numbers are shown with `digits` places after the point."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    digits: int = 2

    def cells(self) -> list[list[str]]:
        return [[_shown(cell, self.digits) for cell in row] for row in self.rows]


def _shown(cell: str | float, digits: int) -> str:
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.{digits}f}" if math.isfinite(cell) else "none"


@dataclass(frozen=True)
class Outcome:
    """What a figure or table of a paper came to.

    numbers: everything the figure shows, as JSON. notes: what a reader must know beside it. draw: writes the figure.
    """

    claims: list[Claim]
    numbers: dict[str, Any]
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    draw: Callable[[Path], None] | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "claims": [asdict(claim) for claim in self.claims],
            "tables": [{"title": t.title, "header": list(t.header), "rows": t.cells()} for t in self.tables],
            "notes": self.notes,
            "numbers": plain(self.numbers),
        }


UNKNOWN = "one training of each candidate, so that ± 0.0 stands for an error that is not known"
"""What a quick version says of its errors."""


@dataclass(frozen=True)
class Measured:
    """A number and its standard error; the error of a single training is not known, and told as 0.

    Where some repeats diverged and the number hangs on which, the error is infinite, and nothing can be told.
    """

    value: float
    error: float

    def above(self, limit: float) -> bool | None:
        """Whether it is; None where that cannot be told."""
        if not math.isfinite(self.error) or abs(self.value - limit) < ERRORS * self.error:
            return None
        return self.value > limit

    def at_most(self, limit: float) -> bool | None:
        above = self.above(limit)
        return None if above is None else not above

    def within(self, limit: float) -> bool | None:
        """Whether it is that near to 0, on either side."""
        return Measured(abs(self.value), self.error).at_most(limit)

    def __str__(self) -> str:
        return f"{self.value:+z.1f} ± {self.error:.1f}"

    @property
    def size(self) -> str:
        """Of a number that has no sign to tell."""
        return f"{self.value:z.1f} ± {self.error:.1f}"


def accuracy(parts: Finished, name: str) -> Array:
    """In per cent, `[repeats, candidates, looks]`."""
    kept = parts[name]
    found: Array = 100 * kept["right"].astype(float) / float(kept["tests"])
    return found


def jackknifed(groups: Sequence[Array], number: Callable[[Sequence[Array]], float]) -> Measured:
    """A number of the means over the repeats of independent groups, each `[repeats, ...]`."""
    means = [group.mean(axis=0) for group in groups]
    value, variance = float(number(means)), 0.0
    for place, group in enumerate(groups):
        count = len(group)
        without = [
            number([*means[:place], np.delete(group, i, axis=0).mean(axis=0), *means[place + 1 :]])
            for i in range(count)
            if count > 1
        ]
        if not np.isfinite([value, *without]).all():
            variance += 0.0 if all(one == value for one in without) else math.inf
        elif without:
            variance += (count - 1) / count * float(np.square(np.array(without) - np.mean(without)).sum())
    return Measured(value, math.sqrt(variance))


def counted(cases: Sequence[bool | None]) -> str:
    return f"{sum(case is True for case in cases)} of {len(cases)}"
