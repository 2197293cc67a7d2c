"""Weight decay around any rule, and warm-ups by name: post-processing that a checkpoint and a search notice."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import honestdp
from honestdp import Run
from honestdp.boundary.query import Release
from honestdp.checks import InvalidArgument
from honestdp.optimizers import BY_NAME, OSO, SGD, Adam, AdamOSO, Horizon, Momentum, Rule
from honestdp.optimizers.horizon import layer_scales
from honestdp.optimizers.schedules import factors
from honestdp.search.space import space_of
from tests.search.test_resume import Stopped
from tests.tiny_search import clouds, linear
from tests.toy_training import population_of, toy_data, toy_model

NAMES = [name for name in BY_NAME if not name.startswith("toy") and BY_NAME[name].__module__.startswith("honestdp.")]
RUN = Run(records=400, lot=40, steps=4, noise=1.0)


def rule_named(name: str) -> Rule:
    return space_of(name, None, lot=10, steps=6).candidates()[-1].rule()


def weights(rules: list[Rule], steps: int = 6) -> torch.Tensor:
    population, _ = population_of(
        [toy_model() for _ in rules], toy_data(), rules, lot=10, steps=steps, noise=[0.5] * len(rules)
    )
    while population.step < steps:
        population.block()
    return population.weights()


@pytest.mark.parametrize("name", NAMES)
def test_no_weight_decay_is_what_was_before_to_the_last_digit(name: str) -> None:
    """Alone, and beside a run that has some."""
    plain, other = rule_named(name), replace(rule_named(name), weight_decay=0.5)
    alone = weights([plain, plain])
    assert torch.equal(weights([plain, other])[0], alone[0])
    assert not torch.equal(weights([plain, other])[1], alone[1])


@pytest.mark.parametrize("name", NAMES)
def test_weights_shrink_by_the_part_of_the_step_that_is_said(name: str) -> None:
    """One step from the same weights and release: theta' differs by step * weight_decay * theta, the step as in `pace`."""
    plain, decay = rule_named(name), 0.25
    start = torch.cat([p.detach().flatten() for p in toy_model().parameters()])
    population, mechanism = population_of([toy_model()], toy_data(), [plain], lot=10, steps=1, noise=[0.5])
    pace = population._rule.pace(population.state, mechanism.constants).expand(1, population.params.shape[1])
    moved = weights([plain], 1) - weights([replace(plain, weight_decay=decay)], 1)
    torch.testing.assert_close(moved[:, : len(start)], decay * (pace[:, : len(start)] * start), rtol=1e-3, atol=1e-6)
    assert float(moved.abs().max()) > 0


@pytest.mark.parametrize("rule", [OSO(lr=0.5, rho_r=0.3), AdamOSO(lr=0.5, rho_r=0.3)], ids=repr)
def test_weights_shrink_by_a_part_of_the_step_size_that_was_learnt(rule: OSO | AdamOSO) -> None:
    """After four steps, of which three moved it by e^0.3 up or down each."""
    decay = replace(rule, weight_decay=0.25)
    population, mechanism = population_of([toy_model()], toy_data(), [decay], lot=10, steps=6, noise=[0.5])
    population.block(look=4)
    params, learnt = population.params, population.state["lr"].item()
    assert abs(math.log(learnt / 0.5)) > 0.29
    nothing = Release(torch.zeros_like(params), torch.zeros_like(params))
    plain, shrunk = (
        each.update(params, population.state, nothing, mechanism.constants)[0]
        for each in (population._rule, population._steps)
    )
    torch.testing.assert_close(plain - shrunk, learnt * 0.25 * params)


def test_sgd_and_adam_decay_as_torch_does() -> None:
    """Against torch.optim on the releases themselves: plain SGD with theta *= 1 - lr * decay, and AdamW."""
    for rule, make in (
        (SGD(lr=0.3, clip=1.0, weight_decay=0.1), None),
        (
            Adam(clip=1.0, lr=0.05, weight_decay=0.1),
            lambda p: torch.optim.AdamW([p], lr=0.05, weight_decay=0.1, eps=1e-8),
        ),
    ):
        population, mechanism = population_of([toy_model()], toy_data(), [rule], lot=10, steps=5, noise=[1.0])
        theta = population.params[0].clone().requires_grad_()
        optimizer = make(theta) if make else None
        seen: list[torch.Tensor] = []
        inner = mechanism._release

        def noted(*args: Any, _inner: Any = inner, _seen: list[torch.Tensor] = seen) -> Any:
            _seen.append((found := _inner(*args)).gradient[0].clone())
            return found

        mechanism._release = noted  # type: ignore[method-assign]
        while population.step < 5:
            population.block()
        for gradient in seen:
            if optimizer is None:
                theta = theta.detach() * (1 - 0.3 * 0.1) - 0.3 * gradient
            else:
                theta.grad = gradient
                optimizer.step()
        torch.testing.assert_close(population.params[0], theta.detach(), rtol=1e-4, atol=1e-6)


def test_weight_decay_is_a_hyperparameter_of_any_optimizer_in_train_and_tune() -> None:
    result = honestdp.train(linear(), clouds(), run=RUN, optimizer=Horizon(weight_decay=0.01), delta=1e-5)
    assert result.hyperparameters == {
        "optimizer": "horizon",
        "average": False,
        "weight_decay": 0.01,
        "lot": 40,
        "steps": 4,
    }
    plain = honestdp.train(linear(), clouds(), run=RUN, optimizer="horizon", delta=1e-5)
    assert plain.epsilon == result.epsilon
    found = space_of(
        ["sgd", "horizon"], {"sgd": {"weight_decay": [0, 0.1]}, "horizon": {"weight_decay": [0.2]}}, lot=4, steps=1
    )
    assert len(found.candidates()) == 81
    assert {one.rule().weight_decay for one in found.candidates()} == {0, 0.1, 0.2}


@pytest.mark.parametrize("value", [-0.1, math.nan, "much"])
def test_a_decay_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="weight_decay"):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=SGD(0.1, 1.0, weight_decay=value))
    with pytest.raises(InvalidArgument, match="weight_decay"):
        space_of("sgd", {"weight_decay": [0.1, value]}, lot=4, steps=1)


def test_a_checkpoint_is_not_resumed_with_another_decay_or_schedule(tmp_path: Path) -> None:
    compute = honestdp.Compute(device="cpu", checkpoint=tmp_path / "checkpoint")
    settings: dict[str, Any] = {"run": RUN, "compute": compute}
    honestdp.train(
        linear(), clouds(), optimizer=Momentum(0.1, 0.9, 1.0, weight_decay=0.1), schedule="warmup", **settings
    )
    for decay, schedule, said in (
        (0.2, "warmup", "optimizers"),
        (0.0, "warmup", "optimizers"),
        (0.1, "warmup:0.9", "schedule"),
    ):
        rule = Momentum(0.1, 0.9, 1.0, weight_decay=decay)
        with pytest.raises(InvalidArgument, match=said):
            honestdp.train(linear(), clouds(), optimizer=rule, schedule=schedule, **settings)


def test_a_search_is_not_resumed_with_another_decay_or_schedule(tmp_path: Path) -> None:
    space = {"lr": [0.1], "clip": [1.0], "weight_decay": [0.1]}
    search = Stopped(tmp_path, optimizer="sgd", space=space, schedule="warmup")
    search.refuses("differs in space", space={**space, "weight_decay": [0.2]}, optimizer="sgd", schedule="warmup")
    search.refuses("differs in schedule", space=space, optimizer="sgd", schedule="warmup:0.2")


# ---- Warm-ups


def of(schedule: str, steps: int = 20) -> list[float]:
    return factors(schedule, Run(records=100, lot=10, steps=steps, noise=1.0))


def test_a_warm_up_rises_in_equal_strides_and_then_stays_or_falls() -> None:
    assert of("warmup") == [0.5, *[1.0] * 19]
    assert of("warmup:0.25") == pytest.approx([0.2, 0.4, 0.6, 0.8, *[1.0] * 16])
    cosine = of("warmup-cosine:0.25")
    assert cosine[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert cosine[5:] == pytest.approx([(1 + math.cos(math.pi * i / 15)) / 2 for i in range(15)])
    assert of("warmup-cosine:0.999", steps=1) == [1.0]
    assert of("warmup", steps=0) == []


@pytest.mark.parametrize(
    "schedule", ["warm", "warmup:", "warmup:0", "warmup:1", "warmup:x", "cosine:0.1", "warmup-cosine:nan"]
)
def test_other_words_are_refused_with_those_that_are_known(schedule: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"constant, decay, cosine, warmup, warmup-cosine, a warm-up with the part"
    ):
        of(schedule)


@pytest.mark.parametrize("name", ["adadp", "horizon"])
def test_rules_with_a_pace_of_their_own_refuse_a_warm_up(name: str) -> None:
    rule = rule_named(name)
    with pytest.raises(InvalidArgument, match="sets its own pace"):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=rule, schedule="warmup")


def test_schedules_are_the_papers() -> None:
    run = Run(records=100, lot=50, steps=140, noise=1)
    decay = factors("decay", run)
    assert decay[:100] == [1.0] * 100
    assert decay[100] == pytest.approx(1 / 1.1)
    assert decay[139] == pytest.approx(1 / (1 + 0.1 * 20))
    cosine = factors("cosine", run)
    assert cosine[0] == 1
    assert cosine[70] == pytest.approx(0.5)
    assert factors(lambda step: 1 / (1 + step), run)[3] == 0.25


def test_a_schedule_multiplies_the_step_size() -> None:
    constants = population_of([toy_model()], toy_data(), [SGD(0.3, 1.0)], lot=10, steps=4, noise=[1.0])[1].constants
    found = []
    for paces in ([1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 0.25, 0.0]):
        scheduled = replace(constants, factors=torch.tensor(paces).double())
        params, state = torch.zeros(1, 39).double(), SGD(0.3, 1.0).init(torch.zeros(1, 39), scheduled)
        for _ in range(4):
            params, state = SGD(0.3, 1.0).update(params, state, Release(torch.ones_like(params)), scheduled)
        found.append(params[0, 0].item())
    assert found == pytest.approx([-0.3 * 4, -0.3 * 1.75])


def test_horizon_scales_of_one_layer_are_one() -> None:
    model = torch.nn.Linear(5, 3).double()
    constants = population_of([model], toy_data(), [SGD(0.3, 1.0)], lot=10, steps=4, noise=[1.0])[1].constants
    assert layer_scales(constants) == [1.0, 1.0]
