"""Makes a search's folder with safe permissions, and locks it to one process.

The lock is the operating system's, on the file `.lock`: it ends with the process, however that ends. Two processes that went
on with one search would each write its result, and each tell the ledger.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from honestdp.checks import InvalidArgument

LOCK = ".lock"
_TRIES = 100
_held: set[int] = set()


def make(folder: Path) -> list[Path]:
    """Make the folder and those above it, none of them writable by others whatever the umask. The new ones, inmost first."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        for path in reversed(new):
            path.mkdir(mode=0o755, exist_ok=True)
    except OSError as trouble:
        raise unwritable(folder, trouble) from trouble
    return new


def unwritable(folder: Path, trouble: OSError) -> InvalidArgument:
    return InvalidArgument("out", str(folder), f"a folder that can be made and written ({trouble.strerror})")


class Lock:
    """Held while within; refused at once where another process holds it.

    Its file may be removed while it is held: whoever opened it before finds that it is gone, and opens a new one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._path, self._handle = folder, folder / LOCK, -1

    def __enter__(self) -> Self:
        for _ in range(_TRIES):
            handle = self._opened()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there(handle):
                    self._handle = handle
                    _held.add(handle)
                    return self
            except OSError as trouble:
                os.close(handle)
                wanted = "a folder in which no other process works; one does in this, so wait for it"
                if trouble.errno not in (errno.EAGAIN, errno.EACCES):
                    wanted = f"on a file system that has locks ({trouble.strerror})"
                raise self._refusal(wanted) from None
            os.close(handle)  # the file of a search that ended just now
        raise self._refusal("a folder in which no other process works")

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as trouble:
            raise unwritable(self._folder, trouble) from trouble

    def _is_there(self, handle: int) -> bool:
        """Whether the file that is locked is the one in the folder, and not one that was removed meanwhile."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.lstat(self._path))
        return False

    def _refusal(self, wanted: str) -> InvalidArgument:
        return InvalidArgument("out", str(self._folder), wanted)

    def __exit__(self, *_: object) -> None:
        _held.discard(self._handle)
        fcntl.flock(self._handle, fcntl.LOCK_UN)  # also for a child that was forked a moment ago
        os.close(self._handle)


def _let_go() -> None:
    """In a child: a worker process that outlives a killed search must not hold its lock."""
    for handle in _held:
        with suppress(OSError):
            os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
