"""Compose: every candidate is run once and every one may leave, so all of them are charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from honestdp import accounting, checks
from honestdp.selection.contract import EachOnce
from honestdp.selection.profile import Profiles, of_event


@dataclass(frozen=True, kw_only=True)
class Compose(EachOnce):
    """Every candidate is run once and every one may leave: all models, whatever is computed from them, and the best of
    them by a private choice. Take it for few candidates, or where all models are wanted; k runs cost about sqrt(k)
    times the epsilon of one.

    candidates: k. accountant: pld (tight), rdp or moments.

    >>> import honestdp
    >>> run = honestdp.Run(records=60_000, lot=250, steps=1000, noise=4.0)
    >>> round(honestdp.epsilon(run, delta=1e-6, selection=honestdp.selection.Compose(candidates=40)), 2)
    0.89
    """

    kind: ClassVar[str] = "compose"
    all_leave: ClassVar[bool] = True
    composes: ClassVar[bool] = True
    leaves: ClassVar[str] = "every candidate: all models, and everything computed from them"
    basis: ClassVar[str] = "composition of all runs"
    takes: ClassVar[tuple[str, ...]] = ("accountant",)
    variants: ClassVar[tuple[dict[str, str], ...]] = (
        {"accountant": "moments"},
        {"accountant": "rdp"},
        {"accountant": "pld"},
    )
    typical: ClassVar[tuple[dict[str, str], ...]] = (
        {"accountant": "moments"},
        {"accountant": "pld"},
    )  # rdp is between them

    accountant: str = "pld"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of(accounting.ACCOUNTANTS, accountant=self.accountant)

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        composed = SelfComposedDpEvent(event, self.candidates)
        return accounting.epsilon(composed, delta=delta, accountant=self.accountant)

    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        """By the tight accountant, whichever one the epsilon was asked of."""
        return of_event(SelfComposedDpEvent(event, self.candidates), delta=delta)

    def event(self, parts: Sequence[tuple[DpEvent, int]]) -> DpEvent:
        """Everything that is run."""
        return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in parts])

    @property
    def base(self) -> Compose:
        """Nothing more than the accountant: the event holds every run."""
        return replace(self, candidates=1)

    @property
    def by_profile(self) -> Compose:
        return replace(self, accountant="pld")
