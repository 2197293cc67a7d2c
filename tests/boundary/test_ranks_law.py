"""What several ranks release has the law of what one process releases, so that the accounting of one holds for them.

The records are the unit vectors, and a record's gradient is itself: a release tells, up to its noise, who was in the lot. The
same claims are asked of 1, 2 and 4 processes, which talk by gloo.
"""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from honestdp import Compute
from honestdp.boundary import rounding
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.query import Constants, Query, Release, State
from honestdp.boundary.ranks import Ranks
from honestdp.boundary.seed import Seed
from honestdp.training.torchrun import joined
from tests.many_ranks import on_ranks
from tests.toy_training import second_question

pytestmark = pytest.mark.law

RECORDS, LOT, NOISE, RUNS, STEPS = 16, 4.0, 0.02, 128, 32
SECOND = 0.05  # deviation of the noise on a second question
RATE = LOT / RECORDS
LONG = 3  # every so many records the norm is 2, above the clip of 1
SIZES = (1, 2, 4)


class Recorder:
    """A rule that learns nothing and remembers every release."""

    def __init__(self, extra: Any) -> None:
        self.extra, self.seen = extra, list[Release]()

    def query(self, state: State, constants: Constants) -> Query:
        clip = torch.ones_like(constants.noise)
        return Query(clip=clip, second=second_question(self.extra, SECOND * clip))

    def update(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        self.seen.append(release)
        return params, state


def unit_vectors() -> tuple[Tensor, Tensor]:
    x = torch.eye(RECORDS, dtype=torch.float64)
    x[::LONG] *= 2
    return x, torch.zeros(RECORDS, dtype=torch.float64)


def first_output(output: Tensor, y: Tensor) -> Tensor:
    return output[:, 0]


def releases(ranks: Ranks, extra: str | None, *, seed: Seed, steps: int = STEPS) -> dict[str, Any]:
    """Sums of many steps of many runs, `[steps * runs, ...]`: what was released, times L."""
    model = nn.Linear(RECORDS, 1, bias=False).double()
    with torch.no_grad():
        model.weight.zero_()
    how: dict[str, Any] = {"loss": first_output, "device": torch.device("cpu"), "workers": 0, "lot": LOT}
    intake = take_in(model, PrivateData(unit_vectors()), records=RECORDS, ranks=ranks, secret=seed, **how)
    intake.compare()
    sigma = torch.full((RUNS,), NOISE, dtype=torch.float64)
    constants = Constants(RECORDS, LOT, steps, sigma, intake.layout, torch.ones(steps, dtype=torch.float64))
    mechanism, rule = intake.mechanism(constants, seed=seed, secure=False), Recorder(extra)
    params, made = torch.zeros(RUNS, intake.layout.width, dtype=torch.float64), 0
    while made < steps:
        count, params, _ = mechanism.steps(rule, params, {}, left=steps - made)
        made += count
    found = {"gradient": torch.cat([one.gradient[:, :RECORDS] for one in rule.seen]) * LOT}
    if extra == "direction":
        found["direction"] = torch.cat([one.second[:, :RECORDS] for one in rule.seen if one.second is not None]) * LOT
    if extra == "quantile":
        found["count"] = torch.cat([(one.second - 0.5) for one in rule.seen if one.second is not None]) * LOT
    return {name: value.numpy() for name, value in found.items()}


def program(folder: str) -> None:
    """What a rank does: all questions, and a file of what it saw."""
    rounding.FINENESS = 2.0**-48
    with joined(Compute(device="cpu")) as (ranks, _):
        answers: dict[str, Any] = {}
        for number, extra in enumerate((None, "quantile", "direction")):
            seed = ranks.first(lambda number=number: Seed.fixed(100 * ranks.size + number))  # type: ignore[misc]
            steps = STEPS if extra is None else STEPS // 4
            found = releases(ranks, extra, seed=seed, steps=steps)
            answers |= {f"{extra} {name}": value for name, value in found.items()}
        np.savez(Path(folder) / f"{ranks.size} {ranks.rank}.npz", **answers)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
    """By the number of ranks, what each rank saw."""
    folder = tmp_path_factory.mktemp("law")
    code = f"from tests.boundary.test_ranks_law import program; program({str(folder)!r})"
    for size in SIZES:
        for exit_code, _, error in on_ranks(folder, code, size):
            assert exit_code == 0, error
    return {size: [np.load(folder / f"{size} {rank}.npz") for rank in range(size)] for size in SIZES}


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def seen(every: dict[int, list[Any]], size: int) -> Any:
    return every[size][0]


def lots(sums: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`[steps * runs, records]`: 1 for members."""
    members: np.ndarray[Any, Any] = np.rint(sums)
    return members


def test_a_record_is_in_a_lot_once_or_not_at_all(seen: Any) -> None:
    """So that it lies on one rank, and moves the sum by its clip at most."""
    assert set(np.unique(lots(seen["None gradient"]))) == {0.0, 1.0}


def test_every_record_has_the_rate_of_the_whole(seen: Any) -> None:
    members = lots(seen["None gradient"])
    spread = math.sqrt(RATE * (1 - RATE) / len(members))
    assert np.abs(members.mean(0) - RATE).max() < 4.5 * spread


def test_a_record_tells_nothing_of_another_in_a_lot(seen: Any) -> None:
    """Of the same rank or of another one, nor of itself in the next step or in another run."""
    members = lots(seen["None gradient"]) - RATE
    bound = 4.5 * RATE * (1 - RATE) / math.sqrt(len(members))
    together = members.T @ members / len(members)
    assert np.abs(together[~np.eye(RECORDS, dtype=bool)]).max() < bound
    for shift in (1, RUNS):
        assert np.abs((members[shift:] * members[:-shift]).mean(0)).max() < bound
        assert np.abs((members[shift:, :8] * members[:-shift, 8:]).mean(0)).max() < bound


def test_a_lot_of_all_ranks_has_the_binomial_law(seen: Any) -> None:
    sizes = lots(seen["None gradient"]).sum(1).astype(int)
    law = [math.comb(RECORDS, k) * RATE**k * (1 - RATE) ** (RECORDS - k) for k in range(9)]
    expected = np.array([*law, 1 - sum(law)]) * len(sizes)
    counted = np.bincount(np.minimum(sizes, 9), minlength=10)
    assert ((counted - expected) ** 2 / expected).sum() < 35  # of 9 degrees of freedom: one in 10^4


def residue(seen: Any) -> np.ndarray[Any, Any]:
    """The noise on the sums, of deviation 1 as it should be."""
    sums = seen["None gradient"]
    found: np.ndarray[Any, Any] = (sums - lots(sums)) / NOISE
    return found


def test_the_noise_of_the_whole_is_added_once(seen: Any) -> None:
    found = residue(seen)
    assert abs(found.mean()) < 4.5 / math.sqrt(found.size)
    assert abs(found.std() - 1) < 4.5 / math.sqrt(2 * found.size)
    assert abs((found**4).mean() - 3) < 4.5 * math.sqrt(96 / found.size)


def test_noise_is_there_whichever_rank_has_an_empty_lot(seen: Any, size: int) -> None:
    share = RECORDS // size
    members = lots(seen["None gradient"]).reshape(-1, size, share)
    for rank in range(size):
        found = residue(seen)[members[:, rank].sum(1) == 0]
        assert found.size > 100
        assert abs(found.std() - 1) < 4.5 / math.sqrt(2 * found.size)


def test_noise_tells_nothing_of_other_noise(seen: Any) -> None:
    """Of another coordinate, step or run; nor of a lot."""
    found = residue(seen)
    bound = 4.5 / math.sqrt(len(found))
    assert np.abs((found.T @ found / len(found))[~np.eye(RECORDS, dtype=bool)]).max() < bound
    for shift in (1, RUNS):
        assert np.abs((found[shift:] * found[:-shift]).mean(0)).max() < bound
    assert np.abs((found * (lots(seen["None gradient"]) - RATE)).mean(0)).max() < bound


def test_the_count_of_a_quantile_is_of_the_whole_lot_with_its_noise_once(seen: Any) -> None:
    members = lots(seen["quantile gradient"])
    short = np.ones(RECORDS)
    short[::LONG] = -1
    noise = (seen["quantile count"] - members @ short / 2) / SECOND
    assert abs(noise.mean()) < 4.5 / math.sqrt(noise.size)
    assert abs(noise.std() - 1) < 4.5 / math.sqrt(2 * noise.size)
    assert_split(seen["quantile gradient"] - members, 2 * SECOND)


def test_the_direction_is_of_the_whole_lot_with_its_noise_once(seen: Any) -> None:
    members = lots(seen["direction gradient"])
    long = np.zeros(RECORDS)
    long[::LONG] = 1
    noise = (seen["direction direction"] - members * long) / SECOND
    assert abs(noise.mean()) < 4.5 / math.sqrt(noise.size)
    assert abs(noise.std() - 1) < 4.5 / math.sqrt(2 * noise.size)
    assert_split(seen["direction gradient"] - members, SECOND)


def assert_split(noise: np.ndarray[Any, Any], second: float) -> None:
    """The gradient's noise beside a second answer of this multiplier: together they cost one Gaussian."""
    wanted = (NOISE**-2 - second**-2) ** -0.5
    assert abs(noise.std() / wanted - 1) < 4.5 / math.sqrt(2 * noise.size)


def test_all_ranks_see_the_same_release_to_the_last_bit(every: dict[int, list[Any]], size: int) -> None:
    digests = [
        {hashlib.sha256(one[name].tobytes()).hexdigest() for one in every[size]} for name in every[size][0].files
    ]
    assert [len(found) for found in digests] == [1] * len(digests)


if __name__ == "__main__":
    program(sys.argv[1])
