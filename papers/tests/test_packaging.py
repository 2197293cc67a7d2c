"""The papers are a distribution of their own: their wheel, what it declares, and the command that it brings."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from tests.built_wheel import entry_points_of, files_of, wheel_of
from tests.test_packaging import OPTIONAL, OTHER_NAMES, imported

PAPERS = Path(__file__).resolve().parents[1]
PACKAGE = PAPERS / "src" / "honestdp_papers"
PROJECT = tomllib.loads((PAPERS / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_wheel_has_every_module_and_number_of_the_package_and_the_command(tmp_path: Path) -> None:
    wheel = wheel_of(PAPERS, tmp_path)
    built = {name for name in files_of(wheel) if ".dist-info/" not in name}
    kept = {
        path.relative_to(PAPERS / "src").as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".json", ".md")
    }
    assert built == kept
    assert "[honestdp.commands]\npapers = honestdp_papers.command:app" in entry_points_of(wheel)


def test_whatever_is_imported_is_declared() -> None:
    declared = {re.split(r"[<>=]", line)[0] for line in PROJECT["project"]["dependencies"]}
    known = sys.stdlib_module_names | {"honestdp_papers"} | OPTIONAL
    for path in PACKAGE.rglob("*.py"):
        names = {OTHER_NAMES.get(name, name.replace("_", "-")) for name in imported(path) - known}
        assert names <= declared, path
