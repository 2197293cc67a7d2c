"""`TrainSpec`: the arguments that a training and every run of a search share, in one frozen value, checked when it is made.

`train`, `train_population`, `tune`, the command line and the estimators build a `TrainSpec`; everything behind them takes one.
Its docstring is the one text on each argument: the command line shows it as help.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from honestdp import checks
from honestdp.augment import Augmentation
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.losses import Loss
from honestdp.losses.class_weights import Weights, with_class_weights
from honestdp.optimizers.schedules import WANTED, Schedule
from honestdp.training.compute import Compute

if TYPE_CHECKING:
    from honestdp.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """How a model is trained under differential privacy, and what pays for it.

    Attributes:
        budget: what may be spent by everything that reads a record.
        loss: loss(output, y) -> one number an example. By default cross-entropy for classes, squared error for numbers, -output
            without labels.
        class_weights: the factor of the losses of each class, such as [1, 9], or "balanced": 1 for the rarest class and less for
            the others, by prevalence.
        prevalence: the part of each class, such as [0.9, 0.1], declared from public knowledge and never counted from the records.
        schedule: the step size over time: constant, decay (Koskela & Honkela), cosine, warmup or warmup-cosine. warmup:0.05 warms
            up over that part of the steps, a tenth if left out. In Python also a function of the step that returns a factor.
        augment: the variants of a record, drawn anew for each step, such as honestdp.augment.CropAndFlip(pad=4).
        noise_seed: fixes every random number, to repeat a result. NOT PRIVATE.
        secure: noise from a cryptographic generator (CPU).
        strict: each record goes through model and loss by itself; slower.
        ledger: the ledger to charge before a record is read: a file, or an address postgresql://...
        dataset: the dataset's name in the ledger.
        note: free text stored in the ledger entry. It is public.
        preprocessing: what was done to the data beforehand, in words, for the statement.
        compute: device, workers, progress and checkpoint; see `Compute`.

    Raises:
        InvalidArgument: a value that no training can have.

    >>> TrainSpec(schedule="cosine").schedule
    'cosine'
    """

    budget: Budget | None = None
    loss: Loss | None = None
    class_weights: Weights | None = None
    prevalence: Sequence[float] | None = None
    schedule: str | Schedule = "constant"
    augment: Augmentation | None = None
    noise_seed: int | None = None
    secure: bool = False
    strict: bool = False
    ledger: str | Path | Ledger | None = None
    dataset: str | None = None
    note: str = ""
    preprocessing: str | None = None
    compute: Compute | None = None

    def __post_init__(self) -> None:
        if self.loss is not None and (isinstance(self.loss, type) or not callable(self.loss)):
            wanted = (
                "a function of (output, y), or a loss module that has been made, such as nn.MSELoss(reduction='none')"
            )
            raise InvalidArgument("loss", self.loss, wanted)
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise InvalidArgument("budget", self.budget, "a honestdp.Budget(epsilon, delta)")
        if not isinstance(self.schedule, str) and not callable(self.schedule):
            raise InvalidArgument("schedule", self.schedule, WANTED)
        if self.noise_seed is not None:
            checks.seed(noise_seed=self.noise_seed)
        _ = self.weighted_loss

    @cached_property
    def weighted_loss(self) -> Loss | None:
        """The loss with the class weights applied."""
        return with_class_weights(self.loss, self.class_weights, self.prevalence)


def help_texts(spec: type) -> dict[str, str]:
    """The text on each attribute in the docstring of a spec, by the attribute's name.

    >>> help_texts(TrainSpec)["secure"]
    'noise from a cryptographic generator (CPU).'
    """
    section = re.search(r"\n    Attributes:\n(.*?)\n\n", spec.__doc__ or "", re.DOTALL)
    entries = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\Z)", section[1] if section else "", re.DOTALL | re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
