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
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from honestdp import accounting, checks
from honestdp.accounting import PureDpEvent, quiet
from honestdp.accounting.discrete import AtomStep, step_of
from honestdp.accounting.events import score_event, steps_of
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import GaussianStep, Step
from honestdp.ledger import merging
from honestdp.ledger.merging import BeyondNumbers, Block, Leaf
from honestdp.run import Run
from honestdp.selection import Selection, catalogue
from honestdp.selection.profile import Profiles, worst

VERSION = 1
NOT_PRIVATE = (GaussianStep(1.0, 0.0, 1),)
AT_ONCE = 8  # kinds, or profiles, that the accountant composes in one go; more are merged, two at a time
MOST_STEPS = 2**19  # likewise


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
        return _steps(self, delta)

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
    if sum(count for _, count in spendings) == 1:
        return _alone(spendings[0][0], delta)
    if not all(spending.private for spending, _ in spendings):
        return math.inf
    if not _many(spendings):
        return _at_once(spendings, delta)
    with suppress(BeyondNumbers):
        epsilon = merging.merged(_leaves(spendings, delta), delta=delta).pair().worst_epsilon(delta)
        if math.isfinite(epsilon):
            return epsilon
    return _at_once(spendings, delta)


def _many(spendings: tuple[tuple[Spending, int], ...]) -> bool:
    """Whether there is more to compose than the accountant does well at once: kinds, repetitions of profiles, steps."""
    gaussian, others = _sorted_out(spendings)
    kinds, steps = len(gaussian) + len(others), sum(count for (rate, _), count in gaussian.items() if rate < 1)
    return kinds > AT_ONCE or sum(count for _, count in others) > AT_ONCE or steps > MOST_STEPS


def _sorted_out(
    spendings: tuple[tuple[Spending, int], ...],
) -> tuple[Counter[tuple[float, float]], list[tuple[Spending, int]]]:
    """The Gaussian queries of composed runs by rate and noise, and the spendings that enter by their profile."""
    gaussian: Counter[tuple[float, float]] = Counter()
    others = []
    for spending, count in spendings:
        if not spending.composed:
            others.append((spending, count))
            continue
        for step in steps_of(spending.training):
            assert isinstance(step, GaussianStep)
            gaussian[step.rate, step.noise] += step.count * count
    return gaussian, others


def _leaves(spendings: tuple[tuple[Spending, int], ...], delta: float) -> list[Leaf]:
    gaussian, others = _sorted_out(spendings)
    leaves = merging.gaussian_leaves(gaussian, delta=delta)
    for spending, count in others:
        make = functools.partial(_power_of_step, spending, count, delta)
        leaves.append(Leaf(f"spending {spending.text}", (spending, count), make))
    return leaves


def _power_of_step(spending: Spending, count: int, delta: float) -> Block:
    """Of a spending that is known by its profile, so many times."""
    step = _profile_step(spending, delta * merging.DEEPER)
    if len(step.losses) == 0:
        return merging.NOTHING
    return merging.power(merging.of_atoms(step, delta=delta), count, delta=delta)


def _at_once(spendings: tuple[tuple[Spending, int], ...], delta: float) -> float:
    gaussian, profiled = _sorted_out(spendings)
    each = ((step, count) for spending, count in profiled for step in spending.steps(delta=delta))
    others: list[Step] = [replace(step, count=step.count * count) for step, count in each]  # type: ignore[type-var]
    steps = [*(GaussianStep(rate, noise, count) for (rate, noise), count in sorted(gaussian.items())), *others]
    if not steps:
        return 0.0
    if not others:
        events = [SelfComposedDpEvent(spending.training, count) for spending, count in spendings]
        with quiet():  # where numbers end, a Renyi bound: sound, and the ledger says no more than a bound
            return accounting.epsilon(ComposedDpEvent(events), delta=delta)
    pair = dominating_pair(tuple(steps), delta=delta)
    return math.inf if pair is None else pair.worst_epsilon(delta)


def _alone(spending: Spending, delta: float) -> float:
    """One spending by itself: the selection's own epsilon, which no sampling of its profile has rounded up."""
    if not spending.private:
        return math.inf
    sides = [side for side in (spending.training, spending.validation) if side is not None]
    base = spending.base.by_profile
    with quiet():
        return max(base.epsilon(side, delta=delta) for side in sides)


@functools.lru_cache(maxsize=256)
def _steps(spending: Spending, delta: float) -> tuple[Step, ...]:
    if not spending.private:
        return NOT_PRIVATE
    if spending.composed:
        return steps_of(spending.training)
    step = _profile_step(spending, delta)
    return () if len(step.losses) == 0 else (step,)


@functools.lru_cache(maxsize=512)
def _profile_step(spending: Spending, delta: float) -> AtomStep:
    """The step of a spending that is known by its profile; one without losses where it spends nothing."""
    profiles = spending.profiles(delta=delta)
    if max(profile.deltas[0] for profile in profiles) == 0:
        return AtomStep(np.zeros(0), np.zeros(0))
    return step_of(*profiles)


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
