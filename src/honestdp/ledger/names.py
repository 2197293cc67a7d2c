"""Names of datasets: normalised, and look-alikes refused.

A dataset charged under two names is two datasets to a ledger, each with a budget of its own. So a new name is written in one
form (composed characters, single spaces, none at the ends), what cannot be seen is refused, and so is a name that differs from
a known one only in case, width, spaces or the kind of dash, quote, colon, stroke or stop. Names in files from before this rule
are found letter by letter.
Letters of different alphabets that share a shape are beyond this: they make different names.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

from honestdp import checks
from honestdp.ledger.errors import LookAlike

LONGEST = 200
# Printable by Unicode's categories, and still nothing to see: a joiner of letters, fillers of Hangul, Braille without a dot,
# variation selectors.
UNSEEN = frozenset(
    chr(code)
    for low, high in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF),
    )
    for code in range(low, high + 1)
)  # fmt: skip


def check_name(**names: str) -> None:
    for name, value in names.items():
        if not _one_line(value, most=LONGEST) or not value.strip():
            raise checks.InvalidArgument(name, value, f"one line of printable text, of 1 to {LONGEST} characters")


def check_text(**texts: str) -> None:
    for name, value in texts.items():
        if not _one_line(value, most=1000):
            raise checks.InvalidArgument(name, value, "one line of printable text, of at most 1000 characters")


def _one_line(text: object, *, most: int) -> bool:
    """Nothing that would break a table, move a terminal's cursor or be no Unicode."""
    return isinstance(text, str) and len(text) <= most and text.isprintable()


def canonical_name(dataset: str) -> str:
    """The one form in which a new name is written."""
    if isinstance(dataset, str) and (unseen := sorted(c for c in set(dataset) if c in UNSEEN or not c.isprintable())):
        shown = ", ".join(f"U+{ord(c):04X}" for c in unseen)
        wanted = f"one line of characters that can be seen, and plain spaces: type it anew without {shown}"
        raise checks.InvalidArgument("dataset", dataset, wanted)
    check_name(dataset=dataset)
    return " ".join(unicodedata.normalize("NFC", dataset).split())


_SIGNS = str.maketrans(
    dict.fromkeys("\u2212\u02d7\u2043\u00af\u02c9\u2796", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u02b9\u2032\u00b4`", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"')
    | dict.fromkeys("\u2236\u02d0\ua789", ":")
    | dict.fromkeys("\u2215\u2044\u29f8", "/")
    | dict.fromkeys("\u2024\u00b7\u2027\u2219\u22c5", ".")
    | dict.fromkeys("\u02cd\u2017", "_")
)
"""Signs that are taken for a dash, a quote, a colon, a stroke, a full stop or an underscore."""


def skeleton(dataset: str) -> str:
    """What two names have in common that a reader would take for one."""
    folded = unicodedata.normalize("NFKC", dataset.translate(_SIGNS)).casefold()
    folded = unicodedata.normalize("NFKC", folded).translate(_SIGNS)
    seen = ("-" if unicodedata.category(c) == "Pd" else c for c in folded if c.isprintable() and c not in UNSEEN)
    return " ".join("".join(" " if c.isspace() else c for c in seen).split())


def known_name(dataset: str, known: Collection[str]) -> str:
    """The name under which a dataset stands, or would stand, in a ledger with these names."""
    if dataset in known:
        return dataset
    name = canonical_name(dataset)
    if name in known:
        return name
    alike = next((other for other in known if skeleton(other) == skeleton(name)), None)
    if alike is not None:
        raise LookAlike(
            f"{name!a} is not in the ledger, and looks like {alike!a}, which is: use that very name, or one that differs by "
            f"more than case, spaces, width or dashes"
        )
    return name
