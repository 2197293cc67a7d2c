"""The header of a CSV: the names in its first line, and not a letter below it.

Names go into templates, schemas, statements and errors, so that nothing of a row may be taken for one. What can be noticed is
refused: a quote that is not closed in the line, which would pull rows in, and names that read like a row's numbers or dates. A
first row of words alone looks like names, and cannot be told from them.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator

from honestdp.data.tables.dialect import Dialect

MOST = 1 << 22
"""Bytes in which a header ends."""
LONGEST = 10_000
"""Letters of a name."""
_A_ROW = "a file whose first line names its columns; this one seems to begin with a row of values"
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T].*)?")


class NoHeader(ValueError):
    """Why it is none, in words on what a file must be, without a word of it."""


def first_line(pieces: Iterable[bytes], dialect: Dialect) -> str:
    """The text up to the first line break. Byte by byte: what comes after is not even decoded. UnicodeDecodeError as it comes."""
    decoder, line = codecs.getincrementaldecoder(dialect.codec)(), list[str]()
    for byte in _each(pieces):
        letter = decoder.decode(byte)
        if letter in ("\n", "\r"):
            return "".join(line)
        line.append(letter)
    return "".join([*line, decoder.decode(b"", final=True)]).split("\n")[0]


def _each(pieces: Iterable[bytes]) -> Iterator[bytes]:
    read = 0
    for piece in pieces:
        for place in range(len(piece)):
            yield piece[place : place + 1]
        read += len(piece)
        if read > MOST:
            raise NoHeader(
                f"a file whose first line names its columns, in {MOST} bytes at most; this one has a longer line"
            )


def names_in(line: str, dialect: Dialect) -> list[str]:
    """The names, or NoHeader."""
    if "\0" in line:
        raise NoHeader("a CSV or Parquet file; this is neither")
    how = {"quotechar": dialect.quote} if dialect.quote else {"quoting": csv.QUOTE_NONE}
    try:
        names = next(csv.reader([line], delimiter=dialect.delimiter, strict=True, **how), [])
    except csv.Error:
        names = None
    if names is None or any(len(name) > LONGEST for name in names):
        wanted = (
            f"a file whose first line closes every quote that it opens, and has no name of more than {LONGEST} letters"
        )
        raise NoHeader(f'{wanted}; declare quote = "" for a file that is written without quotes')
    if not any(names):
        raise NoHeader("a file with a header that names its columns; this one is empty")
    if any(_like_a_value(name.strip()) for name in names):
        raise NoHeader(_A_ROW)
    return names


def _like_a_value(name: str) -> bool:
    """Whether it reads like a number, with a point or a comma, or like a date."""
    try:
        float(name.replace(",", "."))
    except ValueError:
        return _DATE.fullmatch(name) is not None
    return True
