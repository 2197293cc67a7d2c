"""Differentially private training whose reported epsilon includes the hyperparameter search."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from honestdp.budget import Budget, Statement
from honestdp.run import Run

if TYPE_CHECKING:
    from honestdp import gradients, optimizers
    from honestdp.boundary.metrics import Accuracy, ClippedLoss, DeclaredMetric
    from honestdp.ledger import Ledger
    from honestdp.search.space import Choice, LogUniform, Uniform
    from honestdp.search.tune import TuneResult, tune
    from honestdp.training.train import Result, train, train_population

__version__ = "0.1.0"
_HOMES = {
    "Accuracy": "boundary.metrics",
    "Choice": "search.space",
    "ClippedLoss": "boundary.metrics",
    "DeclaredMetric": "boundary.metrics",
    "Ledger": "ledger",
    "LogUniform": "search.space",
    "Result": "training.train",
    "TuneResult": "search.tune",
    "Uniform": "search.space",
    "train": "training.train",
    "train_population": "training.train",
    "tune": "search.tune",
}
__all__ = [
    "Accuracy",
    "Budget",
    "Choice",
    "ClippedLoss",
    "DeclaredMetric",
    "Ledger",
    "LogUniform",
    "Result",
    "Run",
    "Statement",
    "TuneResult",
    "Uniform",
    "gradients",
    "optimizers",
    "train",
    "train_population",
    "tune",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is first asked for, so that accounting starts at once."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"honestdp.{_HOMES[name]}"), name)
    if name in ("gradients", "optimizers"):
        return importlib.import_module(f"honestdp.{name}")
    raise AttributeError(f"module 'honestdp' has no attribute {name!r}")
