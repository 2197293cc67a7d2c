"""Whatever is trainable in a loss is refused by name, before a record is read or a ledger charged, and never left as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("safetensors")

import honestdp
from honestdp import Budget, Ledger, Run, train
from honestdp import optimizers as rules
from honestdp.checks import InvalidArgument
from honestdp.federated import AdaptiveClient
from tests.toy_training import toy_data

X, Y = toy_data()
X = X.float()
IN, CLASSES = X.shape[1], int(Y.max()) + 1
RUN = Run(records=len(X), lot=20, steps=2, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)
torch.manual_seed(0)
MODEL = nn.Linear(IN, CLASSES)
OTHER = nn.Linear(3, 2)


def plain(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def penalised(strength: float, model: nn.Module = MODEL) -> Callable[..., Tensor]:
    return lambda output, y: plain(output, y) + strength * sum(p.square().sum() for p in model.parameters())


def by_global(output: Tensor, y: Tensor) -> Tensor:
    return plain(output, y) + OTHER.weight.square().sum()


class Head(nn.Module):
    """A class matrix in the loss, as ArcFace and centre losses have."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ParameterDict({"w": nn.Parameter(torch.randn(CLASSES, CLASSES))})

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return plain(output @ self.inner["w"].T, y)


class Weighing:
    """Kendall's uncertainty weights, in an object of one's own."""

    def __init__(self) -> None:
        self.log_var = torch.zeros(1, requires_grad=True)

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return plain(output, y) * torch.exp(-self.log_var) + self.log_var


LOSSES: dict[str, tuple[Any, str]] = {
    "a penalty": (penalised(0.1), r"`(weight|bias)` \[.*\] of the model"),
    "a penalty of strength 0": (penalised(0.0), r"`(weight|bias)` \[.*\] of the model"),
    "weights of another model": (penalised(0.1, OTHER), r"a weight \[.*\]"),
    "a class matrix": (Head(), r"`inner\.w` \[3, 3\]|`inner\.w` \["),
    "uncertainty weights": (Weighing(), r"a weight \[1\]"),
    "a global": (by_global, r"a weight \[2, 3\]"),
}


@pytest.mark.parametrize("which", LOSSES)
def test_weights_in_a_loss_are_refused_by_name_and_nothing_is_charged(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, named = LOSSES[which]
    monkeypatch.setattr("os.fsync", lambda handle: None)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("toy", Budget(10.0, 1e-4))
    paid: dict[str, Any] = {"ledger": ledger, "dataset": "toy", "delta": 1e-5}
    with pytest.raises(
        InvalidArgument, match=rf"loss must be free of weights to train, .*weight_decay=.* got .*{named}"
    ):
        train(MODEL, (X, Y), run=RUN, optimizer=RULE, loss=loss, **paid)
    assert not ledger.charges("toy")


def test_so_it_is_in_a_population_and_in_a_search_and_at_a_client() -> None:
    loss = penalised(0.1)
    with pytest.raises(InvalidArgument, match="loss must be free of weights to train"):
        honestdp.train_population(MODEL, (X, Y), run=RUN, optimizers=[RULE, RULE], loss=loss)
    search: dict[str, Any] = {"optimizer": "sgd", "space": {"lr": [0.1], "clip": [1.0, 2.0]}, "lot": 20, "steps": 2}
    for model in (MODEL, lambda: nn.Linear(IN, CLASSES)):
        with pytest.raises(InvalidArgument, match="loss must be free of weights to train"):
            honestdp.tune(model, (X, Y), budget=Budget(5, 1e-5), selection="compose", loss=loss, **search)
    client = AdaptiveClient(MODEL, (X, Y), run=RUN, rounds=1, delta=1e-5, loss=loss)
    with pytest.raises(InvalidArgument, match="loss must be free of weights to train"):
        client.fit(MODEL.state_dict())
    assert client.made == 0


class Frozen(nn.Module):
    """A matrix that is a constant, weights of which only the numbers are read, and weights that are not used."""

    def __init__(self) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.eye(CLASSES), requires_grad=False)
        self.unused = nn.Linear(2, 2)

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return plain(output @ self.constant + MODEL.bias.detach().sum(), y)


@pytest.mark.parametrize("loss", [Frozen(), nn.CrossEntropyLoss(weight=torch.ones(CLASSES), reduction="none")])
def test_constants_in_a_loss_are_not_weights(loss: nn.Module) -> None:
    train(MODEL, (X, Y), run=RUN, optimizer=RULE, loss=loss)
