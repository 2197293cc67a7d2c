"""Whole Renyi orders of the sampled Gaussian, all at once: the numbers of dp-accounting's loop and of exact arithmetic."""

from __future__ import annotations

import decimal
import logging
import math
from decimal import Decimal

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant

import honestdp
from honestdp import Run
from honestdp.accounting.rdp import ORDERS, ROUNDING, renyi_curve

SETTINGS = [(56000, 250, 4.0), (60000, 250, 0.7), (1000000, 1, 1.0), (100, 99, 0.3), (1000, 10, 100.0)]


@pytest.mark.parametrize(("records", "lot", "noise"), SETTINGS)
def test_they_are_never_below_exact_arithmetic(records: int, lot: float, noise: float) -> None:
    curve = renyi_curve(Run(records=records, lot=lot, steps=1, noise=noise).event)
    rate, variance = Decimal(lot / records), Decimal(noise) ** 2
    with decimal.localcontext(prec=60):
        for order in (2, 3, 10, 63, 231):
            moment = sum(
                math.comb(order, i) * rate**i * (1 - rate) ** (order - i) * (Decimal(i * i - i) / (2 * variance)).exp()
                for i in range(order + 1)
            )
            value = Decimal(float(curve.values[curve.orders == order][0])) * (order - 1)
            exact = moment.ln()
            assert exact * (1 - Decimal("1e-15")) <= value <= exact * (1 + Decimal("1e-12")) + Decimal(2 * ROUNDING)


@pytest.mark.parametrize(("records", "lot", "noise"), SETTINGS)
def test_they_are_what_dp_accounting_gives(records: int, lot: float, noise: float) -> None:
    event = Run(records=records, lot=lot, steps=1000, noise=noise).event
    curve = renyi_curve(event)
    accountant = rdp_privacy_accountant.RdpAccountant(ORDERS)
    accountant.compose(event)
    theirs = accountant.rdp[accountant.orders > 1]
    np.testing.assert_allclose(curve.values, theirs, rtol=1e-9, atol=2 * 1000 * ROUNDING / 0.1)


def test_the_users_logging_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """absl gives a root logger without handlers one of its own as soon as an order does not converge."""
    monkeypatch.setattr(logging.root, "handlers", [])
    run = Run(records=640, lot=101, steps=40, noise=1.0)
    honestdp.epsilon(run, delta=1e-5, accountant="rdp")
    assert logging.root.handlers == []
