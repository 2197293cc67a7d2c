"""The worst of several queries, chosen without the data: the accountant's step for `WorstOfDpEvent`.

A mixture's privacy profile is at most the greatest of its parts' (hockey-stick divergences are jointly convex), at every
epsilon and in each direction. The pair with that greatest profile dominates every part, and so any choice among them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from honestdp.accounting.discrete import AtomStep, Profile, step_of
from honestdp.accounting.pair import Pair
from honestdp.accounting.pld import dominating_pair
from honestdp.accounting.steps import Step, StepMasses, TooFine

POINTS = 4000  # of the profile between epsilon 0 and its end


@dataclass(frozen=True)
class WorstStep(Step):
    """`count` times one of the alternatives, each a composition of steps."""

    alternatives: tuple[tuple[Step, ...], ...]
    count: int

    @property
    def noiseless(self) -> bool:
        return any(step.noiseless for steps in self.alternatives for step in steps)

    def loss_range(self, tail: float) -> tuple[float, float]:
        step = _dominating(self.alternatives, tail, self.count)
        return (-math.inf, math.inf) if step is None else step.loss_range(tail)

    def discretised(self, *, grid: float, tail: float) -> StepMasses:
        step = _dominating(self.alternatives, tail, self.count)
        if step is None:
            raise TooFine(math.inf)
        return step.discretised(grid=grid, tail=tail)


@functools.lru_cache(maxsize=16)
def _dominating(alternatives: tuple[tuple[Step, ...], ...], tail: float, count: int) -> AtomStep | None:
    """The step that dominates every alternative, down to deltas of `tail`; None where no float could hold it."""
    pairs = [dominating_pair(steps, delta=tail) for steps in alternatives if steps]
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    return step_of(_worst_profile(known, tail), _worst_profile([pair.reversed for pair in known], tail), count=count)


def _worst_profile(pairs: list[Pair], tail: float) -> Profile:
    end = max(min(pair.epsilon(tail), float(pair.losses[-1])) for pair in pairs)
    epsilons = np.linspace(0.0, max(end, 1e-12), POINTS)
    return Profile(epsilons, np.max([pair.deltas(epsilons) for pair in pairs], axis=0))
