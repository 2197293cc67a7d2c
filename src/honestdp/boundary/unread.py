"""`Unread`: records that are read after the charge, such as the rows of a file, and what is publicly known of them before.

What is known is declared, or counted without a look at a value: how many there are, their shapes, what preprocessing is done to
each of them by itself, and what was spent to learn its bounds. The number of records that are then read need not be the declared
one, N: rates and lots follow from N, each record is in a lot with its own chance L/N whatever the others do, and nothing says how
many there were.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from honestdp.run import ROW, Unit

Array = np.ndarray[Any, Any]
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Known:
    """What the data say of themselves. declared: whether they declare N. preprocessing: in words. spent: epsilon of what was
    learnt for it. words: what shapes do not tell, to be compared. unit: whose record it is. classes: how many are declared; no
    label is above.
    """

    declared: bool
    preprocessing: str
    spent: float
    words: str
    unit: Unit = ROW
    classes: int | None = None


class Unread(ABC):
    """Records that nobody has read yet. where: the path of a file, or an object that lives as long as the records."""

    known: Known
    where: Any

    @abstractmethod
    def __len__(self) -> int:
        """N, public."""

    @property
    @abstractmethod
    def none(self) -> tuple[Tensor, Tensor]:
        """No record, `[0, ...]`, in the shapes of the true ones."""

    def scan(self) -> None:  # noqa: B027 - nothing is wrong with what has no file
        """InvalidArgument for what is wrong with them as a whole, such as a file that is cut, without a word of a record. It is
        called before the charge, once that can be paid: what would stop every reading costs nothing then.
        """

    @abstractmethod
    def read(self) -> Any:
        """The records, as `train` and `tune` take data: arrays that nobody else holds."""


def in_two(x: Array, y: Array, held_out: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Arrays that nobody else holds, parted in place into the rows whose coin is false and those whose coin is true: copies of
    whole arrays would hold a gigabyte twice. Both sides keep their order.
    """
    cut = int((~held_out).sum())
    for array in (x, y):
        aside, kept = array[held_out], 0
        for first in range(0, len(array), _BLOCK):
            stays = array[first : first + _BLOCK][~held_out[first : first + _BLOCK]]  # a copy, so that it may overlap
            array[kept : kept + len(stays)] = stays
            kept += len(stays)
        array[cut:] = aside
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])
