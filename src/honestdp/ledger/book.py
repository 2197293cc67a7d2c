"""`Ledger`: set budgets, charge, resume, end, verify, export.

A charge is allowed if, and only if, everything charged to the dataset and the new charge together have an epsilon, at the
budget's delta, of at most the budget's. It is written before any record is read, and never taken back: a crash has spent too.

The composition is computed outside the file's lock, since it may take seconds. The lock is then taken, the entries are read
again, and the charge is written only if nothing was charged to the dataset meanwhile; else all begins anew. Of two processes
that race for the last of a budget, one is therefore first, and the other meets what it wrote.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Sequence

from honestdp import checks
from honestdp.budget import LEDGER_VARIABLE, Budget
from honestdp.ledger import refusals
from honestdp.ledger.account import NOTHING, Account, Balance, Charge, accounts, resume_content, resume_key
from honestdp.ledger.address import Address, place_of
from honestdp.ledger.chain import BUDGET, CHARGE, GENESIS, OVER, RESUME, Entry, canonical, until_it_fits
from honestdp.ledger.names import Described, check_name, check_text, known_name, user
from honestdp.ledger.spending import Spending, counted_epsilon
from honestdp.ledger.store import store_of
from honestdp.plain_words import rounded_down, rounded_up, shown_delta

TIMEOUT = 30.0  # seconds that another process may hold the lock
SENSITIVITY = (
    "given with a score: what a record changes it by in whole numbers (1 for a count); 0 where its noise is continuous"
)
PATIENCE = 5  # races that a charge may lose before it computes under the lock, so that it comes to an end


class Ledger:
    """A ledger in a file, or on a PostgreSQL server. `set_budget` creates the file; everything else asks that it is there.

    path: of the file, or `postgresql://...`, the address of a database that `honestdp ledger init` has set up; by default what
        the environment variable HONESTDP_LEDGER names.
    timeout: seconds to wait for other processes.

    Raises errors that derive from LedgerError: NoLedger, NoBudget, BudgetFixed, BudgetExceeded, BrokenChain and others. A refusal
    has charged nothing; see honestdp.ledger.refusals for what an error of the file may have.

    >>> import tempfile, honestdp
    >>> ledger = honestdp.Ledger(f"{tempfile.mkdtemp()}/ledger.db")
    >>> balance = ledger.set_budget("hospital", honestdp.Budget(epsilon=3.0, delta=1e-5))
    >>> balance.left
    3.0
    """

    def __init__(self, path: str | os.PathLike[str] | Address | None = None, *, timeout: float = TIMEOUT) -> None:
        checks.non_negative(timeout=timeout)
        self.path = place_of(os.environ.get(LEDGER_VARIABLE) if path is None else path, argument="path")
        self.timeout = timeout
        self._store = store_of(self.path, timeout=timeout)

    @until_it_fits
    def set_budget(self, dataset: str, budget: Budget) -> Balance:
        """Sets what a dataset may spend, for good. To say the same again is no error, to say another is."""
        check_name(dataset=dataset)
        if not isinstance(budget, Budget):
            raise checks.InvalidArgument("budget", budget, "a honestdp.Budget(epsilon, delta)")
        content = canonical({"version": 1, "epsilon": float(budget.epsilon), "delta": float(budget.delta)})
        if not self._store.exists():
            self._store.create()
        with self._store.writing() as transaction:
            account = Account.of(dataset, transaction.entries())
            known = account.budget
            if known is not None and known != budget:
                raise refusals.BudgetFixed(
                    f"{account.dataset} has the budget epsilon {known.epsilon:g} at delta {shown_delta(known.delta)}, and a "
                    f"budget is set once: another would change what was promised for it"
                )
            if known is None:
                what = Described("budget", user()).line
                transaction.append(dataset=account.dataset, kind=BUDGET, content=content, what=what)
        return self.balance(account.dataset)

    @until_it_fits
    def charge(
        self, dataset: str, spending: Spending, *, key: str, what: str = "", note: str = "", who: str | None = None
    ) -> Balance:
        """Charges the spending, durably, before it returns. A refusal has charged nothing; where the file fails when the entry is
        read back, the error says so, and the same key finds out.

        key: the same key charges once. With the same spending again, nothing is charged and `charged` is false.
        what, note: for people, what it was spent on, and whatever else they should know. who: charges it; by default the name of
        this process's user, "" for nobody. All of it is public.
        """
        who = user() if who is None else who
        check_name(dataset=dataset, key=key)
        check_text(what=what, note=note, who=who)
        described = Described(what, who, note).line
        if not spending.private:
            text = "a run without noise has an infinite epsilon: no budget allows it, and nothing was charged"
            raise refusals.NotPrivate(text)
        for attempt in itertools.count():
            entries, account = self._read(dataset)
            budget = self._budget_of(account)
            known = _charged_before(account, budget, spending, key)
            if known is not None:
                return known
            before, after = _quote(account, budget, spending)
            with self._store.writing() as transaction:
                now = transaction.entries(known=entries)
                current = account if now == entries else Account.of(dataset, now)
                if current.charges != account.charges:
                    if attempt < PATIENCE or current.with_key(key) is not None:
                        continue
                    before, after = _quote(current, budget, spending)
                content = canonical(spending.as_dict())
                entry = transaction.append(
                    dataset=account.dataset, kind=CHARGE, key=key, what=described, content=content
                )
            charges = len(current.charges) + 1
            head, number, unit = entry.hash, entry.number, spending.unit
            return Balance(
                account.dataset, budget, before, after, charges, charged=True, head=head, entry=number, unit=unit
            )
        raise AssertionError

    def check(self, dataset: str, spendings: Sequence[Spending]) -> None:
        """The error that refuses these charges together, if they would be refused now. Nothing is charged."""
        account = self._read(dataset)[1]
        _quote(account, self._budget_of(account), *spendings)

    @until_it_fits
    def resume(self, dataset: str, *, key: str, token: str, after: str) -> None:
        """Notes durably, before it returns, that the search charged under this key goes on, or raises.

        One charge pays for one search. Of a search that was copied, every copy could go on and find another winner; so each
        resume leaves a token here, new and random, and only who knows the last one may go on.

        token: of this resume. Where it is already the last one nothing is written, so that a kill in between is no harm.
        after: the token of the resume before, empty for the first. Another than the last one raises `StaleCopy`.
        """
        check_name(dataset=dataset, key=key, token=token)
        entries, _ = self._read(dataset)  # which need not be verified under the lock
        with self._store.writing() as transaction:
            account = Account.of(dataset, transaction.entries(known=entries))
            charge = self._open_charge(account, key)
            tokens = account.tokens[key]
            if token in tokens[-1:]:
                return
            if after != (tokens[-1] if tokens else ""):
                raise refusals.StaleCopy(
                    f"what was charged to {dataset} under the key {key} has gone on from another copy since this was made: go "
                    f"on with the newest copy; this one must not run, and holds secrets: remove it"
                )
            if token in tokens:
                raise checks.InvalidArgument("token", token, "new and random for each resume")
            count = len(tokens) + 1
            resume, content = resume_key(key, count), resume_content(key, count, token)
            time = charge.entry.time
            transaction.append(dataset=account.dataset, kind=RESUME, key=resume, content=content, time=time)

    @until_it_fits
    def end(self, dataset: str, *, key: str) -> None:
        """Notes durably, before it returns, that the search charged under this key is over: `resume` refuses it from now on."""
        check_name(dataset=dataset, key=key)
        entries, _ = self._read(dataset)  # which need not be verified under the lock
        with self._store.writing() as transaction:
            account = Account.of(dataset, transaction.entries(known=entries))
            if key not in account.ended:
                time = self._open_charge(account, key).entry.time
                transaction.append(dataset=account.dataset, kind=OVER, key=key, content=NOTHING, time=time)

    def balance(self, dataset: str) -> Balance:
        """What a dataset has spent and what is left."""
        entries, account = self._read(dataset)
        budget = self._budget_of(account)
        spent = counted_epsilon(account.spendings(), delta=budget.delta)
        return account.balance(budget, spent, spent, charges=len(account.charges), entry=entries[-1], charged=False)

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """The entries of a dataset, or all of them, verified."""
        entries = self._store.entries()
        known = accounts(entries)
        name = None if dataset is None else known_name(dataset, known)
        return [entry for entry in entries if name in (None, entry.dataset)]

    def charges(self, dataset: str) -> tuple[Charge, ...]:
        """What was charged to a dataset, in order."""
        return tuple(Account.of(dataset, self._store.entries()).charges)

    def datasets(self) -> list[str]:
        """The datasets that have a budget, in the order in which they were given one."""
        return list(accounts(self._store.entries()))

    def verify(self, *, head: str | None = None) -> str:
        """Checks everything that can be checked, and gives the head hash; an error names the first broken entry.

        head: a head hash noted earlier, which must still be in the chain.
        """
        with self._store.reading() as transaction:
            entries = transaction.entries()
            transaction.check_pages()
        if not entries:
            raise refusals.NotALedger(f"{self.path} is empty: a ledger begins with a budget")
        accounts(entries)  # an error where an entry does not follow from those before it
        if head is not None and head not in {GENESIS, *(entry.hash for entry in entries)}:
            raise refusals.BrokenChain(
                f"the head {head} is not in {self.path}, which ends at entry {len(entries)}: it was cut off, or replaced",
                entry=len(entries) + 1,
            )
        return entries[-1].hash

    def export(self, dataset: str | None = None) -> dict[str, object]:
        """Everything, for JSON: the entries, the head hash, and where each dataset stands, or one of them."""
        head = self.verify()
        entries = self.entries()
        names = self.datasets() if dataset is None else [dataset]
        return {
            "head": head,
            "entries": [{**entry._asdict(), "content": json.loads(entry.content)} for entry in entries],
            "balances": [self.balance(name).as_dict() for name in names],
        }

    def _read(self, dataset: str) -> tuple[list[Entry], Account]:
        """The dataset's account, with the entries that it was made from."""
        try:
            entries = self._store.entries()
        except refusals.NoLedger:
            if isinstance(self.path, Address):  # which no budget begins: `init` does
                raise
            entries = []
        return entries, Account.of(dataset, entries)

    def _open_charge(self, account: Account, key: str) -> Charge:
        """The charge of a search that is not over."""
        charge = account.with_key(key)
        if charge is None:
            raise refusals.NoCharge(
                f"nothing was charged to {account.dataset} under the key {key} in {self.path}: name the ledger and the dataset "
                f"that it was charged to"
            )
        if key in account.ended:
            raise refusals.KeyEnded(
                f"what was charged to {account.dataset} under the key {key} is over, and its result has left: one charge pays "
                f"for one search or training, so begin another under a new key"
            )
        return charge

    def _budget_of(self, account: Account) -> Budget:
        if account.budget is None:
            raise refusals.NoBudget(account.dataset, self.path)
        return account.budget


def _charged_before(account: Account, budget: Budget, spending: Spending, key: str) -> Balance | None:
    """The balance of the charge that this key has already made, as it was then; None where it has made none."""
    charge = account.with_key(key)
    if charge is None:
        return None
    place = account.charges.index(charge)
    if charge.spending != spending:
        raise refusals.KeyReused(
            f"the key {key} of {account.dataset} stands for another spending: take another key, nothing was charged"
        )
    before, after = (counted_epsilon(account.spendings(first=n), delta=budget.delta) for n in (place, place + 1))
    return account.balance(budget, before, after, charges=place + 1, entry=charge.entry, charged=False)


def _quote(account: Account, budget: Budget, *spendings: Spending) -> tuple[float, float]:
    """Epsilon before the charge and after it, or the error that refuses it."""
    for spending in spendings:
        account.check_unit(spending)
        if spending.sensitivity is None:
            raise checks.InvalidArgument("sensitivity", None, SENSITIVITY)
    spent = account.spendings()
    before = counted_epsilon(spent, delta=budget.delta)
    after = counted_epsilon(spent + Counter(spendings), delta=budget.delta)
    if math.isinf(after):
        raise refusals.NotPrivate("this spending has an epsilon beyond all numbers: nothing was charged")
    if not after <= budget.epsilon:
        alone = counted_epsilon(Counter(spendings), delta=budget.delta)
        raise refusals.BudgetExceeded(
            f"over budget: {account.dataset} may spend epsilon {budget.epsilon:g} at delta {shown_delta(budget.delta)} and has "
            f"spent {rounded_up(before)}; this charge, {rounded_up(alone)} by itself, would make it {rounded_up(after)}. "
            f"Left is {rounded_down(budget.epsilon - before)}; nothing was charged"
        )
    return before, after
