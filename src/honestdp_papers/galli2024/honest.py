"""The experiment `honest`: the paper's comparison at one budget that covers the whole search, under better selections.

The paper charges every candidate of a grid, so that a method with one hyperparameter less has much less noise. Where only the
winner leaves, or a random number of runs is made, a large grid costs little more than a small one: does needing one
hyperparameter less still pay? A cell of the table is the winner's accuracy on the test records over searches that are played
from the trainings.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from honestdp_papers.claims import OURS, Claim, Outcome, Table, judged
from honestdp_papers.galli2024.comparing import COLOURS
from honestdp_papers.galli2024.honest_training import (
    EPSILON,
    FRACTION,
    SELECTIONS,
    SINGLE,
    Search,
    blocks,
    honest_tasks,
    pool_name,
    searches,
)
from honestdp_papers.galli2024.measures import decided
from honestdp_papers.galli2024.setting import DELTA, METHODS, ONLINE, QUANTILE, THRESHOLD, WOSM, Task
from honestdp_papers.look import named, panels, shared_legend
from honestdp_papers.measured import Measured, counted
from honestdp_papers.mohapatra2022.honest_searches import SEARCHES, Kept, right_answers
from honestdp_papers.parts import Array, Arrays
from honestdp_papers.registry import Finished

FEW, MANY = (ONLINE, WOSM), (THRESHOLD, QUANTILE)
"""One hyperparameter, and two."""
Way = tuple[str, str]
"""(method, selection)."""


@dataclass(frozen=True)
class Cell:
    """Mean test accuracy of the winners, with its error over the seeds of the trainings, and how many seeds there are."""

    mean: Measured
    seeds: int
    noise: float
    runs: float


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
        most = max(cell.seeds for cell in self.cells.values())
        return f"seeds: {self.seeds}" + (f" to {most}" if most > self.seeds else "")


def less(first: Measured, second: Measured) -> Measured:
    return Measured(first.value - second.value, math.hypot(first.error, second.error))


def honest(parts: Finished, quick: bool) -> Outcome:
    cases = [case for case in (case_of(parts, task, quick) for task in honest_tasks()) if case is not None]
    said = [conclusion(case) for case in cases]
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
        (method, search.selection): _cell(pools[method], number, search)
        for method in METHODS
        for number, search in enumerate(searches(task, method, quick))
    }
    cells |= {way: replace(cell, mean=_steadied(cells, way)) for way, cell in cells.items() if cell.seeds == 2}
    alone = {name: _alone(pools[name], searches(task, name, quick)[0]) for name in SINGLE if pools[name]}
    return Case(task, cells, alone)


def _steadied(cells: dict[Way, Cell], way: Way) -> Measured:
    """The error of two seeds, which may be alike by chance: at least that of the method, pooled over the selections."""
    own = cells[way].mean
    pooled = np.mean([cells[way[0], selection].mean.error ** 2 for selection in SELECTIONS])
    return Measured(own.value, max(own.error, math.sqrt(float(pooled))))


def _cell(pools: list[Arrays], number: int, search: Search) -> Cell:
    """Searches played from all trainings; the error by leaving each seed's trainings out."""
    from honestdp.search.secret import drawn  # here: a bare GPU machine has no accountants
    from honestdp_papers.galli2024.honest_noise import kept

    joined = {name: np.concatenate([pool[name][number] for pool in pools]) for name in ("validation", "test", "finite")}
    held, tests, design = int(pools[0]["held"]), int(pools[0]["tests"]), kept(search)
    secrets = [drawn(design, seed=zlib.crc32(f"{search.key}/{search.method}/{i}".encode())) for i in range(SEARCHES)]

    def mean(rows: Array) -> float:
        own = Kept(joined["validation"][rows], joined["test"][rows], joined["finite"][rows], held=held)
        return 100 * float(np.mean(right_answers(design, own, secrets))) / tests

    seeds = len(joined["test"])
    every = np.arange(seeds)
    without = np.array([mean(np.delete(every, i)) for i in every]) if seeds > 1 else np.zeros(1)
    error = math.sqrt((seeds - 1) / seeds * float(np.square(without - without.mean()).sum())) if seeds > 1 else 0.0
    return Cell(Measured(mean(every), error), seeds, design.runs[0].noise, design.selection.runs)


def _alone(pools: list[Arrays], search: Search) -> Cell:
    right = np.concatenate([pool["test"][0, :, 0] for pool in pools]).astype(float)
    values = 100 * right / int(pools[0]["tests"])
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return Cell(Measured(float(values.mean()), error), len(values), search.run.noise, 1.0)


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
                f"the better of Online and AdamWOSM less the better of FixedThreshold and FixedQuantile: {_by_task(leads)}",
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


def _by_task(gaps: list[tuple[Case, Measured]]) -> str:
    return ", ".join(f"{gap} ({case.task.title})" for case, gap in gaps)


def _top(case: Case) -> tuple[Way, Cell]:
    return max(case.cells.items(), key=lambda one: one[1].mean.value)


def conclusion(case: Case) -> str:
    """Does one hyperparameter less still pay? From the table."""
    leads = {selection: case.lead(selection) for selection in SELECTIONS}
    words = {True: "pays", False: "costs", None: "makes no difference that can be told"}
    told = "; ".join(f"{words[gap.above(0)]} ({gap} points) under {selection}" for selection, gap in leads.items())
    way, cell = _top(case)
    before, still = leads["compose"].above(0), leads["envelope"].above(0)
    answer = {
        True: "It pays even where selection is cheap",
        False: f"It {'no longer pays' if before else 'does not pay'} where selection is cheap",
        None: "Where selection is cheap it cannot be told whether it pays",
    }[still]
    return (
        f"{case.task.title} ({case.trained}), epsilon {EPSILON:g}, delta {DELTA:g}: needing one hyperparameter "
        f"less {told}. {answer}. The best of all is {way[0]} under {way[1]} with {cell.mean.value:.1f} %."
    )


def _table(case: Case) -> Table:
    rows: list[list[str | float]] = []
    for method in METHODS:
        cells = [case.cells[method, selection] for selection in SELECTIONS]
        shown = [f"{cell.mean.size} (sigma {cell.noise:.2f}, {cell.runs:.0f} runs)" for cell in cells]
        rows.append([method, *shown, ""])
    for name, cell in case.single.items():
        rows.append([f"{name} (ours)", *[""] * len(SELECTIONS), f"{cell.mean.size} (sigma {cell.noise:.2f})"])
    budget = f"epsilon {EPSILON:g}, delta {DELTA:g}"
    title = f"{case.task.title}: the winner's test accuracy at {budget}, per cent ({case.trained})"
    return Table(title, ["method", *SELECTIONS, "one run"], rows)


def _notes(quick: bool) -> list[str]:
    return [
        f"A cell is what `honestdp.tune` does and charges with that grid, selection and budget: a coin puts {FRACTION:g} of the "
        "records on the validation side, noisy scores find the winner, and runs, scores and choice are all within the budget. "
        "compose leaves with every model; of the others the winner alone leaves. papernot-steinke and envelope make a random "
        "number of runs, so many in the mean that a given candidate is run with probability 0.9.",
        f"{SEARCHES} searches of a cell are played from the same trainings, at the noise of the cell; ± is the standard error "
        "over the seeds of the trainings, of two at least that pooled over the selections. "
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
                    [cell.mean.error for cell in cells],
                    fmt="o",
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
