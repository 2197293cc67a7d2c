"""The experiment `honest`: the paper's comparison at one budget that covers the whole search, under better selections.

The paper charges every candidate of a grid, so that a method with one hyperparameter less has much less noise. Where
only the winner leaves, or a random number of runs is made, a large grid costs little more than a small one: does
needing one hyperparameter less still pay? A cell of the table is the winner's accuracy on the test records over
searches that are played from the trainings.

A geometric number of runs is now and then a handful, none of them with a good candidate: what such a search loses
belongs into the mean, so that many searches are played, and what is left of their chance belongs into the error.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from honestdp_papers.claims import OURS, Claim, Measured, Outcome, Table, counted, judged
from honestdp_papers.galli2024.comparing import COLOURS, UNTRAINED, decided
from honestdp_papers.galli2024.honest_training import (
    EPSILON,
    SELECTIONS,
    SINGLE,
    blocks,
    honest_tasks,
    pool_name,
    searches,
)
from honestdp_papers.galli2024.setting import DELTA, METHODS, MNIST, ONLINE, QUANTILE, THRESHOLD, WOSM, Task
from honestdp_papers.honest_search import FRACTION, SEARCHES, Kept, Search, right_answers
from honestdp_papers.look import named, panels, shared_legend
from honestdp_papers.parts import Array, Arrays, Finished

FEW, MANY = (ONLINE, WOSM), (THRESHOLD, QUANTILE)
"""One hyperparameter, and two."""
Way = tuple[str, str]
"""(method, selection)."""
PLAYED = 1000
"""Searches of a cell in full size; in small `SEARCHES`."""


@dataclass(frozen=True)
class Cell:
    """Mean test accuracy of the winners, with its error over the seeds of the trainings, and how many seeds there are.

    draws: the standard error over the searches that were played, which `case_of` adds to that error. median: of those searches.
    """

    mean: Measured
    seeds: int
    noise: float
    runs: float
    draws: float = 0.0
    median: float = math.nan


@dataclass(frozen=True)
class Case:
    task: Task
    cells: dict[Way, Cell]
    single: dict[str, Cell]

    def best(self, methods: tuple[str, ...], selection: str) -> Cell:
        return max((self.cells[name, selection] for name in methods), key=lambda cell: cell.mean.value)

    def lead(self, selection: str) -> Measured:
        """Of the better method with one hyperparameter over the better one with two."""
        return less(self.best(FEW, selection).mean, self.best(MANY, selection).mean)

    @property
    def seeds(self) -> int:
        return min(cell.seeds for cell in self.cells.values())

    @property
    def trained(self) -> str:
        """How many seeds, in words."""
        counts = {name: self.cells[name, SELECTIONS[0]].seeds for name in METHODS}
        each = ", ".join(f"{name} {count}" for name, count in counts.items())
        return f"seeds: {each if len({*counts.values()}) > 1 else self.seeds}"

    def told(self, gap: Measured) -> str:
        """A difference of two methods; with a single seed of one of them its error is not known."""
        return f"{gap}" if self.seeds > 1 else f"{gap.value:+.1f} ± ?"


def less(first: Measured, second: Measured) -> Measured:
    return Measured(first.value - second.value, math.hypot(first.error, second.error))


def case_of(parts: Finished, task: Task, quick: bool) -> Case | None:
    """The searches of one task, played from what was trained; None where a method is missing."""
    pools = {
        method: [
            parts[name] for seeds in blocks(task, method, quick) if (name := pool_name(task, method, seeds)) in parts
        ]
        for method in (*METHODS, *SINGLE)
    }
    if not all(pools[method] for method in METHODS):
        return None
    cells = {
        (method, search.selection): cell_of(pools[method], number, search, quick)
        for method in METHODS
        for number, search in enumerate(searches(task, method, quick))
    }
    cells |= {way: replace(cell, mean=_steadied(cells, way)) for way, cell in cells.items() if cell.seeds == 2}
    cells = {way: replace(cell, mean=with_draws(cell)) for way, cell in cells.items()}
    alone = {name: _alone(pools[name], searches(task, name, quick)[0]) for name in SINGLE if pools[name]}
    return Case(task, cells, alone)


def _steadied(cells: dict[Way, Cell], way: Way) -> Measured:
    """The error of two seeds, which may be alike by chance: at least that of the method, pooled over the selections."""
    own = cells[way].mean
    pooled = np.mean([cells[way[0], selection].mean.error ** 2 for selection in SELECTIONS])
    return Measured(own.value, max(own.error, math.sqrt(float(pooled))))


def with_draws(cell: Cell) -> Measured:
    return Measured(cell.mean.value, math.hypot(cell.mean.error, cell.draws))


def cell_of(pools: list[Arrays], number: int, search: Search, quick: bool) -> Cell:
    """Searches played from all trainings; the error by leaving each seed's trainings out."""
    from honestdp.search.secret import drawn  # here: a bare GPU machine has no accountants

    joined = {name: np.concatenate([pool[name][number] for pool in pools]) for name in ("validation", "test", "finite")}
    held, tests, design = int(pools[0]["held"]), int(pools[0]["tests"]), search.kept()
    played = [zlib.crc32(f"{search.key}/{search.name}/{i}".encode()) for i in range(searches_of(quick))]
    secrets = [drawn(design, seed=seed) for seed in played]

    def winners(rows: Array) -> Array:
        own = Kept(joined["validation"][rows], joined["test"][rows], joined["finite"][rows], held=held)
        return 100 * np.array(right_answers(design, own, secrets), float) / tests

    seeds = len(joined["test"])
    every = np.arange(seeds)
    without = np.array([winners(np.delete(every, i)).mean() for i in every]) if seeds > 1 else np.zeros(1)
    error = math.sqrt((seeds - 1) / seeds * float(np.square(without - without.mean()).sum())) if seeds > 1 else 0.0
    whole = winners(every)
    mean, draws = Measured(float(whole.mean()), error), float(whole.std(ddof=1)) / math.sqrt(len(whole))
    return Cell(mean, seeds, design.runs[0].noise, design.selection.runs, draws, float(np.median(whole)))


def searches_of(quick: bool) -> int:
    """How many searches of a cell are played."""
    return SEARCHES if quick else PLAYED


def _alone(pools: list[Arrays], search: Search) -> Cell:
    right = np.concatenate([pool["test"][0, :, 0] for pool in pools]).astype(float)
    values = 100 * right / int(pools[0]["tests"])
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return Cell(Measured(float(values.mean()), error), len(values), search.run.noise, 1.0)


def honest(parts: Finished, quick: bool) -> Outcome:
    cases = [case for case in (case_of(parts, task, quick) for task in honest_tasks()) if case is not None]
    said = [conclusion(case, quick) for case in cases]
    lacking = [task.title for task in honest_tasks() if task not in [case.task for case in cases]]
    untrained = [f"Not trained for all methods yet: {', '.join(lacking)}."] if lacking else []
    numbers = {
        case.task.title: {
            **{", ".join(way): [cell.mean.value, cell.mean.error] for way, cell in case.cells.items()},
            **{name: [cell.mean.value, cell.mean.error] for name, cell in case.single.items()},
        }
        for case in cases
    }
    return Outcome(
        judgements(cases, quick),
        {"accuracies": numbers, "conclusions": [*said, *untrained] if said else []},
        [_table(case) for case in cases],
        [*said, *untrained, *_notes(quick)],
        lambda file: _draw(file, cases),
    )


DRAWN = ("papernot-steinke", "envelope")
"""Selections that make a random number of runs."""
_LEAD = f"the better of {' and '.join(FEW)} less the better of {' and '.join(MANY)}"


def judgements(cases: list[Case], quick: bool) -> list[Claim]:
    """Whether one hyperparameter less pays, under each selection, and whether it pays less under the better ones."""
    claims = []
    for selection in SELECTIONS:
        leads = [(case, case.lead(selection)) for case in cases]
        verdicts = [decided(gap.above(0), case.seeds, quick) for case, gap in leads]
        claims.append(
            judged(
                f"At one honest budget needing one hyperparameter less pays, under {selection}",
                verdicts,
                f"{_LEAD}: {_by_task(leads)}",
                kind=OURS,
            )
        )
    closed = [(case, less(case.lead("compose"), case.lead("envelope"))) for case in cases]
    verdicts = [decided(gap.above(0), case.seeds, quick) for case, gap in closed]
    claims.append(
        judged(
            "It pays less under envelope than where every candidate is charged",
            verdicts,
            f"in {counted(verdicts)}; by which the lead shrinks: {_by_task(closed)}",
            kind=OURS,
        )
    )
    claims.append(_larger_grids([case for case in cases if case.task.name == MNIST.name], quick))
    for name in SINGLE:
        there = [case for case in cases if name in case.single]
        gaps = [(case, less(case.single[name].mean, _top(case)[1].mean)) for case in there]
        verdicts = [decided(gap.above(0), case.seeds, quick) for case, gap in gaps]
        if gaps:
            claims.append(
                judged(
                    f"One run of {name}, with nothing to search, is better than the best search of the table",
                    verdicts,
                    f"its run less the search: {_by_task(gaps)}",
                    kind=OURS,
                )
            )
    return claims


def _larger_grids(cases: list[Case], quick: bool) -> Claim:
    """The paper's guess why two methods are lower on MNIST. A larger grid takes little of a run's budget under envelope."""
    leads = {
        (name, selection): less(case.cells[ONLINE, selection].mean, case.cells[name, selection].mean)
        for case in cases
        for name in MANY
        for selection in ("compose", "envelope")
    }
    shrunk = [less(leads[name, "compose"], leads[name, "envelope"]) for name in MANY if leads]
    each = ", ".join(f"{gap} under {selection} ({name})" for (name, selection), gap in leads.items())
    return judged(
        "FixedThreshold and FixedQuantile are lower for their larger grids, which leave a run less of the budget (MNIST)",
        [decided(gap.above(0), case.seeds, quick) for case in cases for gap in shrunk],
        f"where a grid's size costs little, Online's lead over them is smaller: {each}" if each else UNTRAINED,
    )


def _by_task(gaps: list[tuple[Case, Measured]]) -> str:
    return ", ".join(f"{case.told(gap)} ({case.task.title})" for case, gap in gaps)


def _top(case: Case) -> tuple[Way, Cell]:
    return max(case.cells.items(), key=lambda one: one[1].mean.value)


def conclusion(case: Case, quick: bool = False) -> str:
    """Does one hyperparameter less still pay? From the table, by the rule of the verdicts: a single seed decides nothing."""
    leads = {selection: case.lead(selection) for selection in SELECTIONS}
    found = {selection: decided(gap.above(0), case.seeds, quick) for selection, gap in leads.items()}
    before, still = found["compose"], found["envelope"]
    answer = {
        True: ". It pays even where selection is cheap",
        False: f". It {'no longer pays' if before else 'does not pay'} where selection is cheap",
        None: ". Whether it pays where selection is cheap cannot be told",
    }[still]
    lone = [name for name in METHODS if case.cells[name, SELECTIONS[0]].seeds == 1]
    told = (
        _undecided(case, leads, lone)
        if lone and not quick
        else f"needing one hyperparameter less ({_LEAD}) {_judged(leads)}{answer}"
    )
    way, cell = _top(case)
    level = [
        f"{name} under {selection} ({other.mean.value:.1f} %)"
        for (name, selection), other in case.cells.items()
        if (name, selection) != way
        and min(cell.seeds, other.seeds) > 1
        and less(cell.mean, other.mean).above(0) is None
    ]
    beside = (
        f"; it cannot be told from {' or '.join(filter(None, (', '.join(level[:-1]), level[-1])))}" if level else ""
    )
    return (
        f"{case.task.title} ({case.trained}), epsilon {EPSILON:g}, delta {DELTA:g}: {told}. "
        f"The best search is {way[0]} under {way[1]} with {cell.mean.value:.1f} %{' (one seed)' * (cell.seeds == 1)}"
        f"{beside}.{_without_a_search(case, cell, quick)}"
    )


def _without_a_search(case: Case, best: Cell, quick: bool) -> str:
    """Of the runs that have nothing to search, those that are better than the best search."""
    better = [
        f"{name} ({cell.mean.value:.1f} %)"
        for name, cell in case.single.items()
        if decided(less(cell.mean, best.mean).above(0), min(cell.seeds, best.seeds), quick)
    ]
    return f" Better than any search is one run of {' or of '.join(better)}, with nothing to search." if better else ""


def _judged(leads: dict[str, Measured]) -> str:
    words = {True: "pays", False: "costs", None: "makes no difference that can be told"}
    return "; ".join(f"{words[gap.above(0)]} ({gap} points) under {selection}" for selection, gap in leads.items())


def _undecided(case: Case, leads: dict[str, Measured], lone: list[str]) -> str:
    """Where methods have a single seed; against a method of two hyperparameters of which there are more, if there is one."""
    found = ", ".join(f"{gap.value:+.1f} points under {selection}" for selection, gap in leads.items())
    told = (
        f"whether needing one hyperparameter less pays is not decided while {' and '.join(lone)} "
        f"{'have' if len(lone) > 1 else 'has'} one seed ({found})"
    )
    known = [name for name in MANY if name not in lone]
    if not known or any(name in lone for name in FEW):
        return told
    (other,) = known
    alone = {name: less(case.best(FEW, name).mean, case.cells[other, name].mean) for name in SELECTIONS}
    return f"{told}. Against {other} alone it {_judged(alone)}"


def _shown(cell: Cell) -> str:
    """A single seed has no error that is known."""
    return cell.mean.size if cell.seeds > 1 else f"{cell.mean.value:.1f} (one seed)"


def _typical(selection: str, cell: Cell) -> str:
    """Where the number of runs is drawn, a few unlucky searches pull the mean down."""
    return f", median {cell.median:.1f}" if selection in DRAWN else ""


def _table(case: Case) -> Table:
    rows: list[list[str | float]] = []
    for method in METHODS:
        cells = [case.cells[method, selection] for selection in SELECTIONS]
        shown = [
            f"{_shown(cell)}{_typical(selection, cell)} (sigma {cell.noise:.2f}, {cell.runs:.0f} runs)"
            for selection, cell in zip(SELECTIONS, cells, strict=True)
        ]
        rows.append([method, *shown, ""])
    for name, cell in case.single.items():
        rows.append([f"{name} (ours)", *[""] * len(SELECTIONS), f"{_shown(cell)} (sigma {cell.noise:.2f})"])
    budget = f"epsilon {EPSILON:g}, delta {DELTA:g}"
    title = f"{case.task.title}: the winner's test accuracy at {budget}, per cent ({case.trained})"
    return Table(title, ["method", *SELECTIONS, "one run"], rows)


def _notes(quick: bool) -> list[str]:
    return [
        f"A cell is what `honestdp.tune` does and charges with that grid, selection and budget: a coin puts {FRACTION:g} of the "
        "records on the validation side, noisy scores find the winner, and runs, scores and choice are all within the budget. "
        "compose leaves with every model; of the others the winner alone leaves. papernot-steinke and envelope make a random "
        "number of runs, so many in the mean that a given candidate is run with probability 0.9.",
        f"{searches_of(quick)} searches of a cell are played from the same trainings, at its noise; ± is the standard "
        "error over the seeds of the trainings, of two at least that pooled over the selections, and over the searches. A random "
        "number of runs is sometimes a handful without a good candidate: the mean counts that and decides, and the median is "
        "what a typical search ends with. `tune` with no selection named takes another distribution of the number of runs where "
        "that costs less. "
        "± ? and a hollow point: of one of the methods there is a single seed. "
        "Test accuracies evaluate the reproduction and are covered by no budget.",
        "Fashion-MNIST is left out: its score would be a clipped error, whose bound has to be declared.",
        *(
            ["Quick version: small networks, 3 values of an axis, one seed, so that no error is known."]
            if quick
            else []
        ),
    ]


def _draw(file: Path, cases: list[Case]) -> None:
    with panels(file, 1, max(1, len(cases)), size=(5.0 * max(1, len(cases)), 4.2)) as axes:
        for panel, case in zip(axes[0], cases, strict=False):
            for shift, method in enumerate(METHODS):
                cells = [case.cells[method, selection] for selection in SELECTIONS]
                panel.errorbar(
                    np.arange(len(SELECTIONS)) + 0.12 * (shift - 1.5),
                    [cell.mean.value for cell in cells],
                    [cell.mean.error if cell.seeds > 1 else 0.0 for cell in cells],
                    fmt="o",
                    markerfacecolor=COLOURS[method]
                    if cells[0].seeds > 1
                    else "white",  # one seed: its error is not known
                    color=COLOURS[method],
                    capsize=2,
                    label=method,
                )
            for name, style in zip(SINGLE, ("--", ":"), strict=True):
                if name in case.single:
                    panel.axhline(
                        case.single[name].mean.value, color="#333333", linestyle=style, label=f"{name}, one run (ours)"
                    )
            panel.set_xticks(range(len(SELECTIONS)), SELECTIONS, rotation=20)
            named(panel, f"{case.task.title}, epsilon {EPSILON:g}", "", "the winner's test accuracy, %")
        shared_legend(axes[0][0], "One honest budget", columns=3 if len(cases) > 1 else 2)
