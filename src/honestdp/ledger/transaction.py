"""What can be done with a ledger while it is held, whatever it is kept in: read it verified, and append.

Nothing that a file or a server says of itself is believed. Its rules must be exactly ours at every use, the entries must make a
chain, and what was appended is read back before the commit, and again after it: a charge that is not there is an error.
"""

from __future__ import annotations

import functools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from honestdp.ledger.address import Place
from honestdp.ledger.chain import GENESIS, Entry, verified
from honestdp.ledger.errors import BrokenChain, Conflict

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def until_it_fits(act: Callable[Concatenate[Any, Asked], Answer]) -> Callable[Concatenate[Any, Asked], Answer]:
    """Makes the call anew where another writer was first, until the ledger's timeout. For calls that may be made twice."""

    @functools.wraps(act)
    def repeated(self: Any, /, *positional: Asked.args, **named: Asked.kwargs) -> Answer:
        limit = time.monotonic() + self.timeout
        while True:
            try:
                return act(self, *positional, **named)
            except Conflict:
                if time.monotonic() > limit:
                    raise
            time.sleep(random.uniform(0.001, 0.02))

    return repeated


class Transaction(ABC):
    """One view of the entries, which nobody else changes; a writer's may append."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._read: list[Entry] | None = None
        self.appended: Entry | None = None

    def entries(self, known: Sequence[Entry] = ()) -> list[Entry]:
        """All entries, verified.

        known: entries of this ledger that this call verified a moment ago. They are not verified again where the last of them is
            still in its place, so that the lock is held for a short time; whoever reads next verifies them.
        """
        if self._read is None:
            self._read = self._verified(known)
        return self._read

    def _verified(self, known: Sequence[Entry]) -> list[Entry]:
        if not self._begun():
            return []
        if known and self._row(known[-1].number) != [tuple(known[-1])]:
            known = ()
        head = known[-1].hash if known else GENESIS
        return [*known, *verified(self._rows(len(known)), written=self._count(), after=len(known), head=head)]

    def append(
        self, *, dataset: str, kind: str, content: str, key: str = "", what: str = "", time: str | None = None
    ) -> Entry:
        """Adds an entry at the end of the chain, beginning the ledger where there is none. Without a time: now."""
        entries = self.entries()
        if not entries:
            self._begin()
        time = self._now() if time is None else time
        head = entries[-1].hash if entries else GENESIS
        entry = Entry(len(entries) + 1, time, dataset, kind, key, what, content, head).sealed()
        self._insert(entry)
        self._check_schema()
        self.check_kept(entry)
        entries.append(entry)
        self.appended = entry
        return entry

    def insert_all(self, entries: Sequence[Entry]) -> None:
        """The entries of another ledger, into one that has none."""
        self._begin()
        self._insert(*entries)
        self._read, self.appended = None, entries[-1]
        self.entries()

    def check_kept(self, entry: Entry) -> None:
        """The entry is in the ledger, as it was meant, and counted."""
        if self._row(entry.number) != [tuple(entry)] or self._written() < entry.number:
            raise BrokenChain(
                f"entry {entry.number} was written to {self._place} and is not there: something else changes it. Restore it "
                f"from a backup; nothing counts as charged",
                entry=entry.number,
            )

    @abstractmethod
    def check_pages(self) -> None:
        """What the database can check of its own pages and indices."""

    @abstractmethod
    def _begun(self) -> bool:
        """Whether there is a ledger, which is then ours and safe to use; an error where there is something else."""

    @abstractmethod
    def _rows(self, after: int) -> Iterable[Sequence[Any]]:
        """Those with higher numbers, in order; after 0 all, whatever their numbers are."""

    def _count(self) -> int | None:
        """How many entries were written, where the database counts them apart from the entries."""
        return None

    @abstractmethod
    def _check_schema(self) -> None:
        """It holds exactly what we create: another trigger could swallow a charge, a view stand for the entries."""

    @abstractmethod
    def _begin(self) -> None:
        """Whatever must be there before the first entry."""

    @abstractmethod
    def _insert(self, *entries: Entry) -> None: ...

    @abstractmethod
    def _row(self, number: int) -> list[tuple[object, ...]]: ...

    @abstractmethod
    def _written(self) -> int:
        """How many entries there ever were, as far as the database counts them."""

    @abstractmethod
    def _now(self) -> str:
        """The time of an entry that is made now."""
