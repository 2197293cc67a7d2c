"""Which steps of a Pipeline learn from the rows that they are fitted on, and so would tell of them without any noise.

A step is let through where its class and its settings show that it learns nothing: no more than the number of columns, and
whatever it does to a row depends on that row alone. That is a list of exact classes; a subclass may do anything, and so may a
function of the user's own. Everything else is refused, or, where nobody but the user can know, has to be declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)

from honestdp.checks import HonestdpError, InvalidArgument

_LEARN_NOTHING = (Binarizer, FeatureHasher, HashingVectorizer, Normalizer, PolynomialFeatures)
_FROZEN = (
    "fit it on public rows, wrap it in sklearn.frozen.FrozenEstimator and say in public_steps where those rows are from"
)


class UncountedUse(HonestdpError):
    """Private rows would be used in a way that no epsilon counts: by a search around an estimator, or a fitted transformer."""


def described_steps(pipeline: Pipeline, public: Mapping[str, str]) -> Iterator[str]:
    """What a statement says of the steps before the last, each in a few words. UncountedUse where one may learn from the rows."""
    for name, step in pipeline.steps[:-1]:
        doubt = learns(step)
        if doubt is None:
            if step is not None and step != "passthrough":
                yield f"step {name!r}, {_kind(step)}, learns nothing from the rows"
        elif name in public and not _surely_fitted(step):
            yield f"step {name!r}, {_kind(step)}, declared public: {public[name]}"
        else:
            raise UncountedUse(_refusal(name, step, doubt))


def checked_public(public_steps: Any) -> Mapping[str, str]:
    """The declared steps: their names, and for each where it learnt what it knows, in words."""
    if public_steps is None:
        return {}
    wanted = (
        'a dictionary from names of steps to where they learnt what they know, such as {"scale": "the census of 2011"}'
    )
    if not isinstance(public_steps, Mapping):
        raise InvalidArgument("public_steps", public_steps, wanted)
    for name, words in public_steps.items():
        if not isinstance(name, str) or not isinstance(words, str) or not words.strip():
            raise InvalidArgument("public_steps", dict(public_steps), wanted)
    return {name: " ".join(words.split()) for name, words in public_steps.items()}


def learns(step: Any) -> str | None:
    """Why a step may have learnt from the rows of this fit; None where its class and settings show that it cannot have.

    >>> learns(Normalizer()), learns(OneHotEncoder(categories=[["no", "yes"]]))
    (None, None)
    >>> learns(OneHotEncoder())
    'its categories are read off the rows; list them in categories='
    """
    if step is None or isinstance(step, str) or type(step) in _LEARN_NOTHING:
        return None
    if type(step) in (OneHotEncoder, OrdinalEncoder):
        return _encoder(step)
    if type(step) is FunctionTransformer:
        return None if step.func is None or _elementwise(step.func) else "its function may compare rows with each other"
    if type(step) is SimpleImputer:
        constant = step.strategy == "constant" and step.keep_empty_features and not step.add_indicator
        fixed = "take strategy='constant', a fill_value, keep_empty_features=True and no indicator"
        return None if constant else f"what it fills in, or which columns it marks, is read off the rows; {fixed}"
    if type(step) is MissingIndicator:
        return None if step.features == "all" else "which columns it marks is read off the rows; take features='all'"
    if type(step) is Pipeline:
        return _first(inner for _, inner in step.steps)
    if type(step) is FeatureUnion:
        return _first(inner for _, inner in step.transformer_list)
    if type(step) is ColumnTransformer:
        if any(callable(columns) for *_, columns in step.transformers):
            return "its columns are chosen by a function of the rows; name them"
        return _first([*(inner for _, inner, _ in step.transformers), step.remainder])
    if type(step) is FrozenEstimator:
        return "it was fitted before, and nothing here says on what"
    return "it is fitted on the rows" if _of_sklearn(step) else "nothing is known of what it learns"


def _elementwise(function: Any) -> bool:
    """Whether it is numpy's own, of one number at a time. np.frompyfunc makes a ufunc of anything, with a memory even."""
    if not isinstance(function, np.ufunc) or function.nin != 1 or function.signature is not None:
        return False
    return getattr(np, function.__name__, None) is function


def _encoder(step: Any) -> str | None:
    if isinstance(step.categories, str):
        return "its categories are read off the rows; list them in categories="
    if step.min_frequency is not None or step.max_categories is not None:
        return "it counts its categories; leave out min_frequency and max_categories"
    return None


def _first(steps: Any) -> str | None:
    return next((f"{_kind(step)} in it: {doubt}" for step in steps if (doubt := learns(step)) is not None), None)


def _surely_fitted(step: Any) -> bool:
    """Whether a step is of scikit-learn, so that its fit is known to read the rows: declaring it public would not make it so."""
    inner: Any = ()
    if type(step) is Pipeline:
        inner = (each for _, each in step.steps)
    elif type(step) is FeatureUnion:
        inner = (each for _, each in step.transformer_list)
    elif type(step) is ColumnTransformer:
        inner = [*(each for _, each, _ in step.transformers), step.remainder]
    elif type(step) not in (FrozenEstimator, FunctionTransformer):
        return learns(step) is not None and _of_sklearn(step)
    return any(_surely_fitted(each) for each in inner)


def _of_sklearn(step: Any) -> bool:
    return isinstance(step, BaseEstimator) and type(step).__module__.split(".")[0] == "sklearn"


def _kind(step: Any) -> str:
    return f"a frozen {_kind(step.estimator)}" if type(step) is FrozenEstimator else type(step).__name__


def _refusal(name: str, step: Any, doubt: str) -> str:
    what = (
        f"the step {name!r} before this estimator, {_kind(step)}, may tell of private rows without any noise: {doubt}"
    )
    if _surely_fitted(step):
        way_out = f"give the numbers' ranges as bounds= or table= of the estimator in its place, or {_FROZEN}"
    else:
        way_out = (
            f"declare it if it learnt from no private row and treats each row by itself: public_steps={{{name!r}: "
            '"where it learnt what it knows"}'
        )
    return f"{what}. The way out: {way_out}"
