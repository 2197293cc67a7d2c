"""With what code this process ended its searches, so that a later call with other code is not given their results.

The digests of a search's code are secret and erased with its end: what a function closes over may be of the records. In memory
they may stay for as long as the process does, which is where code is changed and run again: in a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_code: dict[Path, Mapping[str, str]] = {}
"""Digests by whose code it is, of the search that ended in a folder."""


def remember(folder: Path, code: Mapping[str, str]) -> None:
    _code[folder.resolve()] = dict(code)


def differing(folder: Path, code: Mapping[str, str]) -> set[str]:
    """Whose code is another one than that of the search which this process ended in the folder; none where it ended none."""
    then = _code.get(folder.resolve(), code)
    return {name for name in {*then, *code} if then.get(name) != code.get(name)}
