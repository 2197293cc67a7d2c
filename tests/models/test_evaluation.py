"""A score of a saved model on held-out records: charged first, noisy by the law that was promised, silent about records."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import honestdp
from honestdp.boundary.score_noise import question_noise, question_scale
from honestdp.data.tables.source import TableRows
from honestdp.errors import BudgetExceeded, HonestdpError, InvalidArgument
from honestdp.models import evaluation
from honestdp.models.evaluation import evaluate, score_of

TABLE = honestdp.Table({"age": honestdp.Range(0, 100), "ill": honestdp.Categories("no", "yes")}, "ill")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> honestdp.SavedModel:
    """Says yes from the age of 50 on."""
    rows = {"age": list(range(100)), "ill": ["yes" if age >= 50 else "no" for age in range(100)]}
    run = honestdp.Run(records=100, lot=50, steps=1, noise=2.0)
    result = honestdp.train(nn.Linear(1, 2), TABLE.data(rows), run=run, optimizer="horizon", delta=1e-3)
    with torch.no_grad():
        result.model.weight.copy_(torch.tensor([[-1.0], [1.0]]))  # type: ignore[operator, union-attr]
        result.model.bias.copy_(torch.tensor([0.5, -0.5]) - 1e-3)  # type: ignore[operator, union-attr]
    return honestdp.save(tmp_path_factory.mktemp("model") / "model", result, table=TABLE)


def held_out(right: int, wrong: int) -> dict[str, list[Any]]:
    return {"age": [80] * (right + wrong), "ill": ["yes"] * right + ["no"] * wrong}


@pytest.mark.slow
def test_the_score_is_the_exact_one_and_its_noise(saved: honestdp.SavedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held_out(30, 10)
    for noise, value in ((0, 0.75), (4, 0.8), (-8, 0.65), (1000, 1.0)):  # one more right and one less wrong move S by 2
        monkeypatch.setattr(evaluation, "question_noise", lambda noise=noise, **_: noise)
        assert saved.evaluate(rows, epsilon=1.0).score.value == pytest.approx(value)


def test_it_is_said_that_a_record_without_a_label_counts_as_the_middle_of_the_range(
    saved: honestdp.SavedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 rows that are all right 20 have no label: 0.75 is told, which is right for privacy and must not come unsaid."""
    monkeypatch.setattr(evaluation, "question_noise", lambda **_: 0)
    rows = held_out(20, 0)
    rows = {"age": [*rows["age"], *[80] * 20], "ill": [*rows["ill"], *[None] * 20]}
    found = saved.evaluate(rows, epsilon=1.0)
    assert found.score.value == pytest.approx(0.75)
    assert "is not there, or has none, counts as 0.5, the middle of the range" in str(found.statement)
    assert "one that is missing or has no label counts as the middle of the range" in str(found)


@pytest.mark.parametrize(
    ("records", "said"), [(40, "it was declared"), (None, "it was not declared but counted in the data")]
)
def test_the_statement_says_whether_the_number_of_rows_was_declared_or_counted(
    saved: honestdp.SavedModel, records: int | None, said: str
) -> None:
    stated = saved.evaluate(held_out(30, 10), epsilon=1.0, records=records).statement
    assert f"40, is public; {said}" in next(text for text in stated.assumptions if "40" in text)


@pytest.mark.parametrize(("epsilon", "said"), [(1e9, True), (11.0, True), (10.0, False)])
def test_an_epsilon_that_guarantees_nothing_is_warned_of(
    saved: honestdp.SavedModel, caplog: pytest.LogCaptureFixture, epsilon: float, said: bool
) -> None:
    words = "guarantees next to nothing"
    assert (words in str(saved.evaluate(held_out(30, 10), epsilon=epsilon).statement)) is said
    assert (words in caplog.text) is said


@pytest.mark.parametrize("when", ["question_noise", "open_door"])
def test_what_becomes_of_the_users_model_after_its_test_is_without_effect(
    saved: honestdp.SavedModel, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the charge, and once more after the records are read."""
    honest, own = getattr(evaluation, when), copy.deepcopy(saved.model)
    attacked = replace(saved, model=own)

    def attack(*args: Any, **named: Any) -> Any:
        found = honest(*args, **named)
        own.forward = lambda x: -torch.nn.functional.linear(x, own.weight, own.bias)  # type: ignore[method-assign]
        return found

    monkeypatch.setattr(evaluation, when, attack)
    assert attacked.evaluate(held_out(300, 100), epsilon=10.0).score.value == pytest.approx(0.75, abs=0.05)


def test_every_call_draws_noise_of_its_own(saved: honestdp.SavedModel) -> None:
    rows = held_out(300, 100)
    values = [saved.evaluate(rows, epsilon=0.05).score.value for _ in range(4)]
    assert len(set(values)) > 1  # all alike with a probability below 1e-4


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 1e-3, 7.0])
@pytest.mark.parametrize("sensitivity", [1, 128])
def test_the_noise_is_never_too_small(epsilon: float, sensitivity: int) -> None:
    """exp(D / s) <= exp(epsilon), in exact arithmetic."""
    assert Fraction(sensitivity) / Fraction(question_scale(epsilon=epsilon, sensitivity=sensitivity)) <= Fraction(
        epsilon
    )


@pytest.mark.slow
def test_the_noise_is_discrete_laplace_of_that_scale() -> None:
    """|Z| has the mean 2q/(1 - q^2), q = exp(-1/s); within 5 standard errors but for one case in a million."""
    epsilon, sensitivity, draws = 0.5, 8, 4000
    drawn = np.abs([question_noise(epsilon=epsilon, sensitivity=sensitivity) for _ in range(draws)])
    q = np.exp(-epsilon / sensitivity)
    error = 5 * drawn.std() / np.sqrt(draws)
    assert abs(drawn.mean() - 2 * q / (1 - q**2)) < error
    assert abs(drawn.mean() - 2 * np.sqrt(q) / (1 - q)) > error  # twice the epsilon would be seen


def test_the_interval_holds_the_truth_in_95_of_100() -> None:
    """Noise and draw of the records of like size: 3000 scores of an accuracy of 0.8 on 400 records at epsilon 0.1."""
    generator, covered, count = np.random.default_rng(1), 0, 3000
    for _ in range(count):
        right = generator.binomial(400, 0.8)
        noise = round(generator.laplace(scale=10.0))
        score = score_of(honestdp.Accuracy(), 2 * right - 400 + noise, epsilon=0.1, records=400)
        covered += score.low <= 0.8 <= score.high
    assert covered / count > 0.94  # 2.5 standard errors below 0.95
    assert covered / count < 0.98


class Crying(Dataset[Any]):
    """Records that cry out when one is read."""

    made_up = torch.zeros(1), torch.tensor(0)

    def __init__(self, ledger: honestdp.Ledger | None = None) -> None:
        self.ledger, self.charges = ledger, -1

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if self.ledger is not None and self.charges == -1:  # the first of them
            self.charges = len(self.ledger.charges("held-out"))
        if index == 7:
            raise ValueError("patient 4711 has no age")
        return torch.zeros(1), torch.tensor(0)


def test_it_is_charged_before_a_record_is_read(saved: honestdp.SavedModel, tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("held-out", honestdp.Budget(1.0, 1e-5))
    data = Crying(ledger)
    with pytest.raises(HonestdpError, match="stays charged") as error:
        evaluate(saved, data, epsilon=0.25, metric="accuracy", ledger=ledger, dataset="held-out")
    assert data.charges == 1
    assert "4711" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None
    assert ledger.balance("held-out").spent == pytest.approx(0.25, rel=1e-3)


def test_rows_of_a_table_are_read_after_the_charge_alone(
    saved: honestdp.SavedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("held-out", honestdp.Budget(1.0, 1e-5))
    charges: list[int] = []
    whole = TableRows.read
    monkeypatch.setattr(
        TableRows, "read", lambda rows: charges.append(ledger.balance("held-out").charges) or whole(rows)
    )
    saved.evaluate(held_out(30, 10), epsilon=0.25, ledger=ledger, dataset="held-out")
    assert charges == [1]


def test_over_budget_no_record_is_read(saved: honestdp.SavedModel, tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("held-out", honestdp.Budget(0.1, 1e-5))
    data = Crying(ledger)
    with pytest.raises(BudgetExceeded):
        evaluate(saved, data, epsilon=0.25, metric="accuracy", ledger=ledger, dataset="held-out")
    assert data.charges == -1


def test_what_does_not_fit_costs_nothing(saved: honestdp.SavedModel, tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("held-out", honestdp.Budget(1.0, 1e-5))
    how: dict[str, Any] = {"ledger": ledger, "dataset": "held-out"}
    for wrong, argument in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1.0, "metric": "auc"}, "metric"),
        ({"epsilon": 1.0, "metric": "balanced accuracy"}, "prevalence"),
        ({"epsilon": 1.0, "metric": "balanced accuracy", "prevalence": [0.2, 0.2, 0.6]}, "prevalence"),
    ):
        with pytest.raises(InvalidArgument) as error:
            saved.evaluate(held_out(3, 3), **how, **wrong)  # type: ignore[arg-type]
        assert error.value.argument == argument
    assert ledger.charges("held-out") == ()


def test_a_person_counts_once_however_many_rows_they_have(
    saved: honestdp.SavedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine people with one row that is right, and one with a hundred that are wrong: 0.9, not 9/109, at a person's epsilon."""
    run = honestdp.Run(records=10, lot=5, steps=1, noise=2.0)
    table = replace(TABLE, person="who", rows_per_person=50)
    rows = {"who": [*range(9), *[9] * 100], **held_out(9, 100)}
    result = honestdp.train(saved.model, table.data(rows), run=run, optimizer="horizon", delta=1e-2)
    of_people = honestdp.save(tmp_path / "model", replace(result, model=saved.model), table=table)
    monkeypatch.setattr(evaluation, "question_noise", lambda **_: 0)
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("held-out", honestdp.Budget(1.0, 1e-5))
    found = of_people.evaluate(rows, epsilon=0.5, ledger=ledger, dataset="held-out")
    assert (found.score.value, found.records) == (pytest.approx(0.9), 10)
    assert found.statement.relation == "add or remove one person, with all of their rows"
    assert ledger.charges("held-out")[0].spending.unit == "who"
    with pytest.raises(honestdp.errors.OtherUnit):
        saved.evaluate(held_out(9, 1), epsilon=0.1, ledger=ledger, dataset="held-out")


def test_a_quantity_is_scored_in_its_declared_range(tmp_path: Path) -> None:
    table = honestdp.Table({"age": honestdp.Range(0, 100), "cost": honestdp.Range(0, 1000)}, "cost")
    rows = {"age": list(range(40)), "cost": [10 * age for age in range(40)]}
    run = honestdp.Run(records=40, lot=20, steps=1, noise=2.0)
    result = honestdp.train(nn.Linear(1, 1), table.data(rows), run=run, optimizer="horizon", delta=1e-3)
    saved = honestdp.save(tmp_path / "model", result, table=table)
    assert ((saved.predict(rows) >= 0) & (saved.predict(rows) <= 1000)).all()
    found = saved.evaluate(rows, epsilon=5.0)
    assert 0 <= found.score.value <= 0.25
    assert "squared error" in found.score.name
    with pytest.raises(InvalidArgument, match="no probabilities"):
        saved.predict_proba(rows)


def test_a_table_of_another_width_is_not_saved_with_a_model(saved: honestdp.SavedModel, tmp_path: Path) -> None:
    run = honestdp.Run(records=4, lot=2, steps=1, noise=2.0)
    data = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
    result = honestdp.train(nn.Linear(2, 2), data, run=run, optimizer="horizon", delta=1e-2)
    with pytest.raises(InvalidArgument, match="2 inputs and 2 outputs"):
        honestdp.save(tmp_path / "model", result, table=TABLE)
    alone = honestdp.save(tmp_path / "model", result)
    with pytest.raises(InvalidArgument, match="saved with its table"):
        alone.predict({"age": [3]})


def test_what_a_score_cost_is_printed_with_it(saved: honestdp.SavedModel) -> None:
    printed = str(saved.evaluate(held_out(30, 10), epsilon=0.25))
    assert "epsilon  0.25 at delta 0 for this one question, add or remove one record" in printed


def test_what_a_score_cost_is_printed_no_smaller_than_it_is(saved: honestdp.SavedModel) -> None:
    assert "epsilon  0.2501 at delta 0" in str(saved.evaluate(held_out(30, 10), epsilon=0.25004))
