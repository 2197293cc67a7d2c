"""A file that is replaced is on the disk before it takes its name, and its name before anybody is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from honestdp.files import replace_file


def test_what_is_replaced_is_written_to_the_disk_then_renamed_then_the_folder_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against power loss, which no test makes: what is looked at is the order. (Tests do not wait for the disk: conftest.py.)"""
    path, done = tmp_path / "kept", list[tuple[str, Any]]()
    honest = os.replace

    def flushed(handle: int) -> None:
        found = os.fstat(handle)
        inside = found.st_ino == os.stat(tmp_path).st_ino
        done.append(("folder" if inside else "file", sorted(os.listdir(tmp_path)) if inside else found.st_size))

    def renamed(*args: Any, **named: Any) -> None:
        done.append(("rename", None))
        honest(*args, **named)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    replace_file(path, b"content")
    assert done == [("file", len(b"content")), ("rename", None), ("folder", ["kept"])]
    assert path.read_bytes() == b"content"
