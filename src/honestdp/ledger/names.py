"""Names of datasets, one spelling each with look-alikes refused, and the line that describes an entry for people.

A dataset charged under two names would be two datasets to a ledger, each with a budget of its own. A new name is therefore
printable (format characters, Unicode's category Cf, are not), composed (NFC), without spaces at its ends or in a row, and differs
from every known name by more than case and width. Names of before this rule are found letter by letter. Letters of different
alphabets that share a shape make different names.
"""

from __future__ import annotations

import getpass
import unicodedata
from collections.abc import Collection
from typing import NamedTuple

from honestdp import checks
from honestdp.ledger.refusals import LookAlike

LONGEST, LONGEST_TEXT = 200, 1000
BY, NOTE = " | by ", " | note: "


def check_name(**names: str) -> None:
    for name, value in names.items():
        if not _one_line(value, most=LONGEST) or not value.strip():
            raise checks.InvalidArgument(name, value, f"one line of printable text, of 1 to {LONGEST} characters")


def check_text(**texts: str) -> None:
    for name, value in texts.items():
        if not _one_line(value, most=LONGEST_TEXT):
            raise checks.InvalidArgument(name, value, "one line of printable text, of at most 1000 characters")


def _one_line(text: object, *, most: int) -> bool:
    """Nothing that would break a table, move a terminal's cursor or be no Unicode."""
    return isinstance(text, str) and len(text) <= most and text.isprintable()


def known_name(dataset: str, known: Collection[str]) -> str:
    """The name under which a dataset stands, or would stand, in a ledger with these names."""
    if dataset in known:
        return dataset
    check_name(dataset=dataset)
    name = " ".join(unicodedata.normalize("NFC", dataset).split())
    alike = next((other for other in known if _folded(other) == _folded(name)), None)
    if alike is not None and name not in known:
        raise LookAlike(
            f"{name!a} is not in the ledger, and looks like {alike!a}, which is: use that very name, or one that differs by "
            f"more than case, spaces or width"
        )
    return name


def _folded(name: str) -> str:
    """What names share that differ by case, width and spaces alone."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split())


class Described(NamedTuple):
    """An entry in one line for people: what was charged, who charged it, and a note. A missing part is empty."""

    what: str
    who: str = ""
    note: str = ""

    @classmethod
    def read(cls, text: str) -> Described:
        """The parts of a line. A line of an earlier version is all of it what was charged."""
        rest, _, note = text.partition(NOTE)
        what, _, who = rest.partition(BY)
        return cls(what, who, note)

    @property
    def line(self) -> str:
        return self.what + (BY + self.who if self.who else "") + (NOTE + self.note if self.note else "")


def user() -> str:
    """The name of who runs this process, as the operating system has it; empty where it has none."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
    return name if name.isprintable() else ""
