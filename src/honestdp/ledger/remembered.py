"""A cache of compositions on the disk, private to its user, shared by processes.

What is remembered here decides what a ledger allows, so that whoever could write it could have a budget overspent. It is
therefore no part of a ledger, which others may be allowed to write: it lies in a folder of the user's own that nobody else can
enter, and is not read where the folder or the file belongs to someone else or is open to others. Who can write there all the
same acts as the user, and could as well change this program. Every result is kept under the hash of all that it is a function
of, what was asked and the program's own text, and its bytes must have the hash that was written with them. What is absent,
damaged or of another program is computed anew.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sqlite3
import stat
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from threading import Lock
from typing import TypeVar

VARIABLE = "HONESTDP_COMPOSED"  # a folder in place of the usual one, or "off"
FILE = "composed.db"
MOST_BYTES = 256 * 2**20  # on the disk; beyond it, what was not used for longest goes
MOST_HELD = 512  # results in this process
FRESH = 3600  # seconds in which another use is not noted again
TIMEOUT = 1.0  # seconds that another process may hold the file
SOURCES = (
    "accounting/*.py", "selection/*.py", "ledger/account.py", "ledger/chain.py", "ledger/merging.py", "ledger/past.py",
    "ledger/spending.py", "run.py",
)  # fmt: skip
LIBRARIES = ("dp-accounting", "numpy", "scipy")
TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, used INTEGER, size INTEGER, hash TEXT, value BLOB)"

NUMBER = struct.Struct("<d")

Result = TypeVar("Result")
_held: OrderedDict[str, object] = OrderedDict()
_lock = Lock()
_off = ContextVar("off", default=False)


def remember(
    asked: str, make: Callable[[], Result], *, write: Callable[[Result], bytes], read: Callable[[bytes], Result | None]
) -> Result:
    """The result of `make`, or what it was the last time that this was asked. asked: all that the result depends on."""
    if _off.get():
        return make()
    key = _key(asked)
    with _lock:
        if key in _held:
            _held.move_to_end(key)
            return _held[key]  # type: ignore[return-value]
    stored = _load(key)
    result = None if stored is None else read(stored)
    if result is None:
        result = make()
        _save(key, write(result))
    with _lock:
        _held[key] = result
        while len(_held) > MOST_HELD:
            _held.popitem(last=False)
    return result


def remember_number(asked: str, make: Callable[[], float]) -> float:
    """The same for a number of at least 0."""

    def read(data: bytes) -> float | None:
        number = float(NUMBER.unpack(data)[0]) if len(data) == NUMBER.size else -1.0
        return number if number >= 0 else None

    number: float = remember(asked, make, write=NUMBER.pack, read=read)
    return number


def recall(asked: str, read: Callable[[bytes], Result | None]) -> Result | None:
    """What was last kept under this name, which may be another every time."""
    stored = None if _off.get() else _load(_key(asked))
    return None if stored is None else read(stored)


def keep(asked: str, value: bytes) -> None:
    """In the place of what was kept under this name."""
    if not _off.get():
        _save(_key(asked), value)


def _key(asked: str) -> str:
    return hashlib.sha256(f"{program()}\n{asked}".encode()).hexdigest()


@contextmanager
def nothing() -> Iterator[None]:
    """Everything is computed anew inside, and nothing of it is kept."""
    before = _off.set(True)
    try:
        yield
    finally:
        _off.reset(before)


def forget() -> None:
    """Empties what this process holds; the disk keeps its own."""
    with _lock:
        _held.clear()


@functools.cache
def program() -> str:
    """The hash of the text of everything that results depend on."""
    root = Path(__file__).parent.parent
    known = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(root.glob(pattern)):
            known.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    for library in LIBRARIES:
        known.update(f"{library} {metadata.version(library)}\n".encode())
    return known.hexdigest()


def folder() -> Path | None:
    """Where results are kept; None for nowhere."""
    named = os.environ.get(VARIABLE)
    if named == "off":
        return None
    try:
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "honestdp" / "composed"
    except RuntimeError:  # nobody's home
        return None
    return Path(named) if named else usual


def _file() -> Path | None:
    """The file, made where there is none; None where it or its folder could have been written by anyone else."""
    place = folder()
    if place is None:
        return None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)
        path = place / FILE
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        private = _own(place, stat.S_ISDIR) and _own(path, stat.S_ISREG)
    except OSError:
        return None
    return path if private else None


def _own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Whether it is of this kind and not a link, ours, and open to nobody else."""
    found = path.lstat()
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _load(key: str) -> bytes | None:
    def ask(connection: sqlite3.Connection) -> bytes | None:
        found = connection.execute("SELECT value, hash, used FROM results WHERE key = ?", (key,)).fetchone()
        if found is None or not isinstance(found[0], bytes) or found[1] != _hash(key, found[0]):
            return None
        if found[2] < time.time() - FRESH:
            connection.execute("UPDATE results SET used = ? WHERE key = ?", (int(time.time()), key))
        return bytes(found[0])

    return _with_file(ask)


def _save(key: str, value: bytes) -> None:
    def keep(connection: sqlite3.Connection) -> None:
        row = (key, int(time.time()), len(value), _hash(key, value), value)
        connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", row)
        (total,) = connection.execute("SELECT sum(size) FROM results").fetchone()
        while total > MOST_BYTES:
            old, size = connection.execute("SELECT key, size FROM results ORDER BY used, rowid LIMIT 1").fetchone()
            connection.execute("DELETE FROM results WHERE key = ?", (old,))
            total -= size

    _with_file(keep)


def _hash(key: str, value: bytes) -> str:
    return hashlib.sha256(key.encode() + value).hexdigest()


def _with_file(work: Callable[[sqlite3.Connection], Result]) -> Result | None:
    """The work on the open file; None wherever that fails, for all of this can be computed anew."""
    path = _file()
    if path is None:
        return None
    try:
        with closing(sqlite3.connect(path, timeout=TIMEOUT)) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute(TABLE)
            return work(connection)
    except (sqlite3.Error, MemoryError, UnicodeDecodeError, TypeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            with suppress(OSError):  # damaged: begun anew at the next use
                path.unlink()
                path.with_name(f"{FILE}-journal").unlink()
        return None
