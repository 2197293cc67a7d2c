"""A plan as a table, and as a plain dictionary for JSON."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from honestdp.budget import Statement, number, rounded_up
from honestdp.planner import Crossover, Method, Plan

FOOTINGS = {"all": "all candidates", "runs": "equal runs", "coverage": "equal coverage"}


def print_plan(plan: Plan, crossovers: list[Crossover], statement: Statement) -> None:
    console = Console()
    by_noise = plan.budget is not None
    what = "noise" if by_noise else "epsilon"
    title = f"{plan.candidates} candidates; {_setting(plan)}; delta {plan.delta:g}; add or remove one record"
    console.print(f"{title}\n", highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("selection", "by", "shape"):
        table.add_column(heading, no_wrap=True)
    for heading in ("runs", "coverage", what, "x one run"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("leaves", no_wrap=True)
    table.add_row(*_row(plan.one_run, plan, "one run"))
    for equal, text in FOOTINGS.items():
        table.add_row(f"[italic]{text}[/italic]")
        for method in sorted((m for m in plan.methods if m.equal == equal), key=lambda m: _value(m, by_noise)):
            best = method is plan.recommended
            table.add_row(*_row(method, plan, method.selection.name), style="bold green" if best else "")
    console.print(table)
    console.print()
    for name in plan.unreachable:
        console.print(f"no noise meets the budget: {name}", highlight=False)
    for crossing in crossovers:
        text = f"from {crossing.candidates} candidates on, {crossing.cheaper} costs less than {crossing.dearer}"
        console.print(text, highlight=False)
    console.print(f"\n[bold]recommended[/bold] {_name(plan.recommended)}: {plan.reason}.\n", highlight=False)
    console.print(str(statement), highlight=False, markup=False, soft_wrap=True)


def _row(method: Method, plan: Plan, name: str) -> tuple[str, ...]:
    by_noise = plan.budget is not None
    value, one = _value(method, by_noise), _value(plan.one_run, by_noise)
    return (
        name,
        method.selection.accountant,
        _shape(method),
        f"{method.selection.runs:.5g}",
        f"{method.coverage:.2f}" if name != "one run" else "",
        rounded_up(value),
        f"{value / one:.2f}" if one > 0 else "",
        "all" if method.selection.all_leave else "winner",
    )


def _value(method: Method, by_noise: bool) -> float:
    return method.noise if by_noise else method.epsilon


def _name(method: Method) -> str:
    shape = "" if method.selection.shape is None else f", shape {_shape(method)}"
    return f"{method.selection.name} ({method.selection.accountant}{shape})"


def _shape(method: Method) -> str:
    shape = method.selection.shape
    return shape or "" if shape is None or isinstance(shape, str) else f"{shape:g}"


def _setting(plan: Plan) -> str:
    run = plan.run
    fixed = f"noise {run.noise:g}" if plan.budget is None else f"epsilon {plan.budget.epsilon:g}"
    return f"{run.records} records, lot {run.lot:g}, {run.steps} steps, {fixed}"


def plan_as_dict(plan: Plan, crossovers: list[Crossover], statement: Statement, plot: Path | None) -> dict[str, object]:
    """The plan for JSON."""
    run = plan.run
    return {
        "records": run.records,
        "lot": run.lot,
        "steps": run.steps,
        "delta": plan.delta,
        "candidates": plan.candidates,
        "coverage": plan.coverage,
        "one_run": _as_dict(plan.one_run),
        "methods": [_as_dict(method) for method in plan.methods],
        "recommended": {**_as_dict(plan.recommended), "reason": plan.reason},
        "unreachable": list(plan.unreachable),
        "crossovers": [crossing._asdict() for crossing in crossovers],
        "statement": statement.as_dict(),
        "plot": None if plot is None else str(plot),
    }


def _as_dict(method: Method) -> dict[str, object]:
    return {
        "selection": method.selection.name,
        "accountant": method.selection.accountant,
        "shape": method.selection.shape,
        "runs": method.selection.runs,
        "coverage": method.coverage,
        "equal": method.equal,
        "epsilon": number(method.epsilon),
        "noise": method.noise,
        "leaves": method.selection.leaves,
    }
