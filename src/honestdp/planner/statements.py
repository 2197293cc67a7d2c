"""`statement`: what a selection guarantees for one base run, in words and numbers."""

from __future__ import annotations

import math
import warnings

from dp_accounting import DpEvent

from honestdp.accounting import AccountingWarning, FallBack, quiet
from honestdp.accounting.once import epsilon_of
from honestdp.budget import Statement, assumptions, large_delta
from honestdp.run import ROW, Run, Unit
from honestdp.selection import Selection
from honestdp.selection.contract import ONE_RUN_LEAVES


def statement(
    selection: Selection, run: Run | DpEvent, *, delta: float, records: int = 0, unit: Unit | None = None
) -> Statement:
    """What the selection guarantees for this base run, with the notes that belong to this number and no other.

    records: how many there are in all, for a note on a delta that is too large for them; 0 for none. unit: whose record it is,
    where that is known.
    """
    event = run.event if isinstance(run, Run) else run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AccountingWarning)
        epsilon = epsilon_of(selection, event, delta=delta)
    notes = [*dict.fromkeys(str(warning.message) for warning in caught)]
    fell_back = any(issubclass(warning.category, FallBack) for warning in caught)
    published, other = None, selection.published
    if other is not None and math.isfinite(epsilon) and not selection.one_run:
        with quiet():
            published = (other.basis, epsilon_of(other, event, delta=delta))
    by_other = other is not None and (fell_back or (published is not None and epsilon == published[1]))
    return Statement(
        epsilon=epsilon,
        delta=delta,
        accountant="rdp" if fell_back else selection.accountant,
        selection=selection.name,
        how=selection.how,
        runs=selection.runs,
        leaves=ONE_RUN_LEAVES if selection.one_run else selection.leaves,
        basis=other.basis if other is not None and by_other else selection.basis,
        published=published,
        notes=(*notes, *selection.notes(event, delta=delta), *large_delta(delta, records)),
        assumptions=assumptions(unit or ROW),
        relation=(unit or ROW).relation,
        protects=None if unit is None else unit.protects,
    )
