"""`Dialect`: how a CSV is written, as declared: encoding, delimiter, quotes, whether a value may span lines; and its header.

These decide whose row a line belongs to. In a file that is read with quotes, one stray quote would make the rows below it a part
of its cell: one record would then take others away, and no noise is made for that. So a cell ends with its line, and a file in
which one does not is refused (`reading`), unless `newlines` says that its writer closes every quote.

Names of columns go into templates, schemas, statements and errors, so nothing of a row may be taken for one. The first line alone
is decoded. A quote that it does not close, which would pull rows in, is refused, and so are names that read like a row's numbers
or dates. A first row of words alone cannot be told from names.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from honestdp.checks import InvalidArgument

QUOTE = '"'
MOST = 1 << 22
"""Bytes in which a header ends."""
LONGEST = 10_000
"""Letters of a name."""
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T].*)?")


class NoHeader(ValueError):
    """Why a first line is no header: what the file must be, without a word of it."""


@dataclass(frozen=True)
class Dialect:
    """How a CSV is written.

    delimiter: between values. quote: around them, doubled inside of them; "" in a file that knows none, in which it is a letter
    like others. newlines: whether a value in quotes may hold line breaks. InvalidArgument for what no file can have.
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str = QUOTE
    newlines: bool = False

    def __post_init__(self) -> None:
        try:
            known = isinstance(self.encoding, str) and "a".encode(self.encoding) is not None
        except (LookupError, ValueError):
            known = False
        if not known:
            wanted = 'the name of an encoding of texts that Python knows, such as "utf-8" or "latin-1"'
            raise InvalidArgument("encoding", self.encoding, wanted)
        if not _one_letter(self.delimiter):
            raise InvalidArgument("delimiter", self.delimiter, 'one character of ASCII, such as ";"')
        if self.quote != "" and (not _one_letter(self.quote) or self.quote == self.delimiter):
            wanted = 'one character of ASCII that is not the delimiter, or "" for a file without quotes'
            raise InvalidArgument("quote", self.quote, wanted)
        if not isinstance(self.newlines, bool):
            raise InvalidArgument("newlines", self.newlines, "true or false")
        if self.newlines and not self.quote:
            wanted = 'left out where quote is "": without quotes every line break ends a row'
            raise InvalidArgument("newlines", self.newlines, wanted)

    @property
    def codec(self) -> str:
        """For Python, without the mark that some programs put first."""
        return "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding

    @property
    def spans(self) -> bool:
        """Whether a cell may go on in the next line against the declaration."""
        return bool(self.quote) and not self.newlines

    @property
    def format(self) -> dict[str, Any]:
        """Arguments of Python's `csv.reader`."""
        quotes = {"quotechar": self.quote} if self.quote else {"quoting": csv.QUOTE_NONE}
        return {"delimiter": self.delimiter, **quotes}

    def header(self, pieces: Iterable[bytes]) -> list[str]:
        """The names in the first line of a file, or NoHeader. UnicodeDecodeError as it comes."""
        line = self._first_line(pieces)
        if "\0" in line:
            raise NoHeader("a CSV or Parquet file; this is neither")
        try:
            names = next(csv.reader([line], strict=True, **self.format), [])
        except csv.Error:
            names = None
        if names is None or any(len(name) > LONGEST for name in names):
            raise NoHeader(
                f"a file whose first line closes every quote that it opens, and has no name of more than {LONGEST} letters; "
                'declare quote = "" for a file that is written without quotes'
            )
        if not any(names):
            raise NoHeader("a file with a header that names its columns; this one is empty")
        if any(_like_a_value(name.strip()) for name in names):
            raise NoHeader("a file whose first line names its columns; this one seems to begin with a row of values")
        return names

    def _first_line(self, pieces: Iterable[bytes]) -> str:
        """Byte by byte: what comes after the first line break is not even decoded."""
        decoder, line, read = codecs.getincrementaldecoder(self.codec)(), list[str](), 0
        for piece in pieces:
            for place in range(len(piece)):
                letter = decoder.decode(piece[place : place + 1])
                if letter in ("\n", "\r"):
                    return "".join(line)
                line.append(letter)
            read += len(piece)
            if read > MOST:
                wanted = (
                    f"a file whose first line names its columns, in {MOST} bytes at most; this one has a longer line"
                )
                raise NoHeader(wanted)
        return "".join([*line, decoder.decode(b"", final=True)]).split("\n")[0]


DIALECT = tuple(each.name for each in fields(Dialect))


def other_delimiter(header: Iterable[str]) -> str | None:
    """What seems to be between the names of a header that was taken for a single name; None where nothing does."""
    names = list(header)
    return next((each for each in ";\t|," if len(names) == 1 and each in names[0]), None)


def _one_letter(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _like_a_value(name: str) -> bool:
    """Whether it reads like a number, with a point or a comma, or like a date."""
    try:
        float(name.replace(",", "."))
    except ValueError:
        return _DATE.fullmatch(name) is not None
    return True
