"""A lot goes through the model in parts where what is kept of it would fill the memory; what is released is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from honestdp.boundary.query import Query
from honestdp.boundary.records import Examples
from honestdp.boundary.release import at_a_time, release
from tests.toy_training import constants_of, intake_of, second_question, toy_data, toy_model, vetted_of

from .test_privacy_rules import Silence

pytestmark = pytest.mark.usefixtures("fine_grid")
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("extra", ["quantile", "direction", "norm"])
@pytest.mark.parametrize("rows", [1, 2], ids=["records", "people of two rows"])
def test_parts_of_a_lot_add_up_to_the_whole_and_carry_all_that_is_known_of_it(rows: int, extra: Any) -> None:
    model = toy_model()
    intake = intake_of(model, toy_data())
    constants = constants_of(intake, records=60, lot=10.0, steps=1, noise=[2.0])
    x, y = toy_data()
    x, y = x[: 7 * rows][None], y[: 7 * rows][None]
    present = torch.ones(1, 7, dtype=torch.bool)
    present[0, 3] = False  # padding
    shares = None
    if rows > 1:  # of one person another part than of the next: who is taken for another is seen
        shares = torch.rand(1, 7, rows, generator=torch.Generator().manual_seed(2))
    norms = torch.linalg.vector_norm(x.flatten(2), dim=2)
    vetted = vetted_of(intake.vetted.model, intake.vetted.loss, rows=rows)
    dtype = next(model.parameters()).dtype
    query = Query(torch.tensor([0.3], dtype=dtype), second=second_question(extra, torch.tensor([9.0], dtype=dtype)))
    params = torch.randn(1, constants.layout.width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    whole, *others = (
        release(
            [Examples(x, y, present, True, norms, shares)], params, query,
            vetted=vetted, constants=constants, noise=Silence(), width=7, at_a_time=most,
        )
        for most in (None, 7, 3, 1)
    )  # fmt: skip
    assert whole.gradient.norm() > 1e-3
    for other in others:
        torch.testing.assert_close(other.gradient, whole.gradient)
        torch.testing.assert_close(other.second, whole.second)
    assert whole.second is not None
    assert whole.second.norm() > 1e-3


def test_parts_follow_from_public_sizes_and_are_nearly_equal() -> None:
    gib = 1 << 30
    assert at_a_time(329, 40, 1000, GPU) == 329  # all fit
    assert at_a_time(329, 40, gib // 200, GPU) == 47  # in seven parts, of enough records of 40 runs to keep a GPU busy
    assert at_a_time(329, 8, gib // 200, GPU) == 165
    assert at_a_time(329, 1, gib // 1000, GPU) == 329
    assert at_a_time(5, 10_000, gib, GPU) == 1
    assert at_a_time(329, 1, 0, CPU) == 329


class Deep(nn.Module):
    """Keeps much of every example."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(-1, 8, -1, -1)
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x.mean((2, 3)))


def kept_of_an_example(model: nn.Module, *shape: int) -> int:
    intake = intake_of(model, (torch.rand(60, *shape), torch.randint(0, 3, (60,))))
    constants = constants_of(intake, records=60, lot=10.0, steps=1, noise=[2.0])
    x, y = torch.zeros(2, *shape), torch.zeros(2, dtype=torch.int64)
    views = constants.layout.views(torch.zeros(1, constants.layout.width))
    return intake.vetted.gradients.vet(views, x[None], y[None], examples=10).bytes_kept


def test_what_a_model_keeps_of_an_example_is_estimated_by_the_trial() -> None:
    activations = 4 * 8 * 16 * 16  # bytes of what one layer gives
    assert 4 * activations <= kept_of_an_example(Deep(), 1, 16, 16) <= 20 * activations


def test_weights_which_all_examples_share_are_not_counted_as_kept_of_each() -> None:
    """As if they were, lots of dense networks went through a GPU in parts, twice as slowly."""
    dense = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 3))
    assert kept_of_an_example(dense, 20) <= 20 * 4 * 100
