"""Sums of outer products over positions: every example by its own weight, and none counts for more than its norm."""

from __future__ import annotations

import math

import pytest
import torch

from honestdp import kernels
from honestdp.gradients.forms import Dense, Outer, Product, is_counted
from honestdp.kernels.tensors import PLAIN


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("lot", [1, 2, 3])
def test_a_sum_over_positions_has_every_example_by_its_own_weight(lot: int, shift: bool) -> None:
    left, right = torch.randn(2, lot, 3, 64), torch.randn(2, lot, 3, 1024)
    weights = torch.rand(2, lot)
    if lot > 1:
        weights[:, 1] = 0
    wanted = torch.einsum("rl,rlpo,rlpc->roc", *(each.double() for each in (weights, left, right)))
    moved = torch.einsum("rl,rlpo->ro", weights.double(), left.double())
    if lot > 1:
        left[0, 1], right[:, 1, 2] = math.nan, math.inf
    totals = [torch.zeros(2, *size, dtype=torch.float64) for size in ((64, 1024), (64,))]
    form = Outer(left, right, (64, 1024), shift=shift)
    form.add_weighted_sum(totals[: 1 + shift], weights, counted=is_counted(weights))
    torch.testing.assert_close(totals[0], wanted, rtol=1e-6, atol=1e-6)
    if shift:
        torch.testing.assert_close(totals[1], moved, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("by_kernels", [False, True])
def test_a_sum_over_one_position_goes_into_weights_that_lie_channels_last(
    by_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of `model.to(memory_format=torch.channels_last)`, stacked."""
    monkeypatch.setattr(kernels, "on", lambda device: PLAIN if by_kernels else None)
    left, right = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 1, 36)
    total = torch.zeros(2, 8, 3, 3, 4, dtype=torch.float64).permute(0, 1, 4, 2, 3)
    Outer(left, right, (8, 4, 3, 3)).add_weighted_sum([total], torch.ones(2, 3), counted=None)
    wanted = torch.einsum("rlpo,rlpc->roc", left.double(), right.double()).view(2, 8, 4, 3, 3)
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("positions", [2, 5])
def test_a_sum_over_positions_goes_into_weights_that_lie_channels_last(positions: int) -> None:
    left, right = torch.randn(2, 3, positions, 8), torch.randn(2, 3, positions, 36)
    total = torch.zeros(2, 8, 3, 3, 4, dtype=torch.float64).permute(0, 1, 4, 2, 3)
    Outer(left, right, (8, 4, 3, 3)).add_weighted_sum([total], torch.ones(2, 3), counted=None)
    wanted = torch.einsum("rlpo,rlpc->roc", left.double(), right.double()).view(2, 8, 4, 3, 3)
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=1e-6)


def test_positions_of_one_record_that_cancel_round_nothing_of_another() -> None:
    left, right = torch.randn(1, 2, 64, 5), torch.randn(1, 2, 64, 7)
    left[0, 0, 32:], right[0, 0, 32:] = -left[0, 0, :32], right[0, 0, :32]
    left[0, 0] *= 1e6
    total = torch.zeros(1, 5, 7, dtype=torch.float64)
    Outer(left, right, (5, 7)).add_weighted_sum([total], torch.ones(1, 2), counted=None)
    wanted = torch.einsum("po,pc->oc", left[0, 1].double(), right[0, 1].double())
    torch.testing.assert_close(total[0], wanted, rtol=1e-6, atol=1e-5)


def test_a_product_goes_into_weights_that_lie_channels_last() -> None:
    left, right = torch.randn(2, 3, 8), torch.randn(2, 3, 36)
    total = torch.zeros(2, 8, 3, 3, 4).permute(0, 1, 4, 2, 3)
    Product(left, right, (8, 4, 3, 3)).add_weighted_sum([total], torch.ones(2, 3), counted=None)
    wanted = torch.einsum("rlo,rlc->roc", left, right).view(2, 8, 4, 3, 3)
    torch.testing.assert_close(total, wanted)
    Dense(Product(left, right, (8, 4, 3, 3)).dense()[0]).add_weighted_sum([total], torch.ones(2, 3), counted=None)
    torch.testing.assert_close(total, 2 * wanted)
