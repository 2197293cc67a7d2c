"""Searches at one honest budget, as the product would set them out: calibrated, kept in a file, and read from it again.

Needs the accountants. The trainings read the noise alone from the same file (`parts.kept_numbers`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from honestdp.boundary.class_metrics import Accuracy
from honestdp.budget import Budget
from honestdp.ledger.spending import Spending
from honestdp.search.design import Design, Request, design
from honestdp.search.space import Candidate, Space
from honestdp_papers.parts import write_whole

COVERAGE = 0.9
"""With which probability random stopping runs a given candidate."""


class Searched(Protocol):
    """What is searched, and how. key: what its price depends on. single: one candidate, with nothing to choose."""

    @property
    def selection(self) -> str: ...

    @property
    def single(self) -> bool: ...

    @property
    def fraction(self) -> float: ...

    @property
    def space(self) -> Space: ...

    @property
    def candidates(self) -> list[Candidate]: ...

    @property
    def key(self) -> str: ...


Some = TypeVar("Some", bound=Searched)


def calibrated(search: Searched, budget: Budget, records: int) -> Design:
    """The search as the product would set it out."""
    return design(
        Request(
            budget=budget,
            records=records,
            fraction=search.fraction,
            space=search.space,
            selection=search.selection,
            coverage=COVERAGE,
            metric=None if search.single else Accuracy(),
        )
    )


def kept(search: Searched, budget: Budget, records: int, spending: dict[str, Any]) -> Design:
    """The same by what it was found to spend, without calibrating again."""
    spent, candidates = Spending.from_dict(spending), tuple(search.candidates)
    return Design(
        budget=budget,
        records=records,
        fraction=search.fraction,
        space=search.space,
        candidates=candidates,
        count=len(candidates),
        selection=spent.selection,
        reason="",
        runs=tuple(run for run, _ in spent.runs),
        metric=None if search.single else Accuracy(),
        multiplier=spent.score,
        choice=spent.choice,
    )


def write(file: Path, searches: Iterable[Some], calibrate: Callable[[Some], Design]) -> None:
    """What every search spends, by its key."""
    found: dict[str, dict[str, Any]] = {}
    for search in searches:
        if search.key not in found:
            found[search.key] = calibrate(search).spending.as_dict()
            print(search.key, f"noise {found[search.key]['runs'][0]['noise']:.4g}", flush=True)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    write_whole(file, f"{{\n{lines}\n}}\n".encode())
