"""Selections: how the winner of a search is found, what may leave, and what that costs in terms of one run.

A selection takes the event of its base run, the run that dominates every candidate's, and gives the epsilon of the whole
search. All of them hold for the adding or removing of one record.

>>> import honestdp
>>> honestdp.selection.named("winner", candidates=40).leaves
'the winner alone: its model, its hyperparameters and its noisy score'
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from dp_accounting import DpEvent

from honestdp import checks
from honestdp.selection.compose import Compose
from honestdp.selection.counts import Binomial, Count, Poisson, TruncatedNegativeBinomial, count_of
from honestdp.selection.liu_talwar import LiuTalwar
from honestdp.selection.profile import Profiles
from honestdp.selection.random_stopping import BOUNDS, RandomStopping
from honestdp.selection.winner import Winner

SELECTIONS = ("compose", "winner", "liu-talwar", *BOUNDS)

__all__ = [
    "BOUNDS",
    "SELECTIONS",
    "Binomial",
    "Compose",
    "Count",
    "LiuTalwar",
    "Poisson",
    "Profiles",
    "RandomStopping",
    "Selection",
    "TruncatedNegativeBinomial",
    "Winner",
    "count_of",
    "named",
]


class Selection(Protocol):
    """What every selection has."""

    @property
    def name(self) -> str: ...

    @property
    def accountant(self) -> str: ...

    @property
    def runs(self) -> float:
        """The mean number of runs."""

    @property
    def leaves(self) -> str:
        """What may leave the search."""

    @property
    def basis(self) -> str:
        """The theorem behind its cost, and where it is proved."""

    @property
    def published(self) -> Selection | None:
        """For a bound of our own, the published one for the same runs."""

    def coverage(self, candidates: int) -> float:
        """The chance that a given one of so many candidates is run at all."""

    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """Which of the candidates are run, drawn before any run from randomness that depends on no record."""

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        """What the whole search spends at this delta, if one run spends what the event says."""

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        """What it spends at every epsilon, the record added and removed, followed to well below this delta."""


def named(
    name: str,
    *,
    candidates: int = 1,
    runs: float | None = None,
    shape: float | str = 1.0,
    accountant: str | None = None,
    identical: bool = False,
) -> Selection:
    """The selection of this name.

    candidates: the runs that are composed, or the grid that has one winner; 1/gamma for liu-talwar; the mean number of runs
        of random stopping unless `runs` says otherwise.
    shape: of random stopping's count: a number above -1 (0 logarithmic, 1 geometric) or "poisson".
    accountant: where the selection leaves a choice.
    identical: whether all candidates of `winner` have one law.
    """
    checks.one_of(SELECTIONS, selection=name)
    checks.whole(least=1, most=checks.MOST, candidates=candidates)
    if runs is not None:
        checks.positive(runs=runs)
    if runs is not None and name in ("compose", "winner") and runs != candidates:
        raise checks.InvalidArgument("runs", runs, f"left out for {name}, which runs every candidate once")
    if identical and name != "winner":
        raise checks.InvalidArgument("identical", identical, f"left out for {name}: it is for winner")
    if name == "compose":
        return Compose(candidates=candidates, accountant="pld" if accountant is None else accountant)
    if name == "liu-talwar":
        mean = candidates if runs is None else runs
        if mean < 1:
            raise checks.InvalidArgument("runs", mean, "at least 1 for liu-talwar")
        return LiuTalwar(gamma=1 / mean, accountant="rdp" if accountant is None else accountant)
    selection: Selection
    if name == "winner":
        selection = Winner(candidates=candidates, identical=identical)
    else:
        selection = RandomStopping(count=count_of(runs=candidates if runs is None else runs, shape=shape), bound=name)
    if accountant not in (None, selection.accountant):
        raise checks.InvalidArgument("accountant", accountant, f"{selection.accountant} for {name}, or left out")
    return selection
