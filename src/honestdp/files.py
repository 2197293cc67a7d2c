"""Files replaced whole and durably, without following a link in their place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
    beside = f".{name}.{os.getpid()}.new"
    with suppress(FileNotFoundError):  # of an earlier process with our number; its permissions must not stay
        os.unlink(beside, dir_fd=folder)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)
