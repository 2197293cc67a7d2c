"""A charge that is dear because it was made for another delta than the ledger's says so, and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

import honestdp
from honestdp.errors import BudgetExceeded
from tests.tiny_search import clouds, linear


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "said"), [(1e-2, True), (1e-5, False), (1e-6, False)])
def test_a_training_over_budget_names_the_ledgers_delta_where_its_own_is_larger(
    tmp_path: Path, delta: float, said: bool
) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clouds", honestdp.Budget(0.5, 1e-5))
    budget = honestdp.Budget(2.0, delta)
    with pytest.raises(BudgetExceeded, match="over budget") as refused:
        honestdp.train(linear(), clouds(), budget=budget, ledger=ledger, dataset="clouds")
    assert ("to ask for delta 1e-05" in str(refused.value)) is said
    assert ledger.charges("clouds") == ()
