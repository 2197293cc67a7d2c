"""What an entry says for people, in one line: what was charged, who charged it, and a note."""

from __future__ import annotations

import getpass
from typing import NamedTuple

BY, NOTE = " | by ", " | note: "


class Described(NamedTuple):
    """The parts of the line; those that it does not have are empty."""

    what: str
    who: str = ""
    note: str = ""


def line(what: str, *, who: str, note: str = "") -> str:
    return what + (BY + who if who else "") + (NOTE + note if note else "")


def parts(text: str) -> Described:
    """What `line` was given. A line of an earlier version is all of it what was charged."""
    rest, _, note = text.partition(NOTE)
    what, _, who = rest.partition(BY)
    return Described(what, who, note)


def user() -> str:
    """The name of who runs this process, as the operating system has it; empty where it has none."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
    return name if name.isprintable() else ""
