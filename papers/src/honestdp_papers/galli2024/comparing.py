"""One task's methods side by side: their trainings by case, leads of one over another, and table, figure and notes of
them.

What is read from kept trainings: every method's grid at every epsilon, the best checkpoint and the last iterate.

As in the paper the best of all looks at the test set stands for a training, and the candidate with the best mean over
the seeds for a method. Beside it is the last iterate, which is what a budget covers. Whatever seeds are there are used,
and their number is said; in full size nothing is decided by a single one, and the error of two is not taken from their
difference alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from honestdp_papers.claims import Claim, Measured, Outcome, Table, jackknifed
from honestdp_papers.forms import AG_NEWS_STANDIN
from honestdp_papers.galli2024.known import granularities, noise_of
from honestdp_papers.galli2024.setting import (
    DELTA,
    EVERY,
    METHODS,
    NODP,
    NODP_ADAM,
    ONLINE,
    QUANTILE,
    SEEDS,
    THRESHOLD,
    WOSM,
    Task,
    candidates,
    sized,
    step_sizes,
)
from honestdp_papers.galli2024.training import method_blocks, plain_blocks
from honestdp_papers.look import named, panels, shared_legend
from honestdp_papers.parts import Array, Arrays, Finished

BEST, LAST = "best checkpoint", "last iterate"
READINGS = (BEST, LAST)


@dataclass(frozen=True, eq=False)
class Scores:
    """The trainings of one grid: curves `[seeds, candidates, looks]`, in per cent or as an error, and the candidates."""

    curves: Array
    values: Sequence[tuple[float, ...]]
    error: bool

    @property
    def seeds(self) -> int:
        return len(self.curves)

    def read(self, reading: str) -> Array:
        """`[seeds, candidates]`; a training that diverged has an infinite error."""
        if reading == LAST:
            last: Array = self.curves[:, :, -1]
            return last
        found: Array = self.curves.min(axis=2) if self.error else self.curves.max(axis=2)
        return found

    def winner(self, reading: str) -> int:
        """The candidate with the best mean over the seeds."""
        means = self.read(reading).mean(axis=0)
        return int(means.argmin() if self.error else means.argmax())

    def top(self, reading: str) -> Measured:
        """That mean and its error."""
        return spread([self.read(reading)], lambda means: best(means[0], self.error), error=self.error)

    def deviation(self, reading: str) -> float:
        """Of the best candidate over the seeds."""
        own = self.read(reading)[:, self.winner(reading)]
        return float(own.std(ddof=1)) if len(own) > 1 else 0.0


def best(values: Array, error: bool) -> float:
    return float(values.min() if error else values.max())


def lead(first: Scores, second: Scores, reading: str) -> Measured:
    """By how much the first is better: in points of accuracy, or in per cent of the second's error."""
    return _gap(first.read(reading), second.read(reading), first.error)


def behind(scores: Scores, chosen: Sequence[int], reading: str) -> Measured:
    """The best of some candidates less the best of all: 0 or below; in points, or per cent of the error of the best."""
    own = scores.read(reading)
    picked = list(chosen)

    def number(means: Sequence[Array]) -> float:
        return _better(best(means[0][picked], scores.error), best(means[0], scores.error), scores.error)

    return spread([own], number, error=scores.error)


def _gap(first: Array, second: Array, error: bool) -> Measured:
    def number(means: Sequence[Array]) -> float:
        return _better(best(means[0], error), best(means[1], error), error)

    return spread([first, second], number, error=error)


def spread(groups: Sequence[Array], number: Callable[[Sequence[Array]], float], *, error: bool = False) -> Measured:
    """A number of the means over the seeds of independent groups, each `[seeds, candidates]`, with its error.

    Two seeds that happen to be alike would give the jackknife no error. So an error of two seeds is at least what the number
    moves by where all candidates move by their own standard error, pooled over the best quarter of them.
    """
    means = [group.mean(axis=0) for group in groups]
    variance = 0.0
    for place, group in enumerate(groups):

        def of_one(own: Sequence[Array], place: int = place) -> float:
            return number([*means[:place], own[0], *means[place + 1 :]])

        moved = jackknifed([group], of_one).error
        if len(group) == 2 and math.isfinite(moved):
            shift = _pooled(group, error)
            moved = max(moved, abs(of_one([means[place] + shift]) - of_one([means[place] - shift])) / 2)
        variance += moved**2
    return Measured(float(number(means)), math.sqrt(variance))


def _pooled(group: Array, error: bool) -> float:
    """The standard error of a candidate's mean, pooled over the best quarter of the candidates that did not diverge."""
    finite = group[:, np.isfinite(group).all(axis=0)]
    order = np.argsort(finite.mean(axis=0) if error else -finite.mean(axis=0))
    better = finite[:, order[: -(-len(order) // 4)]]
    return math.sqrt(float(better.var(axis=0, ddof=1).mean()) / len(group)) if better.size else 0.0


def _better(one: float, other: float, error: bool) -> float:
    if not error:
        return one - other
    if not np.isfinite(one) or not np.isfinite(other):
        return 0.0 if one == other else float("-inf") if not np.isfinite(one) else 100.0
    return 100 * (1 - one / other)


def decided(case: bool | None, seeds: int, quick: bool) -> bool | None:
    """In full size a single seed decides nothing, for its error is not known."""
    return case if quick or seeds > 1 else None


def curves_of(kept: Arrays) -> Array:
    """In per cent, or as an error with infinity where a training diverged; `[seeds, runs, looks]`."""
    if "error" in kept:
        found: Array = np.nan_to_num(kept["error"].astype(float), nan=np.inf, posinf=np.inf)
        return found
    return 100 * kept["right"].astype(float) / float(kept["tests"])


def scores_of(parts: Finished, task: Task, method: str, k: int, epsilon: float, quick: bool) -> Scores | None:
    """A method's grid at one epsilon, of all seeds that are there; None where none is."""
    own, values = sized(task, quick), candidates(method, k, quick)
    rows = []
    for block in method_blocks(own, method, k, quick):
        if epsilon in block.epsilons and block.name in parts:
            first = block.epsilons.index(epsilon) * len(values)
            rows.append(curves_of(parts[block.name])[:, first : first + len(values)])
    return Scores(np.concatenate(rows), values, task.error) if rows else None


def plain_scores(parts: Finished, task: Task, quick: bool) -> dict[str, Scores]:
    """Without privacy: by SGD and by Adam."""
    own, k = sized(task, quick), 3 if quick else 7
    rows = [curves_of(parts[block.name]) for block in plain_blocks(own, k, quick) if block.name in parts]
    if not rows:
        return {}
    both, values = np.concatenate(rows), [(lr,) for lr in step_sizes(k)]
    return {
        NODP: Scores(both[:, :k], values, task.error),
        NODP_ADAM: Scores(both[:, k:], values, task.error),
    }


def gathered(parts: Finished, names: Sequence[str], first: int, count: int, task: Task) -> Scores | None:
    """Runs `first` to `first + count` of parts that differ in their seeds alone; None where none of them is there."""
    rows = [curves_of(parts[name])[:, first : first + count] for name in names if name in parts]
    return Scores(np.concatenate(rows), [(float(i),) for i in range(count)], task.error) if rows else None


def told(value: float, task: Task) -> str:
    return ("diverged" if not np.isfinite(value) else f"{value:.4f}") if task.error else f"{value:.1f}"


def shown(number: Measured, task: Task, seeds: int) -> str:
    """With its error, where there are seeds to know it by."""
    known = seeds > 1 and np.isfinite(number.value)
    return told(number.value, task) + (f" ± {number.error:.{4 if task.error else 1}f}" if known else "")


def unit(task: Task) -> str:
    return "per cent of the error" if task.error else "points"


COLOURS = {ONLINE: "#1f77b4", WOSM: "#d62728", THRESHOLD: "#b5651d", QUANTILE: "#2a9d8f"}
Case = tuple[int, float]
"""(granularity, epsilon)."""
UNTRAINED = "(not trained)"
"""What is said of a claim that lacks trainings."""


@dataclass(frozen=True, eq=False)
class Compared:
    """One task. cases: every granularity and epsilon at which a method is there, with those that are."""

    task: Task
    cases: dict[Case, dict[str, Scores]]
    plain: dict[str, Scores]
    quick: bool

    def at(self, epsilons: Sequence[float]) -> list[Case]:
        return [case for case in self.cases if case[1] in epsilons]

    def leads(self, first: str, second: str, cases: Sequence[Case], reading: str = BEST) -> dict[Case, Measured]:
        """Where both are there."""
        return {
            case: lead(self.cases[case][first], self.cases[case][second], reading)
            for case in self.having((first, second), cases)
        }

    def having(self, methods: Sequence[str], cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if all(name in self.cases[case] for name in methods)]

    def ready(self, methods: Sequence[str], cases: Sequence[Case]) -> list[Case]:
        """Those that a verdict counts: in full size all of the methods have two seeds or more."""
        return [
            case
            for case in self.having(methods, cases)
            if self.quick or min(self.cases[case][name].seeds for name in methods) > 1
        ]

    def waiting(self, methods: Sequence[str], cases: Sequence[Case]) -> str:
        """How many a verdict does not count yet, in words."""
        count = len(cases) - len(self.ready(methods, cases))
        return f" (waiting for a second seed: {count} more)" if count else ""

    def ahead(
        self, first: str, second: str, cases: Sequence[Case], by: float = 0.0, reading: str = BEST
    ) -> list[bool | None]:
        """Of the cases that are ready; None where it cannot be told."""
        leads = self.leads(first, second, self.ready((first, second), cases), reading)
        return [gap.above(by) for gap in leads.values()]

    def spoken(self, first: str, second: str, cases: Sequence[Case], reading: str = BEST) -> str:
        """The error is not known where one of them has a single seed."""
        told = []
        for (k, epsilon), gap in self.leads(first, second, cases, reading).items():
            alone = 1 in {self.cases[k, epsilon][name].seeds for name in (first, second)} and not self.quick
            told.append(f"{f'{gap.value:+.1f} ± ?' if alone else gap} (k {k}, epsilon {epsilon:g})")
        return ", ".join(told) or UNTRAINED


def compared(parts: Finished, task: Task, quick: bool) -> Compared:
    cases = {}
    for k in granularities(quick):
        for epsilon in sized(task, quick).epsilons:
            found = {name: scores_of(parts, task, name, k, epsilon, quick) for name in METHODS}
            there = {name: scores for name, scores in found.items() if scores is not None}
            if there:
                cases[k, epsilon] = there
    return Compared(task, cases, plain_scores(parts, task, quick), quick)


def seeds_of(here: Compared, ks: Sequence[int]) -> tuple[str, bool]:
    """How many seeds every method has at these granularities, in words, and whether some have fewer than others."""
    counts = {
        name: {s.seeds for (k, _), scores in here.cases.items() if k in ks for own, s in scores.items() if own == name}
        for name in METHODS
    }
    if len({(*sorted(own),) for own in counts.values()}) == 1:
        return _counts(counts[ONLINE]), False
    return ", ".join(f"{name} {_counts(own)}" for name, own in counts.items()), True


def _counts(seeds: set[int]) -> str:
    return f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{min(seeds, default=0)}"


def notes_of(here: Compared, ks: Sequence[int] = ()) -> list[str]:
    """ks: the granularities that are shown, all that are there if left out."""
    task, at = sized(here.task, here.quick), [*ks] or sorted({k for k, _ in here.cases})
    seeds, fewer = seeds_of(here, at)
    there = (
        f"All {SEEDS} seeds of the paper are trained"
        if seeds == str(SEEDS)
        else f"Seeds that are trained, of the paper's {SEEDS}: {seeds}"
    )
    notes = [
        f"{there}. ± is one standard error over them by the jackknife: the best candidate is looked for again with each seed "
        "left out, so that the chance of that choice is in it. In full size nothing is decided by one seed, and the error of two "
        f"is at least that of single candidates, pooled over the best quarter of them. Granularities here: "
        f"{', '.join(map(str, at)) or 'none'}, of the paper's 5, 7 and 9.",
        f"As in the paper the whole test set is looked at every {EVERY} steps, the best look stands for a training and the best "
        f"candidate for a method: no budget covers that. The last iterate beside it is what (epsilon, {DELTA:g}) covers, but for "
        "the choice of the candidate.",
    ]
    if fewer:
        notes.append(
            "The best of many candidates by the mean of fewer seeds looks better than it is: methods with fewer seeds and more "
            "candidates are favoured a little."
        )
    if here.task.name.endswith("standin"):
        notes.append(
            f"AG News's training texts were not to be had: this is {AG_NEWS_STANDIN}. It keeps AG News's rate and steps, so that "
            f"the noises are AG News's, with lots of {task.lot:.0f} in the place of 512. All of this is of the stand-in."
        )
    if here.quick:
        notes.append(
            f"Quick version: {task.records} records, {task.steps} steps of lot {task.lot:.0f}, a small network, 3 values of an "
            "axis and 3 quantiles, two epsilons, one seed, so that no error is known. Verdicts are those of the small version."
        )
    return notes


def outcome_of(here: Compared, claims: list[Claim]) -> Outcome:
    task, rows = here.task, list[list[str | float]]()
    numbers: dict[str, dict[str, list[float]]] = {}
    for (k, epsilon), scores in here.cases.items():
        for name, own in scores.items():
            tops = [own.top(reading) for reading in READINGS]
            cells = [shown(top, task, own.seeds) for top in tops]
            noise = noise_of(task, epsilon, len(candidates(name, k, here.quick)), here.quick)
            rows.append([str(k), f"{epsilon:g}", name, f"{noise:.2f}", str(own.seeds), *cells])
            numbers.setdefault(f"k{k}, epsilon {epsilon:g}", {})[name] = [top.value for top in tops]
    for name, own in here.plain.items():
        cells = [shown(own.top(reading), task, own.seeds) for reading in READINGS]
        rows.append(["", "no privacy", name, "0", str(own.seeds), *cells])
    header = ["k", "epsilon of the grid", "method", "sigma", "seeds", *READINGS]
    table = Table(f"{task.title}: {task.measure}, of the best candidate of each method", header, rows)
    return Outcome(claims, {"best and last": numbers}, [table], notes_of(here), lambda file: _draw(file, here))


def _draw(file: Path, here: Compared) -> None:
    ks = sorted({k for k, _ in here.cases}) or [7]
    rows, columns = (2, len(ks)) if len(ks) > 1 else (1, 2)
    with panels(file, rows, columns, size=(3.6 * columns + 1, 3.2 * rows + 0.6)) as axes:
        for row, reading in zip(axes if rows > 1 else axes.T, READINGS, strict=True):
            for panel, k in zip(row, ks, strict=True):
                for name in METHODS:
                    points = [
                        (e, scores[name].top(reading))
                        for (own, e), scores in here.cases.items()
                        if own == k and name in scores
                    ]
                    drawn = [(e, top) for e, top in points if np.isfinite(top.value)]
                    if not drawn:
                        continue
                    panel.errorbar(
                        [e for e, _ in drawn],
                        [top.value for _, top in drawn],
                        [top.error for _, top in drawn],
                        fmt="o-",
                        color=COLOURS[name],
                        linewidth=1.3,
                        markersize=4,
                        capsize=2,
                        label=name,
                    )
                named(panel, f"k = {k}, {reading}", "epsilon of the whole grid", here.task.measure)
        shared_legend(axes[0][0], here.task.title, columns=4)
