"""Finds, makes and locks the folder of a search, so that the same call finds the same folder.

*Where.* A charged search always has a folder: the user's `out`, or one in `searches/` beside the ledger, named by the dataset and
a digest of the arguments. The digest leaves out whatever may change from day to day in the same call: versions, the device,
addresses in texts. It may merge different searches but must never split one: two searches that meet in one folder are refused
with their difference, but a folder that the same call did not find again would be charged a second time.

*Lock.* The lock is the operating system's, on the file `.lock`: it ends with the process, however that ends. Two processes that
continued one search would each write its result, and each report its end to the ledger.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from honestdp.checks import InvalidArgument
from honestdp.identity import differing
from honestdp.ledger.paying import Books
from honestdp.logs import logger
from honestdp.search import tune_result as leaving
from honestdp.search import vault
from honestdp.search.configuration import VERSIONS, Configuration

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


SEARCHES = "searches"
_log = logger(__name__)
_NOT_ASKED = (*VERSIONS, "device", "unseen code", "reproduce")
_DIGITS = 8
_GOES_ON = (vault.FOLDER, leaving.PENDING, leaving.RESULT)


def folder_of(
    out: str | Path | None, public: Configuration, *, books: Books | None, label: str | None, again: bool
) -> Path | None:
    """The folder of this search: a new one, or the one in which it was begun; None for a search that keeps nothing.

    label: names the folder of a search without a ledger, which otherwise has none. again: a new one where nothing can go on with
    the last: it is over, or another version began it.
    """
    if out is not None:
        if again:
            wanted = "left out with out: a folder that is new is a new search, which is charged anew"
            raise InvalidArgument("again", again, wanted)
        return Path(out)
    label = label if books is None else books.dataset
    if label is None:
        return None
    name = re.sub(r"[^\w.-]+", "-", label).strip(".-")[:40] or "search"
    place = (Path() if books is None else books.ledger.parent) / SEARCHES
    first = place / f"{name}-{_digest(public)}"
    every, following = [first], first
    for number in itertools.count(2):
        following = first.with_name(f"{first.name}-{number}")
        if not begun_in(following):
            break
        every.append(following)
    same = [folder for folder in every if not public.changed_text(_settings(folder))]
    same = [folder for folder in same if not changed_code(folder, public.code)]
    last = same[-1] if same else every[-1]  # which is then refused, with what differs
    now, then = public.as_dict(), _settings(last)
    of_another_version = any(then.get(name) != now[name] for name in VERSIONS)
    ends_there = not same or is_over(last) or of_another_version
    return following if again and begun_in(last) and ends_there else last


def _digest(public: Configuration) -> str:
    asked = {name: value for name, value in public.as_dict().items() if name not in _NOT_ASKED}
    if public.request.shaped:  # lot or steps were chosen, by another version perhaps otherwise
        spaces = asked["space"].items()
        asked["space"] = {of: {k: v for k, v in each.items() if k not in ("lot", "steps")} for of, each in spaces}
    text = re.sub(r" at 0x[0-9a-f]+", "", json.dumps(asked, sort_keys=True, default=str))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _settings(folder: Path) -> dict[str, Any]:
    """The settings of the search in a folder; none where there are none. What is wrong with them is said where they are read."""
    try:
        return dict(json.loads((folder / leaving.SEARCH).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def begun_in(folder: Path | None) -> bool:
    """A search was begun there: it has its folder, and its charge unless it was killed just before it."""
    return folder is not None and (folder / leaving.SEARCH).exists()


def is_over(folder: Path) -> bool:
    """The search that was begun there has a result, or failed: there is nothing to go on with."""
    return (folder / leaving.RESULT).exists() or not any(os.path.lexists(folder / name) for name in _GOES_ON)


def say_over(folder: Path | None) -> None:
    _log.warning(
        "the search with these settings in %s is over: this is its result, and nothing was charged or trained. Records, first "
        "weights and what your functions and objects hold are not compared: where they are others now, this is the result of "
        "those it was made with. A new one, charged anew, needs another out; or again, where out is left out",
        folder,
    )


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written. Nothing is made yet."""
    present = _nearest(folder)
    number = errno.ENOTDIR if not present.is_dir() else 0 if os.access(present, os.W_OK | os.X_OK) else errno.EACCES
    if number:
        raise unwritable(folder, OSError(number, os.strerror(number)))


def check_room(folder: Path, needed: int) -> None:
    """Refuse a disk that has not even the room for what is sure to be written."""
    free = shutil.disk_usage(_nearest(folder)).free
    if free < needed:
        wanted = (
            f"on a disk with room for its files: they take {needed / 1e6:,.1f} MB and {free / 1e6:,.1f} MB are free"
        )
        raise InvalidArgument("out", str(folder), wanted)


def _nearest(folder: Path) -> Path:
    """The folder itself, or the one above it that is there."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))


_code: dict[Path, Mapping[str, str]] = {}
"""Code digests of the searches that finished in this process, by folder."""


def remember_code(folder: Path, code: Mapping[str, str]) -> None:
    """Keeps the code digests of a finished search in memory. On disk they are erased: closures may hold values of records."""
    _code[folder.resolve()] = dict(code)


def changed_code(folder: Path, code: Mapping[str, str]) -> set[str]:
    """Names whose code differs from that of the search which this process finished in the folder, as in an edited notebook."""
    return differing(_code.get(folder.resolve(), code), code)
