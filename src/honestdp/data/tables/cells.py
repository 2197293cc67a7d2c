"""`Cells`: the one way in which a cell of a table is read, as a number, a yes or no, a day, a category, or a person's id.

Reading each cell by itself is the privacy argument. A tool that writes a file or builds a frame picks one type for a whole
column, so one row more can respell all the others: pandas writes 1.0 for 1 once one value is missing, reads 01 as 1 until there
is an x, and makes objects of typed stamps. So every container is read to the same meaning: a number by its value, a stamp by its
instant, in UTC, any other text as it is. Every function is total: a cell that cannot be read is missing, and no
error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from honestdp.checks import InvalidArgument

Array = np.ndarray[Any, Any]
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ENDLESS = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_REAL = re.compile(r"\((.+)\+0j\)|(0)j")  # one complex number in a column, and pandas writes all of them so
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d.*", re.ASCII)
_CAST = r"^-?[0-9]+(\{}[0-9]+)?([eE][+-]?[0-9]{{1,3}})?$"  # a number to pyarrow, with this decimal mark
_BOOLEANS = {"true": "1", "false": "0"}
_FLAGS = {"1": 1.0, "t": 1.0, "yes": 1.0, "y": 1.0, "0": 0.0, "f": 0.0, "no": 0.0, "n": 0.0}
_DIGITS = 400
_SURE_DIGITS = 15  # that float64 holds of any whole number
_EPOCH = date(1970, 1, 1)
_NONE_OF_PANDAS = ("NAType", "NaTType")


@dataclass(frozen=True)
class Cells:
    """How the cells of a table are read.

    Args:
        missing: texts that stand for a missing value, besides empty ones.
        decimal: "." or ",", in numbers that are texts.
    """

    missing: tuple[str, ...] = ()
    decimal: str = "."

    # ---- One cell

    def text_of(self, value: object) -> str | None:
        """The text of a value of any type, as a CSV would hold it; None is missing."""
        if isinstance(value, str):
            return value.strip()
        if value is None or type(value).__name__ in _NONE_OF_PANDAS:
            return None
        if isinstance(value, bytes):
            return value.decode("utf-8", "backslashreplace").strip()
        if isinstance(value, complex | np.complexfloating) and value.imag == 0:
            value = value.real
        if isinstance(value, float | np.floating):
            value = float(value)
            if math.isnan(value):
                return None
        try:
            text = str(value).strip()
        except Exception:  # a number of thousands of digits, or an object of anybody's
            return None
        return text.replace(".", self.decimal) if isinstance(value, Number) else text

    def pointed(self, text: str) -> str:
        """The text of a number as Python writes it, or a text that is no number.

        With a decimal comma a point is none of a number: 1.234 is 1234 to who writes so and 1.234 to who forgot to. The one
        exception is the .0 that tools append to whole numbers.
        """
        if text.endswith(("0j", "0j)")) and (real := _REAL.fullmatch(text)):
            text = real[1] or real[2]
        if self.decimal == ".":
            return text
        text = text.removesuffix(".0")
        return "" if "." in text else text.replace(",", ".")

    def number_of(self, text: str) -> float:
        """NaN for a text that is no number. True and False count as they do in a column of booleans."""
        return _float(_BOOLEANS.get(text.lower()) or self.pointed(text))

    def whole_of(self, text: str) -> str | None:
        """The digits of a text that reads as a whole number, however it is spelled: 7 for 7.0, 07, +7 and 7e0."""
        if text.isdecimal() and text.isascii() and text[0] != "0":
            return text
        text = self.pointed(text)
        if not _NUMBER.fullmatch(text):
            return None
        with suppress(ValueError, ArithmeticError):  # thousands of digits, or an exponent of as many
            number = Decimal(text)
            if number.adjusted() < _DIGITS and number == number.to_integral_value():
                return str(int(number))
        return None

    def known_as(self, value: object) -> str | None:
        """The text that a category is compared by: a number by its value, however it is spelled, and any other text as it is.

        Numbers are compared in the digits that every tool keeps, whatever type a column has for the sake of another row: whole
        numbers as float64 holds them, and others as float32 does. A time stamp is compared by its instant.
        """
        text = self.text_of(value)
        if not text:
            return None
        if not (text[0].isdigit() or text[0] in "+-.,(tTfF"):
            return text
        if (whole := _BOOLEANS.get(text.lower()) or self.whole_of(text)) is not None:
            large = len(whole) > _SURE_DIGITS and math.isfinite(float(whole))
            return str(int(float(whole))) if large else whole
        number = self.number_of(text)
        return str(np.float32(number)) if math.isfinite(number) else _instant(text)

    def is_missing(self, known: str) -> bool:
        """Whether a value that is known as this text is a missing one."""
        return known in self._missing

    def day_of(self, value: object) -> float:
        """Days since 1970 of a date, or of a text that begins with one as ISO 8601 writes it; NaN for anything else.

        The day of a time stamp is that of its instant in UTC, for some tools keep no other zone.
        """
        if isinstance(value, datetime) or not isinstance(value, date):
            try:
                value = date.fromisoformat((self.known_as(value) or "")[:10])
            except ValueError:
                return math.nan
        return float((value - _EPOCH).days)

    # ---- A column

    def numbers(self, values: Any) -> Array:
        """float64 `[rows]`; NaN for what is missing or no number."""
        column = self.column(values)
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = self._numbers_of_texts(column)
        elif pa.types.is_boolean(kind):
            column = column.cast(pa.int8())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            column = pa.array(self.each(column, _float))
        read = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
        return np.where(np.isin(read, self._missing_numbers), math.nan, read)

    def flags(self, values: Any) -> Array:
        """float64 `[rows]`: 1 for true, 0 for false, NaN for what is missing or anything else."""
        return self.each(values, lambda text: math.nan if self.is_missing(text) else _FLAGS.get(text.lower(), math.nan))

    def days(self, values: Any) -> Array:
        """float64 `[rows]`: days since 1970; NaN for what is missing or no date."""
        column = self.column(values)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us"), safe=False).cast(pa.date32(), safe=False)
        read = self.each(column, self.day_of)
        return np.where(np.isin(read, [self.day_of(text) for text in self.missing]), math.nan, read)

    def places(self, values: Any, declared: Iterable[object]) -> Array:
        """int64 `[rows]`: the place of each value among the declared ones, -1 for one that is none of them, -2 for a missing one.

        A declared value is never taken for a missing one.
        """
        known = dict.fromkeys(self._missing, -2.0)
        known |= {self.known_as(value) or "": float(place) for place, value in enumerate(declared)}
        return self.each(values, lambda text: known.get(text, -1.0), missing=-2.0).astype(np.int64)

    def each(self, values: Any, read: Callable[[str], float], missing: float = math.nan) -> Array:
        """float64 `[rows]`: each different value read once, by the text that it is known as. missing: for values without one."""
        distinct, places = self.coded(values)
        known = map(self.known_as, distinct)
        read_each = np.array([*(missing if text is None else read(text) for text in known), missing])
        found: Array = read_each[places]
        return found

    def coded(self, values: Any) -> tuple[list[Any], Array]:
        """The different values of a column, and the place of each row's among them, which is -1 where there is none."""
        column = self.column(values)
        try:
            coded = column.dictionary_encode()
            distinct = coded.dictionary.to_pylist()
        except (pa.ArrowException, ValueError, OverflowError):  # lists, and stamps that Python has no type for
            if not pa.types.is_temporal(column.type):
                coded = self._texts(column.to_pylist()).dictionary_encode()
            distinct = [_plain(value) for value in coded.dictionary]
        return distinct, coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)

    def column(self, values: Any) -> pa.Array:
        """A column as pyarrow holds it. Where its container has no type of its own, as lists and arrays of objects, every value
        is its text: a type that pyarrow infers is one of all values, so that one row could change how the others are read.
        """
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            try:
                values = self._texts(values) if _untyped(values) else pa.array(values, from_pandas=True)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):  # of a type that pyarrow does not know
                values = self._texts(values)
        if isinstance(values, pa.ChunkedArray):  # pandas holds the texts of frames that were put together so
            values = values.combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_null(values.type) or pa.types.is_string_view(values.type):
            return values.cast(pa.string())
        if pa.types.is_timestamp(values.type):
            return values.cast(pa.timestamp(values.type.unit))  # instants, without the name of a zone
        return values

    def _texts(self, values: Iterable[Any]) -> pa.Array:
        values = list(values)
        if {type(value) for value in values} <= {str, type(None)}:
            with suppress(pa.ArrowException, UnicodeEncodeError):  # as below, and faster
                return pa.array(values, pa.string())
        texts = (self.text_of(value) for value in values)
        whole = [None if text is None else text.encode("utf-8", "backslashreplace").decode() for text in texts]
        return pa.array(whole, pa.string())

    def _numbers_of_texts(self, texts: pa.Array) -> pa.Array:
        """float64, null for what is no number. What pyarrow takes for a number, `number_of` reads as the same."""
        texts = pc.utf8_trim_whitespace(texts)
        if self.decimal == ".":
            with suppress(pa.ArrowInvalid):  # one of them is no number
                return texts.cast(pa.float64())
        none = pa.scalar(None, texts.type)
        plain = pc.match_substring_regex(texts, _CAST.format(self.decimal)).fill_null(False)
        castable = pc.replace_substring(pc.if_else(plain, texts, none), self.decimal, ".").cast(pa.float64())
        coded = pc.if_else(plain, none, texts).dictionary_encode()
        read = [*(self.number_of(text.strip()) for text in coded.dictionary.to_pylist()), math.nan]
        others = np.array(read)[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return pc.if_else(plain, castable, pa.array(others))

    @cached_property
    def _missing(self) -> frozenset[str]:
        return frozenset(self.known_as(text) or "" for text in (*self.missing, ""))

    @cached_property
    def _missing_numbers(self) -> Array:
        """-9.9 is another number in fewer digits."""
        exact = np.array([self.number_of(text.strip()) for text in self.missing])
        with np.errstate(over="ignore"):
            return np.concatenate([exact, exact.astype(np.float32), exact.astype(np.float16)])


class Ids:
    """The people that have been met, as numbers: one for each person, in the order in which they are met.

    An id that is a whole number is compared by number, since tools respell it: 7, 7.0 and 07 are one person, in numbers and in
    texts. Any other id is compared letter by letter, without the spaces around it. A row without an id belongs to nobody who
    could be protected, and is left out.
    """

    def __init__(self, cells: Cells) -> None:
        self._known: dict[str, int] = {}
        self._cells = cells

    def __len__(self) -> int:
        return len(self._known)

    def numbers(self, values: Any) -> Array:
        """int64 `[rows]`: the number of each row's person, -1 where the id is missing."""
        column = self._cells.column(values)
        if pa.types.is_nested(column.type):
            raise InvalidArgument("person", f"a column of {column.type}", "whole numbers or texts")
        ids, places = self._cells.coded(column)
        if pa.types.is_floating(column.type):
            digits = int(np.finfo(column.type.to_pandas_dtype()).nmant) + 1
            _refuse_merged(any(abs(one) >= 2.0**digits for one in ids if one is not None))
        numbers: Array = np.array([*map(self._number, ids), -1], dtype=np.int64)[places]
        return numbers

    def _number(self, value: object) -> int:
        text = self._cells.text_of(value)
        if text is None or self._cells.is_missing(self._cells.known_as(text) or ""):
            return -1
        whole = self._cells.whole_of(text)
        if whole is not None and len(whole) > 15 and text != whole and abs(int(whole)) >= 2**53:
            _refuse_merged(not _AS_A_TEXT.isdisjoint(text))
            whole = None if "e" in text.lower() else whole  # digits and an e are a code
        return self._known.setdefault(whole or text, len(self._known))


_AS_A_TEXT = frozenset(".,+")
"""Signs of an id that a tool has held as a floating point number."""


def _refuse_merged(merged: bool) -> None:
    if merged:
        wanted = "whole numbers or texts: two people under one id would be protected half"
        raise InvalidArgument("person", "ids that floating point cannot tell apart", wanted)


def _instant(text: str) -> str:
    """The text of a time stamp in UTC, without a midnight, which tools add and leave out; any other text as it is."""
    if not _STAMP.fullmatch(text):
        return text
    try:
        stamp = datetime.fromisoformat(text)
        stamp = stamp if stamp.tzinfo is None else stamp.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return text
    return stamp.isoformat().removesuffix("T00:00:00")


def _float(text: str) -> float:
    """A number as Python writes it, NaN for any other text."""
    return float(text) if _NUMBER.fullmatch(text) or _ENDLESS.fullmatch(text) else math.nan


def _plain(value: pa.Scalar[Any]) -> Any:
    """A value as Python holds it, or its text where Python has no type for it."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.cast(pa.string()).as_py()


def _untyped(values: Any) -> bool:
    """Whether values of any kind may be in it."""
    kind = getattr(values, "dtype", None)
    kind = getattr(
        getattr(kind, "categories", None), "dtype", kind
    )  # of a Categorical of pandas, what its categories are
    return kind is None or str(kind) == "object"
