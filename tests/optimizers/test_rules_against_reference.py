"""Every rule against the plain, slow reference: step by step, with the same lots and the same noise, mixed populations."""

from __future__ import annotations

import math

import pytest
import torch

from honestdp import optimizers as rules
from honestdp.boundary.noise import CpuNoise
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.optimizers.rule import stack_rules
from honestdp.optimizers.schedules import factors
from honestdp.run import Run
from honestdp.training.population import Population
from tests.toy_training import CPU, constants_of, intake_of, toy_data, toy_model

from . import slow_reference as slow

pytestmark = pytest.mark.usefixtures("fine_grid")

STEPS, LOT = 7, 20.0
TAU = math.sqrt(39 / (2 * (STEPS // 2)))

CASES = {
    "sgd": (rules.SGD, slow.sgd, [{"lr": 0.3, "clip": 0.4}, {"lr": 1.1, "clip": 2.0}], {}),
    "automatic": (rules.SGD, slow.sgd_automatic, [{"lr": 0.3}, {"lr": 0.7}], {"clip": "auto"}),
    "momentum": (
        rules.Momentum,
        slow.momentum,
        [{"lr": 0.2, "momentum": 0.5, "clip": 0.4}, {"lr": 0.1, "momentum": 0.9, "clip": 1.0}],
        {},
    ),
    "adam": (
        rules.Adam,
        slow.adam,
        [{"lr": 0.05, "beta1": 0.9, "beta2": 0.99, "clip": 0.4}, {"lr": 0.01, "beta1": 0.5, "beta2": 0.9, "clip": 1.0}],
        {},
    ),
    "adam-wosm": (
        rules.AdamWOSM,
        slow.adam_wosm,
        [{"lr": 0.05, "beta1": 0.9, "clip": 0.4}, {"lr": 0.01, "beta1": 0.5, "clip": 1.0}],
        {},
    ),
    "oso": (
        rules.OSO,
        slow.oso,
        [
            {"lr": 0.5, "clip": 0.3, "rho_c": 0.1, "rho_r": 0.2},
            {"lr": 0.2, "clip": 0.1, "rho_c": 0.2, "rho_r": 0.1},
        ],
        {},
    ),
    "quantile": (
        rules.Quantile,
        slow.quantile,
        [{"lr": 0.5, "quantile": 0.5, "clip": 0.3}, {"lr": 0.2, "quantile": 0.8, "clip": 1.5}],
        {},
    ),
    "outlook": (rules.Outlook, slow.outlook, [{}, {}], {}),
    "echo": (rules.Echo, slow.echo, [{}, {}], {}),
    "echo, of much noise": (rules.Echo, slow.echo, [{}, {}], {}),
    "horizon": (rules.Horizon, slow.horizon, [{}, {}], {"average": False}),
    "horizon averaged": (rules.Horizon, slow.horizon, [{}, {}], {"average": True}),
}
_OSO = [{"lr": 0.5, "clip": 0.3, "rho_c": 0.1, "rho_r": 0.2}, {"lr": 0.2, "clip": 0.1, "rho_c": 0.2, "rho_r": 0.0}]
_SHARES = [{"momentum": 0.9, "nu_q": 2.0}, {"momentum": 0.0, "nu_q": 30.0}]
_ADAM = [{"beta1": 0.9, "nu_q": 7.124, "rho_r": 0.0}, {"beta1": 0.5, "nu_q": 1.5, "rho_r": 0.3}]
CASES |= {
    "oso, a momentum and a share each": (
        rules.OSO, slow.oso, [one | own for one, own in zip(_OSO, _SHARES, strict=True)], {},
    ),
    "oso, proportional": (rules.OSO, slow.oso, [one | {"rho_c": 1.5} for one in _OSO], {"proportional": True}),
    "oso, automatic": (rules.OSO, slow.oso, [one | {"momentum": 0.5} for one in _OSO], {"automatic": True}),
    "quantile, not clamped": (
        rules.Quantile,
        slow.quantile,
        [{"lr": 0.5, "quantile": 0.5, "clip": 0.3}, {"lr": 0.2, "quantile": 0.8, "clip": 1.5}],
        {"clamped": False},
    ),
}  # fmt: skip
for proportional in (False, True):
    CASES[f"adam-oso {proportional}"] = (
        rules.AdamOSO,
        slow.adam_oso,
        [one | own for one, own in zip(_OSO, _ADAM, strict=True)],
        {"proportional": proportional},
    )
for keep in ("half", "full"):
    for accept in (False, True):
        CASES[f"adadp {keep} {accept}"] = (
            rules.ADADP,
            slow.adadp,
            [{"clip": 0.4, "lr": 0.5, "tau": 0.05}, {"clip": 1.0, "lr": 2.0, "tau": 1.5}],
            {"accept": accept, "keep": keep},
        )


def reference_kwargs(shared: dict[str, object], function: object) -> dict[str, object]:
    return {} if function is slow.sgd_automatic else shared


@pytest.mark.parametrize("name", CASES)
def test_rule_follows_the_papers_formula_step_by_step(name: str) -> None:
    make, reference, numbers, shared = CASES[name]
    x, y = toy_data()
    x[3] = float("nan")
    models = [toy_model(seed=1), toy_model(seed=2)]
    sigma = [8.0, 10.0] if "much noise" in name else [0.7, 1.3]
    x *= 20 if "much noise" in name else 1  # so that what is known of their size changes the step
    intake = intake_of(models[0], (x, y))
    constants = constants_of(intake, records=len(x), lot=LOT, steps=STEPS, noise=sigma)
    mechanism = intake.mechanism(constants, seed=Seed.fixed(11), secure=False)
    rule = stack_rules([make(**own, **shared) for own in numbers], dtype=torch.float64, device=CPU)
    population = Population(mechanism, rule, stack(models, intake.layout, CPU))
    plain = [
        slow.Slow(model, x, y, start.clone(), LOT, s, STEPS)
        for model, start, s in zip(models, stack(models, intake.layout, CPU), sigma, strict=True)
    ]
    normals = CpuNoise(CPU, Seed.fixed(11).child("noise"))  # the same seed the mechanism's noise has
    mechanism._start(STEPS)
    lots = mechanism._lots()
    for step in range(STEPS):
        with torch.no_grad():
            population.params, population.state = mechanism._eager(
                population._rule, population.params, population.state, lots, step
            )
        draws = [normals.normal(tuple(population.params.shape))]
        if population._rule.query(population.state, constants).extra == "direction":
            draws.append(normals.normal(tuple(population.params.shape)))
        if make in (rules.Quantile, rules.Outlook, rules.Echo):
            draws.append(normals.normal((2, 1))[:, 0])
        for run, one in enumerate(plain):
            members = lots.indices[step, run, : int(lots.counts[step, run])].tolist()
            reference(one, members, [z[run] for z in draws], **numbers[run], **reference_kwargs(shared, reference))
            one.t += 1
            assert one.memory.get("bound", "much noise" not in name) == ("much noise" not in name)
            torch.testing.assert_close(population.params[run], one.theta, rtol=1e-9, atol=1e-11)
            if "clip" in one.memory:
                assert population.state["clip"][run].item() == pytest.approx(one.memory["clip"], rel=1e-9)
    final = population.weights()
    for run, one in enumerate(plain):
        expected = one.memory["average"] if name == "horizon averaged" else one.theta
        torch.testing.assert_close(final[run], expected, rtol=1e-9, atol=1e-11)


def test_adadp_default_tolerance_is_of_the_dimension_and_the_iterations() -> None:
    model = toy_model()
    intake = intake_of(model, toy_data())
    constants = constants_of(intake, records=60, lot=LOT, steps=100, noise=[1.0])
    assert rules.ADADP(clip=1.0)._tolerance(constants) == pytest.approx(math.sqrt(39 / (2 * 50)))


def test_horizon_scales_of_one_layer_are_one() -> None:
    model = torch.nn.Linear(5, 3).double()
    constants = constants_of(intake_of(model, toy_data()), records=60, lot=LOT, steps=9, noise=[1.0])
    assert rules.horizon.layer_scales(constants) == [1.0, 1.0]


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


def test_schedule_multiplies_the_step_size() -> None:
    model = toy_model()
    intake = intake_of(model, toy_data())
    base = constants_of(intake, records=60, lot=LOT, steps=4, noise=[1.0])
    scheduled = type(base)(60, LOT, 4, base.noise, base.layout, torch.tensor([1.0, 0.5, 0.25, 0.0]).double())
    found = []
    for constants in (base, scheduled):
        rule = stack_rules([rules.SGD(lr=0.3, clip=1.0)], dtype=torch.float64, device=CPU)
        params, state = torch.zeros(1, 39).double(), rule.init(torch.zeros(1, 39), constants)
        for _ in range(4):
            release = slow_release(params)
            params, state = rule.update(params, state, release, constants)
        found.append(params[0, 0].item())
    assert found[0] == pytest.approx(-0.3 * 4)
    assert found[1] == pytest.approx(-0.3 * 1.75)


def slow_release(params: torch.Tensor) -> object:
    from honestdp.boundary.query import Release

    return Release(torch.ones_like(params))
