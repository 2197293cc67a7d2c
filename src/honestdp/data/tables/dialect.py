"""`Dialect`: how a CSV is written, as declared: encoding, delimiter, quotes, and whether a value may span lines.

Whose row a line belongs to hangs on these. In a file that is read with quotes one cell with a stray quote would make the rows
below it a part of that cell: one record would then take others away, which no noise is made for. So a cell ends with its line,
and a file in which one does not is refused (`files`), unless `newlines` says that its writer closes every quote.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from honestdp.checks import InvalidArgument

QUOTE = '"'
_ENDS = "\r\n"


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
        self._check_encoding()
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

    def _check_encoding(self) -> None:
        wanted = 'the name of an encoding of texts that Python knows, such as "utf-8" or "latin-1"'
        try:
            known = isinstance(self.encoding, str) and "a".encode(self.encoding) is not None
        except (LookupError, ValueError):
            known = False
        if not known:
            raise InvalidArgument("encoding", self.encoding, wanted)

    @property
    def codec(self) -> str:
        """For Python, without the mark that some programs put first."""
        return "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding

    @property
    def spans(self) -> bool:
        """Whether a cell that goes on in the next line can be met, and is none that was declared."""
        return bool(self.quote) and not self.newlines


DIALECT = tuple(each.name for each in fields(Dialect))


def _one_letter(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in _ENDS and text != "\0"
