"""Outlook: what it asks of a lot is stated, its steps follow from what enters each layer, and tokens are not measured."""

from __future__ import annotations

import math

import pytest
import torch
from tests.tiny_search import clouds, linear
from tests.toy_training import constants_of, intake_of, toy_data, toy_model
from torch import Tensor, nn

import honestdp
from honestdp.boundary.query import HALF_RANGE, Constants
from honestdp.optimizers.echo import GUESS
from honestdp_papers.outlook import Outlook

RUN = honestdp.Run(records=400, lot=40, steps=3, noise=1.0)
SAID = "every step releases the mean logarithm of the norms of its lot's inputs, clipped to [0, 6.91]"


def paces(constants: Constants, model: nn.Module, *, log_norm: float, count: int = 10**6) -> Tensor:
    """eta_l of each tensor after so many releases of this size."""
    rule = Outlook()
    start = torch.cat([p.detach().flatten() for p in model.parameters()])[None]
    state = rule.init(start, constants)
    size = torch.tensor([log_norm * count], dtype=start.dtype)
    return rule._paces(size, torch.tensor([count]), state["through"], constants)[0]


def of(model: nn.Module, *, noise: float = 2.0, lot: float = 20.0, steps: int = 100) -> Constants:
    return constants_of(intake_of(model, toy_data()), records=60, lot=lot, steps=steps, noise=[noise])


def test_what_is_asked_beside_the_gradient_is_stated_and_costs_no_more_than_the_steps() -> None:
    stated = {
        name: honestdp.train(linear(), clouds(), run=RUN, optimizer=name, delta=1e-5) for name in ("outlook", "horizon")
    }
    assert any(SAID in note for note in stated["outlook"].statement.notes)
    assert not any(SAID in note for note in stated["horizon"].statement.notes)
    assert stated["outlook"].epsilon == stated["horizon"].epsilon


def test_the_step_of_one_layer_falls_as_its_inputs_grow() -> None:
    model = nn.Linear(5, 3).double()
    constants = of(model)
    eta = 1 / math.hypot(2.0 * 10 / (1.5 * 20), 1 / 150)
    for n in (1.5, 9.0, 300.0):
        found = paces(constants, model, log_norm=math.log(n))
        torch.testing.assert_close(found, torch.full_like(found, eta * n**-0.6), rtol=1e-3, atol=0)


def test_before_anything_is_known_the_guess_stands_and_noise_that_drowns_it_keeps_it() -> None:
    model = nn.Linear(5, 3).double()
    n = math.sqrt(1 + 5 * GUESS**2)
    wanted = 1 / math.hypot(2.0 * 10 / (1.5 * 20), 1 / 150) * n**-0.6
    assert paces(of(model), model, log_norm=0.0, count=0)[0].item() == pytest.approx(wanted)
    drowned = of(model, noise=1e4)
    alone, wild = (paces(drowned, model, log_norm=size, count=1) for size in (0.0, 100.0))
    torch.testing.assert_close(alone, wild, rtol=1e-2, atol=0)


def test_a_release_of_any_size_gives_steps_that_are_finite() -> None:
    model = toy_model()
    for size in (-1e9, 0.0, 1e9):
        found = paces(of(model), model, log_norm=size)
        assert found.isfinite().all()
        assert (found > 0).all()
        assert found.max() <= 150 * math.exp(2 * HALF_RANGE)


def test_weights_of_zero_are_taken_for_usual_ones() -> None:
    """Clients of a federation are given their weights later."""
    model, usual = toy_model(), toy_model()
    for value in model.parameters():
        nn.init.zeros_(value)
    found, wanted = paces(of(usual), model, log_norm=1.0), paces(of(usual), usual, log_norm=1.0)
    torch.testing.assert_close(found, wanted, rtol=0.3, atol=0)


def test_tokens_have_no_norm_and_nothing_is_asked_of_them() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.table(x).mean(1))

    data = torch.randint(0, 7, (60, 5)), torch.randint(0, 3, (60,))
    constants = constants_of(intake_of(Words(), data), records=60, lot=20.0, steps=5, noise=[2.0])
    assert constants.layout.entering == 0
    rule = Outlook()
    state = rule.init(torch.zeros(1, constants.layout.width), constants)
    assert rule.query(state, constants).second is None
    run = honestdp.Run(records=60, lot=20, steps=3, noise=2.0)
    moved = honestdp.train(Words(), data, run=run, optimizer=rule, delta=1e-3).model
    assert all(value.isfinite().all() for value in moved.parameters())
