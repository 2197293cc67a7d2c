"""The ledger of a dataset's privacy budget: durable, shared by processes, append-only.

`Ledger(path)`: `set_budget` once for a dataset, `charge` before its records are read, `resume` and
`end` for a search that goes on under its key. See docs/ledger.md.
"""

from __future__ import annotations

from honestdp.ledger.account import Balance
from honestdp.ledger.address import Address, Place
from honestdp.ledger.book import Ledger
from honestdp.ledger.chain import Entry

from honestdp.ledger.refusals import (  # isort: skip
    BrokenChain, BudgetExceeded, BudgetFixed, ClocksDiffer, InDoubt, KeyEnded, KeyReused, LedgerError, Locked, LookAlike,
    MayDelete, NoBudget, NoCharge, NoLedger, NotALedger, NotDurable, NotPrivate, OtherUnit, ReadOnly, StaleCopy,
    Unreachable,
)  # fmt: skip

__all__ = [
    "Address", "Balance", "BrokenChain", "BudgetExceeded", "BudgetFixed", "ClocksDiffer", "Entry", "InDoubt", "KeyEnded",
    "KeyReused", "Ledger", "LedgerError", "Locked", "LookAlike", "MayDelete", "NoBudget", "NoCharge",
    "NoLedger", "NotALedger", "NotDurable", "NotPrivate", "OtherUnit", "Place", "ReadOnly", "StaleCopy", "Unreachable",
]  # fmt: skip
