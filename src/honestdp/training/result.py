"""What a training gives back: a model, and what is guaranteed about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from honestdp import checks
from honestdp.budget import rounded_up
from honestdp.checks import InvalidArgument
from honestdp.optimizers import Rule
from honestdp.run import Run

if TYPE_CHECKING:
    from honestdp.budget import Statement


@dataclass(frozen=True)
class Result:
    """One trained run.

    model: the trained copy of the given model. run: the constants that were executed and are accounted. delta: of the
    guarantee. seeded: the noise came from a seed the user fixed. siblings: the further runs that left together with it.
    strict: each example was under a map of its own.
    """

    model: nn.Module
    run: Run
    optimizer: Rule
    delta: float | None
    seeded: bool = False
    siblings: tuple[Run, ...] = ()
    strict: bool = False

    @cached_property
    def epsilon(self) -> float:
        """The epsilon of all that left together, at `delta`: this run and its siblings, composed.

        A population is trained to be compared, and every run of it is handed over, so every one is charged. Infinite
        where no noise was added.
        """
        return _account([self.run, *self.siblings], self.delta)

    @cached_property
    def epsilon_alone(self) -> float:
        """The epsilon of this run if none of its siblings is looked at, published or chosen by."""
        return _account([self.run], self.delta)

    @cached_property
    def statement(self) -> Statement:
        """What is guaranteed, in words and numbers."""
        from honestdp.budget import ASSUMPTIONS, Statement, independence

        count = len(self.siblings) + 1
        reasons = []
        if math.isinf(self.epsilon):
            reasons.append("noise 0, the gradients were released as they are, so epsilon is infinite")
        if self.seeded:
            reasons.append("noise_seed was fixed, and whoever knows the seed can subtract the noise")
        notes = []
        if self.siblings:
            alone = rounded_up(self.epsilon_alone)
            notes.append(f"this run alone, had it not been compared with the others: epsilon {alone}")
        return Statement(
            epsilon=self.epsilon,
            delta=_needed(self.delta) if 0 < self.epsilon < math.inf else self.delta or 0.0,
            accountant="pld",
            selection="compose",
            how="one run, no tuning" if count == 1 else f"{count} runs trained together, every one of them charged",
            runs=count,
            leaves="the final weights" if count == 1 else f"the final weights of all {count} runs",
            basis="composition of all steps" if count == 1 else "composition of all steps of all runs",
            assumptions=(*ASSUMPTIONS, independence(strict=self.strict)),
            notes=tuple(notes),
            not_private=tuple(reasons),
        )

    def at(self, delta: float) -> Result:
        """The same result with its guarantee stated at this delta."""
        checks.probability(delta=delta)
        return replace(self, delta=delta)

    def save(self, path: str | Path) -> None:
        """Write the model's weights as safetensors (never as a pickle, which could run code when read)."""
        from safetensors.torch import save_model

        save_model(self.model, str(path), {"format": "pt"})


def _needed(delta: float | None) -> float:
    if delta is None:
        raise InvalidArgument("delta", None, "given to train(), or afterwards by result.at(delta), for an epsilon")
    return delta


def _account(runs: list[Run], delta: float | None) -> float:
    if all(run.steps == 0 for run in runs):
        return 0.0
    if any(run.noise == 0 and run.steps > 0 for run in runs):
        return math.inf
    import dp_accounting  # here, so that the engine needs torch and numpy alone

    from honestdp import accounting

    event = dp_accounting.ComposedDpEvent([run.event for run in runs])
    return accounting.epsilon(event, delta=_needed(delta))
