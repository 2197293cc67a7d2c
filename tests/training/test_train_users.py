"""What users bring: models of many kinds, data in many containers, and mistakes."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from honestdp import Budget, Compute, Run, gradients
from honestdp import optimizers as rules
from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import InvalidArgument
from honestdp.gradients import materialised, per_example
from honestdp.gradients.probe import project
from honestdp.training.train import train, train_population

RUN = Run(records=40, lot=8, steps=3, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)
X, Y = torch.randn(40, 8, generator=torch.Generator().manual_seed(3)), torch.arange(40) % 3


def never_released(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a release was made")

    monkeypatch.setattr(Mechanism, "_release", never)


# ---- Models of one population share everything but their trainable weights


def frozen_first() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].requires_grad_(False)
    return model


def with_statistics(mean: float) -> nn.Module:
    norm = nn.BatchNorm1d(8).eval().requires_grad_(False)
    norm.running_mean.fill_(mean)
    return nn.Sequential(norm, nn.Linear(8, 3))


class Scaled(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(8, 3), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


UNLIKE = {
    "frozen weights": [frozen_first(), frozen_first()],
    "buffers": [with_statistics(0.0), with_statistics(1.0)],
    "attributes": [Scaled(1.0), Scaled(2.0)],
    "activations": [nn.Sequential(nn.Linear(8, 3), act) for act in (nn.ReLU(), nn.Tanh())],
    "slopes": [nn.Sequential(nn.Linear(8, 3), nn.LeakyReLU(slope)) for slope in (0.1, 0.2)],
    "modes": [nn.Sequential(nn.Dropout(), nn.Linear(8, 3)), nn.Sequential(nn.Dropout().eval(), nn.Linear(8, 3))],
    "layers": [nn.Sequential(nn.Linear(8, 3)), nn.Sequential(nn.Linear(8, 3), nn.Identity())],
    "what is frozen": [nn.Linear(8, 3), nn.Linear(8, 3).requires_grad_(False)],
}


@pytest.mark.parametrize("models", UNLIKE.values(), ids=UNLIKE)
def test_models_that_differ_in_more_than_trainable_weights_are_refused(
    models: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    never_released(monkeypatch)
    with pytest.raises(InvalidArgument, match="trainable weights alone"):
        train_population(models, (X, Y), run=RUN, optimizers=[RULE, RULE])


def test_a_factory_over_one_frozen_part_trains_every_run_with_it() -> None:
    first = nn.Linear(8, 5).requires_grad_(False)

    def make() -> nn.Module:
        head = nn.Sequential(nn.Linear(5, 3))
        head.activation = lambda x: x  # a new function object each time, and yet the same
        return nn.Sequential(first, head)

    results = train_population(make, (X, Y), run=RUN, optimizers=[RULE, RULE])
    assert all(torch.equal(result.model[0].weight, first.weight) for result in results)


# ---- Models that torch.func does not map


class Cells(nn.Module):
    def __init__(self, given: bool) -> None:
        super().__init__()
        self.cell, self.head, self.given = nn.GRUCell(2, 4), nn.Linear(4, 3), given

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(-1, 4, 2)
        hidden = torch.zeros(len(x), 4, dtype=x.dtype) if self.given else None
        for t in range(4):
            hidden = self.cell(x[:, t], hidden)
        return self.head(hidden)


class Attends(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=dropout, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.reshape(-1, 2, 4)).flatten(1))


class Branches(nn.Module):
    """Looks at a number to choose its way, which no map can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if self.layer.weight.sum().item() > 0 else -self.layer(x)


class Doubled(torch.autograd.Function):
    """Of the older kind, which torch.func does not take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


class Old(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return Doubled.apply(x @ self.weight)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        Branches(),
        Old(),
        Cells(given=False),
        Cells(given=True),
        Attends(dropout=0.1),
        nn.Sequential(nn.Linear(8, 4), nn.PReLU(), nn.Linear(4, 3)),
    ],
    ids=["branches", "an old function", "cells", "cells with a given state", "attention with dropout", "PReLU"],
)
def test_models_without_a_rule_for_mapping_train_one_by_one(model: nn.Module) -> None:
    results = train_population(model, (X, Y), run=RUN, optimizers=[RULE, RULE])
    assert all(torch.isfinite(p).all() for result in results for p in result.model.parameters())


@pytest.mark.parametrize("mapped", materialised.WAYS)
def test_every_way_of_mapping_gives_the_same_gradients(mapped: str) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    params = {n: torch.randn(2, *p.shape).double() for n, p in model.named_parameters()}
    x, cotangents, weights = torch.randn(2, 5, 8).double(), torch.randn(2, 5, 3).double(), torch.rand(2, 5).double()
    found = materialised.Materialised(materialised.Batch(model, project, params, x, cotangents, mapped), 2)
    expected = per_example(model, project, params, x, cotangents)
    torch.testing.assert_close(found.norms, expected.norms)
    torch.testing.assert_close(found.weighted_sum(weights), expected.weighted_sum(weights))


class Clamps(nn.Module):
    """Changes its input behind autograd's back, and only once: what is known of the input is then untrue."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x.data.copy_(x.data.clamp(min=5))
        return self.layer(x)


def test_norms_known_of_an_input_that_is_changed_unseen_are_not_used() -> None:
    model = Clamps()
    params = {n: p.detach()[None] for n, p in model.named_parameters()}
    x, y = torch.randn(1, 4, 8) / 100, torch.zeros(1, 4, dtype=torch.int64)
    loss = nn.CrossEntropyLoss(reduction="none")
    told = per_example(model, loss, params, x.clone(), y, input_norms=x.norm(dim=2))
    plain = per_example(model.layer, loss, {n[6:]: p for n, p in params.items()}, x.clamp(min=5), y)
    torch.testing.assert_close(told.norms, plain.norms)


# ---- Rules of users that are wrong


class Shifts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


def raises(*_: object) -> dict[str, Tensor]:
    raise KeyError("lost")


@pytest.mark.parametrize(
    "formula",
    [lambda *_: {}, lambda layer, params, x, grad: {"shift": grad[..., :2]}, raises],
    ids=["a missing name", "a wrong shape", "an error"],
)
def test_a_wrong_rule_falls_back_and_the_log_says_so(
    formula: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gradients.rules, "_RULES", {**gradients.rules._RULES})
    gradients.rule(Shifts)(formula)
    with caplog.at_level(logging.WARNING, "honestdp.gradients"):
        train(nn.Sequential(Shifts(), nn.Linear(8, 3)), (X, Y), run=RUN, optimizer=RULE)
    assert "rule" in caplog.text


@pytest.mark.parametrize("wrong", [int, raises])
def test_a_rule_is_registered_for_layers_alone(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="layers"):
        gradients.rule(wrong)


# ---- Data


@pytest.mark.parametrize("label", [math.nan, math.inf])
def test_labels_that_are_no_numbers_leave_finite_weights(label: float) -> None:
    y = torch.randn(40)
    y[::2] = label
    result = train(nn.Linear(8, 1), (X, y), run=RUN, optimizer=RULE)
    assert torch.isfinite(result.model.weight).all()


def test_a_regression_model_may_drop_its_last_dimension() -> None:
    torch.manual_seed(1)
    model, y = nn.Linear(8, 1), torch.randn(40)
    found = [
        train(one, (X, labels), run=RUN, optimizer=RULE, noise_seed=1)
        for one in (model, nn.Sequential(model, nn.Flatten(0)))
        for labels in (y, y[:, None])
    ]
    assert all(torch.equal(next(one.model.parameters()), found[0].model.weight) for one in found)


class Listed(Dataset):
    def __init__(self, labels: Tensor, trouble: Exception | None = None) -> None:
        self.labels, self.trouble = labels, trouble

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        if self.trouble is not None and i == 39:
            raise self.trouble
        return X[i], int(self.labels[i])


def test_an_error_of_the_users_dataset_is_not_called_a_death() -> None:
    with pytest.raises(RuntimeError, match="cannot decode"):
        train(
            nn.Linear(8, 3),
            Listed(Y, RuntimeError("cannot decode")),
            run=Run(records=40, lot=40, steps=1, noise=1.0),  # a lot of all records
            optimizer=RULE,
            compute=Compute(workers=1),
        )


@pytest.mark.parametrize(
    "labels",
    [
        Y.numpy().astype(np.uint16),
        Y.numpy().astype(np.uint64),
        Y.numpy().astype(">i4"),
        Y.numpy()[::-1][::-1],
        Y.tolist(),
    ],
    ids=["uint16", "uint64", "big-endian", "strided", "list"],
)
def test_labels_of_any_whole_kind_are_read(labels: Any) -> None:
    plain = train(nn.Linear(8, 3).requires_grad_(), (X, Y), run=RUN, optimizer=RULE, noise_seed=1).model
    found = train(_like(plain), (X, labels), run=RUN, optimizer=RULE, noise_seed=1)
    again = train(_like(plain), (X, Y), run=RUN, optimizer=RULE, noise_seed=1)
    assert torch.equal(found.model.weight, again.model.weight)


def _like(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 3)


@pytest.mark.parametrize(
    "data",
    [{"x": X, "y": Y}, (X, Y, Y), "records.csv", (X, np.array(["a"] * 40))],
    ids=["a dictionary", "three", "a path", "words"],
)
def test_what_is_no_pair_of_numbers_is_named(data: Any) -> None:
    with pytest.raises(InvalidArgument, match="data"):
        train(nn.Linear(8, 3), data, run=RUN, optimizer=RULE)


@pytest.mark.parametrize("data", [X, X.numpy(), (X, None)], ids=["x alone", "an array alone", "no labels"])
def test_labels_that_were_forgotten_are_named_where_the_model_gives_several_numbers(data: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"Where records have labels, pass \(x, y\)"):
        train(nn.Linear(8, 3), data, run=RUN, optimizer=RULE)


@pytest.mark.parametrize("x", [X[:, :5], (X * 9).long()], ids=["too few", "whole numbers"])
def test_records_that_do_not_fit_the_model_are_named_with_their_shape(x: Tensor) -> None:
    with pytest.raises(InvalidArgument, match=r"model must be one that with its loss takes .* of shape \["):
        train(nn.Linear(8, 3), (x, Y), run=RUN, optimizer=RULE)


# ---- Repeating a result


def test_nobody_can_foretell_what_a_model_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """With masks that are known the other records' gradients would be too: of one that leaves, the mask moves to the next."""
    true, states = Mechanism._eager, list[bytes]()

    def eager(self: Mechanism, *given: Any) -> Any:
        states.append(torch.get_rng_state().numpy().tobytes())
        return true(self, *given)

    monkeypatch.setattr(Mechanism, "_eager", eager)
    for _ in range(2):
        torch.manual_seed(0)
        train(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3)), (X, Y), run=RUN, optimizer=RULE)
    assert len({*states}) == len(states) == 2 * RUN.steps


def test_a_fixed_seed_repeats_a_model_with_dropout_and_leaves_torchs_own_draws_alone() -> None:
    model, found, after = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3)), [], []
    for seed in (1, 99):
        torch.manual_seed(seed)
        found.append(train(model, (X, Y), run=RUN, optimizer=RULE, noise_seed=4).model[1].weight)
        after.append(torch.rand(1))
    assert torch.equal(*found)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after[0])


# ---- Mistakes


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"optimizers": rules.SGD(0.1, 1.0)}, "optimizers"),
        ({"optimizers": [rules.SGD(lr=torch.tensor(0.1), clip=1.0)]}, "SGD.lr"),
        ({"optimizers": [rules.SGD(lr=0.1, clip=torch.tensor(-1.0))]}, "SGD.clip"),
        ({"run": {"records": 40}}, "run"),
        ({"loss": "mse"}, "loss"),
        ({"loss": nn.CrossEntropyLoss}, "loss"),
        ({"budget": (2.0, 1e-5)}, "budget"),
        ({"run": Run(records=40, lot=8, steps=3, noise=0.0), "budget": Budget(2.0, 1e-5), "delta": 1e-6}, "delta"),
        ({"schedule": 3}, "schedule"),
        ({"noise_seed": 1.5}, "noise_seed"),
        ({"compute": "cuda"}, "compute"),
        ({"compute": Compute(checkpoint="missing/folder/file")}, "checkpoint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_argument_of_a_wrong_kind_is_named(wrong: dict[str, Any], argument: str) -> None:
    given = {"run": RUN, "optimizers": [RULE], **wrong}
    with pytest.raises(InvalidArgument, match=f"^{argument} must be"):
        train_population(nn.Linear(8, 3), (X, Y), **given)


def test_a_seed_of_numpy_is_a_seed() -> None:
    one, other = (
        train(_like(nn.Linear(8, 3)), (X, Y), run=RUN, optimizer=RULE, noise_seed=seed) for seed in (3, np.int64(3))
    )
    assert torch.equal(one.model.weight, other.model.weight)


@pytest.mark.slow
def test_a_budget_is_enough_and_the_statement_says_what_was_chosen() -> None:
    x, y = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 2
    budget = Budget(1.0, 1e-5)
    result = train(torch.nn.Linear(5, 2), (x, y), budget=budget)
    assert result.epsilon <= 1.0
    assert result.run.records == 300
    words = str(result.statement)
    assert f"lot {result.run.lot:g}, {result.run.steps} steps" in words
    assert "taken to be that of the data" in words
    assert "not read off the data" not in words, "it was"


def test_without_a_run_and_without_a_budget_nothing_is_trained() -> None:
    with pytest.raises(InvalidArgument, match=r"run must be .*budget"):
        train(torch.nn.Linear(5, 2), (torch.randn(10, 5), torch.arange(10) % 2), delta=1e-5)
