"""Differentially private training whose reported epsilon includes the hyperparameter search."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from honestdp.budget import Budget, Statement
from honestdp.run import Run

if TYPE_CHECKING:
    from honestdp import gradients, optimizers
    from honestdp.training import Result, train, train_population

__version__ = "0.1.0"
__all__ = ["Budget", "Result", "Run", "Statement", "gradients", "optimizers", "train", "train_population"]

_FROM_TRAINING = ("Result", "train", "train_population")


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is first asked for, so that accounting starts at once."""
    if name in _FROM_TRAINING:
        return getattr(importlib.import_module("honestdp.training"), name)
    if name in ("gradients", "optimizers"):
        return importlib.import_module(f"honestdp.{name}")
    raise AttributeError(f"module 'honestdp' has no attribute {name!r}")
