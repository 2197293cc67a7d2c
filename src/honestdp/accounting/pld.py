"""The PLD accountant: composes steps into one dominating pair, on a grid chosen so that rounding costs little epsilon.

Moving a loss to the ends of its cell of width h adds theta (theta + 1) h^2 / 12 to log E_P e^{theta L} of a step, on
average over the cell, so that at the Chernoff tilt theta of the tail above epsilon, T steps add about T (theta + 1) h^2 / 12
to epsilon. The grid keeps that below a set part of epsilon. It errs to the safe side alone: a coarser grid reports more.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import ContextVar

from honestdp.accounting.composition import ROUNDING, chernoff, compose, discretise
from honestdp.accounting.pair import Pair
from honestdp.accounting.steps import MOST_CELLS, Step, TooFine

TOLERANCE = 1e-4  # the part of epsilon that the grid may add
AIM = 0.5  # of the tolerance: the rest is for what the formula leaves out, and for a last grid up to a tenth wider
MOST_STEP_CELLS = 2 * MOST_CELLS  # of all kinds of steps together, before they are composed
KEPT_CELLS, MOST_KEPT = 2 * MOST_CELLS, 8  # losses and pairs that are remembered
ATTEMPTS = 8  # to find a grid on which all losses together fit
LARGEST_LOSS = 500.0  # of one step, or of all together by Chernoff's bound: beyond it e^loss is no number to trust
SMALLEST_LOSS = 1e-13  # below it a loss is no number to trust either
SMALLEST_DELTA = 1e-100
COARSE = 32.0  # times the tolerance, for what is only compared
_coarseness: ContextVar[float] = ContextVar("honestdp_coarseness", default=1.0)


class _Recent:
    """The last answers of `dominating_pair`, as many as have KEPT_CELLS losses in all."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[tuple[Step, ...], float, float], Pair | None] = OrderedDict()

    def __call__(self, steps: tuple[Step, ...], *, delta: float, tolerance: float = TOLERANCE) -> Pair | None:
        """The composed pair of the steps, on a grid fine enough for epsilon at this delta; None beyond what floats can hold.

        tolerance: the part of epsilon that the grid may add.
        """
        key = (steps, delta, tolerance * _coarseness.get())
        if key not in self._pairs:
            self._pairs[key] = _dominating_pair(*key)
        self._pairs.move_to_end(key)
        while self._cells() > KEPT_CELLS or len(self._pairs) > MOST_KEPT:
            self._pairs.popitem(last=False)
        return self._pairs[key]

    def cache_clear(self) -> None:
        self._pairs.clear()

    def _cells(self) -> int:
        return sum(len(pair.losses) for pair in self._pairs.values() if pair is not None)


dominating_pair = _Recent()


@contextlib.contextmanager
def comparing() -> Iterator[None]:
    """Grids COARSE times as wide in tolerance: for many numbers that are compared and not stated. Each stays an upper bound."""
    token = _coarseness.set(COARSE)
    try:
        yield
    finally:
        _coarseness.reset(token)


def coarseness() -> float:
    """How many times as wide in tolerance grids are here: 1 outside of `comparing`."""
    return _coarseness.get()


def _dominating_pair(steps: tuple[Step, ...], delta: float, tolerance: float) -> Pair | None:
    """The composed pair, on a grid fine enough for epsilon at this delta; None where no float could hold its masses.

    No grid, of one step or of all together, has more than MOST_CELLS losses: where the tolerance would need more, the grid is
    coarser and epsilon larger than it need be, and where nothing of use is left, there is no pair.
    """
    total = sum(step.count for step in steps)
    if delta < SMALLEST_DELTA or total * ROUNDING >= 1 or any(step.noiseless for step in steps):
        return None
    steps = tuple(step.simplified() for step in steps)
    total = sum(step.count for step in steps)
    try:
        lattice = steps[0].lattice
        if lattice is not None and total * lattice < LARGEST_LOSS and all(step.lattice == lattice for step in steps):
            with contextlib.suppress(TooFine):
                return compose(discretise(steps, grid=lattice, delta=delta), grid=lattice, delta=delta)
        return _on_a_grid(steps, total, delta, tolerance)
    except TooFine:
        return None


def _on_a_grid(steps: tuple[Step, ...], total: int, delta: float, tolerance: float) -> Pair | None:
    tail = delta * 1e-6 / total
    steps = tuple(step.at_least(SMALLEST_LOSS, tail) for step in steps)
    ranges = [high - low for low, high in (step.loss_range(tail) for step in steps)]
    reach = max(ranges)
    if not SMALLEST_LOSS <= reach < LARGEST_LOSS:
        return None
    finest = max(1.001 * reach / (MOST_CELLS - 4), sum(ranges) / MOST_STEP_CELLS)
    grid = max(reach / 500, finest)
    for _ in range(6):
        quantile = chernoff(discretise(steps, grid=grid, delta=delta), mass=delta)
        if quantile.loss > LARGEST_LOSS:
            return None
        if quantile.loss <= 0:  # P(L > 0) <= delta, so that epsilon is 0 on any grid that is not coarser
            break
        wanted = max(_grid(quantile.loss, quantile.tilt, total, tolerance), finest)
        settled = grid / 2 < wanted < 2 * grid
        grid = wanted
        if settled:
            break
    return _refined(steps, total, delta, tolerance, grid, finest)


def _refined(
    steps: tuple[Step, ...], total: int, delta: float, tolerance: float, grid: float, finest: float
) -> Pair | None:
    """The pair on this grid or on the one that its own epsilon asks for, but none with more than MOST_CELLS losses."""
    attempts = 0
    while True:
        try:
            pair = compose(discretise(steps, grid=grid, delta=delta), grid=grid, delta=delta)
        except TooFine as needed:
            attempts += 1
            # What a coarser grid adds is more losses to hold: beyond some width no grid will do.
            if attempts > ATTEMPTS or grid * needed.factor > LARGEST_LOSS / 2:
                raise
            grid = finest = grid * 1.02 * needed.factor
            continue
        worse = max(pair, pair.reversed, key=lambda direction: direction.epsilon(delta))
        epsilon = worse.epsilon(delta)
        if epsilon == 0 or math.isinf(epsilon):
            return pair
        finer = max(_grid(epsilon, worse.steepness(epsilon), total, tolerance), finest)
        if grid <= 1.1 * finer:
            return pair
        grid = finer


def _grid(epsilon: float, tilt: float, steps: int, tolerance: float) -> float:
    return math.sqrt(12 * AIM * tolerance * epsilon / (steps * (tilt + 1)))
