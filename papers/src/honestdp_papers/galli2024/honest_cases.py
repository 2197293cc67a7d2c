"""What is played for `honest`: searches from kept trainings, and the accuracy of their winners with its error.

A geometric number of runs is now and then a handful, none of them with a good candidate: what such a search loses belongs into
the mean, so that many searches are played, and what is left of their chance belongs into the error.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace

import numpy as np

from honestdp_papers.galli2024.honest_training import SELECTIONS, SINGLE, Search, blocks, pool_name, searches
from honestdp_papers.galli2024.setting import METHODS, ONLINE, QUANTILE, THRESHOLD, WOSM, Task
from honestdp_papers.honest_search import SEARCHES, Kept, right_answers
from honestdp_papers.measured import Measured
from honestdp_papers.parts import Array, Arrays
from honestdp_papers.registry import Finished

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
        (method, search.selection): cell_of(pools[method], number, search)
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


def cell_of(pools: list[Arrays], number: int, search: Search) -> Cell:
    """Searches played from all trainings; the error by leaving each seed's trainings out."""
    from honestdp.search.secret import drawn  # here: a bare GPU machine has no accountants

    joined = {name: np.concatenate([pool[name][number] for pool in pools]) for name in ("validation", "test", "finite")}
    held, tests, design = int(pools[0]["held"]), int(pools[0]["tests"]), search.kept()
    played = [zlib.crc32(f"{search.key}/{search.method}/{i}".encode()) for i in range(searches_of(search.quick))]
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
