"""Moves a ledger to another place, whole: from a file to a server, or back. Entries keep their numbers, times and hashes.

The old ledger is held while it is copied, so that no charge falls between the two, and a file is left read-only: one that took
charges after it was copied would be a second budget for the same records.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from honestdp.ledger import refusals
from honestdp.ledger.account import accounts
from honestdp.ledger.address import Place, place_of
from honestdp.ledger.book import Ledger
from honestdp.ledger.chain import Entry


@dataclass(frozen=True)
class Copied:
    """datasets: each with how many charges it has. closed: whether the old one takes no more charges from now on."""

    source: Place
    target: Place
    entries: int
    head: str
    datasets: dict[str, int]
    closed: bool

    def as_dict(self) -> dict[str, object]:
        places = {"from": str(self.source), "to": str(self.target), "closed": self.closed}
        return places | {"entries": self.entries, "head": self.head, "datasets": self.datasets}


def copy(source: object, target: object) -> Copied:
    """Verifies the source, copies all of it to a place that has no entry yet, verifies it there, and closes a file.

    Where a copy was made and killed before the file was closed, the entries are there already, every one: it goes on from there.
    """
    old, new = Ledger(place_of(source, argument="source")), Ledger(place_of(target, argument="target"))
    if new.path == old.path or (
        isinstance(new.path, Path) and os.path.lexists(new.path) and not _copied_before(old, new)
    ):
        raise refusals.LedgerError(f"{new.path} is there already: a ledger is never written over, so name a new file")
    head = old.verify()
    with _held(old) as entries:
        if entries[-1].hash != head:
            head = old.verify()
        _write(new, entries)
        if new.verify(head=head) != head:
            raise refusals.BrokenChain(f"{new.path} does not end where {old.path} does", entry=len(entries))
        closed = isinstance(old.path, Path)
        if isinstance(old.path, Path):
            old.path.chmod(stat.S_IMODE(old.path.stat().st_mode) & ~0o222)
    datasets = {name: len(account.charges) for name, account in accounts(entries).items()}
    return Copied(old.path, new.path, len(entries), head, datasets, closed)


@contextmanager
def _held(ledger: Ledger) -> Iterator[list[Entry]]:
    """The entries, while nobody can charge; those of a file that is read-only anyway are only read."""
    archived = isinstance(ledger.path, Path) and not stat.S_IMODE(ledger.path.stat().st_mode) & 0o222
    with ledger._store.reading() if archived else ledger._store.writing() as transaction:
        yield transaction.entries()


def _copied_before(old: Ledger, new: Ledger) -> bool:
    """Whether it is another file with the same entries, every one: of a copy that was killed before it closed the old one."""
    try:
        if os.path.samefile(str(old.path), str(new.path)):
            return False
    except OSError:  # an address is no file, nor is a link to nowhere
        if isinstance(old.path, Path):
            return False
    with suppress(refusals.LedgerError):
        there = new.entries()
        return bool(there) and there == old.entries()
    return False


def _write(ledger: Ledger, entries: list[Entry]) -> None:
    ledger._store.create()
    with ledger._store.writing() as transaction:
        if (there := transaction.entries()) == entries:
            return
        if there:
            raise refusals.LedgerError(
                f"{ledger.path} has entries already: a ledger is never written over, so set up a new one; nothing was copied"
            )
        transaction.insert_all(entries)
