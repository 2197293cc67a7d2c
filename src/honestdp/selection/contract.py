"""`Selection`, the base class of all selections: what each says of itself.

Planner, search, ledger, reports and command line ask a selection through this contract and never what kind it is. A new one
is a subclass of `EachOnce` or `Drawn` and a line of the catalogue. The defaults are the careful side: only the winner leaves,
a number of runs that is drawn is secret, and the worst of different candidates is the base of the whole search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting import WorstOfDpEvent
from honestdp.selection.profile import Profiles

ONE_RUN_LEAVES = "the model of the one run, and everything computed from it"


class Selection(ABC):
    """How the winner of a search is found, what may leave, and what that costs. Subclasses are frozen dataclasses.

    kind: names the class in files. names: what users call it, if that is not the kind.
    each_once: every candidate is run once, so that a random search draws its candidates publicly.
    all_leave: every candidate may leave, so that the winner is chosen among public models by a private choice of its own.
    composes: `event` is all that a record pays, so that it composes query by query with whatever else is paid.
    takes: which of the settings shape, accountant and identical a user may name.
    variants: settings that the planner lists. typical: those of a table or a chart where each method stands once.
    """

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()
    each_once: ClassVar[bool]
    all_leave: ClassVar[bool] = False
    composes: ClassVar[bool] = False
    takes: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    typical: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    @property
    def name(self) -> str:
        return self.kind

    @property
    def accountant(self) -> str:
        return "pld"

    @property
    @abstractmethod
    def runs(self) -> float:
        """The mean number of runs."""

    @property
    @abstractmethod
    def leaves(self) -> str:
        """What may leave the search."""

    @property
    @abstractmethod
    def basis(self) -> str:
        """The theorem behind its cost, and where it is proved."""

    @property
    def published(self) -> Selection | None:
        """For a bound of our own, the published one for the same runs."""
        return None

    @property
    def one_run(self) -> bool:
        """Whether the search is a single run for sure, and not only on average."""
        return self.runs == 1

    @property
    def secret(self) -> bool:
        """Whether the number of runs is drawn, and must not be known."""
        return not self.each_once and not self.one_run

    @property
    def alike(self) -> bool:
        """Whether it holds for candidates of one law alone."""
        return False

    @abstractmethod
    def coverage(self, candidates: int) -> float:
        """The chance that a given one of so many candidates is run at all."""

    @abstractmethod
    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """Which of the candidates are run, drawn before any run from randomness that depends on no record."""

    @abstractmethod
    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        """What the whole search spends at this delta, if one run spends what the event says."""

    @abstractmethod
    def profiles(self, event: DpEvent, *, delta: float) -> Profiles:
        """What it spends at every epsilon, the record added and removed, followed to well below this delta."""

    # In the ledger.

    def event(self, parts: Sequence[tuple[DpEvent, int]]) -> DpEvent:
        """What a record pays, as an event for `base`, if so many candidates have each of these: the worst, as everyone's."""
        events = tuple(event for event, _ in parts)
        return events[0] if len(events) == 1 else WorstOfDpEvent(events)

    @property
    def base(self) -> Selection:
        """What prices `event`."""
        return self

    @property
    def by_profile(self) -> Selection:
        """Itself by the accountant of its profiles, so that one charge and the total of several are bounds of one kind.

        Not the same bound: a profile is the convex hull of its points, below the epsilon at one delta where that is loose. At a
        large delta a charge that costs nothing may make a total a little less. Both numbers are sound.
        """
        return self

    # In files.

    def as_dict(self) -> dict[str, Any]:
        """The selection for JSON, exactly."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Self:
        """The selection that `as_dict` wrote; anything else is refused."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if set(written) != {"kind", *names}:
            raise checks.InvalidArgument("kind", sorted(written), "made of " + ", ".join(sorted(names)))
        return cls(**{name: written[name] for name in names})

    # In words.

    @property
    @abstractmethod
    def how(self) -> str:
        """What is done, for a statement."""

    @property
    def shape(self) -> float | str | None:
        """The shape of the number of runs, where that has one."""
        return None

    def notes(self, event: DpEvent, *, delta: float) -> tuple[str, ...]:
        """What a statement should add to the number at this event."""
        return ()

    # By name.

    @classmethod
    @abstractmethod
    def of(cls, name: str, runs: float, **settings: Any) -> Selection:
        """The selection of this name with so many runs, on average where they are drawn. settings: some of `takes`."""

    @property
    def alternatives(self) -> tuple[Selection, ...]:
        """The same search under each of several bounds, where there are several."""
        return ()


@dataclass(frozen=True, kw_only=True)
class EachOnce(Selection):
    """A selection that runs every candidate once."""

    each_once: ClassVar[bool] = True

    candidates: int

    def __post_init__(self) -> None:
        checks.whole(least=1, most=checks.MOST, candidates=self.candidates)

    @property
    def runs(self) -> float:
        return self.candidates

    @property
    def how(self) -> str:
        return "one run" if self.one_run else f"{self.candidates:g} runs, every candidate once"

    def coverage(self, candidates: int) -> float:
        return min(1.0, self.candidates / candidates)

    def draws(self, generator: np.random.Generator, candidates: int) -> list[int]:
        """Every candidate once."""
        if candidates != self.candidates:
            raise checks.InvalidArgument("candidates", candidates, f"the {self.candidates} that were charged")
        return [*range(candidates)]

    @classmethod
    def of(cls, name: str, runs: float, **settings: Any) -> Selection:
        return cls(candidates=int(runs), **settings)


class Drawn(Selection):
    """A selection that draws its number of runs, in secret, and its candidates with replacement."""

    each_once: ClassVar[bool] = False

    @property
    def one_run(self) -> bool:
        """No: one run on average is not one run for sure."""
        return False

    @property
    def leaves(self) -> str:
        return "the winner alone: its model, its hyperparameters and its noisy score; not how many runs there were"

    @property
    def how(self) -> str:
        return f"a secret number of runs, {written(self.runs)} on average"


def written(runs: float) -> str:
    """A mean number of runs in a sentence."""
    return f"{runs:g}" if runs == int(runs) else f"{runs:.4g}"
