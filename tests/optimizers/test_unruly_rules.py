"""Rules of one's own that ask for what cannot be released, or write to what they are given: no noise becomes less, and none is
taken twice."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

import honestdp
from honestdp.boundary.query import Constants, Direction, InputNorm, Query, Release
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.optimizers import FixedClip, State
from honestdp.optimizers.rule import Clip, Number, column
from tests.tiny_search import clouds, linear
from tests.toy_training import population_of, toy_data, toy_model

RUN = honestdp.Run(records=400, lot=40, steps=4, noise=1.0)


@dataclass(frozen=True)
class Averaging(FixedClip):
    """Keeps a sum of its releases that forgets, and moves nothing."""

    lr: Number
    clip: Clip = 1.0

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"average": torch.zeros_like(params)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        return params, {"average": 0.9 * state["average"] + release.gradient}


@dataclass(frozen=True)
class Asking(Averaging):
    """Asks what it is told to."""

    asked: ClassVar[Query]

    def query(self, state: State, constants: Constants) -> Query:
        return self.asked


class Peeking(Direction):
    """A rule's own question, whose terms would see private norms."""


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Query(clip=1.0), "clip must be a tensor of shape (2,): one number for each run, got 1.0"),  # type: ignore[arg-type]
        (Query(clip=torch.tensor(1.0)), "clip must be a tensor of shape (2,)"),
        (Query(clip=ONE), "clip must be a tensor of shape (2,): one number for each run, got (1,)"),
        (Query(clip=torch.ones(2), second=Direction(9.0)), "second.noise must be a tensor of shape (2,)"),  # type: ignore[arg-type]
        (Query(clip=torch.ones(2), second=InputNorm(9 * ONE)), "second.noise must be a tensor of shape (2,)"),
        (Query(clip=torch.ones(2), second=Peeking(9 * ONE)), "second must be one of Direction, WithinClip, InputNorm"),
        (Query(clip=torch.ones(2), second="norm"), "second must be one of Direction, WithinClip, InputNorm"),  # type: ignore[arg-type]
    ],
)
def test_a_question_that_no_release_can_be_made_of_is_refused_before_the_charge(
    asked: Query, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asking, "asked", asked, raising=False)
    Ledger(tmp_path / "ledger.db").set_budget("a", honestdp.Budget(5.0, 1e-5))
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        honestdp.train_population(
            linear(), clouds(), run=RUN, optimizers=[Asking(lr=0.1)] * 2, ledger=tmp_path / "ledger.db", dataset="a"
        )
    assert Ledger(tmp_path / "ledger.db").balance("a").charges == 0


@dataclass(frozen=True)
class Lessening(Averaging):
    """Writes to the noise it is shown, as `sigma = constants.noise; sigma /= constants.lot` does; from the third step on, late
    enough for no trial to see it."""

    def query(self, state: State, constants: Constants) -> Query:
        if int(state["step"][0]) >= 2:
            constants.noise.zero_()
        return super().query(state, constants)


@dataclass(frozen=True)
class Early(Averaging):
    """The same at once."""

    def query(self, state: State, constants: Constants) -> Query:
        constants.noise.div_(constants.lot)
        return super().query(state, constants)


def test_a_rule_that_writes_to_its_constants_lessens_no_noise() -> None:
    """The release was made with the very tensor that a rule was shown: its noise was gone, and the statement stayed."""
    population, mechanism = population_of(
        [toy_model()], toy_data(60), [Lessening(lr=0.1)], lot=60.0, steps=12, noise=[2.0]
    )
    means = []
    for _ in range(12):
        population.block(1, look=1)
        means.append(population.state["average"].clone())
    assert not mechanism.constants.noise.any(), "what the rule was shown"
    releases = [after - 0.9 * before for before, after in itertools.pairwise(means)]
    noises = [
        float((after - before).std()) for before, after in itertools.pairwise(releases)
    ]  # every lot is all records
    assert min(noises) > 0.5 * 2.0 * 2**0.5 / 60, "every step has noise in it"


def test_a_rule_that_writes_to_its_constants_is_refused_where_its_trial_sees_it() -> None:
    with pytest.raises(InvalidArgument, match="optimizer must be a rule that writes to none of its constants"):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=Early(lr=0.1))


@dataclass(frozen=True)
class InPlace(FixedClip):
    """Momentum as it is often written."""

    lr: Number
    clip: Clip = 1.0

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"v": torch.zeros_like(params)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        v = state["v"].mul_(0.9).add_(release.gradient)
        return params.sub_(column(self.lr) * v), {"v": v}


def test_what_a_rule_does_in_place_reaches_no_snapshot() -> None:
    """A checkpoint of the middle of a block had the block's first noise beside weights that had moved: noise taken twice."""
    population, _ = population_of([toy_model()], toy_data(60), [InPlace(lr=0.1)], lot=10.0, steps=6, noise=[2.0])
    kept = population.snapshot()
    params, state = kept.params.clone(), {name: value.clone() for name, value in kept.state.items()}
    population.block()
    assert torch.equal(kept.params, params)
    assert all(torch.equal(kept.state[name], value) for name, value in state.items())
    first = population.weights().clone()
    population.restore(kept)
    population.block()
    assert torch.equal(population.weights(), first)


SCALE = {"rule": torch.ones(1), "loss": torch.ones(1)}


@dataclass(frozen=True)
class Scaled(Averaging):
    """Goes by a number in a tensor that lies beside it."""

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        return super().move(params - SCALE["rule"] * release.gradient, state, release, constants)


def scaled(output: Tensor, y: Tensor) -> Tensor:
    return SCALE["loss"] * torch.nn.functional.cross_entropy(output, y, reduction="none")


@pytest.mark.parametrize(("whose", "named"), [("rule", "the optimizers' code"), ("loss", "the loss's code")])
def test_a_training_is_not_resumed_with_other_numbers_in_the_tensors_of_its_code(
    whose: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noise on what a rule or a loss of other numbers makes of the records betrays the difference."""
    given = {
        "run": RUN,
        "optimizer": Scaled(lr=0.1),
        "loss": scaled,
        "compute": honestdp.Compute(checkpoint=tmp_path / "kept"),
    }
    honestdp.train(linear(), clouds(), **given)
    monkeypatch.setitem(SCALE, whose, torch.full((1,), 1.5))
    with pytest.raises(InvalidArgument, match=f"the file differs in .*{named}"):
        honestdp.train(linear(), clouds(), **given)
