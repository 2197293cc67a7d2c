"""Every file that honestdp writes: whole, durably, without following a link in its place.

`replace_file` writes what honestdp keeps for itself, under names of its own. `written` writes where a user says (an option,
`path=`), and over nothing that the same command did not make: another file needs `force`, and a ledger, weights, a
checkpoint, a schema and the files of a model or search folder are never written over, since nothing else has what is in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from honestdp.checks import InvalidArgument

WEIGHTS, SCHEMA, PAGE, OTHER = "weights of a model", "a schema", "a report", "another file"
_LEDGER, _CHECKPOINT, _LEARNT = (
    "a ledger or another database",
    "a checkpoint",
    "a schema with bounds that were paid for",
)
_KEPT = (WEIGHTS, SCHEMA, _LEDGER, _CHECKPOINT, _LEARNT)
_MARKS_OF_FOLDERS = ("digests.json", "search.json")
_OF_SQLITE = (b"SQLite format 3\0", b"\x37\x7f\x06", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")
"""How a database begins, and its -wal and -journal, in which the last charges may be."""
_HEAD = 1 << 20  # bytes by which a file is recognised


def check_place(path: Path, *, argument: str, force: bool = False, own: str = "") -> None:
    """Refuse a path that `written` would refuse; to be called before long work and before a charge.

    Args:
        path: where a user wants a file.
        argument: the name of the argument or option, for the error.
        force: write over a file that is not kept in any case.
        own: the kind of file that the caller makes (WEIGHTS, SCHEMA, PAGE), which it may write over.

    Raises:
        InvalidArgument: the path is no place for a file, or holds one that must stay.
    """
    here = os.path.lexists(path)
    if not path.absolute().parent.is_dir() or (path.exists() and not path.is_file()):
        raise InvalidArgument(argument, str(path), "a file in a folder that exists")
    if not here or (path.exists() and path.stat().st_size == 0):
        return
    kind = _kind(path)
    kept = f"it is {kind}" if kind in _KEPT and kind != own else ""
    if _in_a_folder_of_ours(path):
        kept = "it is in the folder of a model or a search"
    if kept:
        raise InvalidArgument(argument, str(path), f"a new file: this one is never written over, for {kept}")
    if kind != own and not force:
        raise InvalidArgument(argument, str(path), "a new file: this one is there already; force writes over it")


@contextmanager
def written(path: Path, *, argument: str, force: bool = False, own: str = "") -> Iterator[BinaryIO]:
    """A file for everybody to read, which takes its name when the block ends; see `check_place` for arguments and errors."""
    check_place(path, argument=argument, force=force, own=own)
    with opened(path.absolute().parent) as folder, _replaced(folder, path.name, 0o644) as file:
        yield file


def _kind(path: Path) -> str:
    """What a file is, by its first bytes. A link to nowhere is another file."""
    if not path.exists():
        return OTHER
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(_OF_SQLITE):
        return _LEDGER
    if head[6:9] == b"\0\0{":  # safetensors: eight bytes say how long a header in JSON is
        return _CHECKPOINT if head[8:].startswith(b'{"__metadata__":{"honestdp":') else WEIGHTS
    if re.search(rb"^\s*\[?\s*[\"']?columns[\"']?\s*[].=]", head, re.MULTILINE):
        return _LEARNT if re.search(rb"^spent\s*=", head, re.MULTILINE) else SCHEMA
    return PAGE if b'<meta name="generator" content="honestdp ' in head else OTHER


def _in_a_folder_of_ours(path: Path) -> bool:
    folders = path.absolute().parents[:2]  # a search has files in folders of its own folder
    return any((folder / name).exists() for folder in folders for name in _MARKS_OF_FOLDERS)


@contextmanager
def opened(folder: Path, *, follow: bool = True) -> Iterator[int]:
    """A handle of a folder: what is done through it is done there, whatever is put in the folder's place meanwhile.

    follow: False refuses (with an OSError) a link in the place of the folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        yield handle
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """After this returns the new content is on the disk; before, the old one is whole."""
    with opened(path.parent) as folder:
        replace_in(folder, path.name, content, mode=mode)


def replace_in(folder: int, name: str, content: bytes, *, mode: int = 0o600) -> None:
    """`replace_file` in an opened folder. A link of that name is replaced and not followed."""
    with _replaced(folder, name, mode) as file:
        file.write(content)


@contextmanager
def _replaced(folder: int, name: str, mode: int) -> Iterator[BinaryIO]:
    """A file that takes the name, durably, when the block ends."""
    beside = f".{name}.{os.getpid()}.new"
    with suppress(FileNotFoundError):  # of an earlier process with our number; its permissions must not stay
        os.unlink(beside, dir_fd=folder)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)
