"""`Ids`: the column that tells people apart, as numbers: one for each person, in the order in which they are met.

An id is compared as a text, so that 7 is 7 whether a file holds numbers or texts, and without the spaces around it. Two spellings
are two people. A row without an id belongs to nobody who could be protected, and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from honestdp.checks import InvalidArgument
from honestdp.data.tables.values import Array


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
        try:
            column = column.dictionary_decode() if pa.types.is_dictionary(kind) else column
            texts = pc.utf8_trim_whitespace(pc.cast(column, pa.string())).dictionary_encode()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            texts = None
        if texts is None:  # outside, so that nothing of a value is carried along
            raise InvalidArgument("person", f"a column of {kind}", "whole numbers or texts")
        places = [-1 if one in self._missing else self._number(one) for one in texts.dictionary.to_pylist()]
        indices = texts.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)
        numbers: Array = np.array([*places, -1], dtype=np.int64)[indices]
        return numbers

    def _number(self, one: str) -> int:
        return self._known.setdefault(one, len(self._known))
