"""`Shown`: what is printed in a few lines, and shown as a card in a notebook, from the same rows.

A card is plain HTML: everything in it is escaped, nothing in it runs, and it takes its colours from the page around it, dark or
light.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from html import escape

Rows = list[tuple[str, str]]
_LINE = "border:0;border-top:1px solid rgba(128,128,128,.3);background:transparent;text-align:left;vertical-align:top"
_LABEL = f"{_LINE};font-weight:600;white-space:nowrap;padding:.2em 1em .2em 0"
_TEXT = f"{_LINE};white-space:normal;padding:.2em 0"


class Shown(ABC):
    """Printed, it is its rows; in a notebook, a card of them."""

    @abstractmethod
    def _title(self) -> str:
        """A few words, for which nothing is computed."""

    @abstractmethod
    def _rows(self) -> Rows:
        """Labels and texts. A label in capitals is a warning."""

    def _whole(self) -> tuple[str, str] | None:
        """A name and a text for whoever wants to read on."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._title()}>"

    def __str__(self) -> str:
        return as_text(self._rows())

    def _repr_html_(self) -> str:
        return card(f"{type(self).__name__}: {self._title()}", self._rows(), self._whole())


def as_text(rows: Iterable[tuple[str, str]], *, width: int | None = None) -> str:
    """Rows as lines, their texts below each other. width: of the labels; two more than the longest has if left out."""
    rows = [*rows]
    width = max((len(label) for label, _ in rows), default=0) + 2 if width is None else width
    return "\n".join(f"{label:<{width}}{text}" for label, text in rows)


def card(title: str, rows: Rows, whole: tuple[str, str] | None = None) -> str:
    """A table under a title, with the rest folded away."""
    lines = "".join(
        f'<tr style="background:transparent"><td style="{_LABEL}">{escape(label)}</td>'
        f'<td style="{_TEXT}">{_strong(text) if label.isupper() else escape(text)}</td></tr>'
        for label, text in rows
    )
    table = f'<table style="border-collapse:collapse;margin:.3em 0">{lines}</table>'
    rest = "" if whole is None else f"<details><summary>{escape(whole[0])}</summary>{preformatted(whole[1])}</details>"
    return f'<div style="max-width:60em"><strong>{escape(title)}</strong>{table}{rest}</div>'


def preformatted(text: str) -> str:
    """A text whose lines are kept, and wrapped where they are too long."""
    return f'<pre style="white-space:pre-wrap;background:transparent;color:inherit">{escape(text)}</pre>'


def _strong(text: str) -> str:
    return f"<strong>{escape(text)}</strong>"
