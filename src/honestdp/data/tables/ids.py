"""`Ids`: the column that tells people apart, as numbers: one for each person, in the order in which they are met.

An id is compared as a text, so that 7 is 7 whether a file holds numbers or texts, and without the spaces around it. Two spellings
are two people. A row without an id belongs to nobody who could be protected, and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from honestdp.checks import InvalidArgument
from honestdp.data.tables.values import Array, text_of


class Ids:
    """The people that have been met. missing: texts that stand for no id."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        self._known: dict[str, int] = {}
        self._missing = frozenset(missing) | {""}

    def __len__(self) -> int:
        return len(self._known)

    def numbers(self, column: Any) -> Array:
        """int64, the number of each row's person, -1 where the id is missing."""
        kind = column.type
        if pa.types.is_nested(kind):
            raise InvalidArgument("person", f"a column of {kind}", "whole numbers or texts")
        coded = column.dictionary_encode() if not pa.types.is_dictionary(kind) else column
        ids = coded.dictionary.to_pylist()
        if pa.types.is_floating(kind) and any(abs(one) >= 2.0 ** (_digits(kind) + 1) for one in ids if one is not None):
            wanted = "whole numbers or texts: two people under one id would be protected half"
            raise InvalidArgument("person", "ids that floating point cannot tell apart", wanted)
        # As texts by the value alone: what pyarrow makes of a float of its own depends on its size.
        places = [self._number(one) for one in ids]
        indices = coded.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)
        numbers: Array = np.array([*places, -1], dtype=np.int64)[indices]
        return numbers

    def _number(self, value: object) -> int:
        one = text_of(value)
        return -1 if one is None or one in self._missing else self._known.setdefault(one, len(self._known))


def _digits(kind: pa.DataType) -> int:
    """Binary digits of a floating point number behind its point."""
    return int(np.finfo(kind.to_pandas_dtype()).nmant)
