"""What decides a search is in the digest of its source, and nothing else: a search goes on with a new colour in a figure."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from honestdp.identity.text import PACKAGE, UNDECISIVE, deciding_files, source_digest

QUESTIONS_ALONE = (
    "search/dry_run.py",
    "models/fixing.py",
    "boundary/bounds.py",
)
"""No search asks them: a dry run, the layers of a model that are to be replaced before it, and a table's bounds, which are
learnt before it."""


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "room", ["boundary", "gradients", "identity", "kernels", "optimizers", "training", "search", "selection"]
)
def test_every_file_of_the_packages_that_decide_a_search_is_in_its_digest(copied: Path, room: str) -> None:
    files = set((PACKAGE / room).rglob("*.py")) - {PACKAGE / name for name in QUESTIONS_ALONE}
    assert files
    assert files <= set(deciding_files())
    for path in sorted(files)[-2:]:
        assert digest_after_a_change(copied, path.relative_to(PACKAGE).as_posix()) != source_digest()


@pytest.mark.parametrize(
    "name",
    [
        "report/html.py",
        "report/view.py",
        "report/costs.py",
        "cli/tune.py",
        "cli/main.py",
        "data/named.py",
        *QUESTIONS_ALONE,
    ],
)
def test_what_shows_or_plans_is_not(copied: Path, name: str) -> None:
    assert digest_after_a_change(copied, name) == source_digest()


def test_a_copy_has_the_same_digest(copied: Path) -> None:
    assert source_digest.__wrapped__(copied) == source_digest()


def test_every_module_that_a_deciding_file_imports_decides_too() -> None:
    """Read here by the parser of the language, there by patterns: none is overlooked."""
    deciding = set(deciding_files())
    for path in deciding:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            for parts in (name.split(".")[1:] for name in names if name.startswith("honestdp.")):
                for file in (PACKAGE.joinpath(*parts).with_suffix(".py"), PACKAGE.joinpath(*parts, "__init__.py")):
                    assert parts[0] in UNDECISIVE or not file.is_file() or file in deciding, (path, file)
