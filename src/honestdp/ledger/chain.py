"""The chain of entries: what makes a changed ledger show.

Entry n carries h_n = SHA-256(canonical JSON of its fields and h_{n-1}), with h_0 sixty-four zeros. Whoever changes, removes,
inserts or reorders entries must therefore recompute every hash that follows. A chain alone cannot see that it was put back to
an earlier state, or replaced by a whole new one: for that, a head hash must be kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace

from honestdp.ledger.errors import BrokenChain

GENESIS = "0" * 64
BUDGET, CHARGE, RESUME, OVER = "budget", "charge", "resume", "over"


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII, floats by their shortest exact form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class Entry:
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
        return replace(self, hash=self.digest())

    def digest(self) -> str:
        contents = {name: value for name, value in self.as_dict().items() if name != "hash"}
        return hashlib.sha256(canonical(contents).encode("ascii")).hexdigest()

    def as_dict(self) -> dict[str, object]:
        return {column: getattr(self, column) for column in COLUMNS}

    def row(self) -> tuple[object, ...]:
        return astuple(self)


COLUMNS = tuple(field.name for field in fields(Entry))


def verified(rows: Iterable[Sequence[object]], *, written: int) -> list[Entry]:
    """The entries of the rows, if every one is what was written; else an error that names the first that is not.

    written: how many entries the file says were ever written.
    """
    entries: list[Entry] = []
    previous = GENESIS
    for number, row in enumerate(rows, start=1):
        if row[0] != number:
            raise BrokenChain(f"entry {number} is missing: after entry {number - 1} comes {row[0]!r}", entry=number)
        wrong = next((c for c, value in zip(COLUMNS[1:], row[1:], strict=True) if not isinstance(value, str)), None)
        if wrong is not None:
            raise BrokenChain(f"entry {number} is broken: its {wrong} is no text", entry=number)
        entry = Entry(**dict(zip(COLUMNS, row, strict=True)))  # type: ignore[arg-type]
        if entry.previous != previous:
            raise BrokenChain(f"entry {number} is broken: it does not follow from entry {number - 1}", entry=number)
        if entry.hash != entry.digest():
            raise BrokenChain(f"entry {number} is broken: its contents do not have its hash", entry=number)
        entries.append(entry)
        previous = entry.hash
    if len(entries) != written:
        raise BrokenChain(
            f"entry {len(entries) + 1} is missing: {written} entries were written and {len(entries)} are there",
            entry=len(entries) + 1,
        )
    return entries
