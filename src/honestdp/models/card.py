"""The model card: a page in Markdown on what a model is, what it may be used for and what is guaranteed about its records.

Everything on it was declared, or left under the guarantee that it states. What only people know is left for them to write, below
a mark: what is above it is sealed by the folder's digests, what is below may be written at any time and is nobody's guarantee.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from honestdp.budget import Statement
from honestdp.plain_words import rounded_up, shown_delta

CARD = "README.md"
TO_FILL_IN = "*To be written by whoever publishes this model.*"
MARK = "<!-- honestdp: all above this line is sealed by digests.json; below it whoever publishes the model may write-->"
_FREE = f"\n{MARK}\n"  # by itself on a line, as no name or word of a user can stand above it
_BELOW = f"""
## What it is for

{TO_FILL_IN} Whom it serves, what it must not be used for, and on whom it was not tried.

## Where the data are from

{TO_FILL_IN} Where the records are from, and who agreed to what.
"""


def sealed(content: bytes) -> bytes:
    """What of a card the digests are of: down to the mark, or all of one that has none, as earlier versions wrote it."""
    above, mark, _ = content.partition(_FREE.encode())
    return above + mark


def with_words_of(content: bytes, earlier: bytes) -> bytes:
    """The card, with what people wrote below the mark of the earlier one."""
    _, mark, below = earlier.partition(_FREE.encode())
    return sealed(content) + below if mark else content


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the page says. architecture: of the model, in words. data: lines on the columns and what was done to them."""

    title: str
    architecture: str
    statement: Statement
    hyperparameters: Mapping[str, Any]
    run: Mapping[str, Any]
    score: str | None
    data: Sequence[str]
    target: str | None
    version: str
    own_code: bool
    """Whether the model's code must be brought along to load it."""

    def text(self) -> str:
        parts = [
            f"# {_line(self.title)}",
            self._first_lines(),
            "## What is guaranteed",
            self._guarantee(),
            "## Data",
            self._data(),
            "## Training",
            self._training(),
            "## Use",
            self._use(),
            "## The files",
            _FILES,
        ]
        return "\n\n".join(parts) + f"\n{_FREE}{_BELOW}"

    def _first_lines(self) -> str:
        what = f"{self.architecture[:1].upper()}{_line(self.architecture[1:])}"
        if self.target is not None:
            what += f", that predicts the column {_code(self.target)}"
        return f"{what}. Trained with differential privacy by honestdp {self.version}."

    def _guarantee(self) -> str:
        stated = self.statement
        number = f"epsilon {rounded_up(stated.epsilon)} at delta {shown_delta(stated.delta)}"
        broken = f"**NOT PRIVATE: {_line('; '.join(stated.not_private))}.**" if stated.not_private else ""
        rows = [
            ("guarantee", f"{number}, {stated.relation}"),
            ("protects", stated.protects or "not stated"),
            ("covers", stated.how),
            ("may leave", stated.leaves),
            ("rests on", stated.basis),
            ("accountant", stated.accountant),
            ("scores", stated.scores or "none"),
            ("not covered", stated.uncovered),
            ("prepared", stated.preprocessing or "not stated"),
        ]
        table = ["| | |", "|---|---|", *(f"| {name} | {_line(text)} |" for name, text in rows if text)]
        lists = [
            *([f"It assumes:\n\n{_list(stated.assumptions)}"] if stated.assumptions else []),
            *([f"Notes:\n\n{_list(stated.notes)}"] if stated.notes else []),
        ]
        words = [_line(words) for words in stated.words]
        return "\n\n".join([*([broken] if broken else []), *words, "\n".join(table), *lists, _NOT])

    def _data(self) -> str:
        return _list(self.data) if self.data else "Nothing is known here of how rows become the model's inputs."

    def _training(self) -> str:
        rows = [f"{name} {value}" for name, value in {**self.run, **self.hyperparameters}.items()]
        score = self.score or "none was asked for"
        return f"{_line(', '.join(rows))}.\n\nPrivate validation score: {_line(score)}."

    def _use(self) -> str:
        load = 'honestdp.load("model", model=make_model)' if self.own_code else 'honestdp.load("model")'
        lines = ["```python", "import honestdp", "", f"saved = {load}"]
        if self.target is not None:
            lines += ["saved.predict(rows)  # a data frame, an Arrow table or a dictionary of columns"]
        lines += ["print(saved.statement)", "```"]
        return "\n".join(lines)


_NOT = (
    "The guarantee is about one record of the training data and about what left. It does not say that the model is right, "
    "fair or safe to use, and it does not cover a score or a choice that was made elsewhere on the same records."
)
_FILES = (
    "`model.safetensors` are the weights, `model.json` says how the network is built, `schema.toml` how rows become its "
    "inputs, `statement.json` is the guarantee, `report.html` the page for people who answer for the data, and `digests.json` "
    "has a SHA-256 of every file, which is compared when the folder is read; of this page down to here. What follows was written "
    "by whoever publishes the model. Nothing in the folder is code, and nothing of it is run."
)


def _line(text: str) -> str:
    """A text as one line in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(str(text).split()))


def _code(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_line(line)}" for line in lines)
