"""No module outside the selections asks what kind a selection is: it asks the selection itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import honestdp
from honestdp.selection import catalogue

SOURCE = Path(honestdp.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE / "selection")
CLASSES = {known.__name__ for known in catalogue.classes()} | {"EachOnce", "Drawn"}
NAMES = {*catalogue.names(), *(known.kind for known in catalogue.classes())}


def switches(source: str) -> Iterator[str]:
    """What compares a type with a selection's, matches on it, or compares anything with a selection's name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            asked = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.args[1])}
            if asked & CLASSES:
                yield f"line {node.lineno}: isinstance of {sorted(asked & CLASSES)}"
        elif isinstance(node, ast.MatchClass) and getattr(node.cls, "id", getattr(node.cls, "attr", "")) in CLASSES:
            yield f"line {node.cls.lineno}: match on a selection"
        elif isinstance(node, ast.Compare):
            parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
            words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            kinds = {getattr(part, "id", getattr(part, "attr", "")) for part in parts}
            if words & NAMES or (kinds & CLASSES and kinds & {"type", "__class__"}):
                yield f"line {node.lineno}: a comparison with {sorted(words & NAMES | kinds & CLASSES)}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_switches_on_the_kind_of_a_selection(module: Path) -> None:
    assert [*switches(module.read_text())] == []


@pytest.mark.parametrize(
    "fault",
    [
        "if isinstance(design.selection, Compose | Winner): pass",
        "if isinstance(made, selection.RandomStopping): pass",
        "if selection.name in ('compose', 'winner'): pass",
        "if method.selection.name == 'compose': pass",
        "if type(selection) is LiuTalwar: pass",
        "match selection:\n    case Winner(): pass",
    ],
)
def test_each_form_of_a_switch_is_seen(fault: str) -> None:
    assert len([*switches(fault)]) == 1
