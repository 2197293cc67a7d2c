"""What a paper says of a figure or table, and whether our numbers agree. Verdicts are computed, never typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"


@dataclass(frozen=True)
class Claim:
    """The paper's claim in our words, what we found, and the verdict."""

    claim: str
    found: str
    verdict: str


def judged(claim: str, cases: Sequence[bool], found: str, *, enough: float = 1.0) -> Claim:
    """A claim about several cases: it holds if at least the part `enough` of them agrees, and fails if none does."""
    agree = sum(map(bool, cases))
    verdict = HOLDS if cases and agree >= enough * len(cases) else IN_PART if agree else FAILS
    return Claim(claim, found, verdict)


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
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


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
            "numbers": self.numbers,
        }
