"""The `Run` of a training that names none: lot and steps chosen from its budget and the number of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.planner.shapes import chosen_shape
from honestdp.run import Run

Runs = Run | Sequence[Run]


def shaped(run: Runs | None, *, size: Callable[[], int], budget: Any, runs: int) -> tuple[Runs, tuple[str, ...]]:
    """The run as it is given; without one that which the planner chooses, whose noise the budget sets, and notes that say so.

    size: how many records the data has, asked for only where no run declares it.
    """
    if run is not None:
        return run, ()
    if not isinstance(budget, Budget):
        wanted = "a honestdp.Run; it may be left out with a budget=honestdp.Budget(epsilon, delta), from which it is then chosen"
        raise InvalidArgument("run", None, wanted)
    records = size()
    if records == 0:
        raise InvalidArgument("data", "no records", "at least one record")
    chosen = chosen_shape(budget, records=records, candidates=runs)
    number = (
        f"the number of records, {records}, was not declared but taken to be that of the data; it is taken to be public"
    )
    return Run(records=records, lot=chosen.lot, steps=chosen.steps, noise=0.0), (chosen.how, number)
