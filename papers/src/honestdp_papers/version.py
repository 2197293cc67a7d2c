"""The version of the code that a part's numbers rest on: digests of syntax trees, without comments and docstrings.

Imports are followed, in functions too, from the module that does the work, through the papers' own modules and through the
packages of the engine that decide what a training does. What writes verdicts, draws or keeps books decides nothing in a part,
and words decide nothing anywhere: a new comment makes no part stale, another constant does.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import honestdp

ROOTS = {"honestdp": Path(honestdp.__file__).parent, "honestdp_papers": Path(__file__).parent}
DECISIVE = (
    "augment",
    "boundary",
    "data",
    "federated",
    "gradients",
    "kernels",
    "losses",
    "optimizers",
    "run",
    "training",
)
"""What of the product decides the numbers of a training. Its accounting, books and reports do not."""
UNDECISIVE = (
    "claims",
    "command",
    "document",
    "look",
    "measured",
    "parts",
    "registry",
    "results",
    "run_device",
    "version",
)
"""What of the papers' package decides no number of a part."""

_MODULE = re.compile(r"honestdp(?:\.\w+)+")


@lru_cache(maxsize=32)
def files_of(module: str) -> dict[str, str]:
    """File -> digest, for every file that the work of a module rests on, by name."""
    reached: dict[str, str] = {}
    waiting = [module]
    while waiting:
        for path in _files(waiting.pop()):
            name = path.relative_to(
                next(root for root in ROOTS.values() if path.is_relative_to(root)).parent
            ).as_posix()
            if name not in reached:
                tree = _tree(path)
                reached[name] = hashlib.sha256(_told(tree).encode()).hexdigest()[:8]
                waiting += _imported(tree)
    return dict(sorted(reached.items()))


def digest_of(files: dict[str, str]) -> str:
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]


@lru_cache(maxsize=512)
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _files(name: str) -> list[Path]:
    """The file of a module and those of the packages that it lies in; none where it decides nothing."""
    top, *rest = name.split(".")
    if top not in ROOTS or not rest or (rest[0] not in DECISIVE if top == "honestdp" else rest[0] in UNDECISIVE):
        return []
    places = [ROOTS[top].joinpath(*rest[:depth]) for depth in range(1, len(rest) + 1)]
    if top == "honestdp_papers":
        places = places[-1:]  # a paper's own front only names its items
    return [path for place in places for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()]


def _imported(tree: ast.Module) -> Iterator[str]:
    """Every name of ours that a file imports; some are no modules, and have no file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            yield node.value  # imported by its name, as kernels are


def _told(node: object) -> str:
    """A tree as text that every version of Python writes alike, without empty fields and without strings that stand alone."""
    if isinstance(node, list):
        return "[" + ",".join(_told(one) for one in node if not _stands_alone(one)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []) and name != "kind")
    return f"{type(node).__name__}({','.join(f'{name}={_told(value)}' for name, value in fields)})"


def _stands_alone(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
