"""What the tests keep of prices hides no fault: whatever a test patches in the accounting is priced in."""

from __future__ import annotations

from typing import Any

import pytest

from honestdp import Run, accounting
from honestdp.accounting import rdp
from honestdp.accounting.calibration import epsilon_of, once
from honestdp.selection import Compose, Winner, compose
from tests import known_epsilons
from tests.known_epsilons import prices

EVENT = Run(records=100, lot=100, steps=2, noise=5.0).event


def price(selection: Any = None) -> float:
    with once():
        return epsilon_of(selection or Compose(candidates=3), EVENT, delta=1e-5)


def test_a_price_is_computed_once_and_is_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_epsilons, "_honest", [prices()])  # whatever earlier tests have left behind
    found = price()
    assert found == Compose(candidates=3).epsilon(EVENT, delta=1e-5)
    assert price(Compose(candidates=4)) > found
    with pytest.MonkeyPatch.context() as patch:
        for key, (kept, warned) in list(known_epsilons._kept.items()):
            patch.setitem(known_epsilons._kept, key, (kept + 1, warned))
        assert price() == found + 1
    assert price() == found


def test_a_fault_in_a_class_or_a_module_that_prices_is_priced_in(monkeypatch: pytest.MonkeyPatch) -> None:
    found, winner = price(), price(Winner(candidates=3))
    with monkeypatch.context() as patch:
        patch.setattr(Compose, "epsilon", lambda self, event, *, delta: 7.0)
        assert price() == 7.0
    with monkeypatch.context() as patch:
        patch.setattr(Winner, "epsilon", lambda self, event, *, delta: 8.0)
        assert (price(Winner(candidates=3)), price()) == (8.0, found)
    assert (price(), price(Winner(candidates=3))) == (found, winner)


@pytest.mark.parametrize("place", [accounting, rdp, compose, Compose, rdp.AccountingWarning], ids=str)
def test_any_other_name_makes_other_prices(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prices()
    monkeypatch.setattr(place, "__doc__", "other words")
    assert prices() != before
    monkeypatch.undo()
    assert prices() == before
