"""`Spending`, what one charge spends, and the epsilon of any number of spendings composed.

A ledger that kept epsilons could only add them up. It keeps events: a selection, the runs of its candidates, and what was
asked of validation records. From these the privacy profile delta(e) of the whole search follows, and a profile composes tightly.

Train and validation records are disjoint by a coin per record that depends on no data, so that a record is on one side. The
search is then a mixture of two mechanisms, and since hockey-stick divergences are jointly convex

    delta(e) <= max( delta of the selection over runs, delta of the selection over scores )   at every e, in each direction:

a record pays on one side, and the dearer side counts.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from honestdp import accounting, checks
from honestdp.accounting import PureDpEvent, quiet
from honestdp.accounting.discrete import AtomStep, WorstStep, step_of
from honestdp.accounting.events import score_event, steps_of
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import GaussianStep, Step
from honestdp.run import Run
from honestdp.selection import Selection, catalogue
from honestdp.selection.profile import Profiles, worst

VERSION = 1
AT_ONCE = 32  # kinds that the accountant composes in one go; more are composed in groups
MOST_STEPS, PIECE = 2**19, 2**14  # of a kind in one go, and of its pieces where there are more
DEEPER = 1e-5  # the part of delta that the profiles of more than AT_ONCE charges are followed to


@dataclass(frozen=True)
class Spending:
    """The public description of what one charge spends.

    runs: the distinct runs of the candidates, each with how many candidates have it. Their order does not matter.
    score: the multiplier (noise / sensitivity) of the Gaussian noise of every run's validation score.
    choice: for compose alone, the epsilon of the one private choice of the winner. With it, `score` is the score of the chosen
        run alone, asked once; without it, of every run.
    sensitivity: of a score that is made in whole numbers with discrete noise, in their unit; 0 for a score with continuous noise.
        None is read from ledgers of earlier versions and priced by a Renyi bound; a new charge must say it.
    unit: whose record it is: what tells people apart, empty where it is a row. Charges of different units do not add up.
    """

    selection: Selection
    runs: tuple[tuple[Run, int], ...]
    score: float | None = None
    choice: float | None = None
    sensitivity: int | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", _merged(self.runs))
        candidates = sum(count for _, count in self.runs)
        if self.selection.each_once and self.selection.runs != candidates:
            wanted = f"of {self.selection.runs:.0f} candidates in all, as the {self.selection.name} selection has"
            raise checks.InvalidArgument("runs", self.runs, wanted)
        if self.selection.alike and len(self.runs) > 1:
            raise checks.InvalidArgument("runs", self.runs, "one and the same for a winner of identical candidates")
        for name, value in (("score", self.score), ("choice", self.choice)):
            if value is not None:
                checks.positive(**{name: value})
                object.__setattr__(self, name, float(value))
        if self.sensitivity is not None:
            checks.whole(least=0, sensitivity=self.sensitivity)
        elif (
            self.score is None
        ):  # of nothing: written as it always was, so that what was charged before is found by its key
            object.__setattr__(self, "sensitivity", 1)
        if self.choice is not None and not self.selection.all_leave:
            wanted = f"left out for {self.selection.name}: it is for compose"
            raise checks.InvalidArgument("choice", self.choice, wanted)

    @property
    def private(self) -> bool:
        return all(run.noise > 0 or run.steps == 0 for run, _ in self.runs)

    @property
    def composed(self) -> bool:
        """Whether it is runs and nothing else, which compose query by query; anything else is known by its profile."""
        return self.selection.composes and self.validation is None

    @property
    def text(self) -> str:
        """What it is, as one text: equal for equal spendings alone."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @property
    def base(self) -> Selection:
        """What prices a side's event."""
        return self.selection.base

    @property
    def training(self) -> DpEvent:
        """What a training record pays."""
        return self.selection.event([(run.event, count) for run, count in self.runs])

    @property
    def validation(self) -> DpEvent | None:
        """What a validation record pays, if any were asked: every run's score, or the choice and the chosen run's."""
        score = None if self.score is None else score_event(self.score, self.sensitivity)
        if self.choice is not None:
            choice = PureDpEvent(self.choice)
            return choice if score is None else ComposedDpEvent([choice, score])
        return None if score is None else self.selection.event([(score, sum(count for _, count in self.runs))])

    def profiles(self, *, delta: float) -> Profiles:
        """Bounds on delta(e) of the whole search, the record added and removed, followed to well below this delta."""
        with quiet():
            training = self.base.profiles(self.training, delta=delta)
            if self.validation is None:
                return training
            return worst(training, self.base.profiles(self.validation, delta=delta))

    def steps(self, *, delta: float) -> tuple[Step, ...]:
        """What the accountant composes: every query of composed runs, one step known by its profile for anything else."""
        return steps_of(self.training) if self.composed else _profile_steps(self, delta)

    def epsilon(self, *, delta: float) -> float:
        """What this charge spends by itself."""
        return total_epsilon([self], delta=delta)

    def with_noise(self, times: float) -> Spending:
        """The same charge with so many times the noise."""
        runs = tuple((replace(run, noise=run.noise * times), count) for run, count in self.runs)
        score = None if self.score is None else self.score * times
        choice = None if self.choice is None else self.choice / times
        return replace(self, runs=runs, score=score, choice=choice)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, exactly: `from_dict` gives an equal spending back."""
        return {
            "version": VERSION,
            "selection": self.selection.as_dict(),
            "runs": [{**vars(run), "candidates": count} for run, count in self.runs],
            "score": self.score,
            "choice": self.choice,
            "sensitivity": self.sensitivity,
            **({"unit": self.unit} if self.unit else {}),
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Spending:
        """The spending that `as_dict` wrote. What this version does not know is an error, never a guess."""
        if type(written.get("version")) is not int or written["version"] != VERSION:
            raise checks.InvalidArgument("version", written.get("version"), f"{VERSION}, the one this honestdp knows")
        known = {"version", "selection", "runs", "score", "choice", "sensitivity"}
        if set(written) - {"unit"} != known or not isinstance(written.get("unit", ""), str):
            raise checks.InvalidArgument("spending", sorted(written), "made of " + ", ".join(sorted(known)))
        runs = tuple(_read_run(run) for run in written["runs"])
        asked = {name: written[name] for name in ("score", "choice", "sensitivity")} | {"unit": written.get("unit", "")}
        return cls(catalogue.read(written["selection"]), runs, **asked)


def total_epsilon(spendings: Iterable[Spending], *, delta: float) -> float:
    """The epsilon of all of them together at this delta, by privacy-loss distributions."""
    return counted_epsilon(Counter(spendings), delta=delta)


def counted_epsilon(spendings: Mapping[Spending, int], *, delta: float) -> float:
    """The same, of spendings with how often each was made."""
    checks.probability(delta=delta)
    try:
        return _total(tuple(sorted(spendings.items(), key=repr)), delta)
    except (OverflowError, ZeroDivisionError):  # numbers that no float can hold
        return math.inf


@functools.lru_cache(maxsize=256)
def _total(spendings: tuple[tuple[Spending, int], ...], delta: float) -> float:
    if not all(spending.private for spending, _ in spendings):
        return math.inf
    if sum(count for _, count in spendings) == 1:
        return _alone(spendings[0][0], delta)
    kinds = _kinds(spendings, delta)
    if not kinds:
        return 0.0
    pair = dominating_pair(_nested(kinds), delta=delta)
    epsilon = math.inf if pair is None else pair.worst_epsilon(delta)
    if epsilon == math.inf and all(spending.composed for spending, _ in spendings):
        events = [SelfComposedDpEvent(spending.training, count) for spending, count in spendings]
        with quiet():  # where numbers end, a Renyi bound: sound, and the ledger says no more than a bound
            return accounting.epsilon(ComposedDpEvent(events), delta=delta)
    return epsilon


class _Kind(NamedTuple):
    """Equal queries of a ledger. place: a digest of their description."""

    place: str
    step: Step

    @classmethod
    def of(cls, name: str, step: Step) -> _Kind:
        return cls(hashlib.sha256(name.encode()).hexdigest(), step)


def _kinds(spendings: tuple[tuple[Spending, int], ...], delta: float) -> list[_Kind]:
    """Every kind of query once, with how many there are: Gaussian queries of all composed runs by rate and noise, and the
    spendings that enter by their profile.
    """
    gaussian: Counter[tuple[float, float]] = Counter()
    profiled = {spending: count for spending, count in spendings if not spending.composed}
    for spending, count in spendings:
        for step in steps_of(spending.training) if spending.composed else ():
            assert isinstance(step, GaussianStep)
            gaussian[step.rate, step.noise] += step.count * count
    kinds = []
    for (rate, noise), count in gaussian.items():
        pieces, rest = divmod(count, PIECE) if rate < 1 and count > MOST_STEPS else (0, count)
        if pieces:
            kinds.append(
                _Kind.of(f"pieces {rate!r} {noise!r}", _composed(GaussianStep(rate, noise, PIECE), count=pieces))
            )
        if rest:
            kinds.append(_Kind.of(f"steps {rate!r} {noise!r}", GaussianStep(rate, noise, rest)))
    deep = delta if sum(profiled.values()) <= AT_ONCE else delta * DEEPER
    for spending, count in profiled.items():
        kinds += [_Kind.of(spending.text, replace(step, count=count)) for step in _profile_steps(spending, deep)]
    return kinds


def _composed(*steps: Step, count: int = 1) -> Step:
    """Steps as one, known by the profile of their composition, which the process remembers."""
    return WorstStep((steps,), count)


def _nested(kinds: list[_Kind], depth: int = 0) -> tuple[Step, ...]:
    """The steps of all kinds, at most AT_ONCE of them: more are composed in groups of the same digit of their places.

    The groups do not depend on the order of the charges, and one more charge changes one group on each level, so that a process
    composes no more than these for it. A group errs to the safe side, by a small part of its own epsilon (accounting/pld.py).
    """
    if len(kinds) <= AT_ONCE:
        return tuple(kind.step for kind in kinds)
    by_digit = itertools.groupby(sorted(kinds), lambda kind: kind.place[depth])
    groups = (_nested(list(group), depth + 1) for _, group in by_digit)
    return tuple(steps[0] if len(steps) == 1 else _composed(*steps) for steps in groups)


def _alone(spending: Spending, delta: float) -> float:
    """One spending by itself: the selection's own epsilon, which no sampling of its profile has rounded up."""
    sides = [side for side in (spending.training, spending.validation) if side is not None]
    base = spending.base.by_profile
    with quiet():
        return max(base.epsilon(side, delta=delta) for side in sides)


@functools.lru_cache(maxsize=512)
def _profile_steps(spending: Spending, delta: float) -> tuple[AtomStep, ...]:
    """The one step of a spending that is known by its profile; none where it spends nothing."""
    profiles = spending.profiles(delta=delta)
    if max(profile.deltas[0] for profile in profiles) == 0:
        return ()
    return (step_of(*profiles),)


def _merged(runs: Iterable[tuple[Run, int]]) -> tuple[tuple[Run, int], ...]:
    """Equal runs counted together, in one order, with numbers of one type, so that equal spendings are written alike."""
    counts: Counter[Run] = Counter()
    for run, count in runs:
        checks.whole(least=1, candidates=count)
        plain = Run(records=int(run.records), lot=float(run.lot), steps=int(run.steps), noise=float(run.noise))
        counts[plain] += int(count)
    if not counts:
        raise checks.InvalidArgument("runs", (), "at least one run")
    return tuple(sorted(counts.items(), key=lambda item: tuple(vars(item[0]).values())))


def _read_run(written: Mapping[str, Any]) -> tuple[Run, int]:
    known = {"records", "lot", "steps", "noise", "candidates"}
    if set(written) != known:
        raise checks.InvalidArgument("runs", sorted(written), "made of " + ", ".join(sorted(known)))
    constants = {name: value for name, value in written.items() if name != "candidates"}
    return Run(**constants), written["candidates"]
