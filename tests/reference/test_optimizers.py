"""Every optimizer takes the steps of its paper's formula over the reference's releases, to the final weights of every run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from honestdp import optimizers as rules
from tests.reference import papers_rules as papers
from tests.reference.both_ways import Training, check
from tests.toy_training import toy_data, toy_model

LOT, STEPS = 20.0, 7
_OSO = [{"lr": 0.5, "clip": 0.3, "rho_c": 0.1, "rho_r": 0.2}, {"lr": 0.2, "clip": 1.2, "rho_c": 0.2, "rho_r": 0.0}]
_MOMENTA = [{"momentum": 0.9, "nu_q": 2.0}, {"momentum": 0.0, "nu_q": 30.0}]
_ADAM = [{"beta1": 0.9, "nu_q": 7.124, "rho_r": 0.0}, {"beta1": 0.5, "nu_q": 1.5, "rho_r": 0.3}]
_QUANTILE = [{"lr": 0.5, "quantile": 0.5, "clip": 0.3}, {"lr": 0.2, "quantile": 0.8, "clip": 1.5}]


def joined(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [a | b for a, b in zip(one, other, strict=True)]


CASES: dict[str, tuple[Any, Any, list[dict[str, Any]], dict[str, Any]]] = {
    "sgd": (rules.SGD, papers.sgd, [{"lr": 0.3, "clip": 0.4}, {"lr": 1.1, "clip": 2.0}], {}),
    "automatic": (rules.SGD, papers.sgd, [{"lr": 0.3}, {"lr": 0.7}], {"clip": "auto"}),
    "momentum": (
        rules.Momentum, papers.momentum,
        [{"lr": 0.2, "momentum": 0.5, "clip": 0.4}, {"lr": 0.1, "momentum": 0.9, "clip": 1.0}], {},
    ),
    "adam": (
        rules.Adam, papers.adam,
        [{"lr": 0.05, "beta1": 0.9, "beta2": 0.99, "clip": 0.4}, {"lr": 0.01, "beta1": 0.5, "beta2": 0.9, "clip": 1.0}], {},
    ),
    "adam-wosm": (
        rules.AdamWOSM, papers.adam_wosm,
        [{"lr": 0.05, "beta1": 0.9, "clip": 0.4}, {"lr": 0.01, "beta1": 0.5, "clip": 1.0}], {},
    ),
    "oso": (rules.OSO, papers.oso, _OSO, {}),
    "oso, a momentum and a share each": (rules.OSO, papers.oso, joined(_OSO, _MOMENTA), {}),
    "oso, proportional": (rules.OSO, papers.oso, joined(_OSO, [{"rho_c": 1.5}] * 2), {"proportional": True}),
    "oso, automatic": (rules.OSO, papers.oso, joined(_OSO, [{"momentum": 0.5}] * 2), {"automatic": True}),
    "adam-oso": (rules.AdamOSO, papers.adam_oso, joined(_OSO, _ADAM), {}),
    "adam-oso, proportional": (rules.AdamOSO, papers.adam_oso, joined(_OSO, _ADAM), {"proportional": True}),
    "quantile": (rules.Quantile, papers.quantile, _QUANTILE, {}),
    "quantile, not clamped": (rules.Quantile, papers.quantile, _QUANTILE, {"clamped": False}),
    "echo": (rules.Echo, papers.echo, [{}, {}], {}),
    "echo, of much noise": (rules.Echo, papers.echo, [{}, {}], {}),
    "horizon": (rules.Horizon, papers.horizon, [{}, {}], {"average": False}),
    "horizon, averaged": (rules.Horizon, papers.horizon, [{}, {}], {"average": True}),
} | {
    f"adadp, {keep} kept, {'some steps refused' if accept else 'all steps taken'}": (
        rules.ADADP, papers.adadp,
        [{"clip": 0.4, "lr": 0.5, "tau": 0.05}, {"clip": 1.0, "lr": 2.0, "tau": 1.5}],
        {"accept": accept, "keep": keep},
    )
    for keep in ("half", "full")
    for accept in (False, True)
}  # fmt: skip


def training_of(
    name: str, *, lot: float = LOT, steps: int = STEPS, noise: tuple[float, float] = (0.7, 1.3)
) -> Training:
    make, formula, numbers, shared = CASES[name]
    much = "much noise" in name
    noise = (8.0, 10.0) if much else noise
    x, y = toy_data()
    x *= 20 if much else 1  # so that what is known of their size changes the step
    x[3] = float("nan")
    models = [toy_model(seed=1), toy_model(seed=2)]
    known = [papers.Known(model, lot, sigma, steps, bound=not much) for model, sigma in zip(models, noise, strict=True)]
    formulas = [partial(formula, known=one, **own, **shared) for one, own in zip(known, numbers, strict=True)]
    made = [make(**own, **shared) for own in numbers]
    return Training(models, (x, y), made, formulas, noise, lot, steps)


@pytest.mark.parametrize("name", CASES)
def test_an_optimizer_takes_the_steps_of_its_paper(name: str) -> None:
    check(training_of(name))


def test_every_optimizer_is_compared() -> None:
    compared = {make for make, _, _, _ in CASES.values()}
    ours = {rule for rule in rules.BY_NAME.values() if rule.__module__.startswith("honestdp.")}
    assert compared == ours
