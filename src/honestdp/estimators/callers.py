"""Who calls `fit`: a user, or something that fits many times, or a Pipeline whose earlier steps have seen the rows.

An estimator is not told who fits it, and a Pipeline hands on nothing but the transformed rows. But whoever calls is on the stack
of the thread that fits, in a worker process too, for it is there that a clone is fitted. So the stack is read, and what is not
known to fit once is refused: every frame of scikit-learn but those of Pipelines and of plain bookkeeping, and every method of
another estimator, whatever package it is from. A search is refused as soon as it clones the estimator, before a row is read.

What is not seen: a loop that a user writes, and what was done to the rows before they came here. Of those a ledger counts the
one, and the statement says of the other that it is not stated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline

from honestdp.estimators.steps import UncountedUse, described_steps

_KNOWN = ("sklearn.base", "sklearn.pipeline", "sklearn.utils", "sklearn._config")
"""Modules of scikit-learn that call `fit` once, or never: its own checks of estimators are among them."""


def refuse_many_fits(estimator: Any) -> None:
    """UncountedUse where something on the stack fits, or is about to fit, clones of the estimator more than once."""
    culprits = [caller for frame in _frames() if (caller := _fits_often(frame, estimator)) is not None]
    if culprits:
        name, owner, module = culprits[-1]  # the outermost, whose name the user wrote
        raise UncountedUse(_refusal(name, owner, module, type(estimator).__name__))


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


def _refusal(name: str, owner: Any, module: str, kind: str) -> str:
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
