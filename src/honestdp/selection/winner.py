"""Winner: every candidate is run once and only the best leaves (docs/theory.md, Theorem 3; Theorem 2R for one law).

The winner is a function of all k runs, so its cost is never above that of their composition: the lesser of the two is charged.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting import DpEvent, SelfComposedDpEvent

from honestdp import accounting, checks
from honestdp.accounting import AccountingWarning
from honestdp.selection.compose import Compose
from honestdp.selection.contract import EachOnce
from honestdp.selection.grid import different_epsilon, identical_epsilon, winner_delta
from honestdp.selection.profile import Profiles, base_pair, least, of_event, sampled


@dataclass(frozen=True, kw_only=True)
class Winner(EachOnce):
    """Every candidate is run once, and only the winner leaves, with its hyperparameters and its noisy score. Take it where every
    candidate of a grid must be tried and the losers are of no use: never more than composition, and clearly less from ten
    candidates on.

    candidates: k.
    identical: all of them have one law and one score, ties are broken at random, and the winner's number does not leave, as
        with k seeds of one setting. It is not enough that candidates cost the same: Theorem 2R fails for different ones.

    >>> import honestdp
    >>> run = honestdp.Run(records=60_000, lot=250, steps=1000, noise=4.0)
    >>> round(honestdp.epsilon(run, delta=1e-6, selection=honestdp.selection.Winner(candidates=40)), 2)
    0.65
    """

    kind: ClassVar[str] = "winner"
    leaves: ClassVar[str] = "the winner alone: its model, its hyperparameters and its noisy score"
    takes: ClassVar[tuple[str, ...]] = ("identical",)

    identical: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.identical, bool):
            raise checks.InvalidArgument("identical", self.identical, "True or False")

    @property
    def basis(self) -> str:
        theorem = "Theorem 2R" if self.identical else "Theorem 3"
        return f"docs/theory.md, {theorem}, or composition where that is less (our own proof, not externally reviewed)"

    @property
    def published(self) -> Compose:
        return Compose(candidates=self.candidates)

    @property
    def alike(self) -> bool:
        return self.identical

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AccountingWarning)
            composed = accounting.epsilon(SelfComposedDpEvent(event, self.candidates), delta=delta)
        own = self._own_epsilon(event, delta) if self.candidates > 1 and 0 < composed < math.inf else math.inf
        if composed <= own:  # what is said of a number that is not charged is not said
            for warning in caught:
                warnings.warn(warning.message, stacklevel=2)
        return min(composed, own)

    def _own_epsilon(self, event: DpEvent, delta: float) -> float:
        pair = base_pair(event, delta=delta / self.candidates * 1e-3, tolerance=1e-4)
        if pair is None:
            return math.inf
        bound = identical_epsilon if self.identical else different_epsilon
        return max(bound(direction, self.candidates, delta) for direction in (pair, pair.reversed))

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        checks.probability(delta=delta)
        composed = of_event(SelfComposedDpEvent(event, self.candidates), delta=delta)
        if self.candidates == 1 or accounting.at_once(event) is not None:
            return composed
        pair = base_pair(event, delta=delta / self.candidates * 1e-3, tolerance=1e-4)
        if pair is None:
            return composed
        own = [
            sampled(winner_delta(direction, self.candidates, delta, identical=self.identical), delta=delta)
            for direction in (pair, pair.reversed)
        ]
        return least(composed[0], own[0]), least(composed[1], own[1])
