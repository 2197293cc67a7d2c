"""What is read from kept trainings: every method's grid at every epsilon, the best checkpoint and the last iterate.

As in the paper the best of all looks at the test set stands for a training, and the candidate with the best mean over the seeds
for a method. Beside it is the last iterate, which is what a budget covers. Whatever seeds are there are used, and their number is
said; in full size nothing is decided by a single one, and the error of two is not taken from their difference alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from honestdp_papers.galli2024.setting import NODP, NODP_ADAM, Task, candidates, sized, step_sizes
from honestdp_papers.galli2024.training import method_blocks, plain_blocks
from honestdp_papers.measured import Measured, jackknifed
from honestdp_papers.parts import Array, Arrays
from honestdp_papers.registry import Finished

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
