"""Every error and warning that a caller may want to catch; each is defined beside the code that raises it.

HonestdpError is the base of what a user can mend; its message says how. Each class is defined beside what raises it; those that
need torch are imported when they are asked for.

>>> import honestdp
>>> try:
...     honestdp.Run(records=0, lot=1, steps=1, noise=1.0)
... except honestdp.errors.InvalidArgument as error:
...     print(error.argument, "-", error)
records - records must be a whole number of at least 1, got 0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from honestdp.checks import HonestdpError, InvalidArgument

if TYPE_CHECKING:
    from honestdp.accounting.calibration import OverBudget
    from honestdp.accounting.events import UnknownEvent
    from honestdp.accounting.rdp import AccountingWarning, FallBack
    from honestdp.boundary.decoding import RecordFailed, WorkerDied
    from honestdp.boundary.ranks import RankLost
    from honestdp.data.sources import DatasetUnavailable
    from honestdp.estimators.pipelines import UncountedUse
    from honestdp.federated.client import RoundFailed, RoundsOver
    from honestdp.gradients import ModelWritten, RefusedModel
    from honestdp.ledger.refusals import (  # isort: skip
        BrokenChain, BudgetExceeded, BudgetFixed, ClocksDiffer, Conflict, InDoubt, KeyEnded, KeyReused, LedgerError, Locked,
        LookAlike, MayDelete, NoBudget, NoCharge, NoLedger, NotALedger, NotDurable, NotPrivate, OtherUnit,
        ReadOnly, StaleCopy, Unreachable,
    )  # fmt: skip
    from honestdp.models.digests import TamperedFolder
    from honestdp.search.failures import MachineStopped, SearchFailed
    from honestdp.search.lifecycle import SearchStopped
    from honestdp.search.vault import Unreadable
    from honestdp.training.loop import Interrupted
    from honestdp.training.watching import StopTraining

_HOMES = {
    name: home
    for home, names in {
        "accounting.calibration": "OverBudget",
        "accounting.events": "UnknownEvent",
        "accounting.rdp": "AccountingWarning FallBack",
        "boundary.decoding": "RecordFailed WorkerDied",
        "boundary.ranks": "RankLost",
        "data.sources": "DatasetUnavailable",
        "federated.client": "RoundFailed RoundsOver",
        "estimators.pipelines": "UncountedUse",
        "gradients": "ModelWritten RefusedModel",
        "ledger.refusals": (
            "BrokenChain BudgetExceeded BudgetFixed ClocksDiffer Conflict InDoubt KeyEnded KeyReused LedgerError Locked "
            "LookAlike MayDelete NoBudget NoCharge NoLedger NotALedger NotDurable NotPrivate OtherUnit ReadOnly "
            "StaleCopy Unreachable"
        ),
        "models.digests": "TamperedFolder",
        "search.failures": "MachineStopped SearchFailed",
        "search.lifecycle": "SearchStopped",
        "search.vault": "Unreadable",
        "training.loop": "Interrupted",
        "training.watching": "StopTraining",
    }.items()
    for name in names.split()
}
__all__ = [
    "AccountingWarning", "BrokenChain", "BudgetExceeded", "BudgetFixed", "ClocksDiffer", "Conflict", "DatasetUnavailable",
    "FallBack", "HonestdpError", "InDoubt", "Interrupted", "InvalidArgument", "KeyEnded", "KeyReused",
    "LedgerError", "Locked", "LookAlike", "MachineStopped", "MayDelete", "ModelWritten", "NoBudget", "NoCharge",
    "NoLedger", "NotALedger", "NotDurable", "NotPrivate", "OtherUnit", "OverBudget", "RankLost", "ReadOnly", "RecordFailed",
    "RefusedModel", "RoundFailed", "RoundsOver", "SearchFailed", "SearchStopped", "StaleCopy", "StopTraining", "TamperedFolder",
    "UncountedUse", "UnknownEvent", "Unreachable", "Unreadable", "WorkerDied",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"honestdp.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'honestdp.errors' has no attribute {name!r}")
