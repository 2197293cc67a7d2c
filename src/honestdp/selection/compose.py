"""Compose: every candidate is run once and every one may leave, so all of them are charged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting import DpEvent, SelfComposedDpEvent

from honestdp import accounting, checks
from honestdp.selection.profile import Profiles, of_event


@dataclass(frozen=True, kw_only=True)
class Compose:
    """k runs of the base event, composed by the accountant."""

    name: ClassVar[str] = "compose"
    leaves: ClassVar[str] = "every candidate: all models, and everything computed from them"
    basis: ClassVar[str] = "composition of all runs"
    published: ClassVar[None] = None

    candidates: int
    accountant: str = "pld"

    def __post_init__(self) -> None:
        checks.whole(least=1, most=checks.MOST, candidates=self.candidates)
        checks.one_of(accounting.ACCOUNTANTS, accountant=self.accountant)

    @property
    def runs(self) -> float:
        return self.candidates

    def coverage(self, candidates: int) -> float:
        return min(1.0, self.candidates / candidates)

    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """Every candidate once."""
        if candidates != self.candidates:
            raise checks.InvalidArgument("candidates", candidates, f"the {self.candidates} that were charged")
        return [*range(candidates)]

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        composed = SelfComposedDpEvent(event, self.candidates)
        return accounting.epsilon(composed, delta=delta, accountant=self.accountant)

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        """By the tight accountant, whichever one the epsilon was asked of."""
        return of_event(SelfComposedDpEvent(event, self.candidates), delta=delta)
