"""`honestdp.epsilon` and `honestdp.least_noise`: what a run or a search costs, and the noise that meets a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_accounting import DpEvent

from honestdp.accounting import calibration
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.run import Run
from honestdp.selection import named

if TYPE_CHECKING:
    from honestdp.selection import Selection


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
