"""Differentially private training whose reported epsilon includes the hyperparameter search.

`train` and `tune` are the two entry points; `Run`, `Budget` and `Compute` are what they are given. What needs
torch is imported when it is first asked for, so that accounting and the command line start at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from honestdp.budget import Budget, Statement
from honestdp.run import Run

if TYPE_CHECKING:
    from honestdp import accounting, augment, errors, federated, gradients, optimizers, selection
    from honestdp.boundary.metrics import (
        Accuracy,
        BalancedAccuracy,
        ClippedLoss,
        DeclaredMetric,
        LogLikelihood,
        LogLoss,
    )
    from honestdp.boundary.people import by_person
    from honestdp.data.named import load_dataset
    from honestdp.data.tables.columns import Categories, Date, Flag, Ignore, Number, Range
    from honestdp.data.tables.schema import read_schema, template
    from honestdp.data.tables.table import Table
    from honestdp.estimators.classifier import PrivateClassifier
    from honestdp.estimators.regressor import PrivateRegressor
    from honestdp.gradients.draws import GaussianDraw
    from honestdp.ledger import Ledger
    from honestdp.models.fixing import fix
    from honestdp.models.folder import load, save
    from honestdp.models.saved import SavedModel
    from honestdp.planner.comparison import plan
    from honestdp.search.dry_run import DryRun, dry_run
    from honestdp.search.space import Choice, LogUniform, Uniform
    from honestdp.search.tune import tune
    from honestdp.search.tune_result import TuneResult
    from honestdp.selection.cost import epsilon, least_noise
    from honestdp.training.result import Result
    from honestdp.training.spec import Compute
    from honestdp.training.train import train, train_population
    from honestdp.training.watching import JsonLines, TensorBoard

__version__ = "0.1.0"
_HOMES = {
    name: home
    for home, names in {
        "boundary.metrics": "Accuracy BalancedAccuracy ClippedLoss DeclaredMetric LogLikelihood LogLoss",
        "boundary.people": "by_person",
        "data.named": "load_dataset",
        "data.tables.columns": "Categories Date Flag Ignore Number Range",
        "data.tables.schema": "read_schema template",
        "data.tables.table": "Table",
        "gradients.draws": "GaussianDraw",
        "estimators.classifier": "PrivateClassifier",
        "estimators.regressor": "PrivateRegressor",
        "ledger": "Ledger",
        "models.fixing": "fix",
        "models.folder": "load save",
        "models.saved": "SavedModel",
        "planner.comparison": "plan",
        "search.dry_run": "DryRun dry_run",
        "search.space": "Choice LogUniform Uniform",
        "search.tune_result": "TuneResult",
        "search.tune": "tune",
        "selection.cost": "epsilon least_noise",
        "training.spec": "Compute",
        "training.result": "Result",
        "training.train": "train train_population",
        "training.watching": "JsonLines TensorBoard",
    }.items()
    for name in names.split()
}
__all__ = [
    "Accuracy", "BalancedAccuracy", "Budget", "Categories", "Choice", "ClippedLoss", "Compute", "Date",
    "DeclaredMetric", "DryRun", "Flag", "GaussianDraw", "Ignore", "JsonLines", "Ledger", "LogLikelihood", "LogLoss",
    "LogUniform", "Number", "PrivateClassifier", "PrivateRegressor", "Range", "Result", "Run", "SavedModel",
    "Statement", "Table", "TensorBoard", "TuneResult", "Uniform", "accounting", "augment", "by_person", "dry_run",
    "epsilon", "errors", "federated", "fix", "gradients", "least_noise", "load", "load_dataset", "optimizers", "plan",
    "read_schema", "save", "selection", "template", "train", "train_population", "tune",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"honestdp.{_HOMES[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"honestdp.{name}")
    raise AttributeError(f"module 'honestdp' has no attribute {name!r}")
