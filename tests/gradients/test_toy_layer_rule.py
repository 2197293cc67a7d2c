"""A layer rule of fifteen lines takes a layer of one's own through a training and a search; a wrong one is found out first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import Run, gradients
from honestdp.gradients import rules
from honestdp.optimizers import SGD

from ..tiny_search import WHOLE, clouds

Formula = Callable[[nn.Module, Mapping[str, Tensor], Tensor, Tensor], Mapping[str, "Tensor | gradients.Form"]]


class Bend(nn.Module):
    """z = factor * a + slope * a^2, one factor a feature and one slope for all."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(features))
        self.slope = nn.Parameter(torch.zeros(()))

    def forward(self, a: Tensor) -> Tensor:
        return a * self.factor + self.slope * a**2


def bend(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """a, grad `[runs, lot, features]` -> `[runs, lot, features]` for the factor, `[runs, lot]` for the slope."""
    return {"factor": grad * a, "slope": (grad * a**2).sum(2)}


RUN = Run(records=60, lot=20, steps=6, noise=1.0)
RULES = [SGD(lr=lr, clip=0.5) for lr in (0.5, 1.0, 2.0)]


def model(features: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(features, 6), nn.Tanh(), Bend(6), nn.Linear(6, 2)).double()


def data() -> tuple[Tensor, Tensor]:
    x, y = clouds(60)
    return torch.from_numpy(x).double(), torch.from_numpy(y)


def weights() -> Tensor:
    """Of three runs trained together, `[runs, d]`. The seed fixes lots and noise, so that two trainings can be compared."""
    results = honestdp.train_population(model(), data(), run=RUN, optimizers=RULES, noise_seed=5)
    return torch.stack([nn.utils.parameters_to_vector(result.model.parameters()).detach() for result in results])


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Formula], list[tuple[int, int]]]:
    """Registers a rule for `Bend` until the end of the test; the runs and examples that it is asked about, call by call."""
    monkeypatch.setattr(rules, "_RULES", {**rules._RULES})

    def register(formula: Formula) -> list[tuple[int, int]]:
        asked: list[tuple[int, int]] = []

        @gradients.rule(Bend)
        def watched(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> Any:
            asked.append((a.shape[0], a.shape[1]))
            return formula(layer, params, a, grad)

        return asked

    return register


@pytest.fixture
def by_rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "honestdp.gradients.materialised.per_example", lambda *_, **__: pytest.fail("gradients were materialised")
    )


def test_a_population_with_a_rule_for_its_layer_is_trained_by_that_rule(
    registered: Callable[[Formula], list[tuple[int, int]]], by_rules_alone: None, lines: list[str]
) -> None:
    asked = registered(bend)
    weights()
    assert sum(runs == len(RULES) and lot >= RUN.lot for runs, lot in asked) == RUN.steps
    assert lines == []


def test_the_rule_changes_nothing_but_the_way(registered: Callable[[Formula], list[tuple[int, int]]]) -> None:
    without = weights()
    registered(bend)
    with_rule = weights()
    assert (
        without - nn.utils.parameters_to_vector(model().parameters()).detach()
    ).abs().amax() > 0.01  # it was trained
    # A release is rounded to a grid of 2^-12 of the noise at most: one cell a step, times rate over lot.
    cell = 2**-12 * RUN.noise * 0.5 / RUN.lot * 2.0
    assert (with_rule - without).abs().amax() <= 2 * RUN.steps * cell


def test_a_search_over_such_a_model_goes_by_the_rule(
    registered: Callable[[Formula], list[tuple[int, int]]], by_rules_alone: None
) -> None:
    asked = registered(bend)
    x, y = clouds()
    result = honestdp.tune(model, (x.astype("float64"), y), **WHOLE)
    assert any(lot > gradients.probe.LOT for _, lot in asked)
    assert any(isinstance(part, Bend) for part in result.model.modules())


def halved(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """Norms too small: every record would pass the clip at twice its length."""
    return {name: value / 2 for name, value in bend(layer, params, a, grad).items()}


def turned(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """The right norms of a wrong gradient."""
    return {name: -value for name, value in bend(layer, params, a, grad).items()}


def exchanged(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """Every example has the gradient of another: each norm is some example's, and none its own."""
    return {name: value.flip(1) for name, value in bend(layer, params, a, grad).items()}


def slopeless(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """One parameter of two is wrong."""
    return bend(layer, params, a, grad) | {"slope": (grad * a).sum(2)}


class Shortened(gradients.Dense):
    def square_norms(self) -> Tensor:
        return super().square_norms() / 4


def shortened(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> dict[str, gradients.Form]:
    """The right sum with norms of half the length: it is the norm that the clip sees."""
    return {name: Shortened(value) for name, value in bend(layer, params, a, grad).items()}


@pytest.mark.parametrize("wrong", [halved, turned, exchanged, slopeless, shortened])
def test_a_wrong_rule_is_refused_against_autograd_before_a_record_is_summed_by_it(
    wrong: Formula, registered: Callable[[Formula], list[tuple[int, int]]], lines: list[str]
) -> None:
    without = weights()
    asked = registered(wrong)
    with_wrong = weights()
    assert torch.equal(with_wrong, without)  # both by autograd's own gradients
    assert asked
    assert all(runs <= 2 and lot == gradients.probe.LOT for runs, lot in asked)  # made-up examples alone
    assert "a layer rule does not hold" in lines[-1]


class Apart(gradients.Outer):
    """Norms as if the uses of a weight stood at right angles."""

    def square_norms(self) -> Tensor:
        return (self.left.square().sum(3) * self.right.square().sum(3)).sum(2)


class Spread(nn.Module):
    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) / columns**0.5)

    def forward(self, a: Tensor) -> Tensor:
        return a @ self.weight.mT


@pytest.mark.slow
def test_a_rule_whose_norm_is_too_small_for_uses_that_are_alike_alone_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random uses of many numbers are nearly at right angles, and their squared norms nearly add up; those of records do not."""
    monkeypatch.setattr(rules, "_RULES", {**rules._RULES})

    @gradients.rule(Spread)
    def apart(layer: nn.Module, params: Mapping[str, Tensor], a: Tensor, grad: Tensor) -> Any:
        return {"weight": Apart(grad, a, (grad.shape[3], a.shape[3]))}

    wide = nn.Sequential(Spread(8192, 512))
    params = {name: value.detach()[None].clone() for name, value in wide.named_parameters()}
    x = torch.ones(1, 2, 2, 8192)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return output.square().sum((1, 2))

    found = gradients.per_example(wide, loss, params, x, torch.zeros(1, 2))
    whole = 2 * 2 * (params["0.weight"][0] @ x[0, 0, 0]).norm() * x[0, 0, 0].norm()
    torch.testing.assert_close(found.norms[0], whole.expand(2), rtol=1e-3, atol=0)
