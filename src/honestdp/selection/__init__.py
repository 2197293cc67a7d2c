"""Selections: how the winner of a search is found, what may leave, and what that costs in terms of one run.

A selection takes the event of its base run, the run that dominates every candidate's, and gives the epsilon of the whole
search. All of them hold for the adding or removing of one record. `contract` says what each must have; `catalogue` lists them.

>>> import honestdp
>>> honestdp.selection.named("winner", candidates=40).leaves
'the winner alone: its model, its hyperparameters and its noisy score'
"""

from honestdp.selection.catalogue import named, names, one_run, register
from honestdp.selection.compose import Compose
from honestdp.selection.contract import Drawn, EachOnce, Selection
from honestdp.selection.counts import Binomial, Count, Poisson, TruncatedNegativeBinomial, count_of
from honestdp.selection.liu_talwar import LiuTalwar
from honestdp.selection.profile import Profiles
from honestdp.selection.random_stopping import BOUNDS, RandomStopping
from honestdp.selection.winner import Winner

SELECTIONS = names()
"""The names of those that come with the package."""

__all__ = [
    "BOUNDS", "SELECTIONS", "Binomial", "Compose", "Count", "Drawn", "EachOnce", "LiuTalwar", "Poisson",
    "Profiles", "RandomStopping", "Selection", "TruncatedNegativeBinomial", "Winner", "count_of", "named",
    "names", "one_run", "register",
]  # fmt: skip
