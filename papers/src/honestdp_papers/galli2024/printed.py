"""What Tables 2 to 4 print, and which candidates of a grid a printed cell means."""

from __future__ import annotations

import math
from dataclasses import dataclass

from honestdp_papers.galli2024.measures import Scores
from honestdp_papers.galli2024.setting import ONLINE, QUANTILE, THRESHOLD, WOSM, Task, clips, step_sizes

Printed = tuple[float, ...]
PRINTED: dict[str, dict[str, tuple[Printed | None, ...]]] = {
    "mnist": {
        ONLINE: ((0.3162,), (1.467,), (1.467,), (1.467,)),
        THRESHOLD: ((0.01467, 1.0), (0.003162, 4.64), (6.812, 0.010), (6.812, 0.010)),
        QUANTILE: ((0.003162, 0.5), (0.003162, 0.7), (0.003162, 0.7), (0.003162, 0.7)),
        WOSM: ((21.54,),) * 4,
    },
    "fashion": {
        ONLINE: ((0.3162,), (1.467,), (1.467,), (1.467,)),
        THRESHOLD: ((0.0681, 0.010), (1.467, 0.010), (6.812, 0.010), (1.467, 0.0464)),
        QUANTILE: (None, (0.3162, 0.3), (1.467, 0.1), (1.467, 0.3)),
        WOSM: ((0.01,), (0.01,), (0.0464,), (0.01,)),
    },
    "ag-news": {
        ONLINE: ((0.06812,),) * 4,
        THRESHOLD: ((1.467, 0.01), (1.467, 0.010), (1.467, 0.010), (0.03162, 0.0464)),
        QUANTILE: ((0.003162, 0.5), (0.003162, 0.5), (0.003162, 0.7), (0.003162, 0.7)),
        WOSM: ((0.01,),) * 4,
    },
}
"""By task and method, a cell for each epsilon; the first number is the step size, or AdamWOSM's clip."""
PLAIN = {"mnist": 0.003162, "fashion": 0.01467, "ag-news": 0.003162}
NEAR = 0.02
"""By which a printed number may be off a value of the grid, as a part of it: three digits are printed."""


def key_of(task: Task) -> str:
    return task.name.removesuffix("-standin")


def meant(method: str, printed: Printed, k: int) -> list[Printed]:
    """The values of the grid that a printed cell can mean, as it is compared.

    Of FixedThreshold every candidate with the printed product; where the product lies between two of the grid, both. Of the
    others the nearest values.
    """
    if method != THRESHOLD:
        axes = clips(k) if method == WOSM else step_sizes(k)
        return [(value, *printed[1:]) for value in nearest(printed[0], axes)]
    grid = [(lr, clip) for lr in step_sizes(k) for clip in clips(k)]
    products = sorted({round(math.log10(lr * clip), 6) for lr, clip in grid})
    kept = nearest(printed[0] * printed[1], [10**p for p in products])
    return [(lr, clip) for lr, clip in grid if any(abs(lr * clip / product - 1) < 1e-3 for product in kept)]


def nearest(value: float, axis: tuple[float, ...] | list[float]) -> list[float]:
    """The one that is printed, or where none is the two around it."""
    same = [one for one in axis if abs(one / value - 1) <= NEAR]
    if same:
        return same
    return [*[one for one in axis if one < value][-1:], *[one for one in axis if one > value][:1]]


@dataclass(frozen=True, eq=False)
class Cell:
    """One printed cell and what we have for it."""

    method: str
    epsilon: float
    printed: Printed | None
    scores: Scores

    def chosen(self, k: int) -> list[int]:
        """The candidates that the cell means."""
        assert self.printed is not None
        wanted = meant(self.method, self.printed, k)
        return [
            i
            for i, own in enumerate(self.scores.values)
            if any(all(abs(a / b - 1) < 1e-3 for a, b in zip(own, one, strict=True)) for one in wanted)
        ]


def words_of(method: str, values: Printed) -> str:
    if method == WOSM:
        return f"C {values[0]:.4g}"
    rho = f"rho {values[0]:.4g}"
    if len(values) == 1:
        return rho
    return f"{rho}, C {values[1]:.3g}" if method == THRESHOLD else f"{rho}, gamma {values[1]:g}"
