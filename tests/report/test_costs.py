"""The comparison of methods that a report draws."""

from __future__ import annotations

from dataclasses import replace

import pytest

from honestdp.budget import Budget
from honestdp.planner.comparison import Plan, plan
from honestdp.report.costs import compare
from honestdp.run import Run
from honestdp.selection import Compose, LiuTalwar, RandomStopping, Winner, count_of, named
from honestdp.selection.cost import statement

SETTING = {"records": 2000, "lot": 100, "steps": 100, "delta": 1e-5}
RUN = Run(records=2000, lot=100, steps=100, noise=3.0)


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(validation=0, noise=3.0, candidates=4, **SETTING)  # type: ignore[arg-type]


def test_every_method_is_listed_once_at_the_noise_that_was_used(planned: Plan) -> None:
    used = planned.recommended.selection
    costs = compare(planned, event=RUN.event, delta=1e-5, selection=used)
    assert [cost.method for cost in costs[:1]] == ["one run"]
    assert sorted(cost.method for cost in costs[1:]) == [
        "compose, moments",
        "compose, pld",
        "envelope",
        "liu-talwar",
        "papernot-steinke",
        "profile",
        "winner",
    ]
    assert [cost.epsilon for cost in costs[1:]] == sorted((cost.epsilon for cost in costs[1:]), reverse=True)
    known = {(method.selection.name, method.selection.runs): method.epsilon for method in planned.methods}
    for cost in costs[1:]:
        if cost.selection != "compose" and cost.accountant != "rdp":
            assert cost.epsilon == known[cost.selection, cost.runs]
    assert all(cost.noise is None for cost in costs)


def test_the_method_used_is_marked_and_costs_what_the_statement_says(planned: Plan) -> None:
    """At the noise of the search, which need not be the one that was planned with."""
    run = replace(RUN, noise=2.5)
    count = count_of(runs=6.5, shape=0.5)
    for used in (Winner(candidates=4), Compose(candidates=4), RandomStopping(count=count, bound="profile")):
        costs = compare(planned, event=run.event, delta=1e-5, selection=used)
        (marked,) = [cost for cost in costs if cost.used]
        assert marked.selection == used.name
        assert marked.epsilon == statement(used, run, delta=1e-5).epsilon


def test_all_bounds_of_random_stopping_are_charged_for_the_same_runs(planned: Plan) -> None:
    used = named("profile", runs=6.5, shape=0.5)
    costs = compare(planned, event=RUN.event, delta=1e-5, selection=used)
    stopping = [cost for cost in costs if cost.shape is not None]
    assert [cost.runs for cost in stopping] == [pytest.approx(6.5)] * 3
    assert {cost.shape for cost in stopping} == {0.5}


def test_a_method_used_in_another_way_than_usual_is_listed_in_that_way_alone(planned: Plan) -> None:
    for used in (LiuTalwar(gamma=0.2), Winner(candidates=4, identical=True)):
        costs = compare(planned, event=RUN.event, delta=1e-5, selection=used)
        (cost,) = [cost for cost in costs if cost.selection == used.name]
        assert cost.used
        assert cost.epsilon == used.epsilon(RUN.event, delta=1e-5)


def test_one_run_on_average_is_listed_beside_one_run(planned: Plan) -> None:
    used = named("envelope", runs=1, shape="poisson")
    costs = compare(replace(planned, candidates=1), event=RUN.event, delta=1e-5, selection=used)
    assert [cost.method for cost in costs].count("one run") == 1
    assert [cost.method for cost in costs if cost.used] == ["envelope"]


def test_an_accountant_of_the_users_own_choice_is_listed_too(planned: Plan) -> None:
    costs = compare(planned, event=RUN.event, delta=1e-5, selection=Compose(candidates=4, accountant="rdp"))
    assert [cost.method for cost in costs if cost.used] == ["compose, rdp"]


def test_without_a_search_there_is_one_cost() -> None:
    alone = plan(validation=0, noise=3.0, candidates=1, **SETTING)  # type: ignore[arg-type]
    (cost,) = compare(alone, event=RUN.event, delta=1e-5, selection=Compose(candidates=1))
    assert cost.used
    assert cost.method == "one run"
    assert cost.leaves == "the model of the one run"


@pytest.mark.slow
def test_at_a_budget_each_method_has_the_noise_that_meets_it(planned: Plan) -> None:
    """Those of the plan are taken from it; others are calibrated; one that no noise helps has none."""
    budget = Budget(0.05, 1e-5)
    kept = tuple(replace(method, noise=77.0) for method in planned.methods if method.selection.accountant == "pld")
    used = planned.recommended.selection
    costs = compare(
        replace(planned, budget=budget, methods=kept), event=RUN.event, delta=1e-5, selection=used, noise=78.0
    )
    noises = {cost.method: cost.noise for cost in costs}
    assert noises["winner"] == noises["compose, pld"] == 77.0
    assert noises["envelope"] == 78.0
    assert noises["liu-talwar"] is None
    moments = noises["compose, moments"]
    assert moments is not None
    spent = Compose(candidates=4, accountant="moments").epsilon(replace(RUN, noise=moments).event, delta=1e-5)
    assert 0.0495 <= spent <= 0.05
