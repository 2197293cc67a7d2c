"""A search's entries in the ledger: one charge, a token for each resume, the end. One charge pays for one search,
however it is interrupted.

Every resume puts a new token into the folder and then into the ledger, where each must follow on the one before. A copy of
the folder that was made earlier has an older token and is refused; a kill between the two is made good by the next resume.
When all that leaves is on the disk the key is ended.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace

from honestdp.checks import InvalidArgument
from honestdp.ledger import Balance, Ledger, LedgerError, errors
from honestdp.ledger.spending import Spending
from honestdp.search.vault import Store

RESUMES = "resumes"
_REFUSED = (errors.BudgetExceeded, errors.KeyReused, errors.LookAlike, errors.NoBudget, errors.NotPrivate)
"""Refusals by the ledger's rules, which are read before anything is written."""


@dataclass(frozen=True)
class Account:
    """The charge of the search with this key."""

    ledger: Ledger
    dataset: str
    key: str

    def charge(self, spending: Spending, *, what: str, read: bool) -> Balance:
        """Once, however often the search is resumed. read: whether records have been read, so that there must be a charge."""
        if read and not self._is_charged():
            wanted = "the one that this search was charged to: in this one its charge is missing"
            raise InvalidArgument("ledger", str(self.ledger.path), wanted)
        balance = self.ledger.charge(self.dataset, spending, key=self.key, what=what)
        return replace(balance, charged=True)  # by the search, if not by this call: a resumed one says no other thing

    def surely_unpaid(self, refusal: LedgerError) -> bool:
        """Whether nothing was charged for certain. An error of the file may come after the charge is in it: when it is read
        back, locked or out of reach. The search must then stay, and its key with it, or the charge pays for nothing.
        """
        if isinstance(refusal, errors.ReadOnly | errors.Locked):
            with suppress(LedgerError):
                return not self._is_charged()
        return isinstance(refusal, _REFUSED)

    def _is_charged(self) -> bool:
        return any(charge.entry.key == self.key for charge in self.ledger.charges(self.dataset))

    def end(self) -> None:
        """No copy of the search can go on from here."""
        self.ledger.end(self.dataset, key=self.key)

    def resume(self, store: Store) -> None:
        last = json.loads(store.read(RESUMES) or b'{"token": "", "after": ""}')
        if last["token"]:
            self.ledger.resume(self.dataset, key=self.key, **last)
        mine = {"token": secrets.token_hex(16), "after": last["token"]}
        store.write(RESUMES, json.dumps(mine).encode())
        self.ledger.resume(self.dataset, key=self.key, **mine)
