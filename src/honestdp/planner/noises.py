"""The noises with which many methods meet one budget, to be compared: quick, sound, and up to 0.7 % too large."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dp_accounting import DpEvent

from honestdp.accounting.calibration import Start, least_noise
from honestdp.accounting.pld import comparing
from honestdp.budget import Budget
from honestdp.run import Run
from honestdp.selection import Selection


@dataclass
class Noises:
    """Noises that meet a budget, found on wider grids, which ask for up to 0.7 % more.

    Each calibration begins where that of a like method ended: the same bound on the same footing, moved as
    the last one on that footing moved from its own like, or else the one before.
    """

    given: Run
    budget: Budget
    ends: dict[tuple[str, str, str], Start] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)

    def of(self, equal: str, selection: Selection) -> tuple[float, Run]:
        """The epsilon, within the budget, and the run of that noise. OverBudget where there is none."""
        run, like = self.given, (equal, selection.name, selection.accountant)
        before = self.ends.get(like)
        start = replace(before or next(reversed(self.ends.values()), Start()))
        if before is not None:
            start.log_noise += self.moved.get(equal, 0.0)
        tried: dict[DpEvent, float] = {}
        with comparing():
            lot, steps, remembering = run.lot, run.steps, Remembering(selection, tried)
            run = least_noise(
                self.budget, records=run.records, lot=lot, steps=steps, selection=remembering, start=start
            )
        self.ends[like] = start
        self.moved[equal] = 0.0 if before is None else start.log_noise - before.log_noise
        return tried[run.event], run


@dataclass(eq=False)
class Remembering:
    """A selection's epsilons, kept as they are computed; equal to no other, for those of a comparison may be coarse."""

    selection: Selection
    tried: dict[DpEvent, float]

    def epsilon(self, event: DpEvent, *, delta: float) -> float:
        self.tried[event] = self.selection.epsilon(event, delta=delta)
        return self.tried[event]
