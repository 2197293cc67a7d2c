"""The tight accountant: the privacy-loss distribution of all steps, on a grid that the program chooses.

Moving a loss to the ends of its cell of width h adds theta (theta + 1) h^2 / 12 to log E_P e^{theta L} of a step, on
average over the cell, so that at the Chernoff tilt theta of the tail above epsilon, T steps add about T (theta + 1) h^2 / 12
to epsilon. The grid keeps that below a set part of epsilon. It errs to the safe side alone: a coarser grid reports more.
"""

from __future__ import annotations

import functools
import math

from honestdp.accounting.composition import chernoff, compose, discretise, window
from honestdp.accounting.pair import Pair
from honestdp.accounting.steps import Step

TOLERANCE = 1e-4  # the part of epsilon that the grid may add
MOST_CELLS = (
    2**21
)  # of one step's losses or of all together; beyond, the grid is coarser and epsilon larger than it need be
LARGEST_LOSS = 500.0  # of one step, or of all together by Chernoff's bound: beyond it e^loss is no number to trust
SMALLEST_LOSS = 1e-13  # below it a loss is no number to trust either
SMALLEST_DELTA = 1e-100


@functools.lru_cache(maxsize=8)
def dominating_pair(steps: tuple[Step, ...], *, delta: float, tolerance: float = TOLERANCE) -> Pair | None:
    """The composed pair, on a grid fine enough for epsilon at this delta; None where no float could hold its masses."""
    if delta < SMALLEST_DELTA or any(step.noiseless for step in steps):
        return None
    steps = tuple(step.simplified() for step in steps)
    total = sum(step.count for step in steps)
    tail = delta * 1e-6 / total
    reach = max(high - low for low, high in (step.loss_range(tail) for step in steps))
    if not SMALLEST_LOSS < reach < LARGEST_LOSS:
        return None
    grid = reach / 500
    for _ in range(6):
        quantile = chernoff(discretise(steps, grid=grid, delta=delta), mass=delta)
        wanted = max(_grid(quantile.loss, quantile.tilt, total, tolerance), reach / MOST_CELLS)
        settled = grid / 2 < wanted < 2 * grid
        grid = wanted
        if settled:
            break
    if quantile.loss > LARGEST_LOSS:
        return None
    coarsest = _coarsest(steps, grid, delta)
    grid = max(grid, coarsest)
    while True:
        pair = compose(discretise(steps, grid=grid, delta=delta), grid=grid, delta=delta)
        worse = max(pair, pair.reversed, key=lambda direction: direction.epsilon(delta))
        epsilon = worse.epsilon(delta)
        if epsilon == 0 or math.isinf(epsilon):
            return pair
        finer = _grid(epsilon, worse.steepness(epsilon), total, tolerance)
        if grid <= 1.1 * max(finer, coarsest):
            return pair
        grid = max(finer, coarsest)


def _coarsest(steps: tuple[Step, ...], grid: float, delta: float) -> float:
    """The grid on which the losses of all steps together take MOST_CELLS."""
    if sum(step.count for step in steps) == 1:
        return 0.0
    covered = window(discretise(steps, grid=grid, delta=delta), delta=delta)
    return (covered.high - covered.low) / MOST_CELLS


def _grid(epsilon: float, tilt: float, steps: int, tolerance: float) -> float:
    return math.sqrt(12 * tolerance * epsilon / (steps * (tilt + 1)))
