"""`PrivateData`: a user's records behind one name, their public shapes, and their split into training and validation.

Two sides of the records are chosen by coins that depend on no record. The number of records is public: it is declared, and
compared with how many there are.
"""

from __future__ import annotations

import copy
import hashlib
from argparse import Namespace
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from honestdp.augment import Augmentation, check_augment
from honestdp.boundary.decoding import DatasetRecords, Guarded, decoded_once
from honestdp.boundary.layouts import (
    Known,
    Unread,
    blocks,
    described,
    empty,
    in_words,
    native,
    on_disk,
    pair_of,
    too_large,
)  # fmt: skip
from honestdp.boundary.people import ByPerson, People, PeopleRecords, RowsOfPeople, by_person
from honestdp.boundary.records import DeviceRecords, HostRecords, Pair, Records, as_read, as_tensor, two_blanks
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.run import ROW, Unit

Coins = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, Any]
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Shapes:
    """What is known of records without reading one: arrays of no record, `[0, ...]`, for inputs and labels."""

    x: Inputs
    y: Inputs
    words: tuple[str, ...]
    """Shape and kind of inputs and labels, and the cap on rows where a record is a person, to be read and compared."""
    augment: Augmentation | None = None
    unit: Unit = ROW
    classes: int | None = None

    def blanks(self, module: nn.Module) -> Pair:
        """Two made-up examples, as the module reads them."""
        parameter = next(module.parameters())
        x, y = _moved(self.x, parameter.device), _moved(self.y, parameter.device)
        return two_blanks(module, x, y, parameter.dtype)

    def made_up(self, records: int = 2) -> PrivateData:
        """Records of zeros in these shapes."""
        rows, unit = records * self.unit.rows, self.unit
        x, y = (inputs.each(lambda part: part.new_zeros(rows, *part.shape[1:]), parts) for parts in (self.x, self.y))
        if not unit.person:
            made = PrivateData((x, y)).augmented(self.augment)
        else:
            whose = np.repeat(np.arange(records), unit.rows)
            people = PrivateData(by_person((x, y), whose, rows=unit.rows, name=unit.person)).augmented(self.augment)
            made = people.drawn(Seed.fixed(0))  # of nobody a row is too many
        made.classes, made.exact = self.classes, False  # as many as are declared they need not be
        return made


class PrivateData:
    """Records that a user brings: a pair (x, y) of tensors, arrays or memory-mapped arrays, or a map-style Dataset of pairs.

    x and y may also be a tuple or a dict of them, and there may be no y (`layouts` says what is understood). augment: how the
    records of a lot are varied in training; what scores a run is read as it is. A record of `by_person` is a person.
    """

    def __init__(self, data: Any) -> None:
        given = data
        if isinstance(data, PrivateData | ByPerson):
            data = data._data
        self._pair = pair_of(data)
        self._data: Any = data if self._pair is None else self._pair
        self._people: People | None = given._people if isinstance(given, PrivateData | ByPerson) else None
        self.known: Known | None = data.known if isinstance(data, Unread) else None
        """The declarations of records that are still to be read; None where they are here."""
        self.unit: Unit = self.known.unit if self.known else self._people.unit if self._people else ROW
        """Whose record it is."""
        self.augment: Augmentation | None = None
        self.classes: int | None = self.known.classes if self.known else None
        """How many classes are declared; None where none are, or where labels are no classes."""
        self.exact = self.known is None
        """Whether there must be as many records as are declared. Those that were read after the charge, into memory that nobody
        else holds, need not."""
        if isinstance(given, PrivateData):
            self.augment, self.classes, self.exact = given.augment, given.classes, given.exact
        if self._people is not None and self.known is not None:
            wanted = "rows themselves; of a Table, declare person= and rows_per_person= there"
            raise InvalidArgument("data", "rows that are read later", wanted)
        if self._people is not None and self._people.given != self._rows_in_all:
            counts = f"{self._people.given} ids and {self._rows_in_all} rows"
            raise InvalidArgument("person", counts, "one id for each row")

    def __len__(self) -> int:
        """Of people, where they are the records."""
        return self._rows_in_all if self._people is None else len(self._people)

    @property
    def _rows_in_all(self) -> int:
        return len(self._data if self._pair is None else inputs.first(self._pair[1]))

    def scan(self) -> None:
        """InvalidArgument where what is to be read cannot be, such as a file that is cut. For use before the charge."""
        if isinstance(self._data, Unread):
            self._data.scan()

    def read(self) -> PrivateData:
        """The records themselves, for use after the charge alone; those that are here already as they are."""
        if not isinstance(self._data, Unread):
            return self
        here = PrivateData(self._data.read())
        here.exact, here.augment, here.classes = False, self.augment, self.classes
        return here

    @property
    def shapes(self) -> Shapes | None:
        """None for a Dataset, of which nothing is known before a record of it is read; unless it has the attribute `made_up`, in
        which its owner put a record of nobody, in the layout of the true ones.
        """
        more = ""
        if self._pair is not None:
            x, y = self._pair
        elif isinstance(self._data, Unread):
            (x, y), more = self._data.none, f" {self._data.known.words}"
        else:
            dataset = self._data
            while isinstance(dataset, Subset):
                dataset = dataset.dataset
            made_up = getattr(dataset, "made_up", None)
            if made_up is None:
                return None
            x, y = described(made_up)
        capped = (f"up to {self.unit.rows} rows a person ({self.unit.person})",) if self.unit.person else ()
        words = (f"{in_words(x)}{more}", in_words(y), *capped)
        return Shapes(inputs.each(empty, x), inputs.each(empty, y), words, self.augment, self.unit, self.classes)

    def augmented(self, augment: object) -> PrivateData:
        """The same records, varied in training. What cannot be used for them is refused, without reading one."""
        same, shapes = PrivateData(self), self.shapes
        same.augment = check_augment(augment, None if shapes is None else shapes.x)
        return same

    def decoders(self) -> list[Any]:
        """What decodes the records of a Dataset: its class, and the functions and plain settings that it was made with."""
        return [] if self._pair is not None or self.known is not None else _decoders(self._data)

    def _open(self, *, device: torch.device, dtype: torch.dtype, workers: int) -> Records:
        """The records as the mechanism reads them, by number."""
        records: Records
        if self._pair is None:
            records = DatasetRecords(self._data, device=device, dtype=dtype, workers=workers)
        else:
            x, y = (inputs.each(native, part) for part in self._pair)
            if on_disk(x) or too_large(x, device):
                records = HostRecords(x, y, device=device, dtype=dtype)
            else:
                x, y = (inputs.each(as_tensor, part) for part in (x, y))
                records = DeviceRecords(x, y, device=device, dtype=dtype)
        if self._people is not None:
            records = PeopleRecords(records, self._people, device=device, dtype=dtype)
        records.augment = self.augment
        return records

    def _gathered(self, *, dtype: torch.dtype, device: torch.device, workers: int, seed: Seed) -> Pair:
        """All of them, or all rows of people, as a model reads them, on the device. seed: of what a Dataset draws meanwhile."""
        one_by_one = self if self._people is None else self._taken(self._people.all_rows)
        if one_by_one._pair is None:
            x, y = decoded_once(one_by_one._data, workers=workers, seed=seed)
        else:
            x, y = (inputs.each(lambda part: as_tensor(native(part)), parts) for parts in one_by_one._pair)
        return as_read(_moved(x, device), _moved(y, device), dtype)

    def _rows_of_people(self, device: torch.device) -> RowsOfPeople | None:
        """Where in what is gathered each person's rows are."""
        return None if self._people is None else RowsOfPeople(self._people, device)

    def fingerprint(self) -> str:
        """A hash of records in memory, so that nothing goes on with others. As secret as the records."""
        digest = hashlib.sha256(str(len(self)).encode())
        x, y = self._pair or ((), ())
        for parts in (x, y):
            if inputs.several(parts):
                digest.update(in_words(parts).encode())
        for part in (*inputs.leaves(x), *inputs.leaves(y)):
            if not isinstance(part, np.memmap):  # on a disk, and too large to read for this
                for block in blocks(part):
                    digest.update(block)
        if self._people is not None:
            self._people.marked(digest)
        return digest.hexdigest()

    def guarded(self) -> PrivateData:
        """The same records; what a Dataset raises on one of them is a `RecordFailed`, which says nothing of it."""
        return self if self._pair is not None else self._over(Guarded(self._data), self._people)

    def drawn(self, seed: Seed) -> PrivateData:
        """The same records once it is drawn, by coins that follow from the seed, which rows of people count: at most the cap."""
        return self if self._people is None else self._over(self._data, self._people.draw(seed))

    def split(self, held_out: Coins) -> tuple[PrivateData, PrivateData]:
        """(training, validation): the records whose coin is false, and those whose coin is true. A person has one coin."""
        pair = self._pair
        if pair is not None and isinstance(pair[0], np.ndarray) and not self.exact and self._people is None:
            first, second = in_two(pair[0], pair[1], held_out)
            return self._over(first), self._over(second)
        return self._part(np.flatnonzero(~held_out)), self._part(np.flatnonzero(held_out))

    def _over(self, data: Any, people: People | None = None) -> PrivateData:
        """Other records, known and varied alike. data: a pair as this class holds one, or a Dataset."""
        other = copy.copy(self)
        other._pair, other._data, other._people = data if isinstance(data, tuple) else None, data, people
        return other

    def _part(self, which: Numbers | slice) -> PrivateData:
        """Some of the records: people take their rows with them, whose numbers stay."""
        if self._people is None:
            return self._taken(which)
        return self._over(self._data, self._people.part(which))

    def _taken(self, which: Numbers | slice) -> PrivateData:
        """Some of the rows, each a record. A slice of arrays is a view of them."""
        if self._pair is None or (on_disk(self._pair[0]) and not isinstance(which, slice)):
            rows = self._data if self._pair is None else _Rows(*self._pair)
            places = range(*which.indices(len(rows))) if isinstance(which, slice) else which.tolist()
            return self._over(Subset(rows, places))

        def some(part: Any) -> Any:
            by_number = isinstance(part, Tensor) and not isinstance(which, slice)
            return part[torch.from_numpy(which).to(part.device) if by_number else which]

        x, y = (inputs.each(some, part) for part in self._pair)
        return self._over((x, y))


def coins(records: int, *, fraction: float, seed: int) -> Coins:
    """For each record whether its coin puts it on the validation side."""
    return np.random.default_rng(seed).random(records) < fraction


def in_two(x: Numbers, y: Numbers, held_out: Numbers) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """Numbers that nobody else holds, parted in place into the rows whose coin is false and those whose coin is true: copies of
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


class _Rows(Dataset[Any]):
    """Arrays too large to copy, row by row."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(inputs.first(self._y))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        x, y = (inputs.each(lambda part: np.array(part[index]), parts) for parts in (self._x, self._y))
        return x, y


def _moved(x: Any, device: torch.device) -> Any:
    return inputs.each(lambda part: part.to(device), x)


def _decoders(data: Any) -> list[Any]:
    parts: list[Any] = [type(data)]
    for _, value in sorted(vars(data).items()) if hasattr(data, "__dict__") else []:
        inner = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Dataset)]
        parts += [part for one in inner for part in _decoders(one)]
        if not inner and (callable(value) or isinstance(value, bool | int | float | str | ModuleType | Namespace)):
            parts.append(value)
    return parts
