"""`Ranks`: processes that train one model together, each on its own share of the records, and what passes between them.

With R ranks the N records are cut into R shares, a record in one of them (`share_of`). In every step each rank draws a Poisson
lot of its share at the rate of the whole, L/N: the lots of all ranks together are a Poisson lot of all records, for a record's
coin is its own wherever it is tossed. Each rank clips and sums its lot and adds a share of the noise, normal of variance 1/R of
the whole's, from a generator of its own; the sums are added up, and the sum is rounded to the grid of the whole's noise
(`rounding`).
Independent normal numbers of variances v/R add up to one of variance v, so that what is released has the law of one process, and
what is accounted is the same. All ranks round the same sum, so that all have the same weights.

Shares of the noise, and not one rank's noise for all: whoever sees what one rank sends sees a sum with noise in it, of multiplier
sigma / sqrt(R), and not a bare one. That is less than is stated, and torch sends in clear: traffic between ranks is as secret as
the records. A rank whose lot is empty, or whose share is, sends its noise like any other. Where a rank is missing there is no sum
and no release: nothing goes on with the noise of the others.

Generators of all ranks are children of the one secret seed, named by the rank and the number of ranks (`seed_of`), so that no two
draw the same numbers, and another number of ranks draws other ones.

Every rank is given all records, in one order, and takes a slice of them: a record lies in one slice, by its number. That is
what one record's bound on the sum rests on, so that the ranks compare what they were given before any of them draws a lot: with
an unseeded shuffle or split on each rank, a record could be in two slices. What is compared are keyed digests (`mark_of`): of
records in memory whole up to some size, beyond it and in files of some rows at places drawn from the secret, of a Dataset of some
of its records. An order that differs shows in any row that is looked at, unless the rows are alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.data import PrivateData
from honestdp.boundary.layouts import as_pair, blocks, described, in_words
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import inputs

Made = TypeVar("Made")
# Of the records, what is compared between ranks:
_WHOLE = 1 << 28  # bytes in memory that are compared to the last; a second
_ROWS = 1024  # of more
_DECODED = 16  # of a Dataset
_LOST = "another rank of this training ended or cannot be reached, and its own output says why; no step was released without it"


class RankLost(HonestdpError):
    """A process of a training on several has ended, failed or cannot be reached. Nothing was released without it."""


class Ranks:
    """Processes that train together: `rank` of `size`. This class is of one process by itself: it has nobody to talk to."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that charges, writes and shows."""
        return self.rank == 0

    def seed_of(self, seed: Seed) -> Seed:
        """What this rank's lots and noise follow from."""
        return seed if self.size == 1 else seed.child("rank", self.rank, "of", self.size)

    def noise_share(self) -> float:
        """Of the deviation of the whole's noise, what each rank adds: variances add up."""
        return 1 / math.sqrt(self.size)

    def sum_(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks, the same bits on each, in the place of the numbers. They are private."""
        return numbers

    def first(self, act: Callable[[], Made]) -> Made:
        """What the first rank gets by doing this; it alone does it."""
        return act()

    def together(self, act: Callable[[], Made], *, words: bool = False) -> Made:
        """Each does it, and none goes on where one fails. words: say why, where no record can be in them."""
        return act()

    def agree(self, said: Mapping[str, object]) -> None:
        """An error on all where they do not say the same."""

    def same(self, mark: str) -> bool:
        """Whether all have this mark."""
        return True

    def gathered(self, parts: list[Tensor]) -> list[Tensor]:
        """On the first rank those of all, one rank's after the other's. As many of each."""
        return parts

    def own(self, parts: list[Tensor]) -> list[Tensor]:
        """Of what was gathered, those of this rank."""
        each = len(parts) // self.size
        if each * self.size != len(parts):
            raise RuntimeError("these are not the parts of so many ranks")
        return parts[self.rank * each : (self.rank + 1) * each]

    def check_alike(self, weights: Tensor) -> None:
        """Raise RuntimeError where the weights of two ranks differ in a bit."""
        if self.size > 1 and not self.same(hashlib.sha256(b"".join(blocks(weights))).hexdigest()):
            raise RuntimeError(
                "the ranks have different weights: something but the training writes to them, or a device errs"
            )


ALONE = Ranks()


class Joined(Ranks):
    """Ranks over groups of torch.distributed: `talk`, of gloo, for what they say, and `sums`, on the device or of gloo."""

    def __init__(self, talk: Any, sums: Any, *, on_device: bool) -> None:
        import torch.distributed as dist

        self._dist, self._talk, self._sums, self._on_device = dist, talk, sums, on_device
        self._silent = False
        self.rank, self.size = dist.get_rank(talk), dist.get_world_size(talk)

    def sum_(self, numbers: Tensor) -> Tensor:
        if self._on_device:
            self._done(lambda: self._dist.all_reduce(torch.zeros(1), group=self._talk))  # the lost are noticed here
            self._done(lambda: self._dist.all_reduce(numbers, group=self._sums))
            return numbers
        here = numbers.cpu().contiguous()
        self._done(lambda: self._dist.all_reduce(here, group=self._sums))
        return numbers.copy_(here) if here is not numbers else numbers

    def first(self, act: Callable[[], Made]) -> Made:
        answer: list[Any] = [None, None]
        if self.is_first:
            try:
                answer[0] = self._by_itself(act)
            except Exception as trouble:
                self._spread([None, _told(trouble, words=True)])
                raise
        answer = self._spread(answer)
        if answer[1] is not None:
            raise RankLost(f"rank 0 stopped: {answer[1]}")
        made: Made = answer[0]
        return made

    def together(self, act: Callable[[], Made], *, words: bool = False) -> Made:
        trouble: Exception | None = None
        try:
            made = self._by_itself(act)
        except Exception as failed:
            trouble = failed
        told = self._all(None if trouble is None else _told(trouble, words=words))
        if trouble is not None:
            raise trouble
        failures = [f"rank {rank} stopped: {why}" for rank, why in enumerate(told) if why is not None]
        if failures:
            raise RankLost("; ".join(failures))
        return made

    def agree(self, said: Mapping[str, object]) -> None:
        every = self._all({name: str(value) for name, value in said.items()})
        for name in said:
            other = next((rank for rank, one in enumerate(every) if one[name] != every[0][name]), None)
            if other is not None:
                given = f"{every[0][name]} on rank 0 and {every[other][name]} on rank {other}"
                raise InvalidArgument(name, given, "the same on all ranks, which train one model on one set of records")

    def same(self, mark: str) -> bool:
        return len(set(self._all(mark))) == 1

    def gathered(self, parts: list[Tensor]) -> list[Tensor]:
        every: list[Any] | None = [None] * self.size if self.is_first else None
        self._done(lambda: self._dist.gather_object(parts, every, group_dst=0, group=self._talk))
        return parts if every is None else [part for one in every for part in one]

    def close(self) -> None:
        """End the talk: whoever waits for this rank learns that it has gone."""
        for group in {id(group): group for group in (self._sums, self._talk)}.values():
            with suppress(Exception):
                self._dist.destroy_process_group(group)
        self._talk = self._sums = None

    def _by_itself(self, act: Callable[[], Made]) -> Made:
        """What this rank does while others may wait: it cannot talk, for they would not answer."""
        self._silent, before = True, self._silent
        try:
            return act()
        finally:
            self._silent = before

    def _spread(self, answer: list[Any]) -> list[Any]:
        self._done(lambda: self._dist.broadcast_object_list(answer, group_src=0, group=self._talk))
        return answer

    def _all(self, said: Any) -> list[Any]:
        every: list[Any] = [None] * self.size
        self._done(lambda: self._dist.all_gather_object(every, said, group=self._talk))
        return every

    def _done(self, talk: Callable[[], Any]) -> None:
        if self._silent:
            raise RuntimeError("a rank talks to others that do not listen")
        if self._talk is None:
            raise RankLost(_LOST)
        try:
            talk()
        except RuntimeError as trouble:  # torch's words for it: a connection closed, a time that ran out
            raise RankLost(_LOST) from trouble


def _told(trouble: Exception, *, words: bool) -> str:
    """What the other ranks hear of it: its kind, and its words where they are for the user and hold no record."""
    name = type(trouble).__name__
    return f"{name}: {trouble}" if words and isinstance(trouble, HonestdpError) else name


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
    return data if ranks.size == 1 else data._part(slice(*bounds(len(data), ranks)))


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
