"""What can go wrong with a ledger. Each message is one line that says what to do, and whether anything was charged.

Refusals by the ledger's rules come before anything is written. Only an error of the file itself may come after: an entry that was
written and could not be read back (Locked, ReadOnly, BrokenChain, InDoubt) may be in it, and the same key then finds it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from honestdp.checks import HonestdpError

if TYPE_CHECKING:
    from honestdp.ledger.address import Place


class LedgerError(HonestdpError):
    """Anything that keeps a ledger from being read or charged."""


class NoLedger(LedgerError):
    """There is no such file."""


class NotALedger(LedgerError):
    """The file is something else, or so damaged that it cannot be read."""


class BrokenChain(LedgerError):
    """The entries are not what was written. `entry` is the number of the first that is broken."""

    def __init__(self, message: str, *, entry: int) -> None:
        self.entry = entry
        super().__init__(message)


class Locked(LedgerError):
    """Another process kept the file locked for longer than the timeout."""


class Conflict(Locked):
    """Another writer was first: nothing was written, and the same call is made again until the timeout."""


class ReadOnly(LedgerError):
    """The file, or its folder, may not be written; a server takes nothing from this role, or from anyone."""


class Unreachable(LedgerError):
    """The server of a ledger cannot be reached, or was lost before a charge was committed."""


class InDoubt(LedgerError):
    """The server was lost while it committed an entry, and could not be asked since: it counts as written."""


class MayDelete(LedgerError):
    """A role that could change or remove entries, which must not be used to charge."""


class NotDurable(LedgerError):
    """A server that may forget what it has committed."""


class ClocksDiffer(LedgerError):
    """This machine's clock and the server's are far apart."""


class OtherUnit(LedgerError):
    """A charge for people where rows were charged, or the other way round, or people told apart by something else."""


class NoBudget(LedgerError):
    """A dataset that has no budget. `dataset` and `ledger` say which, and where."""

    def __init__(self, dataset: str, ledger: Place) -> None:
        self.dataset, self.ledger, self.lack = dataset, ledger, f"{dataset} has no budget in {ledger}"
        super().__init__(
            f"{self.lack}: set it once with Ledger({str(ledger)!r}).set_budget({dataset!r}, Budget(epsilon, delta))"
        )


class LookAlike(LedgerError):
    """A dataset's name that could be taken for another one's."""


class BudgetFixed(LedgerError):
    """A budget that is already set, and another one was asked for."""


class BudgetExceeded(LedgerError):
    """A charge that would take a dataset beyond its budget."""


class KeyReused(LedgerError):
    """A key that already stands for another spending."""


class NotPrivate(LedgerError):
    """A spending of infinite epsilon, which no budget allows."""


class NoCharge(LedgerError):
    """A key that nothing was ever charged under."""


class StaleCopy(LedgerError):
    """A copy of a search that another copy has overtaken."""


class KeyEnded(LedgerError):
    """A key whose search is over: it cannot be resumed."""
