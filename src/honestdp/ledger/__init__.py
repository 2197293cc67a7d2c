"""The ledger of a dataset's privacy budget: durable, shared by processes, append-only.

`Ledger(path)`: `set_budget` once for a dataset, `charge` before its records are read. See docs/ledger.md.
"""

from __future__ import annotations

from honestdp.ledger.book import Balance, Ledger
from honestdp.ledger.chain import Entry
from honestdp.ledger.errors import (
    BrokenChain,
    BudgetExceeded,
    BudgetFixed,
    KeyReused,
    LedgerError,
    Locked,
    NoBudget,
    NoLedger,
    NotALedger,
    NotPrivate,
    ReadOnly,
)

__all__ = [
    "Balance",
    "BrokenChain",
    "BudgetExceeded",
    "BudgetFixed",
    "Entry",
    "KeyReused",
    "Ledger",
    "LedgerError",
    "Locked",
    "NoBudget",
    "NoLedger",
    "NotALedger",
    "NotPrivate",
    "ReadOnly",
]
