"""Ranks: each record lies on one of them, and what they make of a lot is what one process makes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import honestdp
from honestdp.boundary import ranks as module
from honestdp.boundary.data import PrivateData
from honestdp.boundary.query import Query, Release
from honestdp.boundary.ranks import ALONE, Ranks, bounds, mark_of, share_of
from honestdp.boundary.records import Examples
from honestdp.boundary.release import release
from honestdp.boundary.seed import Seed
from tests.toy_training import constants_of, intake_of, second_question, toy_data, toy_model

SIZES = (1, 2, 3, 4, 7)
SECRET = Seed.fixed(1)


class Threads(Ranks):
    """Ranks of one process, in threads."""

    def __init__(self, rank: int, size: int, meeting: threading.Barrier, table: list[Any]) -> None:
        self.rank, self.size, self._meeting, self._table = rank, size, meeting, table

    def sum_(self, numbers: Tensor) -> Tensor:
        self._table[self.rank] = numbers.clone()
        self._meeting.wait(timeout=30)
        numbers.copy_(torch.stack(self._table).sum(0))
        self._meeting.wait(timeout=30)
        return numbers


def in_threads(size: int, act: Callable[[Ranks], Any]) -> list[Any]:
    """What each rank gets by doing this."""
    meeting, table, found = threading.Barrier(size), [None] * size, [None] * size

    def work(rank: int) -> None:
        found[rank] = act(Threads(rank, size, meeting, table))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def rank_of(rank: int, size: int) -> Ranks:
    return Threads(rank, size, threading.Barrier(1), [])


class Numbers(Dataset[Any]):
    """Records behind a Dataset."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return self.x[number], 0


def homes(folder: Path) -> dict[str, tuple[Any, Any]]:
    """The same ten records in every home, and in another order."""
    x = torch.arange(10.0)[:, None]
    file = np.memmap(folder / "x", dtype=np.float32, mode="w+", shape=(10, 1))
    file[:] = x.numpy()
    back = np.memmap(folder / "back", dtype=np.float32, mode="w+", shape=(10, 1))
    back[:] = x.flip(0).numpy()
    y = torch.zeros(10)
    rows, whose = torch.arange(20.0)[:, None], np.repeat(np.arange(10), 2)
    people = {end: honestdp.by_person((rows, torch.zeros(20)), whose[::end], rows=2) for end in (1, -1)}
    return {
        "tensors": ((x, y), (x.flip(0), y)),
        "arrays": ((x.numpy(), y.numpy()), (x.flip(0).numpy(), y.numpy())),
        "file": ((file, y.numpy()), (back, y.numpy())),
        "several": (({"a": x, "b": x + 1}, y), ({"a": x, "b": x.flip(0)}, y)),
        "dataset": (Numbers(x), Numbers(x.flip(0))),
        "people": (people[1], people[-1]),
    }


@pytest.mark.parametrize("home", ["tensors", "arrays", "file", "several", "dataset", "people"])
@pytest.mark.parametrize("size", SIZES)
def test_every_record_lies_on_one_rank(home: str, size: int, tmp_path: Path) -> None:
    data = PrivateData(homes(tmp_path)[home][0])
    held = []
    for rank in range(size):
        share = share_of(data, rank_of(rank, size))
        assert len(share) == len(range(*bounds(10, rank_of(rank, size))))
        assert (share.exact, share.unit, share.augment) == (data.exact, data.unit, data.augment)
        records = share._open(device=torch.device("cpu"), dtype=torch.float32, workers=0).drawn(SECRET)
        every = torch.arange(len(share))[None]
        if len(share):
            records.expect([every], SECRET)
            x = records.fetch(every).x
            held += (x["a"] if isinstance(x, dict) else x).flatten().tolist()
    assert held == [float(number) for number in range(20 if home == "people" else 10)]


@pytest.mark.parametrize("home", ["tensors", "arrays", "file", "several", "dataset", "people"])
def test_another_order_of_the_records_has_another_mark(home: str, tmp_path: Path) -> None:
    """And what is the same has the same one, under one secret; under another one it says nothing."""
    same, other = homes(tmp_path)[home]
    assert mark_of(PrivateData(same), SECRET) == mark_of(PrivateData(homes(tmp_path)[home][0]), SECRET)
    assert mark_of(PrivateData(same), SECRET) != mark_of(PrivateData(other), SECRET)
    assert mark_of(PrivateData(same), SECRET) != mark_of(PrivateData(same), Seed.fixed(2))


@pytest.mark.parametrize("whole", [1 << 28, 0])
def test_labels_and_records_far_behind_count_in_the_mark_whether_all_or_some_are_looked_at(
    whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WHOLE", whole)
    x, y = torch.arange(2000.0)[:, None], torch.arange(2000.0)
    behind = torch.cat([x[:1000], x[1000:].flip(0)])
    mark = mark_of(PrivateData((x, y)), SECRET)
    assert mark == mark_of(PrivateData((x.clone(), y.clone())), SECRET)
    assert mark != mark_of(PrivateData((x, y.flip(0))), SECRET)
    assert mark != mark_of(PrivateData((behind, y)), SECRET)


def test_ranks_draw_from_seeds_of_their_own_and_one_process_from_that_of_before() -> None:
    seeds = {rank_of(rank, size).seed_of(SECRET).key for size in SIZES[1:] for rank in range(size)}
    assert len(seeds | {SECRET.key}) == 1 + sum(SIZES[1:])
    assert ALONE.seed_of(SECRET) is SECRET


class Given:
    """A source of noise that gives what it was given."""

    generators = ()

    def __init__(self, numbers: list[Tensor]) -> None:
        self._numbers = numbers

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return self._numbers.pop(0).reshape(shape).clone()

    def state(self) -> list[Tensor]:
        return []

    def restore(self, state: list[Tensor]) -> None: ...


@pytest.mark.usefixtures("fine_grid")
@pytest.mark.parametrize("extra", [None, "quantile", "direction", "norm"])
@pytest.mark.parametrize("size", [2, 4])
def test_for_the_same_lot_and_noise_ranks_release_what_one_process_releases(extra: Any, size: int) -> None:
    """One of the ranks has nobody in its lot."""
    x, y = toy_data(12)
    model = toy_model()
    intake = intake_of(model, (x, y))
    constants = constants_of(intake, records=12, lot=5.0, steps=1, noise=[2.0])
    params = torch.cat([p.detach().flatten() for p in model.parameters()])[None]
    half = torch.tensor([0.5], dtype=torch.float64)
    query = Query(clip=half, second=second_question(extra, 20 * half))
    maker = torch.Generator().manual_seed(2)
    wide = [params.shape, params.shape if extra == "direction" else (1, 1)]
    noises = [[torch.randn(shape, generator=maker, dtype=torch.float64) for shape in wide] for _ in range(size)]
    together = [torch.stack(one).sum(0) / size**0.5 for one in zip(*noises, strict=True)]

    def of(members: slice, noise: list[Tensor], ranks: Ranks) -> Release:
        some = x[members], y[members]
        lot = [Examples(some[0][None], some[1][None], torch.ones(1, len(some[0])))] if len(some[0]) else []
        how: dict[str, Any] = {"vetted": intake.vetted, "constants": constants, "noise": Given(list(noise))}
        return release(lot, params, query, ranks=ranks, **how)

    cuts = [0, 0, *range(12 // (size - 1), 13, 12 // (size - 1))]
    parts = [slice(cuts[rank], cuts[rank + 1]) for rank in range(size)]
    every = in_threads(size, lambda ranks: of(parts[ranks.rank], noises[ranks.rank], ranks))
    whole = of(slice(0, 12), together, ALONE)
    for name in ("gradient", "second"):
        wanted = getattr(whole, name)
        for found in every:
            if wanted is None:
                assert getattr(found, name) is None
            else:
                torch.testing.assert_close(getattr(found, name), wanted, rtol=1e-9, atol=1e-9)
                assert torch.equal(getattr(found, name), getattr(every[0], name))
