"""The share of the records that one rank of several reads, and the check that all ranks cut the same records.

Every rank is given all records, in one order, and takes a slice of them: a record lies in one slice, by its number. That is
what one record's bound on the sum rests on, so that the ranks compare what they were given before any of them draws a lot: with
an unseeded shuffle or split on each rank, a record could be in two slices. What is compared are keyed digests: of records in
memory whole up to some size, beyond it and in files of some rows at places drawn from the secret, of a Dataset of some of its
records. An order that differs shows in any row that is looked at, unless the rows are alike.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Subset

from honestdp.boundary.arrays import blocks, in_words
from honestdp.boundary.data import PrivateData
from honestdp.boundary.layouts import as_pair, described
from honestdp.boundary.ranks import Ranks
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs

_WHOLE = 1 << 28  # bytes in memory that are compared to the last; a second
_ROWS = 1024  # of more
_DECODED = 16  # of a Dataset


def bounds(records: int, ranks: Ranks) -> tuple[int, int]:
    """The first record of this rank's share and the first after it. Shares are as equal as can be, and cut nothing in two."""
    return records * ranks.rank // ranks.size, records * (ranks.rank + 1) // ranks.size


def check_alike(mark: str, ranks: Ranks) -> None:
    """An error on all ranks where they were not given the same records in the same order. mark: of what this one was given."""
    if not ranks.same(mark):
        wanted = (
            "the same records in the same order on all ranks, each of which takes its share by number: shuffle or split them by "
            "the same seed on all, and read files in sorted order"
        )
        raise InvalidArgument("data", "data that differ between ranks", wanted)


def share_of(data: PrivateData, ranks: Ranks) -> PrivateData:
    """The records of this rank, a slice of all."""
    if ranks.size == 1:
        return data
    first, last = bounds(len(data), ranks)
    if data._people is not None:
        share = data._part(np.arange(first, last))
    elif data._pair is None:
        share = data._over(Subset(data._data, range(first, last)))
    else:
        share = data._over(tuple(inputs.each(lambda part: part[first:last], parts) for parts in data._pair))
    share._own, share._classes = data._own, data._classes
    return share


def mark_of(data: PrivateData, secret: Seed) -> str:
    """A digest under a key, by which ranks know that they were given the same. It betrays nothing without the secret."""
    digest = hashlib.sha256(secret.child("mark").key + f"{len(data)} {data._rows_in_all}".encode())
    if data._people is not None:
        data._people.marked(digest)
    places = np.random.default_rng(secret.child("places").number(128))
    if data._pair is None:
        _decoded(data._data, places, secret, digest)
        return digest.hexdigest()
    for part in (*inputs.leaves(data._pair[0]), *inputs.leaves(data._pair[1])):
        digest.update(in_words(part).encode())
        some = isinstance(part, np.memmap) or part.nbytes > _WHOLE
        for block in blocks(_some_rows(part, places) if some else part):
            digest.update(block)
    return digest.hexdigest()


def _some_rows(part: Any, places: np.random.Generator) -> Any:
    chosen = np.sort(places.integers(0, len(part), _ROWS)) if len(part) else np.zeros(0, np.int64)
    return part[chosen.tolist()] if isinstance(part, Tensor) else np.asarray(part[chosen])


def _decoded(dataset: Any, places: np.random.Generator, secret: Seed, digest: Any) -> None:
    chosen = places.integers(0, len(dataset), _DECODED).tolist() if len(dataset) else []
    for number in chosen:
        with lent():
            seed_all(secret.child("decoded", number).number(63))
            record = dataset[number]
        described(record)  # an error where it has no layout that is understood
        x, y = as_pair(record)
        for part in (*inputs.leaves(x), *inputs.leaves(y)):
            for block in blocks((part if isinstance(part, Tensor) else np.asarray(part))[None]):
                digest.update(block)
