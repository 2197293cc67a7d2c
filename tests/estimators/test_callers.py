"""What fits an estimator many times, on overlapping rows, is refused before a row is read; nobody would count it."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn import ensemble, model_selection, multiclass
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection._validation import _fit_and_score
from sklearn.pipeline import make_pipeline

from honestdp.errors import UncountedUse
from honestdp.estimators import base, pipelines
from tests.estimators.made_up import classifier, regressor, rows

X, Y = rows()
SPACE = {"width": [0, 2]}


class Wrapper(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator of somebody's own around a private one."""

    def fit(self, x: Any, y: Any) -> Wrapper:
        self.inner_ = classifier().fit(x, y)
        return self


FIT_OFTEN = {
    "GridSearchCV": lambda: model_selection.GridSearchCV(classifier(), SPACE).fit(X, Y),
    "RandomizedSearchCV": lambda: model_selection.RandomizedSearchCV(classifier(), SPACE, n_iter=2).fit(X, Y),
    "GridSearchCV in processes": lambda: model_selection.GridSearchCV(classifier(), SPACE, n_jobs=2).fit(X, Y),
    "GridSearchCV of a Pipeline": lambda: model_selection.GridSearchCV(
        make_pipeline(classifier()), {"privateclassifier__width": [0, 2]}
    ).fit(X, Y),
    "cross_val_score": lambda: model_selection.cross_val_score(classifier(), X, Y),
    "cross_validate": lambda: model_selection.cross_validate(classifier(), X, Y),
    "cross_val_predict": lambda: model_selection.cross_val_predict(classifier(), X, Y),
    "learning_curve": lambda: model_selection.learning_curve(classifier(), X, Y),
    "validation_curve": lambda: model_selection.validation_curve(
        classifier(), X, Y, param_name="width", param_range=[0, 2]
    ),
    "permutation_test_score": lambda: model_selection.permutation_test_score(classifier(), X, Y),
    "BaggingClassifier": lambda: ensemble.BaggingClassifier(classifier()).fit(X, Y),
    "VotingClassifier": lambda: ensemble.VotingClassifier([("one", classifier()), ("two", classifier())]).fit(X, Y),
    "StackingClassifier": lambda: ensemble.StackingClassifier([("one", classifier())]).fit(X, Y),
    "OneVsRestClassifier": lambda: multiclass.OneVsRestClassifier(classifier(classes=[0, 1])).fit(X, Y),
    "CalibratedClassifierCV": lambda: CalibratedClassifierCV(classifier()).fit(X, Y),
    "TransformedTargetRegressor": lambda: TransformedTargetRegressor(regressor()).fit(X, X[:, 0]),
    "Wrapper": lambda: Wrapper().fit(X, Y),
}


@pytest.mark.parametrize("name", FIT_OFTEN)
def test_what_fits_many_times_is_refused_by_name_and_nothing_is_trained(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Any] = []
    monkeypatch.setattr(base, "train", lambda *arguments, **_: trained.append(arguments))
    with pytest.raises(UncountedUse, match=rf"^{name.split()[0]} .*The way out"):
        FIT_OFTEN[name]()
    assert not trained


def test_a_search_is_told_to_be_given_to_the_estimator() -> None:
    with pytest.raises(UncountedUse, match=r"none of it would be in epsilon.*PrivateClassifier\(epsilon=3, .*space="):
        FIT_OFTEN["GridSearchCV"]()


def test_a_fit_in_a_worker_process_is_refused_too() -> None:
    """There the clone came by pickle: what is on the stack is the function that fits and scores a fold."""
    estimator = classifier()
    arguments: dict[str, Any] = {"scorer": None, "train": range(40), "test": range(40, 60), "verbose": 0}
    arguments |= {"parameters": None, "fit_params": None, "score_params": None, "error_score": "raise"}
    with pytest.raises(UncountedUse, match="_fit_and_score"):
        _fit_and_score(estimator, X, Y, **arguments)


def test_a_clone_by_itself_and_a_split_are_no_search() -> None:
    x, _, y, _ = model_selection.train_test_split(X, Y, random_state=0)
    copy = clone(classifier().fit(x, y))
    assert not hasattr(copy, "model_")
    assert make_pipeline(copy).fit(x, y)[-1].model_ is not None


def test_other_estimators_are_searched_as_ever() -> None:
    search = model_selection.GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert search.best_params_["C"] in (0.1, 1.0)


def test_without_the_look_at_the_stack_a_search_would_go_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail."""
    monkeypatch.setattr(pipelines, "_frames", lambda: iter(()))
    search = model_selection.GridSearchCV(classifier(), {"steps": [2]}, cv=2).fit(X, Y)
    assert search.best_score_ is not None


def test_a_regressor_is_told_how_to_scale_what_it_predicts() -> None:
    with pytest.raises(UncountedUse, match=r"TransformedTargetRegressor.*scales what is predicted by target_bounds="):
        TransformedTargetRegressor(regressor()).fit(X, X[:, 0])
