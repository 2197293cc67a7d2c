"""One task's methods side by side: their trainings by case, leads of one over another, and table, figure and notes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from honestdp.data.datasets import news
from honestdp_papers.claims import Claim, Outcome, Table
from honestdp_papers.galli2024.measures import BEST, READINGS, Scores, lead, plain_scores, scores_of, shown
from honestdp_papers.galli2024.noise import granularities, noise_of
from honestdp_papers.galli2024.setting import (
    DELTA,
    EVERY,
    METHODS,
    ONLINE,
    QUANTILE,
    SEEDS,
    THRESHOLD,
    WOSM,
    Task,
    candidates,
    sized,
)
from honestdp_papers.look import named, panels, shared_legend
from honestdp_papers.measured import Measured
from honestdp_papers.registry import Finished

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
            f"AG News's training texts were not to be had: this is {news.STANDIN}. It keeps AG News's rate and steps, so that "
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
