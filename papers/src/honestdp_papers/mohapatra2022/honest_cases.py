"""The cells of `honest`: searches of one dataset and model at one epsilon, played from what was trained."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np

from honestdp.search.secret import drawn
from honestdp_papers.honest_search import SEARCHES, Kept, right_answers
from honestdp_papers.measured import Measured
from honestdp_papers.mohapatra2022.honest_training import OPTIMIZERS, SINGLE, Search, epsilons, pool_name, searches
from honestdp_papers.mohapatra2022.setting import OUR_TASKS, Pair, Task, pair_title
from honestdp_papers.parts import Arrays
from honestdp_papers.registry import Finished

FAR = 5.0
"""Points below the median of its cell from which on a search is told of by itself."""

Way = tuple[str, str]
"""(optimizer, selection)."""


@dataclass(frozen=True)
class Cell:
    """Test accuracies of the winners, in per cent, and how many trainings each search made, `[searches]`."""

    values: list[float]
    tried: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        return float(np.std(self.values, ddof=1))

    @property
    def quartiles(self) -> tuple[float, float, float]:
        low, middle, high = np.percentile(self.values, (25, 50, 75))
        return float(low), float(middle), float(high)

    @property
    def winners(self) -> int:
        """How many different trainings won, as far as their accuracies tell them apart."""
        return len(set(self.values))

    def __str__(self) -> str:
        low, middle, high = self.quartiles
        return f"{middle:.1f} ({low:.1f} to {high:.1f})"


@dataclass(frozen=True)
class Case:
    """One dataset and model at one epsilon: every search, and Horizon's runs."""

    title: str
    epsilon: float
    cells: dict[Way, Cell]
    single: Cell

    def best(self, optimizers: tuple[str, ...], selection: str) -> Cell:
        return max((self.cells[name, selection] for name in optimizers), key=lambda cell: cell.mean)

    def error(self, cell: Cell) -> float:
        """The standard error of a cell's mean. Searches share trainings: those with one winner are one training."""
        return max(cell.deviation, self.single.deviation) / math.sqrt(cell.winners)

    def gap(self, one: Cell, other: Cell) -> Measured:
        return Measured(one.mean - other.mean, math.hypot(self.error(one), self.error(other)))


def form_of(task: Task) -> Task:
    """The dataset under the title that tells its form."""
    return next((own for own in OUR_TASKS.values() if own.name == task.name), task)


def title_of(pair: Pair) -> str:
    return pair_title((form_of(pair[0]), pair[1]))


def case(parts: Finished, pair: Pair, epsilon: float, quick: bool) -> Case:
    """Play the searches of one dataset and model at one epsilon from what was trained."""
    cells = {}
    for optimizer in OPTIMIZERS:
        pool = parts[pool_name(pair, optimizer)]
        for number, search in enumerate(searches(pair[0], optimizer, quick)):
            if search.epsilon == epsilon:
                cells[optimizer, search.selection] = _cell(pool, number, pair, search)
    alone = parts[pool_name(pair, SINGLE)]
    right = alone["test"][epsilons(quick).index(epsilon), :, 0].astype(float)
    return Case(title_of(pair), epsilon, cells, Cell((100 * right / int(alone["tests"])).tolist()))


def _cell(pool: Arrays, number: int, pair: Pair, search: Search) -> Cell:
    own = Kept(pool["validation"][number], pool["test"][number], pool["finite"][number], held=int(pool["held"]))
    name = f"{pair[0].plain_title}, {pair[1]}/{search.optimizer}/{search.selection}/{search.epsilon:g}"
    design = search.kept()
    secrets = [drawn(design, seed=zlib.crc32(f"{name}/{i}".encode())) for i in range(SEARCHES)]
    return Cell(
        [100 * right / int(pool["tests"]) for right in right_answers(design, own, secrets)],
        tuple(len(secret.candidates) for secret in secrets),
    )


def stray(cases: list[Case]) -> list[str]:
    """What large deviations come from: the searches far below the others of their cell, and how many trainings they made."""
    told = []
    for one in cases:
        for way, cell in one.cells.items():
            low = [i for i, value in enumerate(cell.values) if value < float(np.median(cell.values)) - FAR]
            if low and cell.tried:
                each = ", ".join(f"{cell.values[i]:.1f} % after {_trainings(cell.tried[i])}" for i in low)
                told.append(f"{way[0]} under {way[1]} on {one.title} at epsilon {one.epsilon:g}: {each}")
    if not told:
        return []
    return [
        "Random stopping may make very few trainings, and then a bad candidate, such as one that diverged, may be all there is. "
        f"Large deviations come from searches that ended more than {FAR:g} points below the median of their cell: "
        + "; ".join(told)
        + "."
    ]


def _trainings(count: int) -> str:
    return "a single training" if count == 1 else f"{count} trainings"
