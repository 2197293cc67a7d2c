"""Uses of an estimator that no epsilon would count, all of which are refused: fits around it, and steps before it that learn.

An estimator is not told who fits it, and a Pipeline hands on nothing but the transformed rows. But the callers are on the stack
of the thread that fits, in a worker process too, since a clone is fitted there. So `refuse_many_fits` reads the stack and refuses
every caller that is not known to fit once: every frame of scikit-learn but those of Pipelines and of plain bookkeeping, and every
method of another estimator, of any package. A search is refused as soon as it clones the estimator, before a row is read.

A step of a Pipeline before the estimator is let through where its class and its settings show that it learns nothing
(`learns`): no more than the number of columns, and its result for a row depends on that row alone. That is a list of exact
classes; a subclass may do anything, and so may a function of the user's own. Every other step is refused, or, where nobody
but the user can know, has to be declared.

Two things are not seen: a loop that a user writes, and the preparation of the rows before they came here. A ledger counts the
fits of a loop; the statement says that the preparation is not stated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection._search import BaseSearchCV
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

_KNOWN = ("sklearn.base", "sklearn.pipeline", "sklearn.utils", "sklearn._config")
"""Modules of scikit-learn that call `fit` once, or never: its own checks of estimators are among them."""
_LEARN_NOTHING = (Binarizer, FeatureHasher, HashingVectorizer, Normalizer, PolynomialFeatures)
_FROZEN = (
    "fit it on public rows, wrap it in sklearn.frozen.FrozenEstimator and say in public_steps where those rows are from"
)


class UncountedUse(HonestdpError):
    """Private rows would be used in a way that no epsilon counts: by a search around an estimator, or a fitted transformer."""


# ---- Callers of fit


def refuse_many_fits(estimator: Any) -> None:
    """UncountedUse where something on the stack fits, or is about to fit, clones of the estimator more than once."""
    culprits = [caller for frame in _frames() if (caller := _fits_often(frame, estimator)) is not None]
    if culprits:
        name, owner, module = culprits[-1]  # the outermost, whose name the user wrote
        raise UncountedUse(_caller_refused(name, owner, module, type(estimator).__name__))


def steps_before(public: Mapping[str, str]) -> list[str]:
    """What is to be said of the steps of all Pipelines that are fitting now. UncountedUse where one may learn from the rows."""
    pipelines: list[Pipeline] = []
    for frame in _frames():
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline) and not any(owner is other for other in pipelines):
            pipelines.append(owner)
    return [words for pipeline in reversed(pipelines) for words in described_steps(pipeline, public)]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _fits_often(frame: FrameType, estimator: Any) -> tuple[str, Any, str] | None:
    """(name, owner, module) of a frame that is not known to fit once."""
    module, owner = str(frame.f_globals.get("__name__", "")), frame.f_locals.get("self")
    if isinstance(owner, Pipeline) or owner is estimator:
        return None
    if isinstance(owner, BaseEstimator) and not isinstance(owner, type(estimator)):
        return type(owner).__name__, owner, module
    if module.split(".")[0] == "sklearn" and not module.startswith(_KNOWN):
        return frame.f_code.co_name, owner, module
    return None


def _caller_refused(name: str, owner: Any, module: str, kind: str) -> str:
    inside = (
        f"give the search to the estimator, which pays for it out of its one epsilon: {kind}(epsilon=3, optimizer='adam', "
        "space={'lr': [0.001, 0.01], 'clip': [0.1, 1.0]}).fit(X, y), whose score is result_.score"
    )
    if isinstance(owner, BaseSearchCV):
        why = "fits clones on overlapping rows and compares exact scores of private rows"
        return f"{name} {why}: none of it would be in epsilon. The way out: {inside}"
    if module.startswith("sklearn.model_selection"):
        why = "fits clones on overlapping rows and gives exact scores of private rows"
        held_out = "for a number to publish hold rows out once, and take a noisy score of them (docs/scikit-learn.md)"
        return f"{name} {why}: none of it would be in epsilon. The way out: {inside}; {held_out}"
    why = "is not known to fit this estimator once, on rows that nothing else was fitted on"
    as_it_is = "scales what is predicted by target_bounds=" if "Regressor" in kind else "takes several classes as it is"
    way_out = f"call {kind}.fit by itself or as the last step of a Pipeline; it {as_it_is}"
    return f"{name} ({module}) {why}: what it does besides would not be in epsilon. The way out: {way_out}"


# ---- Steps before the estimator


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
            raise UncountedUse(_step_refused(name, step, doubt))


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
    if type(step) is ColumnTransformer and any(callable(columns) for *_, columns in step.transformers):
        return "its columns are chosen by a function of the rows; name them"
    if (parts := _parts(step)) is not None:
        return next((f"{_kind(part)} in it: {doubt}" for part in parts if (doubt := learns(part)) is not None), None)
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


def _parts(step: Any) -> list[Any] | None:
    """The steps inside of a step; None for a step of one piece."""
    if type(step) is Pipeline:
        return [part for _, part in step.steps]
    if type(step) is FeatureUnion:
        return [part for _, part in step.transformer_list]
    if type(step) is ColumnTransformer:
        return [*(part for _, part, _ in step.transformers), step.remainder]
    return None


def _surely_fitted(step: Any) -> bool:
    """Whether a step is of scikit-learn, so that its fit is known to read the rows: declaring it public would not make it so."""
    if (parts := _parts(step)) is not None:
        return any(_surely_fitted(part) for part in parts)
    return type(step) not in (FrozenEstimator, FunctionTransformer) and learns(step) is not None and _of_sklearn(step)


def _of_sklearn(step: Any) -> bool:
    return isinstance(step, BaseEstimator) and type(step).__module__.split(".")[0] == "sklearn"


def _kind(step: Any) -> str:
    return f"a frozen {_kind(step.estimator)}" if type(step) is FrozenEstimator else type(step).__name__


def _step_refused(name: str, step: Any, doubt: str) -> str:
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
