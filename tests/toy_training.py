"""Small worlds that the engine's tests share: a toy problem, a population that can be stepped by hand, and one step's sum.

Of honestdp, torch and numpy alone, since gpu_checks.py asks some of the same questions on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import Intake, take_in
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.noise import noise_source
from honestdp.boundary.query import ANSWERED, Constants, Query, SecondQuestion
from honestdp.boundary.records import Examples
from honestdp.boundary.release import release
from honestdp.boundary.seed import Seed
from honestdp.boundary.vetted import Vetted
from honestdp.gradients import Prepared
from honestdp.gradients.layout import layout_of, stack
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp.training.population import Population

CPU = torch.device("cpu")


def second_question(name: str | None, noise: Tensor) -> SecondQuestion | None:
    """The second question of this name, with this noise; none for None and "none"."""
    return {one.name: one for one in ANSWERED}[name](noise) if name not in (None, "none") else None


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
    return take_in(model, PrivateData(data), records=len(x), loss=loss, device=CPU, workers=workers)


def vetted_of(model: nn.Module, loss: Any, *, rows: int = 1, strict: bool = False) -> Vetted:
    """What a step is made of, as long as nothing was tested: it is at the first step."""
    return Vetted(Prepared(model, loss, strict=strict), model, layout_of(model), (), rows)


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
    loss: Any = None,
) -> tuple[Population, Mechanism]:
    private = PrivateData(data)
    intake = intake_of(models[0], private, loss=loss)
    constants = constants_of(intake, records=len(private), lot=lot, steps=steps, noise=noise)
    mechanism = intake.mechanism(constants, seed=Seed.fresh() if seed is None else Seed.fixed(seed), secure=False)
    rule = stack_rules(rules, dtype=intake.dtype, device=CPU)
    return Population(mechanism, rule, stack(models, intake.layout, CPU)), mechanism


def total(
    model: nn.Module, loss: Callable[..., Tensor], x: Tensor, y: Tensor, query: Query, noise: float = 0.0
) -> Tensor:
    """The sum that leaves for a lot of x `[lot, ...]`, with divisor 1."""
    device = x.device
    layout = layout_of(model, device)
    sigma, factors = torch.full((1,), noise, device=device), torch.ones(10, device=device)
    constants = Constants(1000, 1.0, 10, sigma, layout, factors)
    lot = Examples(x[None], y[None], torch.ones(1, len(x), device=device))
    source, params = noise_source(device, Seed.fixed(1)), stack([model], layout, device)
    found = release([lot], params, query, vetted=vetted_of(model, loss), constants=constants, noise=source)
    return found.gradient.double()


def moved(model: nn.Module, loss: Callable[..., Tensor], x: Tensor, y: Tensor, clip: float = 1.0) -> float:
    """By how many clips the last record moves the sum."""
    query = Query(clip=torch.tensor([clip], device=x.device))
    without, whole = (total(model, loss, x[:count], y[:count], query) for count in (len(x) - 1, len(x)))
    return (whole - without).norm().item() / clip


def squared(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).square().sum(1)


class MeanOfTokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mean(1)


def opposite_tokens(size: float, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    """50 usual records of 4 tokens, and last one of two opposite, large ones, whose gradients cancel."""
    x, y = torch.randn(51, 4, 32) + 1, torch.zeros(51, 32)
    x[50] = 0
    x[50, 0] = size * torch.randn(32)
    x[50, 1] = -x[50, 0]
    return x.to(device), y.to(device)
