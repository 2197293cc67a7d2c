"""The `Run` of a training that names none: lot and steps chosen from its budget and the number of records."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.planner.shapes import chosen_shape
from honestdp.run import ROW, Run, Unit

Runs = Run | Sequence[Run]


def shaped(run: Runs | None, data: Sized, *, declared: bool, budget: Any, runs: int) -> tuple[Runs, tuple[str, ...]]:
    """The run as it is given; without one that which the planner chooses, whose noise the budget sets, and notes that say so.

    data: whose number is asked for only where no run declares it. declared: whether that number is one that was declared.
    """
    if run is not None:
        for each in [run] if isinstance(run, Run) else run:
            if declared and isinstance(each, Run) and each.records != len(data):
                raise InvalidArgument("records", each.records, f"{len(data)}, as the data declare")
        return run, ()
    if not isinstance(budget, Budget):
        wanted = "a honestdp.Run; it may be left out with a budget=honestdp.Budget(epsilon, delta), from which it is then chosen"
        raise InvalidArgument("run", None, wanted)
    records = len(data)
    if records == 0:
        raise InvalidArgument("data", "no records", "at least one record")
    chosen = chosen_shape(budget, records=records, candidates=runs)
    notes = (chosen.how,) if declared else (chosen.how, not_declared(records, getattr(data, "unit", ROW)))
    return Run(records=records, lot=chosen.lot, steps=chosen.steps, noise=0.0), notes


def not_declared(records: int, unit: Unit) -> str:
    """The note on a number of records that nobody declared."""
    return f"the number of {unit.plural}, {records}, was not declared but taken to be that of the data; it is taken to be public"


def runs_of(run: Runs, count: int, budget: Budget | None) -> list[Run]:
    """One for each of so many optimizers, with the noise that a budget sets."""
    if count == 0:
        raise InvalidArgument("optimizers", [], "a list of at least one optimizer")
    runs = [run] * count if isinstance(run, Run) else list(run)
    if len(runs) != count:
        raise InvalidArgument("run", f"{len(runs)} runs", f"one Run, or one for each of the {count} optimizers")
    if len({(each.records, each.lot, each.steps) for each in runs}) > 1:
        raise InvalidArgument("run", runs, "runs that differ in their noise alone; train others separately")
    if budget is None:
        return runs
    if any(each.noise != 0 for each in runs):
        wanted = "0 when a budget is given: the noise is then calculated from it"
        raise InvalidArgument("run.noise", runs[0].noise, wanted)
    from honestdp.accounting.calibration import least_noise  # here: the engine alone needs torch and numpy only
    from honestdp.selection import Compose

    first, all_of_them = runs[0], Compose(candidates=count)
    if first.steps == 0:
        return runs  # nothing is released, so any noise meets it
    return [least_noise(budget, records=first.records, lot=first.lot, steps=first.steps, selection=all_of_them)] * count
