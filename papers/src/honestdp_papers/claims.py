"""The outcome of reproducing a figure or table: claims with computed verdicts, tables, notes. Verdicts are computed,
never typed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
