"""The ledger of a dataset's privacy budget: durable, shared by processes, append-only.

`Ledger(path)`: `set_budget` once for a dataset, `charge` before its records are read, `resume` and
`end` for a search that goes on under its key. See docs/ledger.md.
"""

from __future__ import annotations

from honestdp.ledger.balance import Balance
from honestdp.ledger.book import Ledger
from honestdp.ledger.chain import Entry

from honestdp.ledger.errors import (  # isort: skip
    BrokenChain, BudgetExceeded, BudgetFixed, KeyEnded, KeyReused, LedgerError, Locked, LookAlike, Misremembered,
    NoBudget, NoCharge, NoLedger, NotALedger, NotPrivate, OtherUnit, ReadOnly, StaleCopy,
)  # fmt: skip

__all__ = [
    "Balance", "BrokenChain", "BudgetExceeded", "BudgetFixed", "Entry", "KeyEnded", "KeyReused", "Ledger",
    "LedgerError", "Locked", "LookAlike", "Misremembered", "NoBudget", "NoCharge", "NoLedger", "NotALedger",
    "NotPrivate", "OtherUnit", "ReadOnly", "StaleCopy",
]  # fmt: skip
