"""Small worlds that the engine's tests share: a toy problem, and a population that can be stepped by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.intake import Intake, take_in
from honestdp.mechanism import Mechanism
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp.parameters import stack
from honestdp.population import Population
from honestdp.release import Constants

CPU = torch.device("cpu")


def toy_data(records: int = 60, features: int = 5, classes: int = 3, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    maker = torch.Generator().manual_seed(seed)
    x = torch.randn(records, features, generator=maker, dtype=torch.float64)
    return x, torch.randint(0, classes, (records,), generator=maker)


def toy_model(features: int = 5, classes: int = 3, *, seed: int = 0, hidden: int = 4) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)).double()


def intake_of(model: nn.Module, data: Any, *, loss: Any = None, workers: int = 0) -> Intake:
    x = data[0] if isinstance(data, tuple) else data
    return take_in(model, data, records=len(x), loss=loss, device=CPU, workers=workers)


def constants_of(intake: Intake, *, records: int, lot: float, steps: int, noise: Sequence[float]) -> Constants:
    sigma = torch.tensor(noise, dtype=intake.dtype)
    return Constants(records, lot, steps, sigma, intake.layout, torch.ones(max(1, steps), dtype=intake.dtype))


def population_of(
    models: list[nn.Module],
    data: Any,
    rules: Sequence[Rule],
    *,
    lot: float,
    steps: int,
    noise: Sequence[float],
    seed: int | None = 0,
) -> tuple[Population, Mechanism]:
    intake = intake_of(models[0], data)
    constants = constants_of(intake, records=len(data[0]), lot=lot, steps=steps, noise=noise)
    mechanism = intake.mechanism(constants, seed=seed, secure=False)
    rule = stack_rules(rules, dtype=intake.dtype, device=CPU)
    return Population(mechanism, rule, stack(models, intake.layout, CPU)), mechanism
