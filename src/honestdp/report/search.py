"""The report of a search that was carried out: its result and its public design, as a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import honestdp
from honestdp.report.costs import compare
from honestdp.report.html import render
from honestdp.report.view import LedgerView, ScoreView, SearchView
from honestdp.search.design import Design
from honestdp.search.result import TuneResult


def report_of(result: TuneResult, design: Design, public: Mapping[str, Any], *, dataset: str | None, key: str) -> str:
    """One HTML file. key: of the charge in the ledger."""
    plan = design.plan()
    costs = compare(
        plan,
        event=design.base,
        delta=design.budget.delta,
        selection=design.selection,
        noise=design.runs[0].noise,
        budget=design.budget,
    )
    name = dataset or "the given records"
    shown = {k: v for k, v in public.items() if k not in ("spending", "code", "reproduce")}
    return render(
        SearchView(
            title=f"honestdp tune: {name}",
            dataset=name,
            statement=result.statement,
            hyperparameters=result.hyperparameters,
            score=_score(result, design),
            plan=replace(plan, budget=design.budget),
            costs=costs,
            ledger=_ledger(result, key),
            configuration={**shown, "run": vars(result.run)},
            reproduce=public["reproduce"] or "honestdp.tune(...) with the configuration above",
            version=honestdp.__version__,
        )
    )


def _score(result: TuneResult, design: Design) -> ScoreView | None:
    score = result.score
    if score is None:
        return None
    return ScoreView(
        name=score.name,
        value=score.value,
        low=score.low,
        high=score.high,
        noise=score.noise,
        fraction=design.fraction,
        records=round(design.validation_records),
        limits=(0.0, 1.0) if score.name == "accuracy" else None,
    )


def _ledger(result: TuneResult, key: str) -> LedgerView | None:
    balance = result.balance
    if balance is None:
        return None
    return LedgerView(
        dataset=balance.dataset,
        budget=balance.budget.epsilon,
        delta=balance.budget.delta,
        before=balance.before,
        after=balance.spent,
        left=balance.left,
        entry=balance.charges,
        key=key,
    )
