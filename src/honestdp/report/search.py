"""The page of a finished search, from the public values that `tune` hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dp_accounting import DpEvent

from honestdp import __version__
from honestdp.budget import Budget, Statement
from honestdp.ledger.account import Balance
from honestdp.planner.comparison import Plan
from honestdp.report.costs import compare
from honestdp.report.html import render
from honestdp.report.view import ScoreView, SearchView, ledger_view
from honestdp.run import Run
from honestdp.selection import Selection

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
class FinishedSearch:
    """What is known of a search when it is over.

    run: the winner's. plan: what the selection was chosen from. base: what one run is, at worst. key: of the charge in the
    ledger. configuration: the public settings, by name.
    """

    statement: Statement
    hyperparameters: Mapping[str, Any]
    run: Run
    score: ScoreView | None
    balance: Balance | None
    key: str
    budget: Budget
    plan: Plan
    base: DpEvent
    selection: Selection
    configuration: Mapping[str, Any]


def page(search: FinishedSearch) -> str:
    """One HTML file."""
    settings = search.configuration
    name = settings["dataset"] or "the given records"
    return render(
        SearchView(
            title=f"honestdp tune: {name}",
            dataset=name,
            statement=search.statement,
            hyperparameters=search.hyperparameters,
            score=search.score,
            plan=replace(search.plan, budget=search.budget),
            costs=compare(search.plan, event=search.base, delta=search.budget.delta, selection=search.selection),
            ledger=ledger_view(search.balance, search.key),
            configuration={_SAID.get(k, k): v for k, v in settings.items() if k not in ("code", "reproduce")}
            | {"run": vars(search.run)},
            reproduce=settings["reproduce"] or "honestdp.tune(...) with the configuration above",
            version=__version__,
        )
    )
