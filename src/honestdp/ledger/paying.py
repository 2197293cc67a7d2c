"""The payment for one search or training: one charge, a token for each resume, the end, however often it is interrupted.

The order is the privacy argument, of a search as of a training:

1. The key of the charge is in the files (a search's folder, a training's checkpoint), so that whoever goes on uses the same key.
2. The charge is durable in the ledger before a record is read. Where the ledger surely charged nothing, the files go again.
3. Before the first step of a training, and on every resume, a new token is put into the files and then into the ledger, where
   each must follow on the one before. A copy of the files that was made earlier has an older token and is refused; a kill
   between the two is made good by the next resume. The seed is in the files by then: two copies draw the same noise.
4. When the result is on the disk the key is ended: no copy goes on from there, and a search erases its secrets.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from honestdp.budget import LEDGER_VARIABLE as VARIABLE
from honestdp.checks import InvalidArgument
from honestdp.ledger import Balance, Ledger, LedgerError, refusals
from honestdp.ledger.account import dear_by_delta
from honestdp.ledger.address import Place, place_of
from honestdp.ledger.names import check_text
from honestdp.ledger.spending import Spending
from honestdp.plain_words import rounded_down

_REFUSED = (
    refusals.BudgetExceeded,
    refusals.ClocksDiffer,
    refusals.KeyReused,
    refusals.LookAlike,
    refusals.MayDelete,
    refusals.NoBudget,
    refusals.NotDurable,
    refusals.NotPrivate,
    refusals.OtherUnit,
)
"""Refusals by the ledger's rules, which are read before anything is written."""
_MOST_NOISE = 64
STAYS = "what it was charged stays charged"
UNPAID = "nothing was charged yet: the charge comes when it goes on"
NO_LEDGER = "it is in no ledger"
RESTORE = "If the ledger was lost, restore it from a copy: the same call then goes on, and nothing more is charged"


@dataclass(frozen=True)
class Books:
    """The ledger and the dataset in it that something is charged to. note: for people, in the entry; it is public."""

    ledger: Place
    dataset: str
    note: str = ""


def books_of(ledger: Any, dataset: Any, *, noise_seed: object = None, note: Any = "") -> Books | None:
    """The books that the arguments of `train` or `tune` name; None where nothing is to be charged.

    With a dataset and no ledger it is that of the environment. A dataset is never guessed: without one nothing is charged.
    """
    if isinstance(ledger, Ledger):
        ledger = ledger.path
    if ledger is not None:
        ledger = place_of(ledger)
    check_text(note=note)
    if ledger is not None and dataset is None:
        raise InvalidArgument("dataset", dataset, "given together with ledger: the name of the dataset in that file")
    if dataset is None:
        if note:
            raise InvalidArgument("note", note, "left out without a ledger: it is for the entry there")
        return None
    if ledger is None and not os.environ.get(VARIABLE):
        wanted = f"given together with ledger, the file that it is charged in (or set {VARIABLE})"
        raise InvalidArgument("dataset", dataset, wanted)
    if noise_seed is not None:
        wanted = "left out with a ledger: a fixed seed is not private at any price"
        raise InvalidArgument("noise_seed", noise_seed, wanted)
    return Books(ledger or place_of(os.environ[VARIABLE]), dataset, note)


@dataclass(frozen=True)
class Payment:
    """The charge of the search or training with this key."""

    ledger: Ledger
    dataset: str
    key: str
    note: str = ""

    @classmethod
    def of(cls, books: Books, key: str) -> Payment:
        return cls(Ledger(books.ledger), books.dataset, key, books.note)

    def charge(
        self,
        spending: Spending,
        *,
        what: str,
        read: bool,
        delta: float | None = None,
        undo: Callable[[], None] | None = None,
    ) -> Balance:
        """Charge once, however often it is resumed.

        Args:
            read: records have been read, so that there must be a charge.
            delta: for which it was made, where that is known: a refusal says if it is dear because the ledger has another.
            undo: takes back the files of a search or training that is new, where the ledger surely charged nothing.
        """
        if read and not self._is_known():
            wanted = f"the one that this was charged to when it was begun: in this one the charge is missing. {RESTORE}"
            raise InvalidArgument("ledger", str(self.ledger.path), wanted)
        try:
            with self._explained(spending, delta):
                balance = self.ledger.charge(self.dataset, spending, key=self.key, what=what, note=self.note)
        except LedgerError as refusal:
            if undo is not None and self.surely_unpaid(refusal):
                undo()
            raise
        return replace(balance, charged=True)  # under the key, if not by this call: a resumed one says no other thing

    def check_first(self, spending: Spending, scan: Callable[[], None], *, delta: float | None = None) -> None:
        """Before a charge that is not made yet: the ledger's refusal, if it would refuse; then what `scan` finds, which looks at
        the records' file. In this order: over budget nothing is opened. delta: as in `charge`.
        """
        if not self._is_known():
            with self._explained(spending, delta):
                self.ledger.check(self.dataset, [spending])
            scan()

    @contextmanager
    def _explained(self, spending: Spending, delta: float | None) -> Iterator[None]:
        """A refusal within names the greatest epsilon that fits, and says if the charge is dear because the ledger has another
        delta than it was made for.
        """
        words = None
        try:
            yield
        except refusals.BudgetExceeded as refusal:
            words = str(refusal)
        if words is not None:
            budget = self.ledger.balance(self.dataset).budget
            fits = self._greatest(spending, delta or budget.delta)
            words += "" if fits is None else f". The greatest epsilon that fits here is {rounded_down(fits, 3)}"
            dear = dear_by_delta(delta, budget)
            raise refusals.BudgetExceeded(f"{words}. {dear.capitalize()}" if dear else words)

    def _greatest(self, spending: Spending, delta: float) -> float | None:
        """The epsilon at this delta of such a charge with just enough noise for the ledger to have room; None where 64 times the
        noise is too little.
        """
        few, enough = 1.0, 2.0
        while not self._fits(spending.with_noise(enough)):
            few, enough = enough, 2 * enough
            if enough > _MOST_NOISE:
                return None
        while enough > 1.03 * few:
            half = math.sqrt(few * enough)
            few, enough = (few, half) if self._fits(spending.with_noise(half)) else (half, enough)
        return spending.with_noise(enough).epsilon(delta=delta)

    def _fits(self, spending: Spending) -> bool:
        try:
            self.ledger.check(self.dataset, [spending])
        except refusals.BudgetExceeded:
            return False
        return True

    def surely_unpaid(self, refusal: LedgerError) -> bool:
        """Whether nothing was charged for certain. An error of the file may come after the charge is in it: when it is read
        back, locked or out of reach. What was begun must then stay, and its key with it, or the charge pays for nothing.
        """
        if isinstance(refusal, refusals.ReadOnly | refusals.Locked | refusals.Unreachable):
            with suppress(LedgerError):
                return not self.is_charged()
        return isinstance(refusal, _REFUSED)

    def is_charged(self) -> bool:
        """Whether the charge is in the ledger now."""
        return any(charge.entry.key == self.key for charge in self.ledger.charges(self.dataset))

    def _is_known(self) -> bool:
        """Whether this is the ledger that was charged: where there is none, it is not."""
        try:
            return self.is_charged()
        except refusals.NoLedger:
            return False

    def standing(self) -> str:
        """What an interrupted search has paid, in words: the interruption may have come while its charge was composed."""
        try:
            return STAYS if self.is_charged() else UNPAID
        except (LedgerError, OSError, KeyboardInterrupt):  # what cannot be read may well be charged
            return STAYS

    def end(self, *, if_possible: bool = False) -> None:
        """No copy can go on from here. if_possible: a ledger that is busy must not cost a result that no file holds."""
        with suppress(*(LedgerError, OSError) if if_possible else ()), _paid_before():
            self.ledger.end(self.dataset, key=self.key)

    def resume(self, last: Mapping[str, str], keep: Callable[[dict[str, str]], None]) -> None:
        """last: the token of the resume before and the one before that, both empty at first. keep: writes this one's, durably."""
        with _paid_before():
            if last["token"]:
                self.ledger.resume(self.dataset, key=self.key, token=last["token"], after=last["after"])
            mine = {"token": secrets.token_hex(16), "after": last["token"]}
            keep(mine)
            self.ledger.resume(self.dataset, key=self.key, **mine)


@contextmanager
def _paid_before() -> Iterator[None]:
    """A ledger that is out of reach says that nothing was charged, which is true of the entry alone: the charge came before."""
    try:
        yield
    except (refusals.NoLedger, refusals.NoCharge) as trouble:  # a new ledger, as it advises, would not have the charge
        words = str(trouble).split(": ")[0]
        raise type(trouble)(f"{words}, and this was charged before. {RESTORE}") from trouble
    except (refusals.Conflict, refusals.Locked, refusals.Unreachable) as trouble:
        words = str(trouble).replace("nothing was charged", "nothing more was charged")
        raise type(trouble)(f"{words}. What was charged before stays charged, and the same call goes on") from trouble
