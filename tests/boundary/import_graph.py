"""Where names come from: the imports of a package, read from its sources and followed through every re-export."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path


def sources_of(package: Path) -> dict[str, str]:
    """Module name -> source, for every module of a package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


@dataclass(frozen=True)
class Origin:
    """Where a name is defined: its module and its name there; a name of None is the module itself."""

    module: str
    name: str | None


@dataclass(frozen=True)
class Use:
    """A name of the package that a module makes use of, wherever it comes from."""

    user: str
    origin: Origin
    line: int


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(_parsed(text)))


class Imports:
    """The modules of one package. sources: by module name."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._trees = {name: _parsed(text) for name, text in sources.items()}
        self._nodes = {name: _nodes(text) for name, text in sources.items()}
        self._bound: dict[str, dict[str, tuple[str, str | None]]] = {}

    @cached_property
    def modules(self) -> list[str]:
        return sorted(self._trees)

    def nodes(self, module: str) -> list[ast.AST]:
        return self._nodes[module]

    def bindings(self, module: str) -> dict[str, tuple[str, str | None]]:
        """Names that imports bind in a module, at whatever depth: name -> (module, name there or None)."""
        if module not in self._bound:
            bound: dict[str, tuple[str, str | None]] = {}
            for node in self._nodes[module]:
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        top = alias.name.split(".")[0]
                        bound[alias.asname or top] = (alias.name if alias.asname else top, None)
                elif isinstance(node, ast.ImportFrom):
                    assert node.module, f"{module}: a relative import"
                    assert not node.level, f"{module}: a relative import"
                    for alias in node.names:
                        bound[alias.asname or alias.name] = (node.module, alias.name)
            self._bound[module] = bound
        return self._bound[module]

    def origin(self, module: str, name: str | None) -> Origin:
        """Where a name that can be imported from a module was defined, through any number of re-exports."""
        seen = set()
        while name is not None and (module, name) not in seen:
            seen.add((module, name))
            if f"{module}.{name}" in self._trees:
                module, name = f"{module}.{name}", None
            elif module in self._trees and name in self.bindings(module) and not self._defines(module, name):
                module, name = self.bindings(module)[name]
            else:
                break
        return Origin(module, name)

    def _defines(self, module: str, name: str) -> bool:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return any(isinstance(node, kinds) and node.name == name for node in self._trees[module].body)

    def uses(self, module: str) -> Iterator[Use]:
        """Every name of another module that this one imports, or reaches as an attribute of a module that it imports."""
        for node in self._nodes[module]:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield Use(module, self.origin(node.module, alias.name), node.lineno)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield Use(module, Origin(alias.name, None), node.lineno)
            elif isinstance(node, ast.Attribute):
                origin = self._attribute(module, node)
                if origin is not None:
                    yield Use(module, origin, node.lineno)

    def _attribute(self, module: str, node: ast.expr) -> Origin | None:
        if isinstance(node, ast.Name):
            bound = self.bindings(module).get(node.id)
            return None if bound is None else self.origin(*bound)
        if isinstance(node, ast.Attribute):
            base = self._attribute(module, node.value)
            if base is not None and base.name is None and base.module in self._trees:
                return self.origin(base.module, node.attr)
        return None
