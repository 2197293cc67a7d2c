"""The entries of a ledger, read: budgets and spendings. What cannot be read is an error that names its entry."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from honestdp import checks
from honestdp.budget import Budget
from honestdp.ledger.chain import BUDGET, CHARGE, Entry
from honestdp.ledger.errors import BrokenChain
from honestdp.spending import Spending


@dataclass(frozen=True)
class Charge:
    """An entry that spends, and what it spends."""

    entry: Entry
    spending: Spending


@dataclass(frozen=True)
class Account:
    """The entries of one dataset, read: its budget and its charges, in order."""

    dataset: str
    budget: Budget | None
    charges: tuple[Charge, ...]

    @classmethod
    def of(cls, dataset: str, entries: Sequence[Entry]) -> Account:
        budget, charges = None, []
        for entry in entries:
            if entry.dataset == dataset and entry.kind == BUDGET:
                budget = read_budget(entry)
            elif entry.dataset == dataset:
                charges.append(Charge(entry, read_spending(entry)))
        return cls(dataset, budget, tuple(charges))

    @property
    def spendings(self) -> list[Spending]:
        return [charge.spending for charge in self.charges]

    def with_key(self, key: str) -> Spending | None:
        return next((charge.spending for charge in self.charges if charge.entry.key == key), None)


def read_budget(entry: Entry) -> Budget:
    try:
        return _budget(json.loads(entry.content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unreadable(entry, error) from error


def read_spending(entry: Entry) -> Spending:
    try:
        return _spending(entry.content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unreadable(entry, error) from error


def _budget(written: dict[str, Any]) -> Budget:
    if set(written) != {"version", "epsilon", "delta"} or written["version"] != 1:
        raise checks.InvalidArgument("version", written.get("version"), "1, the one this honestdp knows")
    return Budget(written["epsilon"], written["delta"])


@functools.lru_cache(maxsize=4096)
def _spending(content: str) -> Spending:
    return Spending.from_dict(json.loads(content))


def _unreadable(entry: Entry, error: Exception) -> BrokenChain:
    return BrokenChain(
        f"entry {entry.number} cannot be read, perhaps a newer honestdp wrote it: {error}", entry=entry.number
    )


def check_contents(entries: Sequence[Entry]) -> None:
    """Every entry says something that can be read, and no dataset is charged before it has a budget."""
    budgets: set[str] = set()
    for entry in entries:
        if entry.kind == BUDGET:
            read_budget(entry)
            budgets.add(entry.dataset)
        elif entry.kind == CHARGE and entry.dataset in budgets:
            read_spending(entry)
        else:
            wrong = "it charges a dataset without a budget" if entry.kind == CHARGE else f"its kind is {entry.kind!r}"
            raise BrokenChain(f"entry {entry.number} is broken: {wrong}", entry=entry.number)


def check_name(**names: str) -> None:
    for name, value in names.items():
        if not _one_line(value, most=200) or not value.strip():
            raise checks.InvalidArgument(name, value, "one line of printable text, of 1 to 200 characters")


def check_text(**texts: str) -> None:
    for name, value in texts.items():
        if not _one_line(value, most=1000):
            raise checks.InvalidArgument(name, value, "one line of printable text, of at most 1000 characters")


def _one_line(text: object, *, most: int) -> bool:
    """Nothing that would break a table, move a terminal's cursor or be no Unicode."""
    return isinstance(text, str) and len(text) <= most and text.isprintable()
