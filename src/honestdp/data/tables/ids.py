"""`Ids`: the column that tells people apart, as numbers: one for each person, in the order in which they are met.

An id that is a whole number is compared by number, since tools respell it: 7, 7.0 and 07 are one person, in numbers and in texts.
Any other id is compared letter by letter, without the spaces around it. A row without an id belongs to nobody who could be
protected, and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from honestdp.checks import InvalidArgument
from honestdp.data.tables.cells import Array, Cells


class Ids:
    """The people that have been met."""

    def __init__(self, cells: Cells) -> None:
        self._known: dict[str, int] = {}
        self._cells = cells

    def __len__(self) -> int:
        return len(self._known)

    def numbers(self, values: Any) -> Array:
        """int64, the number of each row's person, -1 where the id is missing."""
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
"""Signs by which a tool that held an id as a floating point number has written it."""


def _refuse_merged(merged: bool) -> None:
    if merged:
        wanted = "whole numbers or texts: two people under one id would be protected half"
        raise InvalidArgument("person", "ids that floating point cannot tell apart", wanted)
