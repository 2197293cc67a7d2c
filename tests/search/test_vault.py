"""The secret folder: encrypted, its owner's alone, never led elsewhere by a link, and unreadable once its key is gone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import honestdp
from honestdp.checks import HonestdpError
from honestdp.search import vault
from honestdp.search.lifecycle import SearchStopped
from honestdp.search.vault import Unreadable, Vault, erase
from honestdp.training.population import Population
from tests.tiny_search import WHOLE, clouds, linear, once_charged

CONTENT = b"seed " * 1000


@pytest.fixture
def made(tmp_path: Path) -> Vault:
    return Vault.make(tmp_path / ".secret", "one")


def test_what_is_written_is_read_again_by_who_has_the_key_and_by_nobody_else(made: Vault) -> None:
    made.write("plan", CONTENT)
    assert Vault.open(made.folder, "one").read("plan") == CONTENT
    assert made.read("data") is None
    assert CONTENT[:10] not in (made.folder / "plan").read_bytes()
    with pytest.raises(Unreadable, match=r"plan: it is damaged"):
        Vault.open(made.folder, "another").read("plan")
    (made.folder / "key").write_bytes(bytes(32))
    with pytest.raises(Unreadable, match=r"plan: it is damaged"):
        Vault.open(made.folder, "one").read("plan")


def test_a_file_cannot_be_put_in_the_place_of_another(made: Vault) -> None:
    made.write("batch0", CONTENT)
    made.write("batch1", CONTENT[1:])
    (made.folder / "batch0").replace(made.folder / "batch1")
    with pytest.raises(Unreadable):
        made.read("batch1")


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 25])
def test_long_contents_are_encrypted_in_parts_whose_order_is_kept(
    length: int, made: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault, "_PART", 10)
    content = CONTENT[:length]
    made.write("plan", content)
    assert made.read("plan") == content
    path, part = made.folder / "plan", 12 + 10 + 16
    sealed = path.read_bytes()
    if length > 10:
        path.write_bytes(sealed[:16] + sealed[16 + part :])
        with pytest.raises(Unreadable):
            made.read("plan")
        path.write_bytes(sealed[: 16 + part])
        with pytest.raises(Unreadable):
            made.read("plan")
    path.write_bytes(sealed[:-1])
    with pytest.raises(Unreadable):
        made.read("plan")


def test_the_key_is_overwritten_before_it_is_removed_and_before_anything_else_is(
    made: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write("plan", CONTENT)
    key, removed = (made.folder / "key").read_bytes(), []
    kept = os.open(made.folder / "key", os.O_RDONLY)  # what is left on the disk of a file that was removed
    real = os.unlink

    def unlink(path: Any, **named: Any) -> None:
        removed.append(path)
        real(path, **named)

    monkeypatch.setattr(os, "unlink", unlink)
    erase(made.folder)
    try:
        assert len(key) == 32
        assert os.pread(kept, 100, 0) not in (key, b"")
    finally:
        os.close(kept)
    assert removed[0] == "key"
    assert not made.folder.exists()


def test_an_erasing_that_was_interrupted_is_ended_by_the_next(made: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    made.write("plan", CONTENT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            erase(made.folder)
    erase(made.folder)
    assert not made.folder.exists()
    erase(made.folder)


# ---- Links, and what is not ours


def _linked_folder(folder: Path, elsewhere: Path) -> None:
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


def _linked_key(folder: Path, elsewhere: Path) -> None:
    (folder / "key").rename(elsewhere)
    (folder / "key").symlink_to(elsewhere)


def _second_name(folder: Path, elsewhere: Path) -> None:
    os.link(folder / "key", elsewhere)


def _linked_plan(folder: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(b"somebody's")
    (folder / "plan").unlink()
    (folder / "plan").symlink_to(elsewhere)


def _a_stranger(folder: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"somebody's")


def _a_folder(folder: Path, elsewhere: Path) -> None:
    elsewhere.write_bytes(b"")
    (folder / "batch7").mkdir()


TRICKS = [_linked_folder, _linked_key, _second_name, _linked_plan, _a_stranger, _a_folder]


@pytest.mark.parametrize("trick", TRICKS)
def test_a_link_or_what_no_search_wrote_is_refused_and_left_as_it_is(trick: Any, tmp_path: Path) -> None:
    made = Vault.make(tmp_path / ".secret", "one")
    made.write("plan", CONTENT)
    elsewhere = tmp_path / "elsewhere"
    trick(made.folder, elsewhere)

    def others() -> dict[str, bytes]:
        paths = [elsewhere, *elsewhere.rglob("*"), *made.folder.glob("notes.txt")]
        return {str(path): path.read_bytes() for path in paths if path.is_file()}

    before = others()
    with pytest.raises(HonestdpError, match=r"is a link|which no search wrote"):
        Vault.open(made.folder, "one")
    with pytest.raises(HonestdpError, match=r"is a link|which no search wrote"):
        erase(made.folder)
    assert others() == before


def test_the_folder_of_another_user_is_refused(made: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for act in (lambda: Vault.open(made.folder, "one"), lambda: erase(made.folder), lambda: made.write("plan", b"")):
        with pytest.raises(HonestdpError, match="belongs to another user"):
            act()
    assert (made.folder / "key").exists()


def test_a_write_is_not_led_elsewhere_by_a_link_of_its_name(made: Vault, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (made.folder / "plan").symlink_to(mine)
    (made.folder / f".data.{os.getpid()}.new").symlink_to(mine)
    made.write("plan", CONTENT)
    made.write("data", CONTENT)
    assert mine.read_text() == "mine"
    assert made.read("plan") == made.read("data") == CONTENT


def test_a_folder_that_others_could_read_is_closed_to_them(made: Vault) -> None:
    made.folder.chmod(0o777)
    made.write("plan", b"")
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
def test_a_search_never_zeroes_the_files_behind_a_link(begun: bool, tmp_path: Path) -> None:
    """`out/.secret` as a link to a folder on memory, with other people's files in it."""
    out, shared = tmp_path / "out", tmp_path / "shared"
    shared.mkdir()
    (shared / "theirs").write_text("theirs")
    if begun:
        with pytest.MonkeyPatch.context() as patch:
            once_charged(patch, Population, "block", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(SearchStopped):
                honestdp.tune(linear, clouds(), **WHOLE, out=out)
        for path in (out / ".secret").iterdir():
            path.rename(shared / path.name)
        (out / ".secret").rmdir()
    else:
        out.mkdir()
    (out / ".secret").symlink_to(shared)
    before = {path.name: path.read_bytes() for path in shared.iterdir()}
    with pytest.raises(HonestdpError, match=r"\.secret is a link"):
        honestdp.tune(linear, clouds(), **WHOLE, out=out, resume=begun)
    assert {path.name: path.read_bytes() for path in shared.iterdir()} == before


def test_nothing_readable_of_a_search_is_ever_on_the_disk_but_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that a search opens for writing in its secret folder holds bytes that look like noise: of a plan, of weights
    and of a standing, whose words and zeros compress well.
    """
    import zlib

    written: list[tuple[str, bytes]] = []
    real = vault.replace_in
    monkeypatch.setattr(vault, "replace_in", lambda *args, **kw: (written.append(args[1:3]), real(*args, **kw)))
    honestdp.tune(linear, clouds(), **WHOLE, out=tmp_path / "out")
    assert {name for name, _ in written} >= {"key", "plan", "data", "batch0", "standing"}
    for name, content in written:
        assert len(zlib.compress(content)) >= len(content), name
        if len(content) > 1000:  # of 256 kinds of bytes noise has nearly equal numbers
            counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
            assert counts.max() < 8 * len(content) / 256 + 12, name
