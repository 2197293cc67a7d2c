"""Plans and accounts of datasets: tables in a terminal, and plain dictionaries for JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from honestdp.budget import Statement, number
from honestdp.ledger.account import Balance, Charge
from honestdp.ledger.names import Described
from honestdp.notebook import as_text
from honestdp.plain_words import rounded_down, rounded_up, shown_delta
from honestdp.planner.comparison import Crossover, Method, Plan
from honestdp.planner.prospects import most_parameters
from honestdp.run import Unit

FOOTINGS = {"all": "all candidates", "runs": "equal runs", "coverage": "equal coverage"}
SHORT = 8  # characters of a key in a table; `--json` has all of them
HEADINGS = ("entry", "time", "key", "selection", "candidates", "runs", "alone")
NUMBERS = ("entry", "candidates", "runs", "alone")


def plan_text(
    plan: Plan, crossovers: list[Crossover], statement: Statement, command: str | None, *, table: bool = False
) -> str:
    """The recommendation, the command that carries it out and its statement; the table of all methods where it is asked for.

    command: the words of a command line that does what is recommended; None where there is none.
    """
    recommended = as_text(_recommendation(plan, command), width=13)
    return "\n".join([recommended, *(["", _table(plan, crossovers)] if table else []), "", str(statement)])


def _recommendation(plan: Plan, command: str | None) -> list[tuple[str, str]]:
    best, run = plan.recommended, plan.run_of(plan.recommended)
    one = best.selection.one_run
    times = f"{best.noise / plan.one_run.noise:.2f} times the noise" if plan.budget else ""
    if plan.budget is None and plan.one_run.epsilon > 0:
        times = f"{best.epsilon / plan.one_run.epsilon:.2f} times the epsilon"
    cost = "one run, no search" if one or not times else f"{times} of one run without a search"
    scores = f"{plan.records - run.records} score" if plan.validation else "none scores"
    if plan.score is not None:
        scores += f", by counts with noise {rounded_up(plan.score)}"
    how = (
        "one run"
        if one
        else f"{_name(best)}, {best.selection.runs:.5g} runs{'' if best.coverage == 1 else ' on average'}"
    )
    rows = [
        ("recommended", f"{how}, with noise {rounded_up(best.noise, 6)}"),
        ("", f"lot {run.lot:g}, {run.steps} steps, {run.lot * run.steps / run.records:.3g} epochs a run"),
        ("", f"epsilon {rounded_up(best.epsilon)} at delta {shown_delta(plan.delta)} for all of it; {cost}"),
        ("why", plan.reason),
    ]
    if plan.shape is not None and plan.shape.how:
        rows.append(("lot, steps", plan.shape.how))
    rows.append((plan.unit.plural, f"{plan.records}: {run.records} train, {scores}"))
    room, drowns = most_parameters(run), "noise drowns the gradients of"
    rows.append(
        (
            "room",
            f"models of up to {room:.1e} weights between inputs and outputs; {drowns} larger ones"
            if room >= 1
            else f"none: {drowns} any model",
        )
    )
    rows += [("WARNING", sentence) for sentence in plan.warnings]
    space = "" if one else f"   (with a space of {plan.candidates} candidates)"
    scored = "honestdp tune scores the runs of a search on held-out records: plan it with a validation above 0"
    rows.append(("do it", scored if command is None else f"{command}{space}"))
    return rows


def _table(plan: Plan, crossovers: list[Crossover]) -> str:
    by_noise = plan.budget is not None
    what = "noise" if by_noise else "epsilon"
    count = "1 candidate" if plan.candidates == 1 else f"{plan.candidates} candidates"
    title = f"{count}; {_setting(plan)}; delta {shown_delta(plan.delta)}; {plan.unit.relation}"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("selection", "by", "shape"):
        table.add_column(heading, no_wrap=True)
    for heading in ("runs", "coverage", what, "x one run"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("leaves", no_wrap=True)
    table.add_row(*_row(plan.one_run, plan, "one run"))
    for equal, text in FOOTINGS.items():
        methods = sorted((m for m in plan.methods if m.equal == equal), key=lambda m: _value(m, by_noise))
        if plan.candidates == 1 or not methods:
            continue
        table.add_row(f"[italic]{text}[/italic]")
        for method in methods:
            best = method is plan.recommended
            table.add_row(*_row(method, plan, method.selection.name), style="bold green" if best else "")
    console = Console()
    with console.capture() as drawn:
        console.print(table)
    lines = [title, "", drawn.get()]
    if by_noise and plan.candidates > 1:
        lines.append("noises are compared to within 0.7 %, upwards; the recommended one is the least")
    lines += [f"no noise meets the budget: {name}" for name in plan.unreachable]
    lines += [f"from {one.candidates} candidates on, {one.cheaper} costs less than {one.dearer}" for one in crossovers]
    return "\n".join(lines)


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
    return f"{run.records} {plan.unit.plural}, lot {run.lot:g}, {run.steps} steps, {fixed}"


def plan_as_dict(plan: Plan, crossovers: list[Crossover], statement: Statement) -> dict[str, object]:
    """The plan for JSON."""
    run, shape = plan.run, plan.shape
    return {
        "records": plan.records,
        "training_records": run.records,
        "validation": plan.validation,
        "lot": run.lot,
        "steps": run.steps,
        "chosen": None if shape is None else shape.how or None,
        "delta": plan.delta,
        "candidates": plan.candidates,
        "coverage": plan.coverage,
        "one_run": _as_dict(plan.one_run),
        "methods": [_as_dict(method) for method in plan.methods],
        "recommended": {**_as_dict(plan.recommended), "reason": plan.reason},
        "score_noise": plan.score,
        "most_parameters": most_parameters(plan.run_of(plan.recommended)),
        "warnings": list(plan.warnings),
        "unreachable": list(plan.unreachable),
        "crossovers": [crossing._asdict() for crossing in crossovers],
        "statement": statement.as_dict(),
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


def balance_text(balance: Balance) -> str:
    """What a charge, or a budget just set, has left behind."""
    unit = Unit(balance.unit)
    whose = f"{unit.relation} ({unit.person})" if unit.person else unit.relation
    rows = [
        ("dataset", balance.dataset),
        ("budget", f"epsilon {balance.budget.epsilon:g} at delta {shown_delta(balance.budget.delta)}, {whose}"),
        ("spent", _spent(balance)),
        ("left", rounded_down(balance.left)),
        ("head", balance.head),
    ]
    return as_text(rows, width=11)


def _spent(balance: Balance) -> str:
    charges = "1 charge" if balance.charges == 1 else f"{balance.charges} charges"
    spent = f"{rounded_up(balance.spent)} in {charges}, composed by pld"
    return f"{spent}; {rounded_up(balance.before)} before this one" if balance.charged else spent


def account_text(balance: Balance, charges: Sequence[Charge]) -> str:
    """Where a dataset stands, and every charge: what it would cost by itself, and below it what it was for and whose, and its
    hash, which a report has as the head of its day: entries may have followed.
    """
    lines = [balance_text(balance), ""]
    if charges:
        rows = [HEADINGS, *(_charge_row(charge, balance.budget.delta) for charge in charges)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        said = [(), *((_said(charge), f"hash {charge.entry.hash}") for charge in charges)]
        for row, text in zip(rows, said, strict=True):
            cells = zip(row, widths, HEADINGS, strict=True)
            lines.append("  ".join(c.rjust(w) if name in NUMBERS else c.ljust(w) for c, w, name in cells).rstrip())
            lines += [" " * (widths[0] + 2) + each for each in text if each]
        lines.append("")
    return "\n".join(lines)


def _charge_row(charge: Charge, delta: float) -> tuple[str, ...]:
    selection, key = charge.spending.selection, charge.entry.key
    return (
        str(charge.entry.number),
        charge.entry.time.replace("+00:00", "Z"),
        key if len(key) <= SHORT else f"{key[:SHORT]}…",
        selection.name,
        _candidates(charge),
        f"{selection.runs:.5g}",
        rounded_up(charge.spending.epsilon(delta=delta)),
    )


def _said(charge: Charge) -> str:
    """What people have said of a charge."""
    what, who, note = Described.read(charge.entry.what)
    return "; ".join(part for part in (what, who and f"by {who}", note) if part)


def _candidates(charge: Charge) -> str:
    """Empty where every run drew its own."""
    count = sum(count for _, count in charge.spending.runs)
    return str(count) if count > 1 or charge.spending.selection.each_once else ""


def account_as_dict(balance: Balance, charges: Sequence[Charge]) -> dict[str, object]:
    """The same for JSON."""
    return {**balance.as_dict(), "entries": [_charge_as_dict(charge, balance.budget.delta) for charge in charges]}


def _charge_as_dict(charge: Charge, delta: float) -> dict[str, object]:
    return {
        "number": charge.entry.number,
        "time": charge.entry.time,
        "key": charge.entry.key,
        "hash": charge.entry.hash,
        **Described.read(charge.entry.what)._asdict(),
        "alone": number(charge.spending.epsilon(delta=delta)),
        "spending": charge.spending.as_dict(),
    }
