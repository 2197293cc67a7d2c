"""on_step sees iterates and nothing else, changes nothing, and may end a run at the price of all its steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import Compute, Run
from honestdp import optimizers as rules
from honestdp.boundary import mechanism as module
from honestdp.boundary.capture import UNROLL
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.query import Release
from honestdp.boundary.records import DeviceRecords
from honestdp.checks import InvalidArgument
from honestdp.errors import Interrupted, StopTraining
from honestdp.training import watching
from honestdp.training.watching import Watch
from tests.boundary.test_capture import Traced
from tests.toy_training import population_of, toy_data, toy_model

RUN = Run(records=60, lot=10, steps=150, noise=0.9)
SGD = rules.SGD(lr=0.5, clip=1.0)
EVERY_RULE = [
    SGD,
    rules.Momentum(lr=0.1, momentum=0.9, clip=1.0),
    rules.Adam(clip=1.0),
    rules.AdamWOSM(clip="auto"),
    rules.ADADP(clip=1.0),
    rules.OSO(lr=0.1),
    rules.AdamOSO(),
    rules.Quantile(lr=0.1),
    rules.Horizon(average=True),
    rules.Echo(),
]


def with_dropout() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 3)).double()


def go(on_step: Any = None, *, optimizer: rules.Rule = SGD, run: Run = RUN, **more: Any) -> honestdp.Result:
    given = {"noise_seed": 4, "delta": 1e-5, "data": toy_data(), "model": with_dropout()} | more
    return honestdp.train(run=run, optimizer=optimizer, on_step=on_step, **given)


def row(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def looks_of(**more: Any) -> list[tuple[int, Tensor]]:
    seen: list[tuple[int, Tensor]] = []
    go(lambda step, model: seen.append((step, row(model))), **more)
    return seen


def meddle(step: int, model: nn.Module) -> None:
    """Everything that an on_step can do with what it is given, and with the global generators."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    torch.rand(3)
    model.train()
    model(torch.rand(2, 5, dtype=torch.float64)).sum().backward()
    for value in model.parameters():
        value.data.fill_(9.0)
        value.requires_grad_(False)


# ---- It changes nothing


@pytest.mark.parametrize("every", [3, 64, 100])
def test_a_run_that_is_watched_is_bit_for_bit_the_one_that_is_not(every: int) -> None:
    assert row(go(meddle, every=every).model).equal(row(go().model))


@pytest.mark.slow
@pytest.mark.parametrize("rule", EVERY_RULE[1:], ids=lambda rule: type(rule).__name__)
def test_that_holds_for_every_optimizer(rule: rules.Rule) -> None:
    run = RUN.with_steps(70)
    assert row(go(meddle, every=9, optimizer=rule, run=run).model).equal(row(go(optimizer=rule, run=run).model))


def test_the_user_s_own_generators_are_not_moved() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    go(meddle, run=RUN.with_steps(3), model=toy_model())
    assert torch.rand(1).equal(expected)


def _no_copy(patch: pytest.MonkeyPatch) -> None:
    def look(self: Watch, step: int, module: nn.Module, layout: Any, row: Tensor) -> None:
        for (_, value), view in zip(module.named_parameters(), layout.views(row[None]).values(), strict=True):
            value.data = view[0]
        self.on_step(step, module.eval())

    patch.setattr(Watch, "look", look)


def _generators_not_lent(patch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    patch.setattr(watching, "lent", nullcontext)


def _blocks_end_at_looks(patch: pytest.MonkeyPatch) -> None:
    true = Mechanism.steps

    def steps(self: Mechanism, rule: Any, params: Tensor, state: Any, *, left: int, most: int | None = None) -> Any:
        return true(self, rule, params, state, left=min(left, most or left))

    patch.setattr(Mechanism, "steps", steps)


@pytest.mark.parametrize("plant", [_no_copy, _generators_not_lent, _blocks_end_at_looks])
def test_a_planted_way_to_change_the_run_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = row(go().model)
    plant(monkeypatch)
    try:
        found = row(go(meddle, every=9).model)
    except Exception as error:
        stops_itself = RuntimeError | StopIteration | honestdp.errors.HonestdpError
        assert isinstance(error, stops_itself)  # noqa: PT017
    else:
        assert not found.equal(expected)


# ---- What it sees


@pytest.mark.slow
def test_it_sees_the_steps_asked_for_the_first_and_the_last() -> None:
    run = RUN.with_steps(25)
    assert [step for step, _ in looks_of(every=10, run=run)] == [0, 10, 20, 25]
    assert [step for step, _ in looks_of(every=1, run=RUN.with_steps(3))] == [0, 1, 2, 3]
    assert len(looks_of(run=RUN.with_steps(250))) == 1 + 125  # every hundredth of the steps, in whole steps


@pytest.mark.parametrize("rule", [SGD, rules.ADADP(clip=1.0), rules.Horizon(average=True)], ids=lambda r: r.name)
def test_it_sees_what_would_leave_at_that_step(rule: rules.Rule) -> None:
    given = {"lot": 10.0, "steps": 20, "noise": [0.9], "seed": 4}
    model = toy_model()
    population, mechanism = population_of([model], toy_data(), [rule], **given)
    mechanism._noise, mechanism._choice = (_named(4).__getattribute__(name) for name in ("_noise", "_choice"))
    expected = {0: row(model)}
    for step in range(1, 21):
        population.block(look=1)
        expected[step] = population.weights()[0, : len(row(model))]
    seen = looks_of(optimizer=rule, run=RUN.with_steps(20), every=1, model=model)
    assert all(weights.equal(expected[step]) for step, weights in seen)
    assert not seen[-1][1].equal(seen[-2][1])


def _named(seed: int) -> Mechanism:
    """The mechanism of the one chunk of a training with this seed."""
    from honestdp.boundary.seed import Seed
    from tests.toy_training import constants_of, intake_of

    intake = intake_of(toy_model(), toy_data())
    constants = constants_of(intake, records=60, lot=10.0, steps=20, noise=[0.9])
    return intake.mechanism(constants, seed=Seed.fixed(seed).child("chunk", 0), secure=False)


def test_the_model_is_a_copy_in_eval_mode_with_the_given_model_s_tensors_alone() -> None:
    given, seen = with_dropout(), list[nn.Module]()
    result = go(lambda step, model: seen.append(model), model=given, every=50)
    assert len({id(model) for model in [*seen, given, result.model]}) == len(seen) + 2
    for model in seen:
        assert not model.training
        assert [*model.state_dict()] == [*given.state_dict()]
        assert [set(vars(layer)) for layer in model.modules()] == [set(vars(layer)) for layer in given.modules()]
    assert row(seen[-1]).equal(row(result.model))
    assert row(seen[0]).equal(row(given))


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that no record has any part in, whatever the lots are."""
    made = iter(range(10**6))

    def release(lot: Any, params: Tensor, query: Any, **named: Any) -> Release:
        for _ in lot:
            pass
        return Release(torch.full_like(params, 0.01 * (1 + next(made) % 20)), None)

    monkeypatch.setattr(module, "release", release)


def private_sides() -> list[list[tuple[int, Tensor]]]:
    """What is seen of two trainings that differ in their records and lots, and not in their releases."""
    return [
        looks_of(data=toy_data(seed=seed), noise_seed=None, run=RUN.with_steps(20), every=3, model=toy_model())
        for seed in (1, 2)
    ]


def same(one: list[tuple[int, Tensor]], other: list[tuple[int, Tensor]]) -> bool:
    return len(one) == len(other) and all(a == b and x.equal(y) for (a, x), (b, y) in zip(one, other, strict=True))


@pytest.mark.usefixtures("forced")
def test_what_it_sees_is_a_function_of_releases() -> None:
    one, other = private_sides()
    assert len(one) == 8
    assert same(one, other)


@pytest.mark.usefixtures("forced")
def test_a_size_of_a_lot_or_a_loss_that_is_handed_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    last: dict[str, Tensor] = {}
    true_lots, true_fetch, true_look = Mechanism._lots, DeviceRecords.fetch, Watch.look

    def lots(self: Mechanism) -> Any:
        drawn = true_lots(self)
        last["sizes"] = torch.tensor([float(sum(drawn.longest))])
        return drawn

    def fetch(self: Any, indices: Tensor) -> Any:
        x, *rest = true_fetch(self, indices)
        last["loss"] = x.square().mean()
        return (x, *rest)

    monkeypatch.setattr(Mechanism, "_lots", lots)
    monkeypatch.setattr(DeviceRecords, "fetch", fetch)
    for planted in ("sizes", "loss"):

        def look(self: Watch, step: int, module: nn.Module, *rest: Any, what: str = planted) -> None:
            def told(step: int, model: nn.Module) -> None:
                model.register_buffer("told", last.get(what, torch.zeros(1)).clone())
                self.on_step(step, model)

            true_look(Watch(told, self.every), step, module, *rest)

        monkeypatch.setattr(Watch, "look", look)
        one, other = private_sides()
        assert not same(one, other), planted


def steps_seen(width: int, every: int) -> list[int]:
    """Where a machine that replays groups of steps stops for a look, with a captured shape of this width."""
    population, mechanism = population_of([toy_model()], toy_data(), [SGD], lot=20.0, steps=100, noise=[1.0])
    mechanism._capturable, mechanism._width = True, width
    watch, seen = Watch(lambda step, model: None, every), []
    while (before := population.step) < population.total:
        population.block(look=watch.until(population.step))
        if watch.due(before, population.step, population.total):
            seen.append(population.step)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(("every", "expected"), [(10, [16, 24, 32, 40, 56, 64, 72, 80, 96, 100]), (50, [56, 100])])
def test_whether_a_lot_fits_the_captured_shape_is_not_seen_in_the_steps(
    every: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU rounds up to groups of eight, replayed or not: no lot fits a shape of 1, some fit 24, all fit 60."""
    monkeypatch.setattr(module, "Captured", Traced)
    assert UNROLL == 8
    assert [steps_seen(width, every) for width in (1, 24, 60)] == [expected] * 3


def test_a_group_that_is_broken_off_where_it_does_not_fit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Captured", Traced)
    true = Mechanism.steps

    def steps(self: Mechanism, *rest: Any, left: int, most: int | None = None) -> Any:
        self._capturable = self._width > 30
        return true(self, *rest, left=left, most=most)

    monkeypatch.setattr(Mechanism, "steps", steps)
    assert steps_seen(24, 10) != steps_seen(60, 10)


# ---- Errors, Ctrl-C and resuming


class Failing:
    """Fails once at a step, and notes the steps that it saw."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.seen = at, error, list[int]()

    def __call__(self, step: int, model: nn.Module) -> None:
        self.seen.append(step)
        if step == self.at:
            self.at = -1
            raise self.error


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError("of mine"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", [30, 100, 150])
def test_after_an_error_in_it_the_run_goes_on_at_the_right_step(at: int, error: BaseException, tmp_path: Path) -> None:
    watcher, kept = Failing(at, error), Compute(checkpoint=tmp_path / "kept", checkpoint_seconds=1e9)
    expected = row(go().model)
    with pytest.raises(type(error) if isinstance(error, Exception) else Interrupted) as raised:
        go(watcher, every=10, compute=kept)
    told = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    assert any("call again with the same arguments and compute=honestdp.Compute(checkpoint=" in words for words in told)
    before = len(watcher.seen)
    assert row(go(watcher, every=10, compute=kept).model).equal(expected)
    assert watcher.seen[:before] == [*range(0, at + 1, 10)]
    assert watcher.seen[before:] == [*range(watcher.seen[before], 151, 10)]
    assert 0 < watcher.seen[before] <= at


def test_an_error_before_the_first_step_has_read_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceRecords, "fetch", None)
    with pytest.raises(ValueError, match="of mine"):
        go(Failing(0, ValueError("of mine")))
    with pytest.raises(TypeError):
        go(lambda step: None)


def test_ctrl_c_shows_one_error_without_where_it_was(tmp_path: Path) -> None:
    for compute in (Compute(), Compute(checkpoint=tmp_path / "kept")):
        with pytest.raises(Interrupted) as raised:
            go(Failing(10, KeyboardInterrupt()), every=10, compute=compute)
        assert raised.value.__cause__ is None
        assert raised.value.__context__ is None
        frames = [entry.name for entry in raised.traceback]
        assert "look" not in frames
        assert "_train" not in frames


# ---- Stopping early


def stop_at(at: int) -> Callable[[int, nn.Module], None]:
    def on_step(step: int, model: nn.Module) -> None:
        if step >= at:
            raise StopTraining

    return on_step


@pytest.mark.slow
def test_a_stopped_run_has_the_weights_of_that_step_and_pays_for_all() -> None:
    seen, whole = dict(looks_of(every=10)), go()
    result = go(stop_at(40), every=10)
    assert row(result.model).equal(seen[40])
    assert result.epsilon == whole.epsilon
    assert result.run == RUN
    assert "stopped at step 40; all 150 steps that were planned are in epsilon" in result.statement.notes


def test_a_stopped_run_is_over_and_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    kept = Compute(checkpoint=tmp_path / "kept")
    first = go(stop_at(40), every=10, compute=kept)
    again = go(Failing(-1, ValueError()), every=10, compute=kept)
    assert row(again.model).equal(row(first.model))
    assert (again.stopped, again.watched) == (40, True)
    assert again.statement == first.statement


def test_the_statement_says_that_iterates_left() -> None:
    run = RUN.with_steps(2)
    assert go(run=run).statement.leaves == "the final weights"
    assert go(lambda step, model: None, run=run).statement.leaves == "the weights after every step"


def test_a_run_that_is_stopped_before_it_began_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="on_step must be a function that lets the training begin"):
        go(stop_at(0))


# ---- Refusals


def test_several_runs_and_searches_have_no_on_step() -> None:
    def on_step(step: int, model: nn.Module) -> None:
        raise AssertionError

    with pytest.raises(InvalidArgument, match="on_step must be left out for several runs"):
        honestdp.train_population(toy_model(), toy_data(), run=RUN, optimizers=[SGD, SGD], on_step=on_step)
    with pytest.raises(InvalidArgument, match="on_step must be left out for a search: only its winner leaves"):
        honestdp.tune(toy_model, toy_data(), budget=honestdp.Budget(1.0, 1e-5), on_step=on_step)


@pytest.mark.parametrize(
    ("given", "named"),
    [({"on_step": 3}, "on_step"), ({"on_step": Failing}, "on_step"), ({"every": 5}, "every")]
    + [({"on_step": print, "every": every}, "every") for every in (0, 1.5)],
)
def test_what_cannot_be_called_so_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{named} must be"):
        go(**given)
