"""Spaces: grids are listed, laws are drawn from, and whatever no optimizer could take is refused before anything is charged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from torch import nn

from honestdp import Budget, Choice, LogUniform, Uniform
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME, SGD
from honestdp.search.space import Space, shaped_space, space_of


def factory(width: int = 8, *, depth: int = 1) -> nn.Module:
    return nn.Linear(width, depth)


def made(optimizer: str | list[str], space: dict | None, **more: Any) -> Space:
    return space_of(optimizer, space, **{"lot": 64, "steps": 100, "records": 640, "model": factory, **more})


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


def test_lot_steps_and_arguments_of_the_model_may_be_searched() -> None:
    space = made("adam-wosm", {"clip": [1.0], "lot": [32, 64], "steps": [100, 200], "width": [8, 16]})
    assert space.shapes() == [(32.0, 100), (32.0, 200), (64.0, 100), (64.0, 200)]
    assert {candidate.model for candidate in space.candidates()} == {(("width", 8),), (("width", 16),)}
    both = made("horizon", {"width": [8, 16], "depth": [1, 2]})
    assert [one.hyperparameters for one in both.candidates()][-1] == {
        "optimizer": "horizon", "lot": 64, "steps": 100, "width": 16, "depth": 2,
    }  # fmt: skip
    assert len(both.architectures()) == 4


def test_epochs_are_steps_that_depend_on_the_lot() -> None:
    """An epoch is 640/lot steps; a space with steps or epochs of its own overrules both."""
    assert made("horizon", {"lot": [32, 64]}, steps=None, epochs=2).shapes() == [(32.0, 40), (64.0, 20)]
    assert made("horizon", {"epochs": [1, 2.5]}).shapes() == [(64.0, 10), (64.0, 25)]
    assert made("horizon", {"steps": [7]}, steps=None, epochs=2).shapes() == [(64.0, 7)]
    for candidate in made("horizon", {"lot": [32, 64], "epochs": [3]}).candidates():
        assert candidate.steps * candidate.lot == 3 * 640
    for more in ({"epochs": 2}, {"steps": None}):
        with pytest.raises(InvalidArgument, match="steps must be given, or epochs in its place, and not both"):
            made("horizon", None, **more).shapes()
    with pytest.raises(InvalidArgument, match="steps or epochs, not both"):
        made("horizon", {"steps": [1], "epochs": [1]})


def test_a_space_of_nothing_of_the_optimizers_own_keeps_its_grid() -> None:
    assert len(made("sgd", {"weight_decay": [0, 0.01], "width": [4, 8, 16]}).candidates()) == 40 * 6
    assert len(made("sgd", {"lr": [0.1], "clip": [1.0], "weight_decay": 0.01}).candidates()) == 1
    fixed = made(SGD(lr=0.5, clip=2.0, weight_decay=0.1), {"lot": [32, 64]}).candidates()
    assert [one.rule() for one in fixed] == [SGD(lr=0.5, clip=2.0, weight_decay=0.1)] * 2


def test_what_neither_optimizer_nor_model_takes_is_refused_with_what_they_take() -> None:
    said = r"of sgd \(weight_decay, lr, clip\), lot, steps, epochs, or an argument .* \(width, depth\), got 'heads'"
    with pytest.raises(InvalidArgument, match=said):
        made("sgd", {"heads": [1]})
    with pytest.raises(
        InvalidArgument, match="model is a module; for width to be searched it must be a function of width"
    ):
        made("sgd", {"width": [1]}, model=factory())
    with pytest.raises(InvalidArgument, match="a list for depth: each model is tried before the charge"):
        made("sgd", {"depth": Uniform(1, 2)})
    assert made("horizon", {"heads": [1]}, model=lambda **anything: factory()).of_the_model == ("heads",)


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


# ---- Lengths of runs in epochs, where the planner chooses the rest


def shaped(space: dict | None, **more: Any) -> Space:
    settings: dict[str, Any] = {
        "budget": Budget(3.0, 1e-5),
        "records": 6400,
        "lot": None,
        "steps": None,
        "model": factory,
    }
    return shaped_space("horizon", space, **{**settings, **more})[0]


def test_epochs_are_kept_whatever_lot_the_planner_chooses() -> None:
    ((lot, steps),) = shaped(None, epochs=8).shapes()
    assert steps == round(8 * 6400 / lot)
    assert shaped({"lot": [64, 128]}, epochs=2).shapes() == [(64.0, 200), (128.0, 100)]
    assert shaped({"epochs": [1, 2]}, lot=64).shapes() == [(64.0, 100), (64.0, 200)]
    ((lot, few), (_, many)) = shaped({"epochs": [4, 8]}).shapes()
    assert (few, many) == (round(4 * 6400 / lot), round(8 * 6400 / lot))
    with pytest.raises(InvalidArgument, match="epochs must be left out where steps are given"):
        shaped(None, steps=3, epochs=3)


@pytest.mark.parametrize(
    ("space", "law"),
    [
        (
            {"lr": (1e-3, 1), "clip": 1.0},
            r"\[0\.001, 1\] for a grid of these two values, or honestdp\.LogUniform\(0\.001, 1\)",
        ),
        ({"lr": [0.1], "weight_decay": (0, 0.1), "clip": 1}, r"honestdp\.Uniform\(0, 0\.1\) for a range"),
        ({"lr": (np.float32(0.5), np.int64(1)), "clip": 1}, r"honestdp\.LogUniform\(.*0\.5.*1.*\) for a range"),
        ({"sgd": {"lr": (0.1, 1.0)}}, r"honestdp\.LogUniform\(0\.1, 1\.0\)"),
    ],
)
def test_a_tuple_of_two_numbers_is_a_range_elsewhere_and_is_refused_with_both_spellings(space: dict, law: str) -> None:
    with pytest.raises(InvalidArgument, match=law):
        made("sgd", space)


def test_longer_and_shorter_tuples_are_lists() -> None:
    assert len(made("sgd", {"lr": (0.1, 0.2, 0.4), "clip": (1.0,)}).candidates()) == 3
