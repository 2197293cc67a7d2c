"""A search plans once, and computes each number once: its design, its statement and its report say the same of it."""

from __future__ import annotations

import warnings
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import honestdp
from honestdp.accounting import AccountingWarning, FallBack
from honestdp.accounting import calibration as remembering
from honestdp.accounting.calibration import epsilon_of, once
from honestdp.checks import InvalidArgument
from honestdp.planner import comparison
from honestdp.run import Run
from honestdp.search import design as designing
from honestdp.selection import Compose, LiuTalwar, RandomStopping, Winner
from tests.tiny_search import clouds, linear

SETTINGS: dict[str, Any] = {
    "budget": honestdp.Budget(3.0, 1e-5),
    "optimizer": "sgd",
    "space": {"lr": [0.1, 0.2, 0.5, 1.0], "clip": [1.0]},
    "lot": 20,
    "steps": 3,
    "compute": honestdp.Compute(device="cpu"),
    "reproduce": "a test",
}


@pytest.fixture(autouse=True)
def _each_search_has_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it: the tests keep prices for longer, see tests/known_epsilons.py."""
    monkeypatch.setattr(remembering, "_known", ContextVar("known", default=None))


class Counted:
    """How often plans are made, and each selection's epsilon of an event is computed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.plans, self.epsilons = Counter[str](), Counter[Any]()
        for kind in (Compose, Winner, LiuTalwar, RandomStopping):
            self._count_epsilons(kind, patch)
        for name in ("plan", "plan_within"):
            self._count_plans(name, patch)

    def _count_epsilons(self, kind: Any, patch: pytest.MonkeyPatch) -> None:
        honest, inside = kind.epsilon, []

        def epsilon(selection: Any, event: Any, *, delta: float) -> float:
            if not inside:  # what a selection asks of another one, or of itself, is its own affair
                self.epsilons[selection, repr(event), delta] += 1
            inside.append(None)
            try:
                return honest(selection, event, delta=delta)  # type: ignore[no-any-return]
            finally:
                inside.pop()

        patch.setattr(kind, "epsilon", epsilon)

    def _count_plans(self, name: str, patch: pytest.MonkeyPatch) -> None:
        honest = getattr(comparison, name)

        def counted(*args: Any, **named: Any) -> Any:
            self.plans[name] += 1
            return honest(*args, **named)

        patch.setattr(designing, name, counted)


@pytest.mark.slow
@pytest.mark.parametrize(("selection", "plans"), [("auto", {"plan_within": 1}), ("winner", {"plan": 1})])
def test_a_search_plans_once_and_computes_each_epsilon_once(
    selection: str, plans: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    result = honestdp.tune(linear, clouds(), selection=selection, out=tmp_path / "out", **SETTINGS)
    assert counted.plans == plans
    assert set(counted.epsilons.values()) == {1}
    assert result.folder is not None
    assert f"coverage of at least {0.9:g}" in (result.folder / "report.html").read_text()


def test_one_candidate_is_compared_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    honestdp.tune(linear, clouds(), out=tmp_path / "out", **{**SETTINGS, "space": {"lr": [0.1], "clip": [1.0]}})
    assert {selection for selection, _, _ in counted.epsilons} == {Compose(candidates=1)}
    assert set(counted.epsilons.values()) == {1}


@pytest.mark.slow
def test_what_is_over_or_another_search_is_told_without_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    result = honestdp.tune(linear, clouds(), out=out, **SETTINGS)
    counted = Counted(monkeypatch)
    again = honestdp.tune(linear, clouds(), out=out, resume=True, **SETTINGS)
    for differing in ({"selection": "winner"}, {"steps": 4}, {"coverage": 0.8}):
        with pytest.raises(
            InvalidArgument, match=f"differs in .*{'space' if 'steps' in differing else next(iter(differing))}"
        ):
            honestdp.tune(linear, clouds(), out=out, resume=True, **{**SETTINGS, **differing})
    assert not counted.epsilons
    assert again.statement == result.statement
    assert again.as_dict() == result.as_dict()


@pytest.mark.slow
@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("max_runs", [None, 3.0, 40.0])
@pytest.mark.parametrize("candidates", [2, 6])
def test_what_cannot_be_recommended_is_left_out_without_changing_the_recommendation(
    candidates: int, max_runs: float | None, published: bool
) -> None:
    named: dict[str, Any] = {"records": 1000, "lot": 50, "steps": 100, "delta": 1e-5, "noise": 2.0}
    named |= {"candidates": candidates, "max_runs": max_runs, "published": published}
    with once():
        whole, part = comparison.plan(**named), comparison.plan(**named, eligible=True)
    assert (part.recommended, part.reason) == (whole.recommended, whole.reason)
    assert len(part.methods) < len(whole.methods)


class Falling:
    """A selection whose bound falls back, and says so."""

    def __init__(self) -> None:
        self.asked = 0

    def epsilon(self, event: Any, *, delta: float) -> float:
        self.asked += 1
        warnings.warn("a bound in place of another", FallBack, stacklevel=2)
        return 1.0


def test_what_is_warned_of_a_number_is_said_whenever_it_is_asked_for() -> None:
    event, selection = Run(records=100, lot=10, steps=1, noise=1.0).event, Falling()
    with once():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccountingWarning)
            epsilon_of(selection, event, delta=1e-5)
        with pytest.warns(FallBack, match="in place of another"):
            epsilon_of(selection, event, delta=1e-5)
    assert selection.asked == 1


def test_numbers_are_forgotten_after_a_search() -> None:
    event, selection = Run(records=100, lot=10, steps=1, noise=1.0).event, Falling()
    for _ in range(2):
        with once(), pytest.warns(FallBack):
            epsilon_of(selection, event, delta=1e-5)
    assert selection.asked == 2
