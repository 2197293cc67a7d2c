"""Differentially private training whose reported epsilon includes the hyperparameter search."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from honestdp.budget import Budget, Statement
from honestdp.run import Run

if TYPE_CHECKING:
    from honestdp import gradients, optimizers
    from honestdp.ledger import Ledger
    from honestdp.scores import Accuracy, ClippedLoss, DeclaredMetric
    from honestdp.space import Choice, LogUniform, Uniform
    from honestdp.training import Result, train, train_population
    from honestdp.tuning import TuneResult, tune

__version__ = "0.1.0"
_HOMES = {
    "Accuracy": "scores",
    "Choice": "space",
    "ClippedLoss": "scores",
    "DeclaredMetric": "scores",
    "Ledger": "ledger",
    "LogUniform": "space",
    "Result": "training",
    "TuneResult": "tuning",
    "Uniform": "space",
    "train": "training",
    "train_population": "training",
    "tune": "tuning",
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
