"""A selection is added by its class and the catalogue: a toy one goes through everything that honestdp does.

Two toys, of basic composition: k runs of (e, d) privacy are (k e, k d) private together. From one only the winner leaves, from
the other everything. Neither is named anywhere outside this file, so that a list kept by hand anywhere turns this red.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

import honestdp
from honestdp import Budget, Run, accounting
from honestdp.accounting.calibration import least_noise
from honestdp.accounting.discrete import Profile
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.ledger.spending import Spending
from honestdp.planner.comparison import crossovers, plan
from honestdp.report import chart, console
from honestdp.report.costs import compare
from honestdp.selection import EachOnce, Profiles, catalogue, named
from honestdp.selection.cost import statement
from honestdp.selection.profile import of_event
from tests.tiny_search import clouds, linear

RUN = Run(records=400, lot=40, steps=20, noise=3.0)
DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Basic(EachOnce):
    """k runs, charged k times the epsilon of one at delta / k; only the winner leaves."""

    kind: ClassVar[str] = "basic"
    leaves: ClassVar[str] = "the winner alone, by the toy"
    basis: ClassVar[str] = "basic composition (Dwork et al. 2006)"

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        return self.candidates * accounting.epsilon(event, delta=delta / self.candidates)

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        k = self.candidates
        above, below = of_event(event, delta=delta / k)
        above, below = (Profile(k * one.epsilons, np.minimum(k * one.deltas, 1.0)) for one in (above, below))
        return above, below


@dataclass(frozen=True, kw_only=True)
class BasicOfAll(Basic):
    """The same, and every candidate may leave: what a record pays is every run, one after another."""

    kind: ClassVar[str] = "basic-of-all"
    all_leave: ClassVar[bool] = True
    leaves: ClassVar[str] = "every candidate, by the toy"

    def event(self, parts: list[tuple[DpEvent, int]]) -> DpEvent:
        return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in parts])

    @property
    def base(self) -> BasicOfAll:
        return replace(self, candidates=1)


@pytest.fixture(params=[Basic, BasicOfAll], ids=lambda toy: toy.kind)
def toy(request: pytest.FixtureRequest) -> Iterator[type[Basic]]:
    catalogue.register(request.param)
    try:
        yield request.param
    finally:
        del catalogue.CATALOGUE[request.param.kind]


def test_it_has_an_epsilon_and_a_least_noise(toy: type[Basic]) -> None:
    selection = named(toy.kind, candidates=4)
    assert selection == toy(candidates=4)
    assert selection.epsilon(RUN.event, delta=DELTA) == 4 * accounting.epsilon(RUN.event, delta=DELTA / 4)
    run = least_noise(Budget(2.0, DELTA), records=400, lot=40, steps=20, selection=selection)
    assert 1.99 <= selection.epsilon(run.event, delta=DELTA) <= 2.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_command_line_knows_it(toy: type[Basic]) -> None:
    from typer.testing import CliRunner

    from honestdp.cli.main import app

    setting = ["--records", "400", "--lot", "40", "--steps", "20", "--delta", "1e-5", "--candidates", "4"]
    runner = CliRunner()
    spent = runner.invoke(app, ["epsilon", *setting, "--noise", "3", "--selection", toy.kind, "--json"])
    assert json.loads(spent.stdout)["epsilon"] == pytest.approx(toy(candidates=4).epsilon(RUN.event, delta=DELTA))
    needed = runner.invoke(app, ["noise", *setting, "--epsilon", "2", "--selection", toy.kind, "--json"])
    assert json.loads(needed.stdout)["epsilon"] <= 2.0
    assert toy.kind in runner.invoke(app, ["plan", *setting, "--noise", "3", "--table"]).stdout


@pytest.mark.slow
def test_the_planner_lists_it_and_the_charts_draw_it(toy: type[Basic], tmp_path: Path) -> None:
    for known in ({"noise": 3.0}, {"epsilon": 2.0}):
        made = plan(records=400, lot=40, steps=20, delta=DELTA, candidates=4, **known)
        (method,) = [method for method in made.methods if method.selection.name == toy.kind]
        assert method.equal == "all"
        exact = toy(candidates=4).epsilon(made.run_of(method).event, delta=DELTA)
        assert exact * (1 - 1e-9) <= method.epsilon <= exact * 1.007  # what is only compared is on a wider grid
    crossings = crossovers(RUN, delta=DELTA, coverage=0.9)
    written = console.plan_as_dict(made, crossings, statement(method.selection, RUN, delta=DELTA))
    assert toy.kind in json.dumps(written["methods"])
    used = compare(made, event=RUN.event, delta=DELTA, selection=named("winner", candidates=4))
    assert toy.kind in [cost.method for cost in used]
    chart.draw(RUN, delta=DELTA, candidates=4, coverage=0.9, file=tmp_path / "chart.svg")
    assert f"<!-- {toy.kind}  " in (tmp_path / "chart.svg").read_text()


def test_the_ledger_charges_it_and_reads_it_back_from_its_file(toy: type[Basic], tmp_path: Path) -> None:
    spending = Spending(toy(candidates=4), ((RUN, 4),))
    assert spending.as_dict()["selection"] == {"kind": toy.kind, "candidates": 4}
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("toys", Budget(100.0, DELTA))
    first = ledger.charge("toys", spending, key="a")
    assert first.spent > accounting.epsilon(RUN.event, delta=DELTA)
    second = Ledger(tmp_path / "ledger.db").charge("toys", spending, key="b")
    assert first.spent < second.spent <= 2.01 * first.spent
    reread = Ledger(tmp_path / "ledger.db")
    assert [charge.spending for charge in reread.charges("toys")] == [spending, spending]
    reread.verify()


@pytest.mark.slow
def test_a_search_by_it_ends_in_a_statement_a_charge_and_a_report(toy: type[Basic], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clouds", Budget(10.0, DELTA))
    result = honestdp.tune(
        linear,
        clouds(),
        budget=Budget(8.0, DELTA),
        optimizer="sgd",
        space={"lr": [0.1, 1.0], "clip": [1.0]},
        selection=toy.kind,
        lot=320,
        steps=3,
        ledger=ledger.path,
        dataset="clouds",
        out=tmp_path / "out",
    )
    assert result.statement.selection == toy.kind
    assert result.statement.how == "2 runs, every candidate once"
    assert toy.leaves in result.statement.leaves
    assert result.statement.basis == toy.basis
    assert 7.99 <= result.epsilon <= 8.0
    assert len(result.candidates) == (2 if toy.all_leave else 0)
    (charge,) = ledger.charges("clouds")
    assert charge.spending.selection == toy(candidates=2)
    page = (tmp_path / "out" / "report.html").read_text()
    assert toy.kind in page
    assert toy.leaves in page


def test_a_random_search_by_it_draws_its_candidates_publicly(toy: type[Basic]) -> None:
    result = honestdp.tune(
        linear,
        clouds(),
        budget=Budget(8.0, DELTA),
        optimizer="sgd",
        space={"lr": honestdp.LogUniform(0.01, 1.0), "clip": [1.0]},
        candidates=3,
        selection=toy.kind,
        lot=320,
        steps=3,
    )
    assert result.statement.runs == 3
    assert result.statement.uncovered == "the number of records, which is published as it is"


def test_outside_the_catalogue_it_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="selection must be one of"):
        named("basic", candidates=4)
    with pytest.raises(InvalidArgument, match="kind must be one of"):
        Spending.from_dict(Spending(Basic(candidates=4), ((RUN, 4),)).as_dict())


def test_no_two_selections_have_one_name() -> None:
    class Envelope(Basic):
        kind = "envelope"

    with pytest.raises(InvalidArgument, match="a name that no other selection has"):
        catalogue.register(Envelope)
