"""What decides a search is in the digest of its source: a search goes on with a new colour in a figure, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from honestdp.identity.text import PACKAGE, source_digest


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("source") / "honestdp"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def digest_after_a_change(package: Path, name: str) -> str:
    path = package / name
    before = path.read_text()
    path.write_text(before + "\n# another line\n")
    try:
        return source_digest.__wrapped__(package)
    finally:
        path.write_text(before)


@pytest.mark.parametrize(
    "folder", ["boundary", "gradients", "identity", "kernels", "optimizers", "training", "search", "."]
)
def test_every_file_that_decides_a_search_is_in_its_digest(copied: Path, folder: str) -> None:
    names = [path.relative_to(PACKAGE).as_posix() for path in sorted((PACKAGE / folder).glob("*.py"))[-2:]]
    assert names
    for name in names:
        assert digest_after_a_change(copied, name) != source_digest()


@pytest.mark.parametrize("name", ["report/html.py", "report/view.py", "cli/tune.py", "cli/main.py", "data/named.py"])
def test_what_shows_a_search_is_not(copied: Path, name: str) -> None:
    assert digest_after_a_change(copied, name) == source_digest()


def test_a_copy_has_the_same_digest(copied: Path) -> None:
    assert source_digest.__wrapped__(copied) == source_digest()
