"""A model and its loss are tested once a call, and the copies that were tested are trained, whatever becomes of the user's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import honestdp
from honestdp import Budget, Run, losses
from honestdp import optimizers as rules
from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import Prepared, RefusedModel, independence, per_example, prepared
from honestdp.gradients.materialised import WAYS
from honestdp.ledger import Ledger
from honestdp.search.lifecycle import Search
from honestdp.training.train import train, train_population
from tests.tiny_search import SEARCH, clouds

RUN = Run(records=60, lot=20, steps=4, noise=1.0)
RULE = rules.SGD(lr=0.5, clip=1.0)


class Mixing(nn.Tanh):
    """Moves every example by the mean of all."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class OfRecords(nn.Module):
    """A loss whose attribute decides what it is."""

    mixes = False

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        found = functional.cross_entropy(output, y, reduction="none")
        return found * found.mean() if self.mixes else found


class Own(nn.Sequential):
    """Run layer by layer: a Sequential of torch's own is a chain of formulas, which calls no layer."""


def net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Own(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def data() -> tuple[Tensor, Tensor]:
    maker = torch.Generator().manual_seed(0)
    return torch.randn(60, 5, generator=maker), torch.randint(0, 3, (60,), generator=maker)


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def _forward(model: nn.Sequential, loss: OfRecords) -> None:
    model[1].forward = Mixing().forward


def _class(model: nn.Sequential, loss: OfRecords) -> None:
    model[1].__class__ = Mixing


def _layer(model: nn.Sequential, loss: OfRecords) -> None:
    model[1] = Mixing()


def _hook(model: nn.Sequential, loss: OfRecords) -> None:
    model[1].register_forward_hook(lambda _module, _inputs, output: output - output.mean(0))


def _mode(model: nn.Sequential, loss: OfRecords) -> None:
    model.append(nn.BatchNorm1d(3))
    model.train()


def _weights(model: nn.Sequential, loss: OfRecords) -> None:
    with torch.no_grad():
        model[0].weight.mul_(100)
    model[2].requires_grad_(False)


def _attribute(model: nn.Sequential, loss: OfRecords) -> None:
    loss.mixes = True


ATTACKS = [_forward, _class, _layer, _hook, _mode, _weights, _attribute]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_becomes_of_the_users_objects_after_the_test_is_without_effect(
    attack: Callable[[nn.Sequential, OfRecords], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the module that was given, of the copy of it that runs start from, and of the loss: before every block of steps."""
    settings: dict[str, Any] = {"run": RUN, "optimizer": RULE, "noise_seed": 3}
    expected = train(net(), data(), loss=OfRecords(), **settings).model
    model, loss, steps = net(), OfRecords(), Mechanism.steps

    def attacked(self: Mechanism, *args: Any, **named: Any) -> Any:
        attack(model, loss)
        attack(self._vetted.given, loss)
        return steps(self, *args, **named)

    monkeypatch.setattr(Mechanism, "steps", attacked)
    found: list[Tensor] = []
    with (
        monkeypatch.context() as patch
    ):  # the weights that leave, before they are put into what has become of the module
        patch.setattr("honestdp.training.train.results_of", lambda job, weights, **_: found.append(weights) or [None])
        with pytest.raises(AttributeError):
            train(model, data(), loss=loss, **settings)
    assert torch.equal(found[0][0], weights_of(expected))


@pytest.mark.parametrize("attack", ATTACKS)
def test_gradients_are_those_of_the_copies(attack: Callable[[nn.Sequential, OfRecords], None]) -> None:
    model, loss = net(), OfRecords()
    params = {name: value.detach().clone()[None] for name, value in model.named_parameters()}
    x, y = (part[None, :12] for part in data())
    held = Prepared(model, loss)
    with torch.no_grad():
        before = held(params, x, y).norms
        attack(model, loss)
        assert torch.equal(held(params, x, y).norms, before)


def test_a_function_that_makes_other_models_after_the_test_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out, over = Search.carry_out, []

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), Mixing() if over else nn.Tanh())

    def begun(*args: Any, **named: Any) -> Any:
        over.append(True)
        return carry_out(*args, **named)

    monkeypatch.setattr(Search, "carry_out", begun)
    with pytest.raises(HonestdpError, match="model does not fit"):
        honestdp.tune(make, clouds(), selection="compose", **SEARCH)


# ---- Once


@pytest.fixture
def tests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tests of a model in training, in eval mode and of a loss that are made."""
    made: list[str] = []
    for name in ("refuse_mixing", "refuse_mixing_in_eval", "refuse_mixing_loss"):
        honest = getattr(prepared, name)

        def counted(*args: Any, honest: Any = honest, name: str = name, **named: Any) -> Any:
            made.append(name)
            return honest(*args, **named)

        monkeypatch.setattr(prepared, name, counted)
    return made


def ledger_of(folder: Path) -> dict[str, Any]:
    ledger = Ledger(folder / "ledger.db")
    ledger.set_budget("tiny", Budget(10.0, 1e-4))
    return {"ledger": ledger, "dataset": "tiny"}


@pytest.mark.parametrize("charged", [False, True])
def test_a_training_tests_its_model_and_its_loss_once(charged: bool, tests: list[str], tmp_path: Path) -> None:
    named = ledger_of(tmp_path) | {"delta": 1e-5} if charged else {}
    train(net(), data(), run=RUN, optimizer=RULE, **named)
    assert tests == ["refuse_mixing", "refuse_mixing_loss"]
    tests.clear()
    train_population(net(), data(), run=RUN, optimizers=[RULE] * 3, **named)
    assert tests == ["refuse_mixing", "refuse_mixing_loss"]


def test_a_search_tests_a_model_once_to_train_it_and_once_to_score_it(tests: list[str], tmp_path: Path) -> None:
    honestdp.tune(
        lambda: nn.Linear(3, 2), clouds(), selection="compose", out=tmp_path / "out", **SEARCH, **ledger_of(tmp_path)
    )
    assert sorted(tests) == ["refuse_mixing", "refuse_mixing_in_eval", "refuse_mixing_loss", "refuse_mixing_loss"]


# ---- What changes for the whole process is seen by the next call


def ask(model: nn.Module, loss: Any = losses.cross_entropy) -> Any:
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    return per_example(model, loss, params, torch.zeros(1, 8, 3), torch.zeros(1, 8).long())


def _mixing(function: Any) -> Any:
    """The same with every example moved by the mean of all."""

    def mixing(*args: Any, **named: Any) -> Tensor:
        out = function(*args, **named)
        return out - out.mean(0)

    return mixing


class Called:
    """What is no function and is called as one."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __get__(self, module: nn.Module, kind: Any = None) -> Any:
        return functools.partial(self, module)

    def __call__(self, *args: Any) -> Tensor:
        return _mixing(self._function)(*args)


PLACES: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "the forward of a layer": (nn.Linear, "forward", _mixing),
    "its call": (nn.Linear, "__call__", Called),
    "the call of every layer": (nn.Module, "_call_impl", _mixing),
    "a method that its forward calls": (nn.Conv1d, "_conv_forward", _mixing),
    "a function of torch.nn.functional": (functional, "linear", _mixing),
    "the same, by what is no function": (functional, "linear", Called),
    "where a layer's file finds its functions": (
        *(nn.modules.linear, "F"),
        lambda honest: SimpleNamespace(**{**vars(honest), "linear": _mixing(honest.linear)}),
    ),
    "a function of torch": (torch, "tanh", _mixing),
    "a method of tensors": (Tensor, "flatten", _mixing),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_begins_to_mix_is_refused_after_it_has_passed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4, 2)]
    ask(nn.Sequential(*layers))
    where, name, other = PLACES[place]
    monkeypatch.setattr(where, name, other(getattr(where, name)))
    with pytest.raises(RefusedModel):
        ask(nn.Sequential(*layers))


@pytest.mark.parametrize("draws", [False, True])
def test_an_engine_is_chosen_anew_when_a_wider_trial_shows_what_a_loss_does(draws: bool) -> None:
    """It has begun to read numbers, or to draw some: it is then shown one at a time, whatever was chosen before."""
    begun = []

    def loss(output: Tensor, y: Tensor) -> Tensor:
        found = functional.cross_entropy(output, y, reduction="none")
        if not begun:
            return found
        if draws:
            return found + 0 * torch.rand(len(y), device=y.device)
        return found * 1.0 if bool((output > 1e9).any()) else found

    held, x, y = Prepared(net(), loss), torch.zeros(1, 8, 5), torch.zeros(1, 8).long()
    params = {name: value.detach()[None] for name, value in held.model.named_parameters()}
    with torch.no_grad():
        assert held.vet(params, x, y, examples=8).layers is not None
        begun.append(True)
        for examples in (400, 8):
            chosen = held.vet(params, x, y, examples=examples)
            assert (chosen.layers, chosen.mapped) == (None, WAYS[0] if draws else WAYS[-1])


def test_a_loss_whose_globals_have_changed_is_refused_after_it_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(output: Tensor, y: Tensor) -> Tensor:
        return reduced(functional.cross_entropy(output, y, reduction="none"))

    ask(net_of_three(), loss)
    monkeypatch.setitem(globals(), "reduced", lambda found: found * found.mean())
    with pytest.raises(InvalidArgument, match="mixes examples"):
        ask(net_of_three(), loss)


def reduced(found: Tensor) -> Tensor:
    return found


def net_of_three() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_attention_over_the_examples_is_refused_every_time() -> None:
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    for _ in range(2):
        with pytest.raises(RefusedModel):
            per_example(model, losses.squared_error, params, torch.zeros(1, 8, 4), torch.zeros(1, 8))


def test_a_model_that_mixes_inputs_of_another_shape_alone_is_refused_for_these() -> None:
    """Softmax2d is over the third dimension from behind: the channels, or the examples where there are none."""
    held, y = (
        Prepared(nn.Sequential(nn.Linear(3, 3), nn.Softmax2d(), nn.Flatten()), losses.cross_entropy),
        torch.zeros(1, 8),
    )
    params = {name: value.detach()[None] for name, value in held.model.named_parameters()}
    with torch.no_grad():
        held(params, torch.zeros(1, 8, 2, 2, 3), y.long())
        with pytest.raises(RefusedModel):
            held(params, torch.zeros(1, 8, 2, 3), y.long())


# ---- Planted faults


def test_without_the_test_a_mixing_model_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(5, 4), Mixing(), nn.Linear(4, 3))
    with pytest.raises(HonestdpError, match="mix examples"):
        train(model, data(), run=RUN, optimizer=RULE)
    monkeypatch.setattr(prepared, "refuse_mixing", lambda *_, **__: None)
    train(model, data(), run=RUN, optimizer=RULE)
    assert independence.refuse_mixing is not prepared.refuse_mixing
