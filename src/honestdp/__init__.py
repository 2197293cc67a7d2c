"""Differentially private training whose reported epsilon includes the hyperparameter search."""

from honestdp.budget import Budget, Statement
from honestdp.run import Run

__version__ = "0.1.0"
__all__ = ["Budget", "Run", "Statement"]
