"""ADADP beyond Algorithm 2: the switch to a decay, errors that are no numbers, the published code's way."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from honestdp.boundary.query import Constants, Release
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import layout_of
from honestdp.optimizers import ADADP
from honestdp.optimizers.rule import stack_rules
from honestdp.optimizers.schedules import factors
from honestdp.run import Run

RECORDS, LOT, STEPS = 60, 20.0, 24
EPOCH = 3


def constants(runs: int = 1) -> Constants:
    noise, all_steps = torch.ones(runs), torch.ones(STEPS)
    return Constants(RECORDS, LOT, STEPS, noise, layout_of(torch.nn.Linear(1, 1)), all_steps)


def moved(rule: ADADP, gradients: Tensor) -> tuple[list[Tensor], list[float]]:
    """Weights and step sizes after each release of gradients `[steps, d]`, from zero."""
    params, sizes, path = torch.zeros(1, gradients.shape[1]), [], []
    state = rule.init(params, constants())
    for gradient in gradients:
        params, state = rule.update(params, state, Release(gradient[None]), constants())
        path.append(params[0])
        sizes.append(state["eta"].item())
    return path, sizes


def test_the_default_tolerance_is_of_the_dimension_and_the_iterations() -> None:
    layout = layout_of(torch.nn.Linear(12, 3))
    public = Constants(RECORDS, LOT, 100, torch.ones(1), layout, torch.ones(100))
    assert ADADP(clip=1.0)._tolerance(public) == pytest.approx(math.sqrt(39 / (2 * 50)))


def test_after_the_switch_the_step_size_that_was_found_decays_epoch_by_epoch() -> None:
    gradients = torch.randn(STEPS, 2, generator=torch.Generator().manual_seed(0))
    path, sizes = moved(ADADP(clip=1.0, tau=0.3, switch=6), gradients)
    before, found = moved(ADADP(clip=1.0, tau=0.3), gradients)
    assert all(torch.equal(one, other) for one, other in zip(path[:6], before[:6], strict=True))
    assert sizes[5:] == [found[5]] * (STEPS - 5)
    theta = path[5]
    for step in range(6, STEPS):
        epoch = (step - 6) // EPOCH + 1
        theta = theta - found[5] / (1 + 0.1 * epoch) * gradients[step]
        assert path[step].tolist() == pytest.approx(theta.tolist(), rel=1e-5)


def test_the_switch_has_the_factors_of_the_schedule_that_its_competitors_have() -> None:
    """SGD with the step size that was found and the schedule `decay:2` goes on as ADADP does after two epochs."""
    run = Run(records=RECORDS, lot=LOT, steps=STEPS, noise=1.0)
    held = factors("decay:2", run)
    assert held[:6] == [1.0] * 6
    assert held[6:9] == [1 / 1.1] * 3
    assert held[9] == 1 / 1.2
    assert factors("decay:50", run) == factors("decay", run)
    rule = ADADP(clip=1.0, switch=6)
    state = rule.init(torch.zeros(1, 2), constants()) | {"eta": torch.tensor([0.4])}
    for step in range(6, STEPS):
        pace = rule.pace(state | {"step": torch.tensor([step])}, constants())
        assert pace.item() == pytest.approx(0.4 * held[step], rel=1e-6)


def test_runs_of_a_population_switch_each_at_its_own_step() -> None:
    rules = [ADADP(clip=1.0, tau=0.3, switch=switch) for switch in (2, 8)]
    gradients = torch.randn(STEPS, 2, generator=torch.Generator().manual_seed(1))
    stacked = stack_rules(rules, dtype=torch.float32, device=torch.device("cpu"))
    params = torch.zeros(2, 2)
    state = stacked.init(params, constants(2))
    for gradient in gradients:
        params, state = stacked.update(params, state, Release(gradient.expand(2, -1)), constants(2))
    for row, rule in zip(params, rules, strict=True):
        assert row.tolist() == pytest.approx(moved(rule, gradients)[0][-1].tolist(), rel=1e-5)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_an_error_that_is_no_number_shrinks_the_step_size_and_takes_the_step_back(bad: float, published: bool) -> None:
    rule = ADADP(clip=1.0, tau=1.0, accept=True, published=published)
    gradients = torch.tensor([[1.0, 1.0], [bad, 1.0]])
    path, sizes = moved(rule, gradients)
    assert path[1].tolist() == [0.0, 0.0]
    assert sizes[1] == pytest.approx(0.1 * 0.9)


def test_a_step_size_survives_an_error_that_is_no_number_where_no_step_is_rejected() -> None:
    _, sizes = moved(ADADP(clip=1.0, tau=1.0), torch.tensor([[math.inf, 0.0], [0.0, 0.0]] * 2))
    assert all(math.isfinite(size) for size in sizes)
    assert sizes[1] == pytest.approx(0.09)


def test_two_ways_that_agree_to_the_last_bit_make_the_step_larger() -> None:
    assert moved(ADADP(clip=1.0, tau=1.0), torch.zeros(2, 2))[1][1] == pytest.approx(0.11)


def test_the_published_way_moves_by_the_root_of_an_error_over_ten_copies() -> None:
    gradients = torch.tensor([[3.0, 0.0], [1.0, 0.0]])
    error = math.sqrt(10) * 0.1  # full step to -0.3, half steps to -0.2
    _, sizes = moved(ADADP(clip=1.0, tau=0.3, published=True), gradients)
    assert sizes[1] == pytest.approx(0.1 * math.sqrt(0.3 / error))
    _, sizes = moved(ADADP(clip=1.0, tau=0.095), gradients)
    assert sizes[1] == pytest.approx(0.1 * 0.95)


@pytest.mark.parametrize("switch", [3, -2, 2.5, True, math.inf, math.nan, "soon"])
def test_a_switch_within_an_iteration_is_refused(switch: Any) -> None:
    with pytest.raises(InvalidArgument, match="switch"):
        ADADP(clip=1.0, switch=switch)


@pytest.mark.parametrize("decay", [-0.1, math.inf, math.nan, True, "fast"])
def test_a_decay_that_is_no_number_is_refused_by_its_name(decay: Any) -> None:
    with pytest.raises(InvalidArgument, match="decay must be"):
        ADADP(clip=1.0, switch=2, decay=decay)


def test_what_is_not_used_is_not_named() -> None:
    assert repr(ADADP(clip=1.0)) == "ADADP(clip=1.0, lr=0.1, tau=None, accept=False, keep='half')"
    assert "switch=4, decay=0.2" in repr(ADADP(clip=1.0, switch=4, decay=0.2))
