"""`PrivateClassifier`: what it declares, what it says of what it was not told, and that its number covers its whole fit."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

import honestdp
from honestdp.errors import BudgetExceeded, InvalidArgument
from honestdp.estimators import base
from honestdp.search.request import SearchSpec
from tests.estimators.made_up import classifier, rows

X, Y = rows()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of trainings and searches, recorded in the place of them."""
    calls: list[dict[str, Any]] = []

    class Untrained:
        model = torch.nn.Linear(3, 2)
        statement, notes = None, ()

    def ask(model: Any, data: Any, **arguments: Any) -> Any:
        calls.append({"model": model, "data": data, **arguments})
        return Untrained()

    def ask_of(model: Any, data: Any, spec: SearchSpec) -> None:
        ask(model, data, **vars(spec.train) | vars(spec))

    monkeypatch.setattr(base, "train", ask)
    monkeypatch.setattr(base, "requested", ask_of)
    monkeypatch.setattr(base, "carried_out", lambda _: Untrained())
    monkeypatch.setattr(base, "replace", lambda result, **_: result)
    return calls


def test_predictions_are_labels_and_probabilities_of_all_declared_classes() -> None:
    fitted = classifier(classes=["perhaps", "yes", "no"]).fit(X, Y)
    assert fitted.classes_.tolist() == ["no", "perhaps", "yes"]
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (60, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[probabilities.argmax(axis=1)])
    assert fitted.score(X, Y) == (fitted.predict(X) == Y).mean()


def test_it_learns() -> None:
    x, y = rows(2000)
    fitted = classifier(steps=100, lot=200).fit(x, y)
    assert fitted.score(*rows(500, seed=1)) > 0.9


# ---- Classes


def test_declared_classes_are_in_the_statement_and_no_label_is_read_for_them() -> None:
    rare = Y.copy()
    rare[:] = "no"
    fitted = classifier().fit(X, rare)
    assert fitted.classes_.tolist() == ["no", "yes"], "one row less or more must not change the classes"
    assert "the class labels were declared" in fitted.statement_.preprocessing


def test_classes_that_were_read_off_the_rows_are_said_to_be_told_without_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="honestdp"):
        fitted = classifier(classes=None).fit(X, Y)
    assert "read off these rows, not declared, and is told without noise" in fitted.statement_.preprocessing
    assert "declare them in classes=" in caplog.text


@pytest.mark.parametrize("labels", [["no", "perhaps"], ["a", "b"], ["x", "y"]])
def test_a_label_that_was_not_declared_is_refused(labels: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="y must be of the declared classes"):
        classifier(classes=labels).fit(X, Y)


def test_a_constant_target_is_refused_where_no_classes_are_declared() -> None:
    with pytest.raises(InvalidArgument, match="two classes at least"):
        classifier(classes=None).fit(X, np.full(60, "no"))


@pytest.mark.parametrize("classes", [["no"], ["no", "no"], []])
def test_classes_are_two_different_labels_at_least(classes: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="classes must be"):
        classifier(classes=classes).fit(X, Y)


# ---- Imbalance


def test_prevalence_and_weights_follow_the_labels_in_whatever_order_they_are_declared(asked: Any) -> None:
    for declared in ({"yes": 0.1, "no": 0.9}, {"no": 0.9, "yes": 0.1}):
        classifier(classes=None, prevalence=declared, class_weights="balanced").fit(X, Y)
    classifier(classes=["yes", "no"], prevalence=[0.1, 0.9], class_weights={"yes": 5, "no": 1}).fit(X, Y)
    assert [call["prevalence"] for call in asked] == [[0.9, 0.1]] * 3
    assert [call["class_weights"] for call in asked] == ["balanced"] * 2 + [[1.0, 5.0]]


@pytest.mark.parametrize("declared", [[0.9, 0.1], {"no": 1.0}, {"no": 0.5, "other": 0.5}])
def test_numbers_of_classes_name_their_labels(declared: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"prevalence|classes"):
        classifier(classes=None, prevalence=declared).fit(X, Y)


def test_weights_by_declared_prevalence_find_the_rare_class() -> None:
    """Which weights with a mean of 1 hardly do: the clip cuts those above 1."""
    generator = np.random.default_rng(0)
    y = np.where(generator.random(4000) < 0.05, "ill", "well")
    x = generator.normal(size=(4000, 2)) + np.where(y == "ill", 1.5, 0.0)[:, None]
    common = {"bounds": (-4, 4), "classes": ["ill", "well"], "steps": 100, "lot": 400, "optimizer": "horizon"}
    plain = classifier(**common).fit(x, y)
    balanced = classifier(**common, class_weights="balanced", prevalence={"ill": 0.05, "well": 0.95}).fit(x, y)
    found = [(model.predict(x)[y == "ill"] == "ill").mean() for model in (plain, balanced)]
    assert found[0] < 0.4 < 0.7 < found[1]
    assert "declared, public, and not counted" in str(balanced.statement_)


@pytest.mark.slow
def test_a_search_scores_by_balanced_accuracy_of_the_declared_prevalence() -> None:
    fitted = classifier(
        prevalence={"no": 0.5, "yes": 0.5}, metric="balanced accuracy", optimizer="sgd", space={"lr": [0.1, 1.0], "clip": 1.0}
    ).fit(X, Y)  # fmt: skip
    assert fitted.result_.score.name == "balanced accuracy"


# ---- The budget


def test_the_statement_is_within_epsilon_and_names_the_training() -> None:
    fitted = classifier(epsilon=2, delta=1e-3, random_state=None).fit(X, Y)
    assert fitted.statement_.epsilon <= 2
    assert fitted.statement_.delta == 1e-3
    assert not fitted.statement_.not_private
    assert "3 columns by declared bounds as -1 to 1, clipped" in fitted.statement_.preprocessing
    assert "not stated" in fitted.statement_.preprocessing, "what came before X is not known"
    assert "not declared but taken to be that of the data" in str(fitted.statement_)


def test_a_fixed_random_state_repeats_a_fit_and_is_not_private(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="honestdp"):
        first, second = (classifier(random_state=7).fit(X, Y) for _ in range(2))
    assert "random_state=7 repeats lots and noise: this fit is NOT PRIVATE" in caplog.text
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert "NOT PRIVATE" in str(first.statement_)
    unseeded = [classifier(random_state=None).fit(X, Y).predict_proba(X) for _ in range(2)]
    assert not np.array_equal(*unseeded)


def test_epsilon_has_to_be_chosen() -> None:
    with pytest.raises(InvalidArgument, match="epsilon must be given"):
        classifier(epsilon=None).fit(X, Y)


def test_delta_is_well_below_one_over_the_number_of_rows(asked: Any) -> None:
    classifier().fit(X, Y)
    assert asked[0]["budget"].delta == 1e-3


@pytest.mark.slow
def test_the_number_of_a_search_inside_is_that_of_all_its_runs() -> None:
    """The way out of GridSearchCV: two candidates, scored and chosen within epsilon."""
    fitted = classifier(optimizer="sgd", space={"lr": [0.1, 1.0], "clip": 1.0}, random_state=None).fit(X, Y)
    assert isinstance(fitted.result_, honestdp.TuneResult)
    assert fitted.statement_.epsilon <= 3
    assert fitted.statement_.runs > 1
    assert fitted.result_.hyperparameters["lr"] in (0.1, 1.0)


def test_a_search_may_be_over_the_width_of_the_network(asked: Any) -> None:
    classifier(space={"width": [2, 4]}).fit(X, Y)
    assert asked[0]["space"] == {"width": [2, 4]}
    assert asked[0]["model"](width=4)[0].out_features == 4


def test_every_fit_is_charged_before_a_row_is_read_until_nothing_is_left(tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("rows", honestdp.Budget(epsilon=3.5, delta=1e-3))
    private = classifier(epsilon=3, delta=1e-3, ledger=ledger, dataset="rows", random_state=None)
    private.fit(X, Y)
    assert ledger.balance("rows").charges == 1
    with pytest.raises(BudgetExceeded):
        private.fit(X, Y)


def test_a_second_fit_on_the_same_rows_is_noted_though_its_arrays_are_new() -> None:
    x, y = rows(seed=5)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    for data, bounds in ((x, (0, 10)), (frame, (0, 10)), (np.ascontiguousarray(x, dtype=np.float32), None)):
        first, second = (classifier(bounds=bounds).fit(data, y).statement_ for _ in range(2))
        assert "training or search on these data" not in str(first)
        assert str(second).count("the second training or search on these data in this process") == 1


# ---- Inputs


@pytest.mark.parametrize("bounds", [(0, 10), [(0, 10)] * 3, {"a": (0, 10), "b": (0, 10), "c": (0, 10)}])
def test_inputs_are_scaled_by_declared_bounds_and_clipped(bounds: Any, asked: Any) -> None:
    frame = pd.DataFrame([[0.0, 5.0, 10.0], [-99.0, 7.5, 1e9]], columns=["a", "b", "c"])
    classifier(bounds=bounds, lot=2).fit(frame, ["no", "yes"])
    np.testing.assert_allclose(asked[0]["data"].read()[0], [[-1, 0, 1], [-1, 0.5, 1]])


@pytest.mark.parametrize(
    "bounds", [(1, 0), (0, 0), [(0, 1)], "public", {"a": (0, 1)}, (0, np.inf), 3, [(0, 1), (1, 2)]]
)
def test_bounds_that_are_none_are_refused(bounds: Any) -> None:
    with pytest.raises(InvalidArgument, match="bounds must be"):
        classifier(bounds=bounds).fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)


def test_sparse_rows_are_taken_as_if_they_were_dense() -> None:
    x = np.floor(X / 5)
    plain, scattered = (classifier(bounds=None).fit(data, Y) for data in (x, sparse.csr_array(x)))
    np.testing.assert_array_equal(plain.predict_proba(x), scattered.predict_proba(sparse.csr_array(x)))


def test_a_sparse_matrix_too_wide_to_be_dense_is_refused_in_words() -> None:
    wide = sparse.csr_array((4, 1 << 30))
    with pytest.raises(InvalidArgument, match="small enough to be dense"):
        classifier(bounds=None).fit(wide, ["no", "yes", "no", "yes"])


def test_one_row_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 2 rows"):
        classifier().fit(X[:1], Y[:1])


def test_a_fitted_estimator_travels() -> None:
    fitted = classifier().fit(X, Y)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert str(copy.statement_) == str(fitted.statement_)


def test_a_model_of_ones_own_is_a_function_of_inputs_and_outputs(asked: Any) -> None:
    classifier(model=lambda inputs, outputs: torch.nn.Linear(inputs, outputs, bias=False)).fit(X, Y)
    assert asked[0]["model"].bias is None
    for wrong in (torch.nn.Linear(3, 2), "linear"):
        with pytest.raises(InvalidArgument, match="model must be a function"):
            classifier(model=wrong).fit(X, Y)


# ---- Scores


@pytest.mark.slow
def test_a_private_score_is_noisy_and_charged_to_the_rows_that_it_is_of(tmp_path: Path) -> None:
    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("held out", honestdp.Budget(epsilon=1.0, delta=1e-6))
    fitted, half_right = classifier().fit(X, Y), np.where(np.arange(60) % 2, "yes", "no")
    how: dict[str, Any] = {"epsilon": 0.15, "ledger": ledger, "dataset": "held out"}
    scores = [fitted.private_score(X, half_right, **how) for _ in range(6)]
    assert len({each.score.value for each in scores}) > 1, (
        "noise of its own for each; all alike once in a million times"
    )
    assert scores[0].statement.epsilon == 0.15
    with pytest.raises(BudgetExceeded):
        fitted.private_score(X, half_right, **how)


def test_a_private_score_of_much_epsilon_is_near_the_exact_one() -> None:
    fitted = classifier().fit(X, Y)
    assert fitted.private_score(X, Y, epsilon=50).score.value == pytest.approx(fitted.score(X, Y), abs=0.02)


def test_weights_of_single_rows_are_refused_with_what_to_take() -> None:
    x, y = rows()
    with pytest.raises(InvalidArgument, match=r"sample_weight must be left out.*class_weights="):
        classifier().fit(x, y, sample_weight=np.ones(len(x)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        classifier().fit(x, y, weights=1)


def test_missing_numbers_are_refused_with_ways_out_that_are_private() -> None:
    x, y = rows()
    x[3, 1] = np.nan
    with pytest.raises(InvalidArgument, match=r"X must be free of NaN.*fill=.*keep_empty_features=True"):
        classifier().fit(x, y)
    filled = SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True)
    make_pipeline(filled, classifier()).fit(x, y)  # the way out works


def test_texts_among_the_inputs_are_refused_without_a_value_of_theirs() -> None:
    _, y = rows()
    with pytest.raises(InvalidArgument, match=r"X must be numbers: declare categories in table=") as told:
        classifier().fit(np.array([["secret"]] * len(y), dtype=object), y)
    assert "secret" not in f"{told.value}{told.value.__context__}"


def test_a_model_of_fewer_outputs_than_classes_is_refused_before_the_charge(tmp_path: Path) -> None:
    honestdp.Ledger(tmp_path / "l.db").set_budget("d", honestdp.Budget(9.0, 1e-3))
    x, _ = rows()
    books = {"ledger": tmp_path / "l.db", "dataset": "d", "random_state": None}
    two = classifier(classes=[0, 1, 2], model=lambda inputs, outputs: torch.nn.Linear(inputs, 2), **books)
    with pytest.raises(InvalidArgument, match=r"outputs must be 3, one for each declared class"):
        two.fit(x, np.arange(len(x)) % 3)
    assert honestdp.Ledger(tmp_path / "l.db").charges("d") == ()
