"""A record that is a person with up to k rows: whose rows are whose, which of them count, and how they are fetched.

The unit of privacy is then the person: one of them more or less, with all of their rows, is what neighbouring data differ in.
What makes it so is that from here on a person is the record, and everything that holds for records holds for people: N, the lot
and the rate count people; a person's coin puts all of their rows on one side; a person's gradient is that of the mean loss of
their rows, clipped as one; their score is the mean over their rows, one clipped number.

A person is a function of their own rows and coins alone. k, the cap, is public and declared. Of somebody with more rows k are
kept, by coins that depend on no row, one a row, and follow from the secret seed: given everybody's coins, adding or removing
somebody changes no other person's rows. The mean is over the rows that a person has, min(m, k): that number is theirs, no other
person's part depends on it, and whatever it makes of a gradient, the clip bounds it. Where a person has fewer rows than k, the
empty places hold their own first row with a share of zero, so that no place ever holds a row of somebody else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import checks
from honestdp.boundary.records import Fetched, Pair, Records
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.run import Unit

Numbers = np.ndarray[Any, np.dtype[np.int64]]
MOST_ROWS = 1_000_000
_MISSING = "an id for every row: leave out the rows of nobody beforehand, for whom they belong to cannot be protected"


@dataclass(frozen=True, eq=False, repr=False)
class People:
    """Whose rows are whose. unit: the public cap, and what a person is called.

    _order: the numbers of all rows, person after person. _starts: where each person begins there, and the end.
    given: how many rows there were ids for. drawn: nobody has more rows than the cap; before, nothing may be read.
    """

    unit: Unit
    given: int
    _order: Numbers
    _starts: Numbers
    drawn: bool = False

    def __len__(self) -> int:
        return len(self._starts) - 1

    @staticmethod
    def of(ids: Any, unit: Unit) -> People:
        """ids: one for every row, equal for the rows of one person."""
        whose = _numbered(ids)
        counts = np.bincount(whose) if len(whose) else np.zeros(0, dtype=np.int64)
        return People(unit, len(whose), np.argsort(whose, kind="stable").astype(np.int64), _ends(counts))

    @property
    def counts(self) -> Numbers:
        return np.diff(self._starts)

    @property
    def all_rows(self) -> Numbers:
        """The numbers of their rows, person after person."""
        return self._order

    def part(self, numbers: Numbers | slice) -> People:
        """Some of the people, each with all of their rows."""
        counts = self.counts[numbers]
        return replace(self, _order=self._order[_ranges(self._starts[numbers], counts)], _starts=_ends(counts))

    def draw(self, seed: Seed) -> People:
        """With at most as many rows each as the cap, by a coin for every row of whoever has more. A second draw draws nothing."""
        cap, counts = self.unit.rows, self.counts
        if self.drawn or not (counts > cap).any():
            return replace(self, drawn=True)
        some = np.flatnonzero(counts > cap)
        places = _ranges(self._starts[some], counts[some])
        whose = np.repeat(np.arange(len(some)), counts[some])
        coins = np.random.default_rng(seed.number(128)).random(len(places))
        # Of each of them, in the order of their coins, the first rows stay.
        ordered = np.lexsort((coins, whose))
        rank = np.arange(len(places)) - np.repeat(_ends(counts[some])[:-1], counts[some])
        stays = np.ones(len(self._order), dtype=bool)
        stays[places[ordered[rank >= cap]]] = False
        return replace(self, _order=self._order[stays], _starts=_ends(np.minimum(counts, cap)), drawn=True)

    def places(self) -> tuple[Numbers, Numbers]:
        """`[people, cap]`, where in `all_rows` each person's rows are, and `[people]`, how many they have."""
        if not self.drawn:
            raise RuntimeError("rows beyond the cap have not been dropped")
        counts = self.counts
        place = np.arange(self.unit.rows)[None, :]
        return self._starts[:-1, None] + np.where(place < counts[:, None], place, 0), counts

    def marked(self, digest: Any) -> None:
        """Whose rows are whose, and the cap, added to a hash."""
        digest.update(f"people {self.unit.rows}".encode() + hashlib.sha256(self._order.tobytes()).digest())
        digest.update(hashlib.sha256(self._starts.tobytes()).digest())


@dataclass(frozen=True, eq=False, repr=False)
class ByPerson:
    """Data, and whose rows are whose: what `by_person` returns, for `train` and `tune`."""

    _data: Any
    _people: People

    def __len__(self) -> int:
        """How many people there are."""
        return len(self._people)


def by_person(data: Any, person: Any, *, rows: int, name: str = "person") -> ByPerson:
    """Rows as people: a record is a person with up to so many rows, and the epsilon is a person's.

    data: rows, as `train` and `tune` take records.
    person: an id for every row, in their order: whole numbers or texts, equal for the rows of one person, compared as they are.
    rows: how many rows of a person count at most, a public number that is not read off the data. Of whoever has more, so many
        are chosen by a coin.
    name: of the ids, for statements, such as "patient_id".

    Returns what goes where data goes. The number of records that a `Run`, a lot and a rate speak of is then that of people.
    Raises InvalidArgument for ids that are missing, of several kinds or of another number than the rows.

    >>> import torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> people = honestdp.by_person((x, y), torch.arange(len(x)) // 5, rows=3)
    >>> run = honestdp.Run(records=len(people), lot=32, steps=10, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), people, run=run, delta=1e-5)
    >>> result.statement.relation
    'add or remove one person, with all of their rows'
    """
    checks.whole(least=1, most=MOST_ROWS, rows=rows)
    if not isinstance(name, str) or not name.strip():
        raise InvalidArgument("name", name, "what the ids are called, such as 'patient_id'")
    if isinstance(data, ByPerson):
        raise InvalidArgument("data", "data that are people already", "rows")
    return ByPerson(data, People.of(person, Unit(person=name, rows=rows)))


def _numbered(ids: Any) -> Numbers:
    """The number of each row's person."""
    array = np.asarray(ids.detach().cpu() if isinstance(ids, Tensor) else ids)
    if array.ndim != 1:
        raise InvalidArgument("person", f"ids of shape {array.shape}", "one id for every row")
    if array.dtype.kind == "O":
        return _numbered_objects(array)
    if array.dtype.kind not in "biufUS":
        raise InvalidArgument("person", f"ids of {array.dtype}", "whole numbers or texts")
    if array.dtype.kind == "f" and not bool((np.isfinite(array) & (array == np.floor(array))).all()):
        raise InvalidArgument("person", "ids that are missing or no whole numbers", _MISSING)
    if array.dtype.kind == "f" and len(array) and np.abs(array).max() >= 2.0 ** (np.finfo(array.dtype).nmant + 1):
        wanted = "whole numbers or texts: two people under one id would be protected half"
        raise InvalidArgument("person", "ids that floating point cannot tell apart", wanted)
    if array.dtype.kind in "US" and bool((array == array.dtype.type()).any()):
        raise InvalidArgument("person", "an id that is empty", _MISSING)
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _numbered_objects(array: np.ndarray[Any, Any]) -> Numbers:
    kinds, known = set(), dict[Any, int]()
    found = np.empty(len(array), dtype=np.int64)
    for place, one in enumerate(array):
        if isinstance(one, np.generic):
            one = one.item()
        if not isinstance(one, int | str | bytes) or one in ("", b""):
            raise InvalidArgument("person", "an id that is missing, or neither a whole number nor a text", _MISSING)
        kinds.add(type(one))
        found[place] = known.setdefault(one, len(known))
    if len(kinds) > 1:  # 7 and "7" may be one person, who would be protected half
        raise InvalidArgument("person", f"ids of {' and '.join(sorted(k.__name__ for k in kinds))}", "all of one kind")
    return found


def _ends(counts: Numbers) -> Numbers:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """start, start + 1, ... for each, so many as it counts, one after the other."""
    return np.repeat(starts - _ends(counts)[:-1], counts) + np.arange(int(counts.sum()))


class PeopleRecords(Records):
    """People over rows that are fetched by number: a person is fetched with as many rows as the cap."""

    def __init__(self, rows: Records, people: People, *, device: torch.device, dtype: torch.dtype) -> None:
        self._inner, self._people, self._device, self._dtype = rows, people, device, dtype
        self.resident, self.finite, self.rows = rows.resident, rows.finite, people.unit.rows
        if people.drawn:
            places, counts = people.places()
            self._table = torch.from_numpy(people.all_rows[places]).to(device)
            self._counts = torch.from_numpy(counts).to(device)

    def __len__(self) -> int:
        return len(self._people)

    def drawn(self, seed: Seed) -> Records:
        if self._people.drawn:
            return self
        same = PeopleRecords(self._inner, self._people.draw(seed), device=self._device, dtype=self._dtype)
        same.augment = self.augment
        return same

    def fetch(self, indices: Tensor) -> Fetched:
        """Their rows, `[runs, lot * cap, ...]`, and the shares of them."""
        fetched = self._inner.fetch(self._numbers_of(indices))
        counts = self._counts.index_select(0, indices.reshape(-1)).view(*indices.shape, 1)
        return fetched._replace(shares=shares_of(counts, self.rows, self._dtype))

    def _numbers_of(self, indices: Tensor) -> Tensor:
        """indices `[runs, lot]` of people -> those of their rows, `[runs, lot * cap]`."""
        found = self._table.index_select(0, indices.reshape(-1).to(self._table.device))
        return found.view(indices.shape[0], indices.shape[1] * self.rows)

    def blank(self, model: nn.Module) -> Pair:
        return self._inner.blank(model)

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        self._inner.expect([self._numbers_of(lot) for lot in lots], seed)

    def close(self) -> None:
        self._inner.close()


def shares_of(counts: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """What part each of a person's places has in their mean: one over how many rows they have, 0 for an empty place.

    counts: `[..., 1]`, of rows. `[..., rows]`.
    """
    return (torch.arange(rows, device=counts.device) < counts).to(dtype) / counts.clamp(min=1).to(dtype)


class RowsOfPeople:
    """Where the rows of the people on the validation side are: makes one number a person of one number a row."""

    def __init__(self, people: People, device: torch.device) -> None:
        places, counts = people.places()
        self._places, self._counts = torch.from_numpy(places).to(device), torch.from_numpy(counts).to(device)

    def means(self, numbers: Tensor) -> Tensor:
        """numbers `[rows]`, each within its range -> `[people]`, the mean over each person's rows, within it too."""
        shares = shares_of(self._counts[:, None], self._places.shape[1], torch.float64)
        return (numbers.double()[self._places] * shares).sum(1)
