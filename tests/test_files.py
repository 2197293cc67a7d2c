"""A file that is replaced is on the disk before it takes its name, and its name before anybody is told."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

import honestdp
from honestdp.checks import InvalidArgument
from honestdp.files import PAGE, SCHEMA, WEIGHTS, replace_file, written
from honestdp.training.checkpoint import packed


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


# ---- Where a user says: over nothing that the same command did not make

SCHEMA_TEXT = 'target = "ill"\n[columns.age]\nlow = 17\nhigh = 90\n[columns.ill]\nkind = "flag"\n'
FOLDERS = ("model/model.json", "model/README.md", "search/result.json", "search/candidates/0000.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One of each kind of file."""
    (tmp_path / "empty").touch()
    honestdp.Ledger(tmp_path / "ledger.db").set_budget("people", honestdp.Budget(1.0, 1e-6))
    (tmp_path / "weights.safetensors").write_bytes(save({"weight": torch.zeros(3)}, {"format": "pt"}))
    (tmp_path / "checkpoint").write_bytes(packed({}, {"charge": {}}))
    (tmp_path / "schema.toml").write_text(SCHEMA_TEXT)
    (tmp_path / "learnt.toml").write_text("spent = 0.1\n" + SCHEMA_TEXT)
    (tmp_path / "quoted.toml").write_text(SCHEMA_TEXT.replace("[columns.", '[ "columns" .'))
    (tmp_path / "ledger.db-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(28))
    (tmp_path / "ledger.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(20))
    (tmp_path / "page.html").write_text('<meta name="generator" content="honestdp 0.1.0">')
    (tmp_path / "thesis.csv").write_text("columns,of,mine\n1,2,3\n")
    (tmp_path / "link").symlink_to("nowhere")
    for name in FOLDERS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ours")
    (tmp_path / "model" / "digests.json").write_text("{}")
    (tmp_path / "search" / "search.json").write_text("{}")
    return tmp_path


def put(path: Path, **more: Any) -> None:
    with written(path, argument="out", **more) as file:
        file.write(b"new")


NEVER = (
    "ledger.db",
    "ledger.db-wal",
    "ledger.db-journal",
    "quoted.toml",
    "weights.safetensors",
    "checkpoint",
    "schema.toml",
    "learnt.toml",
    *FOLDERS,
    "model/digests.json",
)
WITH_FORCE = ("page.html", "thesis.csv", "link")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", NEVER)
def test_what_nothing_can_make_again_is_never_written_over(folder: Path, name: str, force: bool) -> None:
    before = (folder / name).read_bytes()
    with pytest.raises(InvalidArgument, match="out must be a new file: this one is never written over"):
        put(folder / name, force=force)
    assert (folder / name).read_bytes() == before


@pytest.mark.parametrize("name", WITH_FORCE)
def test_another_file_is_written_over_with_force_alone(folder: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="force writes over it"):
        put(folder / name)
    put(folder / name, force=True)
    assert (folder / name).read_bytes() == b"new"
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "own"), [("weights.safetensors", WEIGHTS), ("schema.toml", SCHEMA), ("page.html", PAGE), ("empty", "")]
)
def test_what_the_same_command_made_and_what_is_empty_is_written_over(folder: Path, name: str, own: str) -> None:
    put(folder / name, own=own)
    assert (folder / name).read_bytes() == b"new"


@pytest.mark.parametrize(
    ("name", "own"),
    [("learnt.toml", SCHEMA), ("checkpoint", WEIGHTS), ("search/candidates/0000.safetensors", WEIGHTS)],
)
def test_bounds_that_were_paid_for_checkpoints_and_candidates_stay(folder: Path, name: str, own: str) -> None:
    with pytest.raises(InvalidArgument, match="never written over"):
        put(folder / name, own=own, force=True)


def test_a_file_that_fails_midway_leaves_the_old_one(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ZeroDivisionError), written(folder / "page.html", argument="out", own=PAGE) as file:  # noqa: PT012
        file.write(b"half")
        raise ZeroDivisionError
    assert (folder / "page.html").read_text().startswith("<meta")
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("name", [".", "nowhere/out.csv", "/dev/null"])
def test_a_place_that_is_none_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="a file in a folder that exists"):
        put(folder / name, force=True)


def test_no_other_module_opens_a_file_to_write() -> None:
    """One mechanism: `files`. The ledger's and the vault's own, and lines that are appended, are opened by number."""
    source = Path(honestdp.__file__).parent
    writes = re.compile(r"""\.write_(text|bytes)\(|open\([^)]*["'][wax]b?["']|savefig\((?!to,)""")
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if writes.search(re.sub(r"(?m)^\s*>>>.*$|os\.fdopen\([^\n]*|open\(os\.devnull[^\n]*", "", path.read_text()))
    }
    assert found == set()
