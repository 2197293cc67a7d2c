"""`Entry`, one line of the ledger, the hash chain that makes tampering visible, and `Transaction`, by which it is read and grows.

Entry n carries h_n = SHA-256(canonical JSON of its fields and h_{n-1}), with h_0 sixty-four zeros. Whoever changes, removes,
inserts or reorders entries must therefore recompute every hash that follows. A chain alone cannot see that it was put back to
an earlier state, or replaced by a whole new one: for that, a head hash must be kept elsewhere.

A `Transaction` believes nothing that a file or a server says of itself. Its rules must be exactly ours at every use, the entries
must make a chain, and an appended entry is read back before the commit, and again after it: a charge that is missing is an error.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from honestdp.ledger.address import Place
from honestdp.ledger.refusals import BrokenChain, Conflict

GENESIS = "0" * 64
BUDGET, CHARGE, RESUME, OVER = "budget", "charge", "resume", "over"
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII, floats by their shortest exact form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class Entry(NamedTuple):
    """One line of a ledger, in the order of its columns.

    kind: `budget` sets a dataset's budget, `charge` spends of it; `resume` and `over` say how a charged search went on.
    time: of the entry; for `resume` and `over` that of their charge, for when a search ended tells how long it ran.
    key: what makes a charge happen once, and what ends; "KEY/N" for the N-th resume of a charge; empty for a budget.
    content: the budget, the spending or the token of a resume, as canonical JSON.
    """

    number: int
    time: str
    dataset: str
    kind: str
    key: str
    what: str
    content: str
    previous: str
    hash: str = ""

    def sealed(self) -> Entry:
        """The entry with its own hash."""
        return self._replace(hash=self.digest())

    def digest(self) -> str:
        """The hash of the canonical JSON of all columns but the hash, put together here, for a ledger has many entries."""
        text = (
            f'{{"content":{quoted(self.content)},"dataset":{quoted(self.dataset)},"key":{quoted(self.key)},'
            f'"kind":{quoted(self.kind)},"number":{self.number:d},"previous":{quoted(self.previous)},'
            f'"time":{quoted(self.time)},"what":{quoted(self.what)}}}'
        )
        return hashlib.sha256(text.encode("ascii")).hexdigest()


COLUMNS = Entry._fields


def verified(rows: Iterable[Sequence[Any]], *, written: int | None, after: int = 0, head: str = GENESIS) -> list[Entry]:
    """The entries of the rows, if every one is what was written; else an error that names the first that is not.

    written: how many entries the file says were ever written; None where it does not count them.
    after, head: number and hash of the last entry already verified, which the rows follow.
    """
    entries = []
    previous = head
    seen: dict[str, str] = {}  # equal contents are one string, read once and kept once
    for number, row in enumerate(rows, start=after + 1):
        if row[0] != number or type(row[0]) is not int:
            raise BrokenChain(f"entry {number} is missing: after entry {number - 1} comes {row[0]!r}", entry=number)
        if not all(type(value) is str for value in row[1:]):
            wrong = next(c for c, value in zip(COLUMNS, row, strict=True) if c != "number" and type(value) is not str)
            raise BrokenChain(f"entry {number} is broken: its {wrong} is no text", entry=number)
        _, time, dataset, kind, key, what, content, before, own = row
        entry = Entry(number, time, dataset, kind, key, what, seen.setdefault(content, content), before, own)
        if entry.previous != previous:
            raise BrokenChain(f"entry {number} is broken: it does not follow from entry {number - 1}", entry=number)
        if entry.hash != entry.digest():
            raise BrokenChain(f"entry {number} is broken: its contents do not have its hash", entry=number)
        entries.append(entry)
        previous = entry.hash
    there = after + len(entries)
    if written is not None and there != written:
        raise BrokenChain(
            f"entry {there + 1} is missing: {written} entries were written and {there} are there", entry=there + 1
        )
    return entries


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
