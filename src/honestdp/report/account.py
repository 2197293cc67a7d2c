"""A dataset's budget, what is spent and what is left, on the console and as a plain dictionary for JSON."""

from __future__ import annotations

from collections.abc import Sequence

from honestdp.budget import number
from honestdp.ledger.account import Balance, Charge
from honestdp.ledger.names import Described
from honestdp.plain_words import rounded_down, rounded_up, shown_delta
from honestdp.run import Unit

SHORT = 8  # characters of a key in a table; `--json` has all of them
HEADINGS = ("entry", "time", "key", "selection", "candidates", "runs", "alone")
NUMBERS = ("entry", "candidates", "runs", "alone")


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
    return "\n".join(f"{label:<11}{text}" for label, text in rows)


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
        rows = [HEADINGS, *(_row(charge, balance.budget.delta) for charge in charges)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        said = [(), *((_said(charge), f"hash {charge.entry.hash}") for charge in charges)]
        for row, text in zip(rows, said, strict=True):
            cells = zip(row, widths, HEADINGS, strict=True)
            lines.append("  ".join(c.rjust(w) if name in NUMBERS else c.ljust(w) for c, w, name in cells).rstrip())
            lines += [" " * (widths[0] + 2) + each for each in text if each]
        lines.append("")
    return "\n".join(lines)


def _row(charge: Charge, delta: float) -> tuple[str, ...]:
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


def as_dict(balance: Balance, charges: Sequence[Charge]) -> dict[str, object]:
    """The same for JSON."""
    return {**balance.as_dict(), "entries": [_as_dict(charge, balance.budget.delta) for charge in charges]}


def _as_dict(charge: Charge, delta: float) -> dict[str, object]:
    return {
        "number": charge.entry.number,
        "time": charge.entry.time,
        "key": charge.entry.key,
        "hash": charge.entry.hash,
        **Described.read(charge.entry.what)._asdict(),
        "alone": number(charge.spending.epsilon(delta=delta)),
        "spending": charge.spending.as_dict(),
    }
