"""Mistakes of the first hour with another library's habits: each message says what is meant here, before a record is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

pytest.importorskip("safetensors")

import honestdp
from honestdp import Budget, Run, fix
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel
from honestdp.optimizers import SGD
from tests.toy_training import toy_data

X, Y = toy_data()
X = X.float()
RUN = Run(records=len(X), lot=20, steps=2, noise=1.0)


def train(model: nn.Module | None = None, data: Any = (X, Y), **more: Any) -> Any:
    settings: dict[str, Any] = {"run": RUN, "optimizer": SGD(lr=0.1, clip=1.0), **more}
    return honestdp.train(nn.Linear(5, 3) if model is None else model, data, **settings)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return zip(X, Y, strict=True)


class Short(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[0] <= 16
        return super().forward(x)


class OfABatch(nn.Linear):
    def forward(self, batch: Any) -> Tensor:  # type: ignore[override]
        return super().forward(batch["dense"])


def pixels(output: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(output, y, reduction="none")


def torchs() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(5, 3).parameters(), lr=0.1)


IMAGES = torch.zeros(60, 32, 32, 3, dtype=torch.uint8)
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "a model in bfloat16": (
        lambda: train(nn.Linear(5, 3).bfloat16()),
        "trainable 'weight' must be float32 or float64, .* model.float\\(\\), and torch.autocast within forward .* frozen",
    ),
    "an optimizer of torch": (
        lambda: train(optimizer=torchs()),
        r"of torch\.optim goes by gradients that it has seen: honestdp\.optimizers\.SGD\(lr=\.\.\., clip=\.\.\.\) .*got 'SGD'$",
    ),
    "a name of torch": (
        lambda: train(optimizer="adamw"),
        r"honestdp\.optimizers\.Adam\(weight_decay=\.\.\., .* for adamw",
    ),
    "momentum of SGD": (
        lambda: SGD(lr=0.1, clip=1, momentum=0.9),  # type: ignore[call-arg]
        r"and not momentum; momentum: honestdp\.optimizers\.Momentum",
    ),
    "floating classes": (lambda: train(data=(X, Y.float())), r"squared error .* pass whole numbers, y\.long\(\)"),
    "a DataLoader": (
        lambda: train(data=DataLoader(TensorDataset(X, Y))),
        r"data must be loader\.dataset, since .* Poisson",
    ),
    "an IterableDataset": (
        lambda: train(data=Stream()),
        r"data must be a map-style Dataset or np\.memmap, since lots are drawn",
    ),
    "labels of one column": (
        lambda: train(nn.Linear(5, 1), (X, Y[:, None].float()), loss=pixels),
        r"the loss's shape must be one number per example, .* squeeze\(1\) .*\.flatten\(1\)\.mean\(1\)",
    ),
    "a mean over the lot": (
        lambda: train(loss=nn.CrossEntropyLoss()),
        "the loss's shape must be one number per example, .* take reduction='none'",
    ),
    "a forward of a batch": (
        lambda: train(OfABatch(5, 3), ({"dense": X, "sparse": X}, Y)),
        r"Inputs of a dict are given by name, model\(\*\*x\): def forward\(self, dense, sparse\)",
    ),
    "an assertion on the width": (
        lambda: train(Short(5, 3)),
        r"model must be one that .* up to \d+ of them at once, since lots vary in size \(AssertionError",
    ),
    "channels last": (
        lambda: train(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(3600, 3)), (IMAGES, Y)),
        r"Images are \[channels, height, width\] in torch: x\.permute\(0, 3, 1, 2\)",
    ),
    "a space of no optimizer": (
        lambda: honestdp.tune(nn.Linear(5, 3), (X, Y), budget=Budget(3, 1e-4), space={"lr": [0.1]}),
        "got 'lr'; echo was taken, since no optimizer is named: name one, such as optimizer='sgd'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_message_says_what_is_meant_here(case: str) -> None:
    act, said = CASES[case]
    with pytest.raises(InvalidArgument, match=said):
        act()


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            lambda: train(epochs=3),
            r"train\(\) has no argument 'epochs': it is a number of the Run: run=honestdp\.Run\(",
        ),
        (lambda: train(device="cuda"), r"it is a setting of the machine: compute=honestdp\.Compute\(device="),
        (lambda: train(max_grad_norm=1.0), r"it is clip= of the optimizer"),
        (
            lambda: honestdp.tune(nn.Linear(5, 3), (X, Y), budget=Budget(3, 1e-4), n_trials=9),
            r"tune\(\) has no argument 'n_trials': it is candidates=",
        ),  # type: ignore[call-arg]
        (lambda: Run(records=10, batch_size=2, steps=1, noise=1), r"Run\(\) has no argument 'batch_size': it is lot="),  # type: ignore[call-arg]
        (lambda: Run(records=10, lot=2, steps=1, noise_multiplier=1), "it is noise= of the Run"),  # type: ignore[call-arg]
        (lambda: Run(records=10, lot=2, steps=1, sample_rate=1), "it is lot= of the Run, which is the rate times"),  # type: ignore[call-arg]
        (
            lambda: honestdp.tune(nn.Linear(5, 3), (X, Y), epsilon=3),
            r"it is part of the budget: budget=honestdp\.Budget\(",
        ),  # type: ignore[call-arg]
    ],
)
def test_arguments_of_other_libraries_are_named_with_their_place(act: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        act()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        train(nonsense=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_fix_says_that_a_model_compiled_in_place_is_compiled_no_more() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.Tanh())
    model[0].compile()
    assert fix(model).changes == ("'0': " + fix_line(),)
    model = nn.Sequential(nn.Linear(5, 3))
    model.compile()
    fixed, changes = fix(model)
    assert changes == (fix_line(),)
    train(fixed)


def fix_line() -> str:
    return "torch.compile is taken off: its graph is of one model, and private training runs layers of its own"


def test_a_frozen_batch_norm_is_to_be_put_in_eval_first() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(RefusedModel) as trained:
        train(model)
    model[1].requires_grad_(False)
    with pytest.raises(RefusedModel) as frozen:
        train(model)
    assert re.search(r"honestdp\.fix.* or put it in eval\(\)", str(trained.value))
    assert re.search(
        r"put it in eval\(\) to use its fixed statistics, as the layer is frozen, or .*honestdp\.fix", str(frozen.value)
    )
