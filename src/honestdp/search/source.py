"""A digest of the source that a search runs, so that it does not go on with other code.

Imports are read from the source, in functions too, from the front door of a search on: what the search does not reach decides
nothing in it. Nor do reports, the command line and the named datasets, whatever reaches them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
FRONT_DOOR = "honestdp.search.tune"
UNDECISIVE = ("report", "cli", "data")
_MENTIONED = re.compile(r"honestdp(?:\.\w+)+")
_FROM = re.compile(r"^\s*from (honestdp[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@lru_cache(maxsize=1)
def source_digest(package: Path = PACKAGE) -> str:
    digest = hashlib.sha256()
    for path in deciding_files(package):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def deciding_files(package: Path = PACKAGE) -> list[Path]:
    """The files of this package that decide what a search does, in a fixed order."""
    reached: set[Path] = set()
    waiting = [FRONT_DOOR]
    while waiting:
        for path in _files(package, waiting.pop()):
            if path not in reached:
                reached.add(path)
                waiting += _imported(path)
    return sorted(reached)


def _files(package: Path, name: str) -> list[Path]:
    """The file of a module, and those of the packages that it lies in, which are run before it; none where it decides nothing.

    The package's own front, `honestdp/__init__.py`, only names what lies elsewhere.
    """
    parts = name.split(".")[1:]
    if not parts or parts[0] in UNDECISIVE:
        return []
    places = [package.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return [path for place in places for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()]


def _imported(path: Path) -> Iterator[str]:
    """Every name of this package that a file imports or mentions; some are no modules, and have no file."""
    text = path.read_text(encoding="utf-8")
    yield from _MENTIONED.findall(text)
    for module, names in _FROM.findall(text):
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))
