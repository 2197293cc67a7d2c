"""Steps of a Pipeline before a private estimator: what learns from the rows is refused, what is let through learns nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from honestdp.errors import InvalidArgument, UncountedUse
from honestdp.estimators.pipelines import learns
from tests.estimators.made_up import classifier, rows

X, Y = rows()
CENTRED = FunctionTransformer(lambda x: x - x.mean(axis=0))
CODES = [[0.0, 1.0, 2.0]] * 3


class Own(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer of somebody's own."""

    def fit(self, x: Any, y: Any = None) -> Own:
        self.fitted_ = True
        return self

    def transform(self, x: Any) -> Any:
        return np.asarray(x) / 10


class LearningNormalizer(Normalizer):  # type: ignore[misc]
    """A subclass of one that learns nothing, which does."""

    def fit(self, x: Any, y: Any = None) -> Any:
        self.mean_ = np.mean(x)
        return super().fit(x)


LEARN_NOTHING = {
    "Normalizer": Normalizer(),
    "Binarizer": Binarizer(threshold=5.0),
    "PolynomialFeatures": PolynomialFeatures(2),
    "a ufunc": FunctionTransformer(np.tanh),
    "no function": FunctionTransformer(),
    "constant fill": SimpleImputer(strategy="constant", fill_value=1.0, keep_empty_features=True),
    "all indicators": MissingIndicator(features="all"),
    "declared categories": OneHotEncoder(categories=CODES, handle_unknown="ignore"),
    "declared order": OrdinalEncoder(categories=CODES, handle_unknown="use_encoded_value", unknown_value=-1),
    "columns": ColumnTransformer([("some", Normalizer(), [0, 1])], remainder="passthrough"),
    "union": FeatureUnion([("a", Normalizer()), ("b", Binarizer())]),
    "inner": Pipeline([("a", Normalizer()), ("b", "passthrough")]),
}


@pytest.mark.parametrize("name", LEARN_NOTHING)
def test_what_is_let_through_does_the_same_to_a_row_whatever_the_others_are(name: str) -> None:
    """The claim behind the list: fitted with one strange row more, every step gives every other row the same."""
    step = LEARN_NOTHING[name]
    assert learns(step) is None
    codes = np.floor(X / 4)
    strange = np.vstack([codes, [[2e6, np.nan if "indicators" in name or "fill" in name else -7e5, 1e3]]])
    alone, together = clone(step).fit(codes), clone(step).fit(strange)
    first, second = (_dense(fitted.transform(data)) for fitted, data in ((alone, codes), (together, strange)))
    np.testing.assert_array_equal(first, second[:-1])


def _dense(x: Any) -> Any:
    return x.toarray() if hasattr(x, "toarray") else x


REFUSED = {
    "StandardScaler": (StandardScaler(), "it is fitted on the rows.*bounds="),
    "MinMaxScaler": (MinMaxScaler(), "it is fitted on the rows"),
    "PCA": (PCA(2), "it is fitted on the rows"),
    "SelectKBest": (SelectKBest(k=1), "it is fitted on the rows"),
    "KBinsDiscretizer": (KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), "it is fitted on the rows"),
    "mean fill": (SimpleImputer(), "read off the rows"),
    "read categories": (OneHotEncoder(handle_unknown="ignore"), "categories are read off the rows"),
    "counted categories": (
        OneHotEncoder(categories=CODES, min_frequency=2, handle_unknown="ignore"),
        "counts its categories",
    ),
    "a function": (CENTRED, "may compare rows.*public_steps="),
    "inside columns": (ColumnTransformer([("some", StandardScaler(), [0])]), "StandardScaler in it"),
    "chosen columns": (
        ColumnTransformer([("some", Normalizer(), lambda x: [0])]),
        "chosen by a function",
    ),
    "inside a union": (FeatureUnion([("a", MinMaxScaler())]), "MinMaxScaler in it"),
    "inside a Pipeline": (make_pipeline(Normalizer(), MinMaxScaler()), "MinMaxScaler in it"),
    "one's own": (Own(), "nothing is known of what it learns"),
    "a subclass": (LearningNormalizer(), "nothing is known"),
    "frozen": (FrozenEstimator(StandardScaler().fit(X)), "it was fitted before.*public_steps="),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_learn_from_the_rows_is_refused_with_the_way_out(name: str) -> None:
    step, words = REFUSED[name]
    with pytest.raises(UncountedUse, match=f"the step 'before' .*{words}"):
        Pipeline([("before", clone(step)), ("private", classifier(bounds=None))]).fit(X, Y)


def test_text_counted_by_its_words_is_refused() -> None:
    assert learns(TfidfVectorizer()) == "it is fitted on the rows"


@pytest.mark.parametrize("step", [Own(), CENTRED, FrozenEstimator(StandardScaler().fit(X))])
def test_what_only_the_user_can_know_may_be_declared_and_is_in_the_statement(step: Any) -> None:
    private = classifier(bounds=None, public_steps={"before": "the census of 2011"})
    pipeline = Pipeline([("before", step), ("private", private)]).fit(X, Y)
    stated = pipeline["private"].statement_.preprocessing
    assert "step 'before'" in stated
    assert "declared public: the census of 2011" in stated


@pytest.mark.parametrize("step", [StandardScaler(), make_pipeline(Own(), MinMaxScaler())])
def test_declaring_public_what_is_fitted_right_here_does_not_make_it_so(step: Any) -> None:
    private = classifier(public_steps={"before": "the census of 2011"})
    with pytest.raises(UncountedUse, match="FrozenEstimator"):
        Pipeline([("before", step), ("private", private)]).fit(X, Y)


def test_every_pipeline_around_an_estimator_is_looked_at() -> None:
    inner = Pipeline([("fine", Normalizer()), ("private", classifier())])
    with pytest.raises(UncountedUse, match="the step 'scale'"):
        Pipeline([("scale", StandardScaler()), ("inner", inner)]).fit(X, Y)


def test_steps_that_learn_nothing_are_named_in_the_statement() -> None:
    pipeline = make_pipeline(Normalizer(), "passthrough", classifier(bounds=(0, 1))).fit(X, Y)
    assert "step 'normalizer', Normalizer, learns nothing from the rows" in pipeline[-1].statement_.preprocessing
    assert pipeline.predict(X).shape == Y.shape


@pytest.mark.parametrize("wrong", ["before", {"before": ""}, {"before": True}, ["before"]])
def test_a_declaration_says_where_a_step_learnt(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="public_steps must be"):
        classifier(public_steps=wrong).fit(X, Y)


def test_a_ufunc_that_is_not_numpys_own_is_not_known_to_learn_nothing() -> None:
    seen: list[float] = []
    remembers = np.frompyfunc(lambda value: seen.append(value) or sum(seen), 1, 1)
    assert learns(FunctionTransformer(remembers)) == "its function may compare rows with each other"
    assert learns(FunctionTransformer(np.log1p)) is None
