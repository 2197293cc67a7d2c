"""A trial that was passed is not made again where all parts are torch's and ours, and is made every time where one is not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from honestdp import losses
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel, independence, loss_independence, passed_trials, per_example, vet_forward

from .plain_autograd import drawn

Y = torch.zeros(1, 8).long()


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has tried nothing and where torch is what it was, whatever other tests have left in it."""
    functions = {module: passed_trials._functions(module) for module in passed_trials._FUNCTIONS}
    monkeypatch.setattr(passed_trials, "_FUNCTIONS", functions)
    monkeypatch.setattr(passed_trials, "_CLASSES", {kind: passed_trials._held(kind) for kind in passed_trials._CLASSES})
    passed_trials.forget()
    yield
    passed_trials.forget()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trials that are truly made."""
    made: list[str] = []
    for module, name in (
        (independence, "_try_mixing"),
        (independence, "_try_mixing_in_eval"),
        (loss_independence, "_try_mixing_loss"),
    ):
        honest = getattr(module, name)

        def counted(*given: Any, honest: Any = honest, name: str = name) -> Any:
            made.append(name.removeprefix("_try_mixing"))
            return honest(*given)

        monkeypatch.setattr(module, name, counted)
    return made


def net(width: int = 4, *, gate: type[nn.Module] = nn.Tanh, p: float = 0.1) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), gate(), nn.Dropout(p), nn.Linear(width, 2))


def ask(model: nn.Module, loss: Any = losses.cross_entropy, *, lot: int = 8, features: int = 3) -> Any:
    x = torch.zeros(1, lot, features)
    return per_example(model, loss, drawn(model, 1, torch.float32), x, torch.zeros(1, lot).long())


BOTH = ["", "_loss"]


def test_models_built_alike_are_tried_once_and_for_a_wider_lot_again(tried: list[str]) -> None:
    for _ in range(3):
        ask(net())
    assert tried == BOTH
    ask(net(), lot=7)
    assert tried == BOTH
    ask(net(), lot=9)
    assert tried == 2 * BOTH


def test_to_score_is_a_trial_of_its_own(tried: list[str]) -> None:
    ask(net())
    for _ in range(2):
        found = vet_forward(net().eval(), losses.cross_entropy, torch.zeros(2, 3), Y[0, :2], examples=8)
        assert found == 8
    assert tried == [*BOTH, "_in_eval", "_loss"]


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    return model


OTHERS: dict[str, Callable[[], Any]] = {
    "a width": lambda: ask(net(5)),
    "a gate": lambda: ask(net(gate=nn.ReLU)),
    "a setting": lambda: ask(net(p=0.2)),
    "a mode": lambda: ask(net().eval()),
    "a mode of one module": lambda: ask((model := net(), model[2].eval())[0]),
    "an order": lambda: ask(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Tanh(), nn.Linear(4, 2))),
    "no bias": lambda: ask(nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 2))),
    "float64": lambda: per_example(
        net().double(), losses.cross_entropy, drawn(net(), 1, torch.float64), torch.zeros(1, 8, 3).double(), Y
    ),
    "several runs": lambda: per_example(
        net(), losses.cross_entropy, drawn(net(), 2, torch.float32), torch.zeros(2, 4, 3), Y.view(2, 4)
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_model_is_tried(what: str, tried: list[str]) -> None:
    ask(net())
    del tried[:]
    OTHERS[what]()
    assert tried == BOTH


def test_weights_that_are_tied_are_another_model(tried: list[str]) -> None:
    ask(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)))
    ask(_tied())
    assert tried == 2 * BOTH


def test_another_loss_is_tried_on_the_same_model(tried: list[str]) -> None:
    one = nn.CrossEntropyLoss(reduction="none")
    for loss in (losses.cross_entropy, one, nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1), one):
        ask(net(), loss)
    assert tried == ["", "_loss", "_loss", "_loss"]


def test_labels_of_another_kind_are_another_trial_of_the_loss(tried: list[str]) -> None:
    loss, x = nn.CrossEntropyLoss(reduction="none"), torch.zeros(1, 8, 3)
    for y in (Y, Y, torch.full((1, 8, 2), 0.5)):
        per_example(net(), loss, drawn(net(), 1, torch.float32), x, y)
    assert tried == [*BOTH, "_loss"]


def test_to_train_a_model_in_eval_mode_is_not_to_score_it(tried: list[str]) -> None:
    ask(net().eval())
    vet_forward(net().eval(), losses.cross_entropy, torch.zeros(2, 3), Y[0, :2], examples=8)
    assert tried == [*BOTH, "_in_eval"]


# ---- What is not known in every part


class Own(nn.Sequential):
    """Torch's own forward, but who knows what else."""


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _hooked() -> nn.Module:
    model = net()
    model[1].register_forward_hook(lambda *_: None)
    return model


def _overwritten() -> nn.Module:
    model = net()
    model[1].forward = torch.tanh
    return model


def _noted() -> nn.Module:
    model = net()
    model.seen = [object()]  # type: ignore[assignment]
    return model


def _buffered() -> nn.Module:
    model = net()
    model[1].register_buffer("scale", torch.ones(1))
    return model


def _frozen() -> nn.Module:
    model = net()
    model[0].requires_grad_(False)
    return model


UNKNOWN: dict[str, Callable[[], nn.Module]] = {
    "a class of one's own": lambda: Own(*net()),
    "a hook": _hooked,
    "a forward of its own": _overwritten,
    "an object put in": _noted,
    "a buffer": _buffered,
    "frozen weights": _frozen,
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_model_that_is_not_torchs_alone_is_tried_every_time(what: str, tried: list[str]) -> None:
    for _ in range(2):
        ask(UNKNOWN[what]())
    assert tried == 2 * BOTH


OWN_LOSSES: dict[str, Any] = {
    "a function": lambda output, y: losses.cross_entropy(output, y),
    "a part of one of ours": functools.partial(losses.cross_entropy),
    "a module with weights": nn.CrossEntropyLoss(weight=torch.ones(2), reduction="none"),
    "one of torch's functions": functools.partial(functional.cross_entropy, reduction="none"),
}


@pytest.mark.parametrize("what", OWN_LOSSES)
def test_a_loss_of_ones_own_is_tried_every_time(what: str, tried: list[str]) -> None:
    for _ in range(2):
        ask(net(), OWN_LOSSES[what])
    assert tried == ["", "_loss", "_loss"]


def test_under_somebodys_mode_or_hook_nothing_is_known(tried: list[str]) -> None:
    ask(net())
    with Mode():
        ask(net())
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    ask(net())
    handle.remove()
    assert tried == 3 * BOTH
    ask(net())
    assert tried == 3 * BOTH


# ---- What is refused


def test_a_model_of_torchs_own_parts_that_mixes_is_refused_every_time() -> None:
    """Attention over the first dimension, which belongs to the examples."""
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    for _ in range(2):
        with pytest.raises(RefusedModel):
            per_example(model, losses.squared_error, drawn(model, 1, torch.float32), torch.zeros(1, 8, 4), Y.float())


def test_a_model_that_mixes_inputs_of_another_shape_alone_is_refused_for_these() -> None:
    """Softmax2d is over the third dimension from behind: the channels, or the examples where there are none."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Softmax2d(), nn.Flatten())
    params = drawn(model, 1, torch.float32)
    per_example(model, losses.cross_entropy, params, torch.zeros(1, 8, 2, 2, 3), Y)
    with pytest.raises(RefusedModel):
        per_example(model, losses.cross_entropy, params, torch.zeros(1, 8, 2, 3), Y)


def test_a_loss_that_mixes_is_refused_every_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="loss"):
            ask(net(), nn.CrossEntropyLoss(reduction="sum"))


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


def test_what_is_put_beside_torchs_own_is_not_torchs(tried: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn, "Own", Own, raising=False)
    loss = OWN_LOSSES["a function"]
    monkeypatch.setattr(losses, loss.__name__, loss, raising=False)
    for _ in range(2):
        ask(Own(*net()), loss)
    assert tried == 2 * BOTH


# ---- What follows


def test_what_follows_is_the_same_whether_a_trial_was_made_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_next: list[Tensor] = []
    honest = passed_trials.once

    def noting(name: str, trial: Any, probe: Any, *about: Any, **named: Any) -> Any:
        found = honest(name, trial, probe, *about, **named)
        with probe.drawing_apart():
            drawn_next.append(probe.normal(5))
        return found

    monkeypatch.setattr(passed_trials, "once", noting)
    found = [ask(net(p=0.0)) for _ in range(2)]
    first, again = drawn_next[:2], drawn_next[2:]
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert type(found[0]) is type(found[1])


def test_no_more_is_kept_than_fits(monkeypatch: pytest.MonkeyPatch, tried: list[str]) -> None:
    monkeypatch.setattr(passed_trials, "_MOST", 4)
    for width in (1, 2, 3, 4):
        ask(net(width))
        assert len(passed_trials._passed) <= 4
    ask(net(4))
    assert tried == 4 * BOTH
