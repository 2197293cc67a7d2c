"""Values of one column as numbers, texts and places, one value at a time: what cannot be read is missing, and never an error.

Row by row is the privacy argument. A number that is no number, a date that is none and a text that nobody declared are missing or
undeclared values of their own row; they neither stop the others nor change how the others are read. So every function here is
total, and gives a value the same in any company.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_BOOLEANS = {"True": 1.0, "False": 0.0}
_EPOCH = date(1970, 1, 1)
_NONE_OF_PANDAS = ("NAType", "NaTType")


def text_of(value: object) -> str | None:
    """A value as the text that it is compared by: 1, 1.0 and "1" are one category, as they are in a CSV. None is missing."""
    if value is None or type(value).__name__ in _NONE_OF_PANDAS:
        return None
    if isinstance(value, float | np.floating) and math.isnan(value):
        return None
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip()
    try:
        return str(value).strip()
    except Exception:  # a number of thousands of digits, or an object of anybody's
        return None


def as_arrow(values: Any) -> pa.Array:
    """A column as pyarrow holds it. Where the container has no type of its own, as lists and arrays of objects, every value is
    its text: a type that pyarrow infers is one of all values, so that one row could change how the others are read.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        try:
            values = _texts(values) if _untyped(values) else pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # of a type that pyarrow does not know
            values = _texts(values)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string()) if pa.types.is_string_view(values.type) else values


def _untyped(values: Any) -> bool:
    """Whether values of any kind may be in it."""
    kind = getattr(values, "dtype", None)
    kind = getattr(
        getattr(kind, "categories", None), "dtype", kind
    )  # pandas: of a Categorical, what its categories are
    return kind is None or str(kind) == "object"


def _texts(values: Any) -> pa.Array:
    if {type(value) for value in values} <= {str, type(None)}:
        with suppress(pa.ArrowException, UnicodeEncodeError):  # as below, and faster
            return pa.array(list(values), pa.string())
    texts = [text_of(value) for value in values]
    whole = [None if text is None else text.encode("utf-8", "backslashreplace").decode() for text in texts]
    return pa.array(whole, pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def one_by_one(values: pa.Array, read: Callable[[Any], float]) -> Array:
    """Each different value read once. NaN for what is missing."""
    try:
        coded = values.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists and the like in the place of values
        coded = pa.array([text_of(value) for value in values.to_pylist()], pa.string()).dictionary_encode()
    read_each = np.array([*(_total(read, value) for value in coded.dictionary.to_pylist()), math.nan])
    places = coded.indices.fill_null(len(read_each) - 1).to_numpy(zero_copy_only=False)
    read_all: Array = read_each[places]
    return read_all


def _total(read: Callable[[Any], float], value: Any) -> float:
    try:
        return math.nan if value is None else float(read(value))
    except (ValueError, TypeError, OverflowError):
        return math.nan


def numbers(values: pa.Array, missing: tuple[str, ...]) -> Array:
    """float64 `[rows]`; NaN for what is missing or no number.

    A number is missing that equals one that is written in `missing`: -9, -9.0 and "-9" alike, whether a file or a frame holds it.
    """
    gone = np.array([_total(_number, text) for text in missing])
    if pa.types.is_floating(values.type):  # -9.9 is another number in fewer digits
        gone = gone.astype(values.type.to_pandas_dtype()).astype(np.float64)
    return _without(gone, _read_numbers(values, missing))


def _without(gone: Array, read: Array) -> Array:
    """What was read, NaN where it is one of those that are gone."""
    gone = gone[~np.isnan(gone)]
    return np.where(np.isin(read, gone), math.nan, read) if len(gone) else read


def _read_numbers(values: pa.Array, missing: tuple[str, ...]) -> Array:
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), math.nan)
    if _is_text(kind):
        return _numbers_of_texts(values, missing)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return one_by_one(values, float)
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _numbers_of_texts(values: pa.Array, missing: tuple[str, ...]) -> Array:
    trimmed = pc.utf8_trim_whitespace(values)
    if missing:
        gone = pc.is_in(trimmed, value_set=pa.array(missing, trimmed.type))
        trimmed = pc.if_else(gone, pa.scalar(None, trimmed.type), trimmed)
    try:
        return np.asarray(trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowInvalid:  # one of them is no number: the others are read as they would be without it
        return one_by_one(trimmed, _number)


def with_points(values: pa.Array) -> pa.Array:
    """Texts of numbers that are written with a decimal comma, with a point; values that are no texts as they are.

    What has a point is missing: 1.234 is 1234 to who writes so, and 1.234 to who forgot to; and neither is known to be meant.
    """
    if not _is_text(values.type):
        return values
    pointed = pc.replace_substring(values, ",", ".")
    return pc.if_else(pc.match_substring(values, "."), pa.scalar(None, values.type), pointed)


def _number(text: str) -> float:
    """Booleans among texts count as they do among themselves."""
    return _BOOLEANS[text] if text in _BOOLEANS else float(pa.scalar(text).cast(pa.float64()).as_py())


def flags(values: pa.Array, missing: tuple[str, ...]) -> Array:
    """float64 `[rows]`: 1 for true, 0 for false, NaN for what is missing or anything else."""
    known = {**dict.fromkeys(_TRUE, 1.0), **dict.fromkeys(_FALSE, 0.0)}

    def flag(value: object) -> float:
        text = text_of(value) or ""
        return math.nan if text in missing else known.get(text.lower(), math.nan)

    return one_by_one(values, flag)


def day_of(value: object) -> float:
    """Days since 1970 of a date, or of a text that begins with one as ISO 8601 writes it; NaN for anything else."""
    if isinstance(value, datetime):
        value = value.date()
    if not isinstance(value, date):
        value = date.fromisoformat(str(value).strip()[:10])
    return float((value - _EPOCH).days)


def days(values: pa.Array, missing: tuple[str, ...]) -> Array:
    """float64 `[rows]`: days since 1970; NaN for what is missing or no date. The day of a date in `missing` is, however it is
    written.
    """
    return _without(np.array([_total(day_of, text) for text in missing]), _read_days(values))


def _read_days(values: pa.Array) -> Array:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"), safe=False).cast(pa.date32(), safe=False)
    if pa.types.is_date(values.type):
        numbered = values.cast(pa.date32(), safe=False).cast(pa.int32())
        return np.asarray(numbered.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    return one_by_one(values, day_of)


def places(values: pa.Array, places_of: Mapping[str, int], missing: tuple[str, ...]) -> Array:
    """int64 `[rows]`: the place of each value among the declared ones, -1 for one that is none of them, -2 for a missing one.

    A declared value is never taken for a missing one, whatever it reads.
    """
    known = {**dict.fromkeys(missing, -2.0), **{text: float(place) for text, place in places_of.items()}}
    if not _is_text(values.type):
        read = one_by_one(values, lambda value: known.get(text_of(value) or "", -1.0))
        return np.where(np.isnan(read), -2, read).astype(np.int64)
    trimmed = pc.utf8_trim_whitespace(values)
    where = pc.index_in(trimmed, value_set=pa.array(list(known), trimmed.type)).fill_null(-1)
    by_number = np.array([*known.values(), -1.0], np.int64)  # the last one serves place -1
    found: Array = by_number[where.to_numpy(zero_copy_only=False)]
    found[values.is_null().to_numpy(zero_copy_only=False)] = -2
    return found
