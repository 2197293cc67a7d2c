"""A refusal over budget names what would fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import honestdp
from honestdp import Budget, Compute, Ledger
from honestdp.errors import BudgetExceeded


@pytest.mark.slow
def test_over_budget_the_greatest_epsilon_that_fits_is_named(tmp_path: Path) -> None:
    """What is left is less than that, since two charges compose to less than their sum."""
    ledger, model = Ledger(tmp_path / "ledger.db"), torch.nn.Linear(2, 2)
    ledger.set_budget("d", Budget(2.0, 1e-5))
    data = (torch.zeros(500, 2), torch.zeros(500).long())
    how: dict[str, Any] = {"ledger": ledger, "dataset": "d", "lot": 50, "steps": 5, "compute": Compute(progress=False)}
    honestdp.tune(model, data, budget=Budget(1.2, 1e-5), **how)
    with pytest.raises(BudgetExceeded, match="greatest epsilon that fits here is") as refused:
        honestdp.tune(model, data, budget=Budget(1.9, 1e-5), **how)
    named = re.search(r"fits here is ([0-9.]+)", str(refused.value))
    assert named is not None
    assert 0.8 < float(named[1]) < 1.9
    honestdp.tune(model, data, budget=Budget(float(named[1]), 1e-5), **how)
    assert ledger.balance("d").left < 0.2
    with pytest.raises(BudgetExceeded, match="over budget"):
        honestdp.tune(model, data, budget=Budget(0.5, 1e-5), **how)
