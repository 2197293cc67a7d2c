"""The secret folder of a search: everything in it is encrypted under one key, and to erase it is to erase the key.

A disk keeps copies of what was written (journals, spare blocks, snapshots), so that overwriting many files of many megabytes
erases little. Here only ciphertext is ever written, but for 32 bytes in the file `key`: these are overwritten, flushed and
removed at the end, and what is left anywhere is noise. The encryption is AES-256-GCM; a file's name and the search's key in
the ledger are authenticated with it, so that no file can be put in the place of another one or of another search's.

The folder is its owner's alone, and nothing here follows a link: a `.secret` that is a link, is somebody else's, or holds what no
search wrote is refused before anything in it is read, written or removed.

A search without a folder has an `Unkept` in its place: nothing of it is written anywhere.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from honestdp.checks import HonestdpError
from honestdp.files import opened, replace_in

FOLDER, KEY = ".secret", "key"
_KEY_BYTES, _MARK_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 16, 12, 16
_PART = 1 << 26
"""Bytes that are encrypted together: AES-GCM takes 2 GiB at most."""
_OVER = "this search cannot go on; what it was charged stays charged"
_NAMES = re.compile(r"(key|plan|weights|data|resumes|standing|cluster|failed\d+|population\d+-\d+|batch\d+(-\d+)?)")
_HALF_WRITTEN = re.compile(rf"\.{_NAMES.pattern}\.\d+\.new")


class Store(Protocol):
    """Where a search keeps what is secret, by name."""

    def read(self, name: str) -> bytes | None:
        """What was written, None where nothing was."""

    def write(self, name: str, content: bytes) -> None:
        """Durably, and whole or not at all."""

    def remove(self, *names: str) -> None: ...

    def names(self) -> list[str]: ...


class Unkept:
    """The store of a search that cannot be resumed: it keeps nothing."""

    def read(self, name: str) -> bytes | None:
        return None

    def write(self, name: str, content: bytes) -> None:
        """Nothing to do."""

    def remove(self, *names: str) -> None:
        """Nothing to do."""

    def names(self) -> list[str]:
        return []


@dataclass(frozen=True)
class Kept:
    """The place of one checkpoint in a store."""

    store: Store
    name: str

    def read(self) -> bytes | None:
        return self.store.read(self.name)

    def write(self, content: bytes) -> None:
        self.store.write(self.name, content)

    def __str__(self) -> str:
        return f"{self.name} of this search"


class Unreadable(HonestdpError):
    """A secret file that was damaged, cut off, or put in the place of another."""


def _unreadable(folder: Path, name: str, why: str) -> Unreadable:
    return Unreadable(f"the secret state in {folder} cannot be read ({name}: {why}): {_OVER}")


@dataclass(frozen=True)
class Vault:
    """The secret folder of the search with this key in the ledger."""

    folder: Path
    search: str
    _cipher: AESGCM = field(repr=False)

    @classmethod
    def make(cls, folder: Path, search: str) -> Vault:
        """In a new folder, with a new key on the disk."""
        folder.mkdir(mode=0o700)
        key = secrets.token_bytes(_KEY_BYTES)
        with _own(folder) as handle:
            replace_in(handle, KEY, key)
        return cls(folder, search, AESGCM(key))

    @classmethod
    def open(cls, folder: Path, search: str) -> Vault:
        with _own(folder) as handle:
            strange = [name for name in os.listdir(handle) if not _is_ours(handle, name)]
            if strange:
                raise _strange(folder, strange)
            try:
                key = _bytes_of(handle, KEY)
            except FileNotFoundError:
                raise _unreadable(folder, KEY, "it is missing, as after an end") from None
        if len(key) != _KEY_BYTES:
            raise _unreadable(folder, KEY, "it is cut off")
        return cls(folder, search, AESGCM(key))

    def read(self, name: str) -> bytes | None:
        with _own(self.folder) as handle:
            try:
                sealed = _bytes_of(handle, name)
            except FileNotFoundError:
                return None
        try:
            return self._opened(name, sealed)
        except (InvalidTag, ValueError):
            raise _unreadable(self.folder, name, "it is damaged") from None

    def write(self, name: str, content: bytes) -> None:
        if not _NAMES.fullmatch(name):
            raise ValueError(f"no name of a secret file: {name}")
        with _own(self.folder) as handle:
            replace_in(handle, name, self._sealed(name, content))

    def remove(self, *names: str) -> None:
        with _own(self.folder) as handle:
            for name in names:
                os.unlink(name, dir_fd=handle)

    def names(self) -> list[str]:
        with _own(self.folder) as handle:
            return sorted(name for name in os.listdir(handle) if _NAMES.fullmatch(name) and name != KEY)

    def _sealed(self, name: str, content: bytes) -> bytes:
        mark, view = secrets.token_bytes(_MARK_BYTES), memoryview(content)
        sealed = [mark]
        parts = range(0, max(1, len(view)), _PART)
        for number, first in enumerate(parts):
            nonce = secrets.token_bytes(_NONCE_BYTES)
            about = self._about(name, mark, number, number == len(parts) - 1)
            sealed += [nonce, self._cipher.encrypt(nonce, view[first : first + _PART], about)]
        return b"".join(sealed)

    def _opened(self, name: str, sealed: bytes) -> bytes:
        mark, rest = sealed[:_MARK_BYTES], memoryview(sealed)[_MARK_BYTES:]
        length, found = _NONCE_BYTES + _PART + _TAG_BYTES, []
        parts = range(0, max(1, len(rest)), length)
        for number, first in enumerate(parts):
            part = rest[first : first + length]
            about = self._about(name, mark, number, number == len(parts) - 1)
            found.append(self._cipher.decrypt(bytes(part[:_NONCE_BYTES]), part[_NONCE_BYTES:], about))
        return b"".join(found)

    def _about(self, name: str, mark: bytes, number: int, last: bool) -> bytes:
        return f"{self.search}/{name}/{number}/{last}/".encode() + mark


def erase(folder: Path) -> None:
    """The key first, so that whatever comes between, nothing can be read any more; then what was encrypted under it.

    A call that was interrupted is ended by the next. What no search wrote is left, and named.
    """
    if not os.path.lexists(folder):
        return
    with _own(folder) as handle:
        ours = {name: _is_ours(handle, name) for name in sorted(os.listdir(handle))}
        if ours.get(KEY):
            _overwrite(handle, KEY)
        for name in [name for name in ours if ours[name]]:
            os.unlink(name, dir_fd=handle)
        os.fsync(handle)
    strange = [name for name in ours if not ours[name]]
    if strange:
        raise _strange(folder, strange)
    folder.rmdir()


def _overwrite(folder: int, name: str) -> None:
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=folder), "wb") as file:
        file.write(secrets.token_bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _own(folder: Path) -> Iterator[int]:
    """The handle of a secret folder, refused where it is not one that a search of this user made."""
    try:
        about = os.lstat(folder)
    except FileNotFoundError:
        raise HonestdpError(f"{folder} is missing: {_OVER}") from None
    if not stat.S_ISDIR(about.st_mode):
        kind = "a link" if stat.S_ISLNK(about.st_mode) else "not a folder"
        way_out = "nothing in it was touched; to keep them elsewhere, put the whole `out` there"
        raise HonestdpError(f"{folder} is {kind}, where a search keeps its secrets: {way_out}")
    with opened(folder, follow=False) as handle:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid():
            raise HonestdpError(f"{folder} belongs to another user: nothing in it was touched")
        if stat.S_IMODE(about.st_mode) != 0o700:
            os.fchmod(handle, 0o700)
        yield handle


def _is_ours(folder: int, name: str) -> bool:
    """A plain file of this user, under a name that searches write, that has no second name."""
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    known = _NAMES.fullmatch(name) or _HALF_WRITTEN.fullmatch(name)
    return bool(known) and stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and about.st_nlink == 1


def _bytes_of(folder: int, name: str) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as file:
        return file.read()


def _strange(folder: Path, names: list[str]) -> HonestdpError:
    way_out = "it was not touched; remove it by hand, then make the same call again"
    return HonestdpError(f"{folder} holds {names[0]!r}, which no search wrote there: {way_out}")
