"""What the older entries of a long chain come to, remembered under the hash of the last of them.

A charge must know what was charged before it, and a chain of 100,000 entries takes seconds to read. The hash of an entry is a
function of all entries up to it, so what they come to is a function of that hash: of each dataset the budget, its spendings with
how often each was made, and marks of the keys. It is kept where compositions are (remembered.py), for ledgers of many entries
alone, and believed no more than the chain: the entry with that hash must be in its place, and every entry after it is read and
verified. Where a question goes further back (a key that may be older, a search that was charged long ago), or nothing fits,
everything is read and verified as ever; and `verify` always reads everything, and compares this with it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from honestdp.ledger import remembered
from honestdp.ledger.chain import BUDGET, CHARGE, GENESIS, Entry, canonical
from honestdp.ledger.errors import Misremembered

LEAST = 10_000  # entries of a ledger whose past is remembered: fewer are read in a tenth of a second
RECENT = 1_000  # the last entries that are never past, so that a search finds its own charge again
STEP = 2_000  # entries after which the past is brought forward


class TooOld(Exception):
    """What is asked may be in the past, which is not known entry by entry: everything must be read."""


@dataclass(frozen=True, eq=False)
class Past:
    """The first `number` entries. budgets: their contents by dataset; spent: contents of charges with how often; keys: marks."""

    number: int
    head: str
    budgets: dict[str, str]
    spent: dict[str, Counter[str]]
    keys: NDArray[np.uint64]

    def may_have(self, dataset: str, key: str) -> bool:
        """Whether this key was charged in it: a no is certain, a yes may be another's."""
        mark = np.uint64(_mark(dataset, key))
        place = int(np.searchsorted(self.keys, mark))
        return place < len(self.keys) and bool(self.keys[place] == mark)

    def to_bytes(self) -> bytes:
        spent = {name: dict(counted) for name, counted in self.spent.items()}
        said = {"number": self.number, "head": self.head, "budgets": self.budgets, "spent": spent}
        return canonical(said).encode() + b"\n" + self.keys.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Past | None:
        try:
            said, _, keys = data.partition(b"\n")
            read = json.loads(said)
            spent = {str(name): Counter(counted) for name, counted in read["spent"].items()}
            return cls(
                read["number"], read["head"], read["budgets"], spent, np.frombuffer(keys, "<u8").astype(np.uint64)
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


class Entries(list[Entry]):
    """Entries in order, verified: all of them, or those that follow a past."""

    def __init__(self, entries: Iterable[Entry] = (), past: Past | None = None) -> None:
        super().__init__(entries)
        self.past = past

    @property
    def number(self) -> int:
        """Of the last one, which is how many there are."""
        return (0 if self.past is None else self.past.number) + len(self)

    @property
    def head(self) -> str:
        return self[-1].hash if self else GENESIS if self.past is None else self.past.head


def recalled(first: str) -> Past | None:
    """The past of the ledger whose first entry has this hash, as far as it is remembered."""
    return remembered.recall(_asked(first), Past.from_bytes)


def keep(entries: Entries, first: str | None = None) -> None:
    """Brings the past forward where that is due. first: the hash of the first entry, where it is past already."""
    if entries.number < LEAST or len(entries) < RECENT + STEP:
        return
    first = entries[0].hash if entries.past is None else first
    if first is not None:
        remembered.keep(_asked(first), past_of(entries, len(entries) - RECENT).to_bytes())


def check(entries: Entries) -> None:
    """That what is remembered of these entries, which are all there are, is what they come to."""
    known = recalled(entries[0].hash)
    if known is None or known.number > len(entries) or entries[known.number - 1].hash != known.head:
        return  # of another chain with the same beginning: it is not used
    if past_of(entries, known.number).to_bytes() != known.to_bytes():
        raise Misremembered(
            f"what {remembered.folder()} remembers of the first {known.number} entries is not what they come to: remove that "
            f"folder, and look into who can write it"
        )


def past_of(entries: Entries, count: int) -> Past:
    """The past and the next `count` entries, as a past."""
    before = entries.past or Past(0, GENESIS, {}, {}, np.zeros(0, np.uint64))
    budgets, spent = dict(before.budgets), {name: Counter(counted) for name, counted in before.spent.items()}
    marks = []
    for entry in entries[:count]:
        if entry.kind == BUDGET:
            budgets[entry.dataset] = entry.content
        elif entry.kind == CHARGE:
            spent.setdefault(entry.dataset, Counter())[entry.content] += 1
            marks.append(_mark(entry.dataset, entry.key))
    keys = np.sort(np.concatenate((before.keys, np.array(marks, np.uint64))))
    return Past(before.number + count, entries[count - 1].hash, budgets, spent, keys)


def _mark(dataset: str, key: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{dataset}\n{key}".encode(), digest_size=8).digest(), "little")


def _asked(first: str) -> str:
    return f"past {first}"
