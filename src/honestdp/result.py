"""What a training gives back: a model, and what is guaranteed about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from honestdp.checks import InvalidArgument
from honestdp.optimizers import Rule
from honestdp.run import Run

if TYPE_CHECKING:
    from honestdp.budget import Statement


@dataclass(frozen=True)
class Result:
    """One trained run.

    model: the trained copy of the given model. run: the constants that were executed and are accounted. delta: of the
    guarantee. seeded: the noise came from a seed the user fixed. siblings: the further runs that left together with
    this one.
    """

    model: nn.Module
    run: Run
    optimizer: Rule
    delta: float | None
    seeded: bool = False
    siblings: tuple[Run, ...] = ()

    @cached_property
    def epsilon(self) -> float:
        """The epsilon of this run alone, at `delta`; infinite where no noise was added."""
        return _account([self.run], self.delta)

    @cached_property
    def statement(self) -> Statement:
        """What is guaranteed, in words and numbers."""
        from honestdp.budget import Statement

        reasons = []
        if self.run.noise == 0 and self.run.steps > 0:
            reasons.append("noise 0: the gradients were released as they are")
        if self.seeded:
            reasons.append("noise_seed was fixed: whoever knows the seed can subtract the noise")
        notes = []
        if self.siblings:
            together = _account([self.run, *self.siblings], self.delta)
            notes.append(
                f"{len(self.siblings) + 1} runs left together: releasing all of them, or choosing one of them by these "
                f"records, costs their composition, epsilon {together:.4g}"
            )
        return Statement(
            epsilon=self.epsilon,
            delta=_needed(self.delta),
            accountant="pld",
            selection="none: one run, no tuning",
            leaves="the final weights of this run",
            notes=tuple(notes),
            not_private=tuple(reasons),
        )

    def save(self, path: str | Path) -> None:
        """Write the model's weights as safetensors (never as a pickle, which could run code when read)."""
        from safetensors.torch import save_model

        save_model(self.model, str(path), {"format": "pt"})


def _needed(delta: float | None) -> float:
    if delta is None:
        raise InvalidArgument("delta", None, "given to train(), for an epsilon to be stated")
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
