"""Ends a search that is finished, failed or undone, and erases its secrets.

Each step may be made again, so that a kill between any two of them does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from honestdp.ledger import LedgerError
from honestdp.ledger.paying import Account
from honestdp.search import result, vault
from honestdp.search.folder import LOCK


def end(folder: Path, account: Account | None) -> None:
    """What is left to do when all that leaves is on the disk."""
    if account is not None:
        account.end()
    vault.erase(folder / vault.FOLDER)
    if (folder / result.PENDING).exists():
        result.finish(folder)
    (folder / LOCK).unlink(missing_ok=True)
    result.settle(folder)


def end_unkept(account: Account | None) -> None:
    """Of a search without a folder, which nobody can resume: a ledger that is busy must not cost its result."""
    with suppress(LedgerError, OSError):
        if account is not None:
            account.end()


def fail(folder: Path | None, account: Account | None) -> None:
    """A search that is over without a result."""
    if folder is None:
        end_unkept(account)
        return
    if account is not None:
        account.end()
    forget(folder)
    result.settle(folder)


def forget(folder: Path) -> None:
    """Without what is secret nobody can go on with a search."""
    vault.erase(folder / vault.FOLDER)
    (folder / LOCK).unlink(missing_ok=True)


def undo(folder: Path, new: list[Path]) -> None:
    """Take back a search to which nothing was charged. new: the folders that were made for it."""
    (folder / result.SEARCH).unlink(missing_ok=True)  # first: without it there is no search
    forget(folder)
    with suppress(OSError):  # another search may have been put there meanwhile
        for path in new:
            path.rmdir()
