"""Replays the entries of a ledger into one account for each dataset: budget, charges, resumes, ends; and its `Balance`.

One walk reads them all, whoever asks and whichever dataset is meant: what is broken for `verify` is broken for a charge.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from honestdp import checks
from honestdp.budget import Budget, number
from honestdp.ledger.chain import BUDGET, CHARGE, OVER, RESUME, Entry, canonical
from honestdp.ledger.names import known_name
from honestdp.ledger.refusals import BrokenChain, OtherUnit
from honestdp.ledger.spending import Spending

NOTHING = canonical({"version": 1})  # the content of an entry that says all by its kind and key


class Charge(NamedTuple):
    """An entry that spends, and what it spends."""

    entry: Entry
    spending: Spending


@dataclass
class Account:
    """The entries of one dataset, read: its budget, its charges in order, and by their keys the tokens and ends of searches."""

    dataset: str
    budget: Budget | None = None
    charges: list[Charge] = field(default_factory=list)
    tokens: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, dataset: str, entries: Sequence[Entry]) -> Account:
        """The account that is meant by this name, empty where there is none; `LookAlike` where another could be meant."""
        known = accounts(entries)
        name = known_name(dataset, known)
        return known.get(name, cls(name))

    def spendings(self, *, first: int | None = None) -> Counter[Spending]:
        """What was spent and how often, by all charges or by the first ones."""
        counted: Counter[Spending] = Counter()
        for content, count in Counter(charge.entry.content for charge in self.charges[:first]).items():
            counted[_spending(content)] += count  # an equal content is an equal spending: few of them are compared
        return counted

    @property
    def unit(self) -> str:
        """What its charges tell people apart by; empty where they are for rows, or there is none."""
        return self.charges[0].spending.unit if self.charges else ""

    def check_unit(self, spending: Spending) -> None:
        """That a charge is for whom the others are for: an epsilon of rows and one of people have no sum that means anything."""
        if self.charges and spending.unit != self.unit:
            mine, other = (f"people ({unit})" if unit else "single rows" for unit in (self.unit, spending.unit))
            raise OtherUnit(
                f"what {self.dataset} has spent is an epsilon of {mine}, and this charge is one of {other}: the two do not add "
                f"up, and nothing was charged. Set a budget for {other} under a dataset name of its own, and say both numbers"
            )

    def balance(
        self, budget: Budget, before: float, after: float, *, charges: int, entry: Entry, charged: bool
    ) -> Balance:
        """Where the account stands with so many charges; `entry` is the last of them, or of the ledger."""
        head, number, unit = entry.hash, entry.number, self.unit
        return Balance(
            self.dataset, budget, before, after, charges, charged=charged, head=head, entry=number, unit=unit
        )

    def with_key(self, key: str) -> Charge | None:
        return next((charge for charge in self.charges if charge.entry.key == key), None)

    def add(self, entry: Entry) -> None:
        """One more entry; an error where it does not follow from those before."""
        kind, key = entry.kind, entry.key
        if kind == CHARGE:  # first, for they are many
            if self.budget is None:
                raise _broken(entry, "it charges a dataset without a budget")
            if key in self.tokens:
                raise _broken(entry, f"the key {key!r} was charged before")
            self.tokens[key] = ()
            self.charges.append(Charge(entry, _read(entry, _spending)))
        elif kind == BUDGET:
            if self.budget is not None:
                raise _broken(entry, "the dataset already has a budget, and a budget is set once")
            self.budget = _read(entry, _budget)
        elif kind == RESUME:
            key, count, token = _read(entry, _resume)
            self._check_open(entry, key)
            if count != len(self.tokens[key]) + 1 or entry.key != resume_key(key, count):
                raise _broken(entry, f"it is not resume {len(self.tokens[key]) + 1} of its charge")
            self.tokens[key] += (token,)
        elif kind == OVER:
            self._check_open(entry, key)
            if entry.content != NOTHING:
                raise _broken(entry, "its content is not that of an end")
            self.ended.add(key)
        else:
            raise _broken(entry, f"its kind is {kind!r}")

    def _check_open(self, entry: Entry, key: str) -> None:
        if key not in self.tokens:
            raise _broken(entry, f"nothing was charged under the key {key!r}")
        if key in self.ended:
            raise _broken(entry, f"the search with the key {key!r} was over before it")


def accounts(entries: Sequence[Entry]) -> dict[str, Account]:
    """The account of every dataset: every entry says something that can be read, and that may follow what is before it."""
    by_name: dict[str, Account] = {}
    for entry in entries:
        if (account := by_name.get(entry.dataset)) is None:
            account = by_name[entry.dataset] = Account(entry.dataset)
        account.add(entry)
    return by_name


def resume_key(key: str, count: int) -> str:
    """The entry key of a charge's resume: a number has no slash, so that no two charges and counts share one."""
    return f"{key}/{count}"


def resume_content(key: str, count: int, token: str) -> str:
    return canonical({"version": 1, "charge": key, "count": count, "token": token})


def _read(entry: Entry, reader: Any) -> Any:
    try:
        return reader(entry.content)
    except Exception as error:  # whatever nonsense a content is made of, and however deep
        text = f"entry {entry.number} cannot be read, perhaps a newer honestdp wrote it: {error}"
        raise BrokenChain(text, entry=entry.number) from error


def _broken(entry: Entry, wrong: str) -> BrokenChain:
    return BrokenChain(f"entry {entry.number} is broken: {wrong}", entry=entry.number)


def _known(content: str, *names: str) -> dict[str, Any]:
    written = json.loads(content)
    if set(written) != {"version", *names} or written["version"] != 1:
        raise checks.InvalidArgument("version", written.get("version"), "1, the one this honestdp knows")
    return dict(written)


def _budget(content: str) -> Budget:
    written = _known(content, "epsilon", "delta")
    return Budget(written["epsilon"], written["delta"])


@functools.lru_cache(maxsize=4096)
def _spending(content: str) -> Spending:
    return Spending.from_dict(json.loads(content))


def _resume(content: str) -> tuple[str, int, str]:
    written = _known(content, "charge", "count", "token")
    key, count, token = written["charge"], written["count"], written["token"]
    if not (isinstance(key, str) and isinstance(token, str) and type(count) is int):
        raise TypeError("a resume is a key, a count and a token")
    return key, count, token


@dataclass(frozen=True)
class Balance:
    """Where a dataset stands.

    before, spent: epsilon at the budget's delta, before a charge and after it; without a charge the two are one.
    charges: how many there are, this one included. entry: the number of this charge in the ledger, which counts every entry of
        every dataset; of the last entry, where there was no charge. None where an earlier version wrote no number.
    head: the hash of that entry, which shows later if the ledger was cut off.
    unit: what the charges tell people apart by, such as a column; empty where they are for single rows.
    charged: whether this call wrote an entry. A key that was already charged writes none, and gives the balance of its charge,
        as it was then.
    """

    dataset: str
    budget: Budget
    before: float
    spent: float
    charges: int
    charged: bool
    head: str
    entry: int | None = None
    unit: str = ""

    @property
    def left(self) -> float:
        """The budget's epsilon less what is spent. Charges do not add up: together they spend less than their sum."""
        return max(0.0, self.budget.epsilon - self.spent)

    def as_dict(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "before": number(self.before),
            "spent": number(self.spent),
            "left": self.left,
            "charges": self.charges,
            "charged": self.charged,
            "head": self.head,
            "entry": self.entry,
            "unit": self.unit,
        }


def dear_by_delta(delta: float | None, budget: Budget, *, charged: bool = False) -> str:
    """The way out, where what was made for one delta is priced at a smaller one: it then costs more than it was made for.

    charged: it stays charged, and what is told is for the next time.
    """
    if delta is None or delta <= budget.delta:
        return ""
    way_out = "the next time is the one to ask for" if charged else "the way out is to ask for"
    return (
        f"made for delta {delta:g}, it costs more at the ledger's, {budget.delta:g}: {way_out} delta {budget.delta:g}"
    )
