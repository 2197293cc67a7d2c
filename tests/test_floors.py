"""The lower floors of the house import nothing above them, so that each can be read, tested and trusted by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import honestdp

HOUSE = Path(honestdp.__file__).parent
MAY_IMPORT: dict[str, set[str]] = {
    "checks": set(),
    "logs": set(),
    "run": {"checks"},
    "notebook": set(),
    "plain_words": set(),
    "budget": {"checks", "notebook", "plain_words", "run"},
    "losses": {"checks"},
    "kernels": {"logs"},
    "identity": set(),
    "gradients": {"checks", "identity", "kernels", "logs", "losses"},
    "accounting": {"budget", "checks", "run"},
}


def rooms_imported(source: str) -> set[str]:
    """The first names below honestdp that a file imports, wherever in it and under whatever condition."""
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            rooms |= {name for alias in node.names for name in _room(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module == "honestdp":
            rooms |= {alias.name for alias in node.names} - {"__version__"}  # a text
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            rooms |= set(_room(node.module or ""))
    return rooms


def _room(module: str) -> list[str]:
    return module.split(".")[1:2] if module.startswith("honestdp.") else []


@pytest.mark.parametrize("floor", MAY_IMPORT)
def test_a_lower_floor_imports_nothing_above_it(floor: str) -> None:
    files = sorted((HOUSE / floor).rglob("*.py")) or [HOUSE / f"{floor}.py"]
    above = {path.name: rooms_imported(path.read_text()) - MAY_IMPORT[floor] - {floor} for path in files}
    assert {name: rooms for name, rooms in above.items() if rooms} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import honestdp.search.tune",
        "from honestdp import search",
        "def f():\n    from honestdp.search.tune import tune",
    ],
)
def test_an_import_from_above_is_seen_however_it_is_written(line: str) -> None:
    assert rooms_imported(line) == {"search"}
