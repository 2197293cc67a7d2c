"""The cost of a run or a search, the noise that meets a budget, and the guarantee of a selection as a `Statement`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from dp_accounting import DpEvent

from honestdp.accounting import AccountingWarning, FallBack, calibration, quiet
from honestdp.accounting.calibration import epsilon_of
from honestdp.budget import Budget, Statement
from honestdp.checks import InvalidArgument
from honestdp.run import Run, Unit
from honestdp.selection import Selection, named
from honestdp.selection.contract import ONE_RUN_LEAVES


def epsilon(
    run: Run | DpEvent,
    *,
    delta: float,
    selection: str | Selection = "compose",
    candidates: int | None = None,
    accountant: str | None = None,
) -> float:
    """The epsilon of a run, or of a whole search among runs like it.

    run: a Run, or dp-accounting's event of one run.
    delta: of the guarantee.
    selection: how the winner is found: compose, winner, liu-talwar, papernot-steinke, profile or envelope, or an object of
        honestdp.selection.
    candidates: with a selection by name, how many there are; for random stopping the mean number of runs. 1 if left out.
    accountant: with a selection by name, where that leaves a choice: pld, rdp or moments.

    Returns an upper bound, for the adding or removing of one record; infinite without noise.

    Raises InvalidArgument for an argument that nothing can be computed from, and UnknownEvent for an event that is not known.

    >>> import honestdp
    >>> run = honestdp.Run(records=60_000, lot=250, steps=1000, noise=4.0)
    >>> round(honestdp.epsilon(run, delta=1e-6), 3)
    0.125
    >>> round(honestdp.epsilon(run, delta=1e-6, selection="winner", candidates=40), 3)
    0.651
    """
    if not isinstance(run, Run | DpEvent):
        raise InvalidArgument("run", run, "a honestdp.Run, or an event of dp_accounting")
    event = run.event if isinstance(run, Run) else run
    return _selection(selection, candidates, accountant).epsilon(event, delta=delta)


def least_noise(
    budget: Budget,
    *,
    records: int,
    lot: float,
    steps: int | None = None,
    epochs: float | None = None,
    selection: str | Selection = "compose",
    candidates: int | None = None,
    accountant: str | None = None,
) -> Run:
    """The run with the least noise whose whole search meets a budget: at most 0.1 % below it, never above.

    budget: of the whole search.
    records, lot, steps or epochs: of one run; see `Run`.
    selection, candidates, accountant: see `epsilon`.

    Returns the Run with that noise.

    Raises OverBudget where no noise meets the budget, and InvalidArgument.

    >>> import honestdp
    >>> run = honestdp.least_noise(honestdp.Budget(1.0, 1e-6), records=60_000, lot=250, steps=1000)
    >>> 0.999 <= honestdp.epsilon(run, delta=1e-6) <= 1.0
    True
    """
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget", budget, "a honestdp.Budget(epsilon, delta)")
    run = Run(records=records, lot=lot, steps=steps, epochs=epochs, noise=0)
    return calibration.least_noise(
        budget, records=records, lot=lot, steps=run.steps, selection=_selection(selection, candidates, accountant)
    )


def _selection(selection: str | Selection, candidates: int | None, accountant: str | None) -> Selection:
    if isinstance(selection, str):
        return named(selection, candidates=1 if candidates is None else candidates, accountant=accountant)
    for name, value in (("candidates", candidates), ("accountant", accountant)):
        if value is not None:
            raise InvalidArgument(name, value, "left out with a selection that is an object and has its own")
    return selection


def statement(
    selection: Selection,
    run: Run | DpEvent,
    *,
    delta: float,
    records: int = 0,
    unit: Unit | None = None,
    notes: Iterable[str] = (),
    **more: Any,
) -> Statement:
    """State the guarantee of the selection for this base run, with the notes that belong to this number.

    Args:
        records: the number of all records, for notes on an epsilon or a delta that is too large; 0 for no such notes.
        unit: whose record is protected, where that is known.
        notes: those that follow the notes of the selection. more: further arguments of `Statement.about`.
    """
    event = run.event if isinstance(run, Run) else run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AccountingWarning)
        epsilon = epsilon_of(selection, event, delta=delta)
    warned = [*dict.fromkeys(str(warning.message) for warning in caught)]
    fell_back = any(issubclass(warning.category, FallBack) for warning in caught)
    published, other = None, selection.published
    if other is not None and math.isfinite(epsilon) and not selection.one_run:
        with quiet():
            published = (other.basis, epsilon_of(other, event, delta=delta))
    by_other = other is not None and (fell_back or (published is not None and epsilon == published[1]))
    stated: dict[str, Any] = {"leaves": leaving(selection)}
    return Statement.about(
        unit,
        epsilon=epsilon,
        delta=delta,
        records=records,
        accountant="rdp" if fell_back else selection.accountant,
        selection=selection.name,
        how=selection.how,
        runs=selection.runs,
        basis=other.basis if other is not None and by_other else selection.basis,
        published=published,
        notes=(*warned, *selection.notes(event, delta=delta), *notes),
        **stated | more,
    )


def leaving(selection: Selection) -> str:
    """What may leave, in words: of a single run its model, and nothing was selected."""
    return ONE_RUN_LEAVES if selection.one_run else selection.leaves
