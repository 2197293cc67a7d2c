"""Spaces: grids are listed, laws are drawn from, and whatever no optimizer could take is refused before anything is charged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from honestdp import Choice, LogUniform, Uniform
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME
from honestdp.search.space import Space, space_of


def made(optimizer: str | list[str], space: dict | None) -> Space:
    return space_of(optimizer, space, lot=64, steps=100)


def test_lists_are_a_grid_with_every_combination_once() -> None:
    found = made("sgd", {"lr": [0.1, 0.2, 0.4], "clip": [1.0, 2.0]}).candidates()
    assert len(found) == 6
    assert len({candidate.numbers for candidate in found}) == 6
    assert found[0].hyperparameters == {"optimizer": "sgd", "lr": 0.1, "clip": 1.0, "lot": 64.0, "steps": 100}
    assert found[0].rule() == BY_NAME["sgd"](lr=0.1, clip=1.0)


PAPERS = ("sgd", "momentum", "adam", "adam-wosm", "adadp", "oso", "quantile", "horizon")


def test_the_papers_grids_have_the_papers_sizes() -> None:
    sizes = {name: len(made(name, None).candidates()) for name in PAPERS}
    assert sizes == {
        "sgd": 40,
        "momentum": 280,
        "adam": 4,
        "adam-wosm": 4,
        "adadp": 4,
        "oso": 7,
        "quantile": 35,
        "horizon": 1,
    }


def test_several_optimizers_stand_side_by_side_each_with_its_own_space() -> None:
    space = made(["sgd", "adam", "horizon"], {"sgd": {"lr": [0.1], "clip": [1.0, 2.0]}, "adam": {"clip": ["auto"]}})
    assert [candidate.optimizer for candidate in space.candidates()] == ["sgd", "sgd", "adam", "horizon"]


def test_lot_steps_and_width_may_be_searched() -> None:
    space = made("adam-wosm", {"clip": [1.0], "lot": [32, 64], "steps": [100, 200], "width": [8, 16]})
    assert space.shapes() == [(32.0, 100), (32.0, 200), (64.0, 100), (64.0, 200)]
    assert {candidate.width for candidate in space.candidates()} == {8, 16}


def test_laws_are_drawn_within_their_ends_and_a_grid_beside_them_is_drawn_too() -> None:
    space = made("sgd", {"lr": LogUniform(1e-3, 1.0), "clip": Choice(0.5, 1.0)})
    assert not space.finite
    generator = np.random.default_rng(1)
    drawn = [dict(space.draw(generator).numbers) for _ in range(4000)]
    logs = np.log10([one["lr"] for one in drawn])
    assert -3 <= logs.min() < -2.99
    assert -0.01 < logs.max() <= 0
    assert abs(logs.mean() + 1.5) < 5 * 3 / math.sqrt(12 * 4000)
    assert {one["clip"] for one in drawn} == {0.5, 1.0}
    uniform = made("sgd", {"lr": Uniform(0.1, 0.2), "clip": 1.0})
    assert 0.1 <= dict(uniform.draw(generator).numbers)["lr"] <= 0.2


@pytest.mark.parametrize(
    ("optimizer", "space", "said"),
    [
        ("sgd", {"lr": [0.1], "clip": [1.0], "beta": [1]}, "beta"),
        ("sgd", {"lr": [], "clip": [1.0]}, "at least one value"),
        ("sgd", {"lr": [0.1]}, "clip"),
        ("sgd", {"lr": [0.1, 0.1], "clip": [1.0]}, "every value once"),
        ("sgd", {"lr": [-0.1], "clip": [1.0]}, "lr"),
        ("sgd", {"lr": LogUniform(1e-3, 1), "clip": [0.0]}, "clip"),
        ("horizon", {"lr": [0.1]}, "lr"),
        ("nadam", None, "one of"),
        ([], None, "at least one"),
        (["sgd", "adam"], {"lr": [0.1]}, "an entry for each"),
        ("sgd", [0.1], "a dictionary"),
        ("sgd", {"lr": [0.1], "clip": [1.0], "steps": [0]}, "steps"),
        ("sgd", {"lr": [0.1], "clip": [1.0], "lot": Uniform(1, 2)}, "lot"),
        ("sgd", {"lr": [0.1], "clip": [1.0], "width": [0]}, "width"),
        ("momentum", {"lr": [0.1], "clip": [1.0], "momentum": [1.5]}, "momentum"),
    ],
)
def test_what_no_run_could_take_is_refused_by_name(optimizer, space, said) -> None:
    with pytest.raises(InvalidArgument, match=said):
        made(optimizer, space)


@pytest.mark.parametrize(
    "bad", [lambda: LogUniform(0, 1), lambda: LogUniform(2, 1), lambda: Uniform(1, 1), lambda: Choice()]
)
def test_laws_without_a_range_are_refused(bad) -> None:
    with pytest.raises(InvalidArgument):
        bad()
