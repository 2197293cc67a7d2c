"""Ctrl-C while a search is planned costs nothing, leaves nothing behind, and says so without a traceback of what was computed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import honestdp
from honestdp.boundary.records import DeviceRecords
from honestdp.errors import SearchStopped
from honestdp.ledger import Ledger
from honestdp.search import planning
from honestdp.search.planning import expected
from honestdp.search.request import SearchSpec, requested
from honestdp.search.tune import planned
from tests.command_line import called
from tests.tiny_search import WHOLE, clouds, linear

PLACES = ["honestdp.search.tune.design", "honestdp.search.lifecycle.planned", "honestdp.search.tune.expected"]


def stopping(*args: Any, **named: Any) -> None:
    def deeply() -> None:
        raise KeyboardInterrupt

    deeply()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kept", [False, True])
def test_it_costs_nothing_and_says_what_to_do(
    place: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clouds", honestdp.Budget(5.0, 1e-5))
    before = ledger.balance("clouds")
    monkeypatch.setattr(place, stopping)
    given = {**WHOLE, "ledger": ledger, "dataset": "clouds", "compute": honestdp.Compute(progress=True)}
    given["out"] = tmp_path / "out" if kept else None
    with pytest.raises(SearchStopped, match="nothing was charged now, and no record was read; the same call") as stop:
        honestdp.tune(linear, clouds(), **given)
    assert not stop.value.charged
    shown = "".join(traceback.format_exception(stop.value))
    assert "deeply" not in shown
    assert "During handling" not in shown
    assert ledger.balance("clouds") == before
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_stop_while_the_charge_is_composed_claims_none_and_the_same_call_is_charged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clouds", honestdp.Budget(5.0, 1e-5))
    given = {**WHOLE, "ledger": ledger, "dataset": "clouds", "out": tmp_path / "out"}
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", stopping)
        with pytest.raises(SearchStopped, match="nothing was charged yet: the charge comes when it goes on") as stop:
            honestdp.tune(linear, clouds(), **given)
    assert "nothing more is charged" not in str(stop.value)
    assert ledger.balance("clouds").charges == 0
    honestdp.tune(linear, clouds(), **given)
    assert ledger.balance("clouds").charges == 1


@pytest.mark.slow
def test_a_stop_after_the_charge_says_that_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clouds", honestdp.Budget(5.0, 1e-5))
    monkeypatch.setattr("honestdp.search.lifecycle.check_data", stopping)
    with pytest.raises(SearchStopped, match=r"what it was charged stays charged; .* nothing more is charged"):
        honestdp.tune(linear, clouds(), **WHOLE, ledger=ledger, dataset="clouds", out=tmp_path / "out")
    assert ledger.balance("clouds").charges == 1
    with pytest.raises(SearchStopped, match="the search was stopped; it is in no ledger"):
        honestdp.tune(linear, clouds(), **WHOLE, out=tmp_path / "other")


def test_the_command_line_says_it_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("tune", "digits", "--epsilon", "3", "--steps", "5", "--lot", "64")
    with monkeypatch.context() as patch:
        patch.setattr(PLACES[0], stopping)
        found = called(tmp_path, *words)
    assert found == (130, "", "honestdp: the search was stopped; nothing was charged\n")
    monkeypatch.setattr("honestdp.planner.comparison.plan", stopping)
    found = called(tmp_path, "plan", "--records", "400", "--epsilon", "3", "--delta", "1e-5", "--candidates", "3")
    assert found == (130, "", "honestdp: stopped\n")


def test_the_time_of_a_search_follows_from_public_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many runs on average, of so many steps, of the time that one takes on made-up records; no record is read."""
    sizes: list[int] = []

    def per_step(population: Any, size: int) -> float:
        sizes.append(size)
        return 0.5

    monkeypatch.setattr(planning, "seconds_per_step", per_step)
    given = {"selection": "compose", "space": {"lr": [0.1, 0.2, 0.3], "clip": 1.0}}
    what = requested(linear, clouds(), SearchSpec.of(**{**WHOLE, **given}))
    search, _ = planned(what)
    monkeypatch.setattr(DeviceRecords, "fetch", None)
    steps = search.design.runs[0].steps
    given = search.design, what.public.setting, what.private.shapes, search.tested
    assert expected(*given, at_a_glance=True)[0] == pytest.approx(3 * steps * 0.5)
    assert expected(*given)[0] == pytest.approx(3 * steps * 0.5)
    assert sizes[0] == 1
    assert expected(search.design, what.public.setting, None, {}) == (None, None)
