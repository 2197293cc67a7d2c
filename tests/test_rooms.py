"""The packages of the library import each other in one direction, and each keeps to its room."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

import honestdp

PACKAGE = Path(honestdp.__file__).parent
TOP_FLOOR = 11


def sources() -> dict[str, str]:
    """Module name -> source, of the whole library."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return modules


def imports_of(module: str, modules: Mapping[str, str]) -> set[str]:
    """Modules that a module imports: at its top, in functions, and for types alone.

    `honestdp` itself is run before any of its modules, so that its version can be had from there without a cycle.
    """
    imported = set()
    for node in ast.walk(ast.parse(modules[module])):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{module}: a relative import"
            names = {alias.name for alias in node.names if (node.module, alias.name) != ("honestdp", "__version__")}
            imported |= {
                f"{node.module}.{name}" if f"{node.module}.{name}" in modules else node.module for name in names
            }
    return imported


def room_of(module: str) -> str:
    """A package, or a module of the top floor; the front door is a room of its own."""
    return ".".join(module.split(".")[:2])


def rooms(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Room -> the rooms that it imports."""
    graph: dict[str, set[str]] = {room_of(module): set() for module in modules}
    for module in modules:
        imported = {room_of(name) for name in imports_of(module, modules) if name.split(".")[0] == "honestdp"}
        graph[room_of(module)] |= imported - {room_of(module)}
    return graph


def a_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Rooms, each of which imports the next and the last the first; empty where there is no such row."""
    done: set[str] = set()

    def walk(room: str, way: list[str]) -> list[str]:
        if room in way:
            return way[way.index(room) :]
        if room in done:
            return []
        for other in sorted(graph.get(room, ())):
            cycle = walk(other, [*way, room])
            if cycle:
                return cycle
        done.add(room)
        return []

    return next((cycle for room in sorted(graph) if (cycle := walk(room, []))), [])


def test_no_package_imports_one_that_imports_it() -> None:
    assert a_cycle(rooms(sources())) == []


CYCLES = {
    "honestdp.report.html": "from honestdp.search.design import Design",
    "honestdp.accounting.pld": "def later():\n    from honestdp import selection",
    "honestdp.training.loop": "if TYPE_CHECKING:\n    import honestdp.search.tune",
    "honestdp.ledger.book": "from honestdp import tune",
}


@pytest.mark.slow
@pytest.mark.parametrize("module", CYCLES)
def test_a_cycle_is_noticed_wherever_the_import_stands(module: str) -> None:
    modules = sources()
    modules[module] += f"\n{CYCLES[module]}\n"
    assert room_of(module) in a_cycle(rooms(modules))


def test_the_top_floor_has_few_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= TOP_FLOOR


@pytest.mark.slow
def test_the_library_never_names_the_papers() -> None:
    """Neither in an import nor as a text that something is imported by."""
    modules = sources()
    for module, source in modules.items():
        for node in ast.walk(ast.parse(source)):
            assert not (isinstance(node, ast.Constant) and "honestdp_papers" in str(node.value)), module
        assert not {name for name in imports_of(module, modules) if name.split(".")[0] == "honestdp_papers"}, module


@pytest.mark.slow
def test_report_and_search_are_apart() -> None:
    modules = sources()
    graph = {module: {room_of(name) for name in imports_of(module, modules)} for module in modules}
    assert not [m for m in modules if m.startswith("honestdp.report") and "honestdp.search" in graph[m]]
    of_the_search = [m for m in modules if m.startswith("honestdp.search") and "honestdp.report" in graph[m]]
    assert of_the_search == ["honestdp.search.tune"]
