"""A dataset's budget, what is spent and what is left, on the console and as a plain dictionary for JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from honestdp.budget import RELATION, number, rounded_down, rounded_up
from honestdp.ledger.account import Charge
from honestdp.ledger.balance import Balance


def print_balance(balance: Balance) -> None:
    """What a charge, or a budget just set, has left behind."""
    rows = [
        ("dataset", balance.dataset),
        ("budget", f"epsilon {balance.budget.epsilon:g} at delta {balance.budget.delta:g}, {RELATION}"),
        ("spent", _spent(balance)),
        ("left", rounded_down(balance.left)),
        ("head", balance.head),
    ]
    lines = "\n".join(f"{label:<11}{text}" for label, text in rows)
    Console().print(lines, markup=False, highlight=False, soft_wrap=True)


def _spent(balance: Balance) -> str:
    charges = "1 charge" if balance.charges == 1 else f"{balance.charges} charges"
    spent = f"{rounded_up(balance.spent)} in {charges}, composed by pld"
    return f"{spent}; {rounded_up(balance.before)} before this one" if balance.charged else spent


def print_account(balance: Balance, charges: Sequence[Charge]) -> None:
    """Where a dataset stands, and every charge with what it would cost by itself."""
    print_balance(balance)
    if charges:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("entry", "time", "selection", "runs", "alone", "what"):
            table.add_column(heading, justify="right" if heading in ("entry", "runs", "alone") else "left")
        for charge in charges:
            table.add_row(*_row(charge, balance.budget.delta))
        console = Console()
        console.print()
        console.print(table, markup=False, highlight=False)
    Console().print()


def _row(charge: Charge, delta: float) -> tuple[str | Text, ...]:
    selection = charge.spending.selection
    return (
        str(charge.entry.number),
        charge.entry.time.replace("+00:00", "Z"),
        selection.name,
        f"{selection.runs:.5g}",
        rounded_up(charge.spending.epsilon(delta=delta)),
        Text(charge.entry.what),
    )


def as_dict(balance: Balance, charges: Sequence[Charge]) -> dict[str, object]:
    """The same for JSON."""
    return {**balance.as_dict(), "entries": [_as_dict(charge, balance.budget.delta) for charge in charges]}


def _as_dict(charge: Charge, delta: float) -> dict[str, object]:
    return {
        "number": charge.entry.number,
        "time": charge.entry.time,
        "key": charge.entry.key,
        "what": charge.entry.what,
        "alone": number(charge.spending.epsilon(delta=delta)),
        "spending": charge.spending.as_dict(),
    }
