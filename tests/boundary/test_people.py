"""A record that is a person: their rows and nobody else's, at most the cap, on one side, clipped and scored as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import honestdp
from honestdp.boundary import people, scores
from honestdp.boundary.data import PrivateData
from honestdp.boundary.metrics import PersonMean
from honestdp.boundary.people import People
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import PerExample, Prepared
from honestdp.optimizers import SGD
from honestdp.run import Unit
from tests.boundary.crying_records import planted

CPU = torch.device("cpu")
SEED = Seed.fixed(3)
IDS = np.array([7, 2, 7, 9, 7, 2, 7, 7])
"""Person 7 has five rows, person 2 two and person 9 one."""


def grouped(ids: Any = IDS, cap: int = 3, seed: Seed = SEED) -> People:
    return People.of(ids, Unit("id", cap)).draw(seed)


# ---- Whose rows are whose


def check_rows(cap: int) -> None:
    """Every place of a person holds a row of theirs, each once and the first again, as many as they have up to the cap."""
    for seed in range(5):
        found = grouped(cap=cap, seed=Seed.fixed(seed))
        places, counts = found.places()
        assert places.shape == (3, cap)
        for who, person in enumerate((2, 7, 9)):
            rows = found.all_rows[places[who]]
            own = min(cap, int((person == IDS).sum()))
            assert counts[who] == own
            assert set(IDS[rows]) == {person}
            assert len(set(rows[:own])) == own
            assert set(rows[own:]) <= {rows[0]}


@pytest.mark.parametrize("cap", [1, 3, 5, 8])
def test_every_place_of_a_person_holds_a_row_of_theirs(cap: int) -> None:
    check_rows(cap)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("draw", "ordered[rank >= cap]", "ordered[rank > cap]"),
        ("draw", "_ends(np.minimum(counts, cap))", "_ends(counts)"),
        ("draw", "np.repeat(np.arange(len(some)), counts[some])", "np.zeros(len(places))"),
        ("places", "np.where(place < counts[:, None], place, 0)", "place"),
    ],
)
def test_surplus_rows_that_stay_and_rows_of_others_are_found(
    name: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, people, People, name, before, after)
    with pytest.raises((AssertionError, IndexError)):
        [check_rows(cap) for cap in (3, 1)]


def test_nothing_is_read_of_people_whose_surplus_rows_have_not_been_dropped() -> None:
    with pytest.raises(RuntimeError, match="cap"):
        People.of(IDS, Unit("id", 3)).places()


def kept(ids: Any, person: int, cap: int, seed: Seed) -> tuple[int, ...]:
    """Which of a person's rows stay, counted within their own."""
    found = grouped(ids, cap, seed)
    own = np.flatnonzero(np.asarray(ids) == person)
    rows = [row for row in found.all_rows if ids[row] == person]
    return tuple(sorted(int(np.searchsorted(own, row)) for row in rows))


def test_every_row_of_a_person_has_the_same_chance_to_stay() -> None:
    """Two of four, 600 draws: each row stays in 300 +- 12; five deviations are left, one false alarm in a million."""
    ids = [1] * 4 + [0] * 3
    draws = [kept(ids, 1, 2, Seed.fixed(number)) for number in range(600)]
    counts = np.bincount(np.ravel(draws), minlength=4)
    assert all(len(rows) == 2 for rows in draws)
    assert np.abs(counts - 300).max() < 61


def check_independence() -> None:
    """Which rows of one person stay says nothing of another's: four pairs of outcomes, 500 draws, each pair 125 +- 10 times."""
    ids = [0, 0, 1, 1]
    draws = [(kept(ids, 0, 1, Seed.fixed(n)), kept(ids, 1, 1, Seed.fixed(n))) for n in range(500)]
    counts = [draws.count(((a,), (b,))) for a in (0, 1) for b in (0, 1)]
    assert max(abs(count - 125) for count in counts) < 52


def test_which_rows_stay_is_independent_of_other_people() -> None:
    check_independence()


def test_coins_that_people_share_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = "np.tile(np.random.default_rng(seed.number(128)).random(2), len(places) // 2)"
    planted(
        monkeypatch,
        people,
        People,
        "draw",
        "np.random.default_rng(seed.number(128)).random(len(places))",
        shared,
    )
    with pytest.raises(AssertionError):
        check_independence()


def test_a_second_draw_draws_nothing() -> None:
    once = grouped()
    assert np.array_equal(once.draw(Seed.fixed(99)).all_rows, once.all_rows)


# ---- Ids


@pytest.mark.parametrize(
    "ids",
    [
        IDS.tolist(),
        torch.from_numpy(IDS),
        IDS.astype(float),
        [f"p{each}" for each in IDS],
        np.array([f"p{each}" for each in IDS], dtype=object),
        [f"p{each}".encode() for each in IDS],
        IDS == 7,
    ],
    ids=["list", "tensor", "whole floats", "texts", "objects", "bytes", "bools"],
)
def test_ids_of_many_kinds_are_taken(ids: Any) -> None:
    whose = People.of(ids, Unit("id", 8))
    assert sorted(whose.counts) in ([1, 2, 5], [3, 5])


@pytest.mark.parametrize(
    "ids",
    [
        [1.0, float("nan")],
        [1.5, 2.0],
        ["a", ""],
        ["a", None],
        np.array([1, None], dtype=object),
        np.array([7, "7"], dtype=object),
        [[1, 2]],
        np.array(["2020-01-01"] * 2, dtype="datetime64[D]"),
        [1j, 2j],
        [2.0**53, 2.0**53 + 1],
        np.array([2**24, 2**24 + 1], dtype=np.float32),
    ],
    ids=[
        *(
            "NaN",
            "a fraction",
            "empty",
            "None",
            "None among numbers",
            "two kinds",
            "two dimensions",
            "dates",
            "complex",
        ),
        *("two in one number", "two in one short number"),
    ],
)
def test_ids_that_are_missing_or_could_hide_one_person_behind_two_are_refused(ids: Any) -> None:
    with pytest.raises(InvalidArgument, match="person"):
        honestdp.by_person((torch.zeros(2, 1), torch.zeros(2)), ids, rows=2)


def test_missing_values_of_pandas_are_refused_too() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidArgument, match="missing"):
        honestdp.by_person((torch.zeros(2, 1), torch.zeros(2)), pandas.Series([1, None], dtype="Int64"), rows=2)


def test_other_numbers_of_ids_than_rows_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="3 ids and 2 rows"):
        PrivateData(honestdp.by_person((torch.zeros(2, 1), torch.zeros(2)), [1, 2, 3], rows=2))


@pytest.mark.parametrize("rows", [0, -1, 2.5, None])
def test_a_cap_that_is_no_number_of_rows_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidArgument, match="rows"):
        honestdp.by_person((torch.zeros(2, 1), torch.zeros(2)), [1, 2], rows=rows)


def test_people_are_no_rows_to_be_grouped_again() -> None:
    once = honestdp.by_person((torch.zeros(2, 1), torch.zeros(2)), [1, 1], rows=2)
    with pytest.raises(InvalidArgument, match="data"):
        honestdp.by_person(once, [1], rows=2)


# ---- Two sides


def check_sides() -> None:
    x = torch.from_numpy(IDS).float()[:, None]
    private = PrivateData(honestdp.by_person((x, torch.zeros(len(x))), IDS, rows=8)).drawn(SEED)
    training, validation = private.split(np.array([False, True, False]))
    seen = [
        {float(row) for row in side._gathered(dtype=torch.float32, device=CPU, workers=0, seed=SEED)[0]}
        for side in (training, validation)
    ]
    assert (len(training), len(validation)) == (2, 1)
    assert not seen[0] & seen[1]
    assert seen[0] | seen[1] == {2.0, 7.0, 9.0}


def test_a_person_is_on_one_side_with_all_of_their_rows() -> None:
    check_sides()


def test_a_person_whose_rows_are_on_both_sides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = "_ranges(self._starts[numbers], counts)", "np.arange(int(counts.sum()))"
    planted(monkeypatch, people, People, "part", before, after)
    with pytest.raises(AssertionError):
        check_sides()


# ---- One person and the sum of gradients

SLOPE = nn.Linear(1, 1, bias=False)


def product(output: Tensor, y: Tensor) -> Tensor:
    """A loss of gradient x y."""
    return output[:, 0] * y


class Rows(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._x[index], self._y[index]


def summed(
    persons: Sequence[Sequence[float]], *, cap: int = 10, wrap: Callable[..., Any] = lambda x, y: (x, y)
) -> float:
    """The clipped sum over all people, a list of gradients of rows each, with the noise of a fixed seed in it. Rate 1."""
    gradients = torch.tensor([each for one in persons for each in one])
    ids = [number for number, one in enumerate(persons) for _ in one]
    given = honestdp.by_person(wrap(torch.ones(len(gradients), 1), gradients), ids, rows=cap)
    run = honestdp.Run(records=len(persons), lot=len(persons), steps=1, noise=1.0)
    with torch.no_grad():
        SLOPE.weight.zero_()
    result = honestdp.train(SLOPE, given, run=run, optimizer=SGD(lr=1.0, clip=1.0), loss=product, noise_seed=5)
    return -len(persons) * float(next(result.model.parameters()).detach())


OTHERS = [[0.0], [0.5, -0.1], [0.25] * 10]


def signal(persons: Sequence[Sequence[float]], **more: Any) -> float:
    """The sum without its noise, which is that of so many people who give nothing."""
    return summed(persons, **more) - summed([[0.0]] * len(persons))


def check_sum() -> None:
    """Each person gives the mean of their rows, whatever others do, and at most one clip."""
    assert signal([*OTHERS, [0.1, 0.3]]) == pytest.approx(0.2 + 0.25 + 0.2, abs=0.01)
    assert signal([*OTHERS, [0.3]]) == pytest.approx(0.2 + 0.25 + 0.3, abs=0.01)
    assert signal([*OTHERS, [100.0] * 10]) == pytest.approx(0.2 + 0.25 + 1, abs=0.01)
    assert signal([*OTHERS, [100.0] * 10, [-100.0]]) == pytest.approx(0.2 + 0.25, abs=0.01)


def test_a_person_gives_the_mean_of_their_rows_and_at_most_one_clip() -> None:
    check_sum()


class ClippedByRow(PerExample):
    """A fault: every row is clipped by itself, and then they are added up."""

    def __init__(self, rows: PerExample, params: Any, shares: Tensor) -> None:
        self._rows = rows
        self._present, self.params = (shares > 0).flatten(1), params
        self.norms = torch.zeros(shares.shape[:2])

    def add_weighted_sum(self, totals: Any, weights: Tensor) -> None:
        clipped = (1 / self._rows.norms.clamp(min=1)) * self._present
        self._rows.add_weighted_sum(
            totals, weights.repeat_interleave(clipped.shape[1] // weights.shape[1], 1) * clipped
        )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(torch.arange(rows, device=counts.device) < counts).to(dtype)", "torch.ones(*counts.shape[:-1], rows)"),
        ("/ counts.clamp(min=1).to(dtype)", "/ counts.sum().to(dtype)"),
        ("/ counts.clamp(min=1).to(dtype)", "/ rows"),
        ("/ counts.clamp(min=1).to(dtype)", "/ 1"),
    ],
    ids=["padding is counted", "the mean is over everybody's rows", "the mean is over empty places too", "a sum"],
)
def test_other_means_over_a_persons_rows_are_found(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, people, people, "shares_of", before, after)
    with pytest.raises(AssertionError):
        check_sum()


def test_a_clip_of_every_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Prepared.__call__

    def by_row(self: Prepared, params: Any, x: Any, y: Any, *, shares: Tensor, **_: Any) -> PerExample:
        return ClippedByRow(usual(self, params, x, y), params, shares)

    monkeypatch.setattr(Prepared, "__call__", by_row)
    with pytest.raises(AssertionError):
        check_sum()


@pytest.mark.parametrize("size", [1e3, 1e8])
def test_rows_that_cancel_do_not_erase_other_people(size: float) -> None:
    others = [[0.3]] * 20
    assert signal([*others, [size, -size]]) == pytest.approx(6.0, abs=1.01)


def test_a_row_that_is_not_finite_takes_its_person_with_it_and_nobody_else() -> None:
    assert signal([*OTHERS, [0.5, float("inf")]]) == pytest.approx(0.45, abs=0.01)
    assert signal([*OTHERS, [0.5, float("nan")]]) == pytest.approx(0.45, abs=0.01)


def test_a_person_may_have_all_rows() -> None:
    assert signal([[0.5] * 30], cap=10) == pytest.approx(0.5, abs=0.01)


def test_people_over_a_dataset_or_a_file_are_the_same(tmp_path: Any) -> None:
    def on_disk(x: Tensor, y: Tensor) -> Any:
        held = np.lib.format.open_memmap(tmp_path / f"{len(x)}.npy", mode="w+", dtype=np.float32, shape=tuple(x.shape))
        held[:] = x.numpy()
        return held, y.numpy()

    expected = summed([*OTHERS, [0.1, 0.3, 0.9]], cap=2)
    assert summed([*OTHERS, [0.1, 0.3, 0.9]], cap=2, wrap=Rows) == pytest.approx(expected, abs=1e-4)
    assert summed([*OTHERS, [0.1, 0.3, 0.9]], cap=2, wrap=on_disk) == pytest.approx(expected, abs=1e-4)


# ---- One person and the score


def total(persons: Sequence[Sequence[int]], metric: Any = None) -> int:
    """S of a model that calls every row class 1. persons: the labels of their rows."""
    y = torch.tensor([each for one in persons for each in one])
    ids = [number for number, one in enumerate(persons) for _ in one]
    whose = grouped(ids, 10)
    door = scores.ScoreDoor(
        torch.ones(len(y), 1),
        y[torch.from_numpy(whose.all_rows)],
        loss=nn.functional.cross_entropy,
        metric=PersonMean(metric or honestdp.Accuracy()),
        noise=[(0,)],
        people=people.RowsOfPeople(whose, CPU),
    )
    model = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    return door.score(0, model)[0]


def check_score() -> None:
    """D = 128 units: right in all rows is D, wrong in all -D, and the mean in between; never more, whatever others have."""
    alone = total([[1]])
    assert alone == PersonMean.sensitivity == 128
    assert total([[1] * 10]) == 128
    assert total([[0] * 10]) == -128
    assert total([[1] * 5 + [0] * 5]) == 0
    assert total([[1], [1, 1, 1, 0]]) == 128 + 64
    assert total([[1], [0] * 10]) == 0


def test_a_person_moves_a_score_by_one_number_however_many_rows_they_have() -> None:
    check_score()


def test_a_row_that_fails_counts_as_the_worst_of_its_person_alone() -> None:
    odd = honestdp.DeclaredMetric(lambda output, y: torch.where(y == 7, torch.nan, y * 1e9), low=0, high=1)
    assert total([[1], [1, 7]], odd) == 128


def test_scores_of_rows_in_the_place_of_people_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, scores, scores.ScoreDoor, "_total", "if self._people is not None:", "if False:")
    with pytest.raises(AssertionError):
        check_score()


def test_a_balanced_score_of_people_is_within_its_range() -> None:
    balanced = honestdp.BalancedAccuracy([0.9, 0.1])
    one, many = total([[0], [1]], balanced), total([[0], [1] * 10], balanced)
    assert abs(total([[1] * 10], balanced)) <= 128
    assert one == many
