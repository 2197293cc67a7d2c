"""What a table leaves to be learnt is charged first, learnt privately, and in every number that is said afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import honestdp
from honestdp import Budget, Categories, Compute, Flag, Ignore, Ledger, Range, Run, Table
from honestdp.boundary import bounds
from honestdp.budget import default_delta
from honestdp.data.tables import learning
from honestdp.errors import BudgetExceeded, InvalidArgument

QUIET = Compute(progress=False)
PRIVATE = Table({"income": Range(bounds="private"), "who": Ignore(), "ill": Flag()}, "ill")


def incomes(count: int = 4000) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {
        "income": generator.uniform(1000, 9000, count), "who": generator.integers(0, 50, count),
        "ill": generator.integers(0, 2, count),
    }  # fmt: skip


def test_bounds_that_are_learnt_lie_about_the_rows() -> None:
    learnt = PRIVATE.learn(incomes(), epsilon=1.0).columns["income"]
    assert isinstance(learnt, Range)
    assert learnt.bounds == "learnt"
    assert learnt.low is not None
    assert learnt.high is not None
    assert 500 <= learnt.low <= 2000
    assert 7000 <= learnt.high <= 15000


def test_nothing_is_encoded_with_bounds_that_are_still_to_be_learnt() -> None:
    for use in (PRIVATE.data, PRIVATE.encode):
        with pytest.raises(InvalidArgument, match="learnt first"):
            use(incomes())
    assert PRIVATE.stand_in().width == PRIVATE.width


def test_the_columns_share_epsilon_and_the_table_carries_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many questions as columns, which together cost what was charged, and what was learnt before is not forgotten."""
    asked: list[float] = []
    for name in ("private_range", "private_frequent"):
        whole = getattr(learning, name)
        monkeypatch.setattr(
            learning, name, lambda *a, whole=whole, **how: asked.append(how["epsilon"]) or whole(*a, **how)
        )
    columns = {"a": Range(bounds="private"), "b": Range(bounds="private"), "c": Categories(bounds="private", most=2)}
    table = Table({**columns, "t": Flag()}, "t", spent=0.25)
    learnt = table.learn({"a": [1.0] * 9, "b": [2.0] * 9, "c": ["x"] * 9, "t": [0] * 9}, epsilon=0.6)
    assert len(asked) == 3
    assert sum(asked) <= 0.6 * (1 + 1e-12)
    assert learnt.spent == pytest.approx(0.85)
    assert Table.from_dict(learnt.as_dict()).spent == learnt.spent


def test_frequent_categories_are_learnt_and_rare_ones_are_not() -> None:
    table = Table({"city": Categories(bounds="private", most=5, other=True), "t": Flag()}, "t")
    rows = {"city": ["Rome"] * 500 + ["Oslo"] * 400 + ["my own house"], "t": [0] * 901}
    learnt = table.learn(rows, epsilon=1.0)
    column = learnt.columns["city"]
    assert isinstance(column, Categories)
    assert len(column.values) == 2
    assert learnt.width == table.width == 6
    x = learnt.encode({"city": ["Rome", "Rome ", "my own house"]})
    assert (x[0] == x[1]).all()
    assert x[0, :5].sum() == 1
    assert x[2].tolist() == [0, 0, 0, 0, 0, 1]
    assert not any("Rome" in str(value) for value in learnt.as_dict().values())


@pytest.mark.slow
def test_the_charge_comes_before_a_row_is_read_and_is_what_the_mechanisms_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("h", Budget(1.0, 1e-5))
    seen: list[float] = []
    whole = learning._values
    monkeypatch.setattr(learning, "_values", lambda *args: seen.append(ledger.balance("h").spent) or whole(*args))
    PRIVATE.learn(incomes(), epsilon=0.75, ledger=ledger, dataset="h", records=4000)
    assert seen == [pytest.approx(0.75, abs=1e-3)]
    with pytest.raises(BudgetExceeded):
        PRIVATE.learn(incomes(), epsilon=0.75, ledger=ledger, dataset="h")
    assert len(seen) == 1


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_no_question_costs_more_than_its_part(epsilon: float) -> None:
    """By opendp's own map. A column's histogram has a half, and its two quantiles a quarter each."""
    for part in (0.01, 0.99):
        assert bounds._quantile(part, epsilon / 4, np.linspace(0, 1, 101)).map(1) <= epsilon / 4


def test_the_questions_of_a_column_cost_together_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for epsilon in (0.1, 1.0):  # the quantiles are left out at the first
        costs: list[float] = []
        counts, quantile = bounds._noisy_counts, bounds._quantile
        monkeypatch.setattr(bounds, "_noisy_counts", lambda p, n, e, f=counts, c=costs: c.append(e) or f(p, n, e))
        monkeypatch.setattr(bounds, "_quantile", lambda p, e, g, f=quantile, c=costs: c.append(e) or f(p, e, g))
        bounds.private_range(incomes()["income"], epsilon=epsilon, declared=4000)
        assert sum(costs) == pytest.approx(epsilon)
        assert len(costs) == (1 if epsilon < 1 else 3)
        monkeypatch.undo()


@pytest.mark.slow
def test_a_budget_is_for_everything_and_the_statement_says_the_sum() -> None:
    table = Table({**PRIVATE.columns, "income": Range(1000, 10000, bounds="learnt")}, "ill", spent=0.4)
    data, budget, model = table.data(incomes()), Budget(1.0, 1e-5), torch.nn.Linear(1, 2)
    for result in (
        honestdp.tune(model, data, budget=budget, lot=50, steps=3, compute=QUIET),
        honestdp.train(
            model,
            data,
            budget=budget,
            optimizer="horizon",
            run=Run(records=4000, lot=50, steps=3, noise=0.0),
            compute=QUIET,
        ),
    ):
        assert 0.95 < result.epsilon <= 1.0
        assert result.statement.epsilon == result.epsilon
        own = honestdp.epsilon(result.run, delta=1e-5)
        assert result.epsilon == pytest.approx(own + 0.4, abs=1e-2)
        assert any("epsilon 0.4 was spent to learn" in note for note in result.statement.notes)
        assert result.statement.leaves.endswith("; and the bounds or categories that were learnt")
        assert ",," not in str(result.statement)
    run = Run(records=4000, lot=50, steps=3, noise=2.0)
    alone = honestdp.train(model, data, run=run, optimizer="horizon", delta=1e-5, compute=QUIET)
    assert alone.epsilon == pytest.approx(honestdp.epsilon(run, delta=1e-5) + 0.4)


def test_a_budget_that_the_learning_has_used_up_is_refused() -> None:
    table = Table({**PRIVATE.columns, "income": Range(0, 1, bounds="learnt")}, "ill", spent=1.0)
    with pytest.raises(InvalidArgument, match="spent to learn"):
        honestdp.tune(torch.nn.Linear(1, 2), table.data(incomes()), budget=Budget(1.0, 1e-5), compute=QUIET)


def test_a_statement_by_person_counts_the_row_that_bounds_were_learnt_from() -> None:
    """It is chosen among all rows of a person, so it may be none of those that the training kept."""
    columns = {"income": Range(1000, 10000, bounds="learnt"), "ill": Flag()}
    rows = {**incomes(), "who": [f"p{i // 2}" for i in range(4000)]}
    run = Run(records=2000, lot=50, steps=3, noise=2.0)
    for spent in (0.0, 0.4):
        table = Table(columns, "ill", person="who", rows_per_person=1, spent=spent)
        how: dict[str, Any] = {"run": run, "optimizer": "horizon", "delta": 1e-5, "compute": QUIET}
        stated = honestdp.train(torch.nn.Linear(1, 2), table.data(rows), **how).statement
        assert "At most 1 row of a person were used" in str(stated.protects)
        assert ("To learn bounds one row of a person was used" in str(stated.protects)) == bool(spent)


def test_learnt_categories_are_described_without_a_slip() -> None:
    for other in (False, True):
        words = Categories(3, 7, other=other, bounds="learnt").describe()
        assert "by a public hash" in words
        assert ",," not in words


def test_of_a_person_one_row_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a person with all rows is one number among those that come in."""
    asked: list[int] = []
    whole = learning.private_range
    monkeypatch.setattr(
        learning, "private_range", lambda values, **how: asked.append(len(values)) or whole(values, **how)
    )
    table = Table(PRIVATE.columns, "ill", person="who", rows_per_person=3)
    rows = incomes(300)
    rows["who"] = ["ada"] * 200 + [f"p{i}" for i in range(60)] + [None] * 40
    table.learn(rows, epsilon=1.0, records=61)
    assert asked == [61]


def test_how_many_are_asked_is_bounded_by_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 20000 records and a chance of 1/4, 5000 on average; further off than 400 once in 10^10."""
    monkeypatch.setattr(bounds, "MOST_ASKED", 5000)
    assert abs(len(bounds.asked(20000, None, 20000)) - 5000) < 400


def test_delta_defaults_to_a_power_of_ten_well_below_one_over_n() -> None:
    for records in (1, 9, 10, 99, 1000, 45222, 10**7):
        assert (
            default_delta(records) * records <= 0.1 * (1 + 1e-12) < default_delta(records) * records * 10 * (1 + 1e-9)
        )
        assert float(f"1e{round(np.log10(default_delta(records)))}") == default_delta(records)
