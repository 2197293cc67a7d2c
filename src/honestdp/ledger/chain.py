"""`Entry`, one line of the ledger, and the hash chain that makes tampering visible.

Entry n carries h_n = SHA-256(canonical JSON of its fields and h_{n-1}), with h_0 sixty-four zeros. Whoever changes, removes,
inserts or reorders entries must therefore recompute every hash that follows. A chain alone cannot see that it was put back to
an earlier state, or replaced by a whole new one: for that, a head hash must be kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from honestdp.ledger.errors import BrokenChain

GENESIS = "0" * 64
BUDGET, CHARGE, RESUME, OVER = "budget", "charge", "resume", "over"


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
