"""Losses that keep something from call to call, and a layer that is dropout by name alone: each weighs a record by others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from honestdp import Run, train
from honestdp import optimizers as rules
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import ModelWritten
from tests.toy_training import moved, toy_data, toy_model

RUN = Run(records=60, lot=60, steps=30, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)


class Running(nn.Module):
    """Divides by a mean of what it has seen, once it has seen enough: a trial of a few calls finds the plain loss."""

    def __init__(self, warm: int) -> None:
        super().__init__()
        self.warm = warm
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.ones(()))

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        losses = functional.cross_entropy(output, y, reduction="none")
        with torch.no_grad():
            self.calls += 1
            if self.calls > self.warm:
                self.mean.mul_(0.9).add_(0.1 * losses.mean())
        return losses / self.mean if self.calls > self.warm else losses


class Counting:
    """The same in plain attributes."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return functional.cross_entropy(output, y, reduction="none")


@pytest.mark.parametrize("loss", [Running(50), Counting()], ids=["buffers", "attributes"])
def test_a_loss_that_a_call_changes_is_refused_before_a_record_is_read(loss: object) -> None:
    with pytest.raises(InvalidArgument, match="loss must be one that keeps nothing from call to call"):
        train(toy_model(), toy_data(), run=RUN, optimizer=RULE, loss=loss)


def test_a_loss_that_changes_while_it_is_trained_with_stops_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    from honestdp.gradients import loss_independence

    monkeypatch.setattr(loss_independence, "code_of", lambda loss: "")  # a trial that does not see it
    with pytest.raises(ModelWritten, match="its loss has changed; a loss must keep nothing"):
        train(toy_model(), toy_data(), run=RUN, optimizer=RULE, loss=Counting())


FACTOR = {"of": 1.0}


def annealed(output: Tensor, y: Tensor) -> Tensor:
    return FACTOR["of"] * functional.cross_entropy(output, y, reduction="none")


def test_a_loss_may_be_changed_between_steps_by_who_sees_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FACTOR, "of", 1.0)

    def on_step(step: int, model: nn.Module) -> None:
        FACTOR["of"] = 1.0 + step / 100

    train(toy_model(), toy_data(), run=RUN, optimizer=RULE, loss=annealed, on_step=on_step, every=10)
    assert FACTOR["of"] == 1.3


@pytest.mark.slow
def test_a_users_own_loss_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from honestdp.gradients import loss_independence

    monkeypatch.setattr(loss_independence, "code_of", lambda loss: "")
    own = Running(5)
    with pytest.raises(HonestdpError):
        train(toy_model(), toy_data(), run=RUN, optimizer=RULE, loss=own)
    assert own.calls == 0
    assert own.mean == 1


class Jitter(nn.Dropout):
    """Named dropout, and in training it shakes every record by how far the lot is spread."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.p * x.std() * torch.randn_like(x) if self.training else x


def test_a_layer_that_derives_from_dropout_is_tried_as_what_it_is() -> None:
    """It was switched off by its base's name, and a lot whose records it mixed was accepted."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), Jitter(0.5), nn.Linear(8, 3))
    x, y = torch.randn(40, 5), torch.randint(0, 3, (40,))
    x[-1] *= 1e4
    loss = nn.CrossEntropyLoss(reduction="none")
    try:
        assert moved(model, loss, x, y) <= 1.001
    except HonestdpError:
        return
