"""`Selection`, the base class of all selections: what each says of itself.

Planner, search, ledger, reports and command line ask a selection through this contract and never what kind it is. A new one
is a subclass of `EachOnce` or `Drawn` and a line of the catalogue. The defaults are the careful side: only the winner leaves,
a number of runs that is drawn is secret, and the worst of different candidates is the base of the whole search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from dp_accounting import DpEvent

from honestdp import checks
from honestdp.accounting import WorstOfDpEvent
from honestdp.selection.counts import MOST_RUNS, mean_for_coverage
from honestdp.selection.profile import Profiles

Made = TypeVar("Made", bound="Selection")
ONE_RUN_LEAVES = "the model of the one run, and everything computed from it"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The numbers that a selection is made from, as `named` takes them. None: left to the selection."""

    candidates: int = 1
    runs: float | None = None
    shape: float | str | None = None
    accountant: str | None = None
    identical: bool = False

    @property
    def mean(self) -> float:
        """The mean number of runs of a selection that draws it."""
        return self.candidates if self.runs is None else self.runs

    def check(self, name: str, *, once: bool, shape: bool = False, identical: bool = False) -> None:
        """Refuse what this selection has no use for. once: it runs every candidate once; shape, identical: it takes them."""
        if once and self.runs not in (None, self.candidates):
            raise checks.InvalidArgument("runs", self.runs, f"left out for {name}, which runs every candidate once")
        if self.shape is not None and not shape:
            raise checks.InvalidArgument("shape", self.shape, f"left out for {name}, whose number of runs has no shape")
        if self.identical and not identical:
            raise checks.InvalidArgument("identical", self.identical, f"left out for {name}: it is for winner")

    def checked(self, selection: Made) -> Made:
        """The selection made; refused with an accountant other than its own, where it leaves no choice."""
        if self.accountant not in (None, selection.accountant):
            wanted = f"{selection.accountant} for {selection.name}, or left out"
            raise checks.InvalidArgument("accountant", self.accountant, wanted)
        return selection


@dataclass(frozen=True)
class Series:
    """A line of epsilon against the number of candidates.

    name: in a sentence. label: at the end of the line. make: the selection for so many candidates.
    undercuts: names of the lines that this one is compared with, to say from how many candidates on it costs less.
    """

    name: str
    label: str
    make: Callable[[int], Selection]
    colour: str = "#444444"
    style: str = "-"
    undercuts: tuple[str, ...] = ("compose (pld)",)


class Selection(ABC):
    """How the winner of a search is found, what may leave, and what that costs. Subclasses are frozen dataclasses.

    kind: names the class in files. names: what users call it, if that is not the kind.
    each_once: every candidate is run once, so that a random search draws its candidates publicly.
    all_leave: every candidate may leave, so that the winner is chosen among public models by a private choice of its own.
    composes: `event` is all that a record pays, so that it composes query by query with whatever else is paid.
    """

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()
    each_once: ClassVar[bool]
    all_leave: ClassVar[bool] = False
    composes: ClassVar[bool] = False

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
    def label(self) -> str:
        """Its name in a table or a chart where each method stands once."""
        return "one run" if self.one_run else self.name

    @property
    def summary(self) -> str:
        """What it does, in a line of such a table."""
        if self.one_run:
            return "no search"
        who = "all may leave" if self.all_leave else "the winner alone leaves"
        if self.each_once:
            return f"every candidate once, {who}"
        return f"a secret number of runs, {self.runs:.4g} on average, {who}"

    @property
    def shape(self) -> float | str | None:
        """The shape of the number of runs, where that has one."""
        return None

    def notes(self, event: DpEvent, *, delta: float) -> tuple[str, ...]:
        """What a statement should add to the number at this event."""
        return ()

    # In lists.

    @classmethod
    @abstractmethod
    def make(cls, name: str, options: Options) -> Selection:
        """The selection that a user's name and numbers mean."""

    @classmethod
    def standard(cls, name: str, *, candidates: int, coverage: float, max_runs: float | None = None) -> Selection:
        """The one that a search of so many candidates makes: each once, or as many runs as the coverage takes."""
        if cls.each_once:
            return cls.make(name, Options(candidates=candidates))
        mean = mean_for_coverage(coverage, candidates=candidates, shape=1.0) or MOST_RUNS
        return cls.make(name, Options(runs=mean if max_runs is None else min(mean, max_runs)))

    @classmethod
    def variants(cls, *, candidates: int, coverage: float, mean_runs: float) -> Iterator[tuple[str, Selection]]:
        """What the planner lists, each with its footing: "all" candidates, equal "runs" or equal "coverage"."""
        for name in cls.names or (cls.kind,):
            if cls.each_once:
                yield "all", cls.make(name, Options(candidates=candidates))
                continue
            yield "runs", cls.make(name, Options(runs=mean_runs))
            reached = mean_for_coverage(coverage, candidates=candidates, shape=1.0)
            if reached is not None:
                yield "coverage", cls.make(name, Options(runs=reached))

    @classmethod
    def typical(cls, *, candidates: int, coverage: float, like: Sequence[Selection]) -> list[Selection]:
        """The few that stand for it where every method stands once. like: selections whose settings it takes, if they fit."""
        return [cls.standard(name, candidates=candidates, coverage=coverage) for name in cls.names or (cls.kind,)]

    @classmethod
    def series(cls, *, coverage: float) -> list[Series]:
        """Its lines in a chart of epsilon against candidates."""
        at = "" if cls.each_once else f", coverage {coverage:g}"

        def line(name: str) -> Series:
            def make(candidates: int) -> Selection:
                return cls.standard(name, candidates=candidates, coverage=coverage)

            return Series(f"{name}{at}", f"{name}{at}", make)

        return [line(name) for name in cls.names or (cls.kind,)]


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
    def make(cls, name: str, options: Options) -> Selection:
        options.check(name, once=True)
        return options.checked(cls(candidates=options.candidates))


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
