"""What a report may show. Every field is public under the guarantee: the report has no other source.

Rule 11 is kept here by there being no place for what must stay: no number of runs drawn, no losers, no scores but the
winner's noisy one, no times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from honestdp.boundary.score_noise import Score
from honestdp.budget import Statement

if TYPE_CHECKING:
    from honestdp.ledger.account import Balance
    from honestdp.planner.comparison import Plan
    from honestdp.report.costs import Cost


_SAID = {
    "declared": "records declared, not counted",
    "secure": "cryptographic generator of noise",
    "strict": "each record by itself (strict)",
    "max_runs": "most runs on average",
    "noise_seed": "fixed seed (not private)",
    "space_seed": "seed of the drawn candidates",
    "published": "published bounds alone",
}
"""Settings whose names alone would tell a reader nothing, or something wrong."""


@dataclass(frozen=True, kw_only=True)
class ScoreView(Score):
    """The winner's noisy score, with what is known of the records that it was asked of.

    fraction: the declared share of the records that validate; records: their declared number.
    limits: the ends of the axis, (0, 1) for an accuracy; without them the axis fits the interval.
    """

    fraction: float
    records: int
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class SearchView:
    """Everything that a report of one search shows.

    hyperparameters: the winner's.
    plan: what the methods were chosen from; None where nothing was planned.
    costs: the same search under each method (honestdp.report.costs.compare).
    ledger: the balance of the dataset around the charge; key: what names the charge there, empty without one.
    reproduce: the command or the code that makes this search again.
    what: a search, or one training that was no part of one.
    """

    title: str
    dataset: str
    statement: Statement
    hyperparameters: Mapping[str, object]
    score: ScoreView | None
    plan: Plan | None
    costs: Sequence[Cost]
    ledger: Balance | None
    configuration: Mapping[str, object]
    reproduce: str
    version: str
    key: str = ""
    what: Literal["search", "training"] = "search"


def said(configuration: Mapping[str, object]) -> dict[str, object]:
    """The settings of a search by the names that a report gives them."""
    return {_SAID.get(name, name): value for name, value in configuration.items() if name not in ("code", "reproduce")}
