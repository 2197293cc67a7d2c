"""An optimizer of one's own is fifteen lines in its own file: trained, tuned and named like those of the package."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import honestdp
from honestdp.boundary.query import HALF_RANGE, Constants, Direction, InputNorm, Query, Release
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.optimizers import BY_NAME, SGD, FixedClip, Rule, State
from honestdp.optimizers.rule import Clip, Number, column, scheduled
from honestdp.search.space import space_of
from honestdp.training.spec import try_rule
from tests.command_line import MAIN
from tests.forked_python import forked
from tests.search.test_resume import Stopped
from tests.tiny_search import BUDGET, WHOLE, clouds, linear

RUN = honestdp.Run(records=400, lot=40, steps=4, noise=1.0)


@dataclass(frozen=True)
class Lion(FixedClip, name="toy-lion", grid={"lr": (0.01, 0.1)}):
    """Signs of an average of releases."""

    lr: Number
    clip: Clip = 1.0
    beta: Number = 0.9

    def memory(self, params: Tensor, constants: Constants) -> State:
        return {"average": torch.zeros_like(params)}

    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        average = column(self.beta) * state["average"] + (1 - column(self.beta)) * release.gradient
        return params - scheduled(self.lr, state, constants) * average.sign(), {"average": average}


def tuned(optimizer: Any, **more: Any) -> honestdp.TuneResult:
    return honestdp.tune(linear, clouds(), **{**WHOLE, "space": None, "optimizer": optimizer, **more})


def test_it_is_fifteen_lines() -> None:
    assert len(inspect.getsource(Lion).splitlines()) <= 16  # the decorator's line counted


@pytest.mark.parametrize("optimizer", [Lion, "toy-lion"])
def test_a_class_or_a_name_is_tuned_over_its_grid(optimizer: Any) -> None:
    result = tuned(optimizer)
    assert result.hyperparameters["optimizer"] == "toy-lion"
    assert result.hyperparameters["lr"] in (0.01, 0.1)
    assert result.statement.runs == 2
    assert result.epsilon <= BUDGET.epsilon


def test_a_rule_fixes_its_numbers_and_the_space_varies_others() -> None:
    result = tuned(Lion(lr=0.05, beta=0.5))
    assert (result.hyperparameters["lr"], result.hyperparameters["beta"], result.statement.runs) == (0.05, 0.5, 1)
    varied = space_of(Lion(lr=0.05, beta=0.5), {"lr": [0.1, 0.2, 0.3]}, lot=40, steps=3).candidates()
    assert [(rule.lr, rule.beta) for rule in (candidate.rule() for candidate in varied)] == [
        (0.1, 0.5),
        (0.2, 0.5),
        (0.3, 0.5),
    ]  # type: ignore[attr-defined]


def test_it_stands_beside_others_by_class_rule_and_name() -> None:
    mixed = [Lion, SGD(lr=1.0, clip=1.0), "horizon"]
    names = [candidate.optimizer for candidate in space_of(mixed, None, lot=40, steps=3).candidates()]
    assert names == ["toy-lion", "toy-lion", "sgd", "horizon"]
    assert tuned(mixed).statement.runs == 4


def stepping(factor: float) -> type[Rule]:
    """One name, one place, and code that depends on a number beside it."""

    @dataclass(frozen=True)
    class Stepping(FixedClip, name="toy-stepping", grid={"lr": (0.1,)}):
        lr: Number
        clip: Clip = 1.0

        def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
            return params - factor * release.gradient, {}

    return Stepping


def test_a_search_of_it_is_resumed_only_with_the_same_numbers_and_code(tmp_path: Path) -> None:
    search = Stopped(tmp_path, optimizer=stepping(1.0), space=None)
    search.refuses("differs in space", optimizer=stepping(1.0)(lr=0.3))
    search.refuses("differs in the optimizers' code", optimizer=stepping(2.0))
    assert search.resume(optimizer=stepping(1.0)).hyperparameters["optimizer"] == "toy-stepping"
    assert search.ledger.balance("a").charges == 1


@pytest.mark.parametrize("optimizer", [Lion(lr=0.1), "horizon", honestdp.optimizers.Horizon])
def test_train_takes_rules_names_and_classes(optimizer: Any) -> None:
    result = honestdp.train(linear(), clouds(), run=RUN, optimizer=optimizer, delta=1e-5)
    both = honestdp.train_population(linear(), clouds(), run=RUN, optimizers=[optimizer, SGD(0.1, 1.0)], delta=1e-5)
    assert (
        type(result.optimizer)
        is type(both[0].optimizer)
        is (type(optimizer) if isinstance(optimizer, Rule) else BY_NAME["horizon"])
    )


def test_a_class_that_needs_numbers_is_trained_only_with_them() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^optimizer must be given .*: it needs lr, for example optimizer=Lion\(lr=0\.1\)"
    ):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=Lion)
    with pytest.raises(InvalidArgument, match=r"^optimizers must be one of .*toy-lion"):
        honestdp.train_population(linear(), clouds(), run=RUN, optimizers=["lion"])


@pytest.mark.slow
def test_the_command_line_knows_it_by_name(tmp_path: Path) -> None:
    """Of a process that has imported the file: a package beside this one does so by an entry point of its commands."""
    words = (
        "tune",
        "digits",
        "--epsilon",
        "2",
        "--optimizer",
        "toy-lion",
        "--space",
        "lr=0.05",
        "--lot",
        "64",
        "--steps",
        "3",
    )
    before = f"import {__name__}\n{MAIN}"
    code, out, err = forked(tmp_path, before, *words, "--out", "out", "--json", path=Path(__file__).parents[2])
    assert code == 0, err
    assert json.loads(out)["hyperparameters"]["optimizer"] == "toy-lion"


# ---- What is refused


def test_no_class_takes_the_name_of_another_but_one_may_be_defined_again() -> None:
    def define(base: type[Rule]) -> type[Rule]:
        class Again(base, name="toy-again"):  # type: ignore[misc, valid-type]
            pass

        return Again

    define(Lion)
    assert define(Lion) is BY_NAME["toy-again"]
    with pytest.raises(InvalidArgument, match="must be one that no other optimizer has, got 'sgd'"):

        class Mine(Lion, name="sgd"):
            pass

    assert BY_NAME["sgd"] is SGD
    del BY_NAME["toy-again"]


def test_a_rule_without_a_name_of_its_own_is_trained_and_not_tuned() -> None:
    @dataclass(frozen=True)
    class Nameless(Lion):
        pass

    assert honestdp.train(linear(), clouds(), run=RUN, optimizer=Nameless(lr=0.1)).run == RUN
    with pytest.raises(InvalidArgument, match="optimizer must be a rule with a name of its own to be tuned"):
        tuned(Nameless)


def test_an_optimizer_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="optimizer must be every optimizer once"):
        tuned([Lion(lr=0.1), Lion(lr=0.2)])


@dataclass(frozen=True)
class Greedy(Lion, name="toy-greedy"):
    """Asks for a second answer that would take all the privacy of a step."""

    def query(self, state: State, constants: Constants) -> Query:
        return Query(clip=torch.ones_like(constants.noise), second=Direction(constants.noise))


@dataclass(frozen=True)
class Sizing(Lion, name="toy-sizing"):
    """The same, where records have a size."""

    def query(self, state: State, constants: Constants) -> Query:
        noise = HALF_RANGE * constants.noise
        plain = Query(clip=torch.ones_like(noise))
        return replace(plain, second=InputNorm(noise)) if constants.layout.entering else plain


@dataclass(frozen=True)
class Forgetful(Lion, name="toy-forgetful"):
    def move(self, params: Tensor, state: State, release: Release, constants: Constants) -> tuple[Tensor, State]:
        return params, {}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Greedy(lr=0.1), "second.noise must be noise above the run's own"),
        (Sizing(lr=0.1), "second.noise must be noise above the run's own"),
        (Forgetful(lr=0.1), "optimizer must be a state of"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_before_the_charge(rule: Rule, words: str, tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").set_budget("a", honestdp.Budget(5.0, 1e-5))
    with pytest.raises(InvalidArgument, match=words):
        tuned(rule, ledger=tmp_path / "ledger.db", dataset="a")
    with pytest.raises(InvalidArgument, match=words):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=rule, ledger=tmp_path / "ledger.db", dataset="a")
    assert Ledger(tmp_path / "ledger.db").balance("a").charges == 0
    with pytest.raises(InvalidArgument, match=words):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=rule)


@pytest.mark.parametrize("name", [name for name in BY_NAME if not name.startswith("toy")])
def test_every_rule_of_the_package_passes_its_trial(name: str) -> None:
    from honestdp.gradients.layout import layout_of

    for candidate in space_of(name, None, lot=40, steps=3).candidates():
        try_rule(candidate.rule(), RUN, layout_of(linear()))
