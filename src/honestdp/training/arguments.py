"""Checks of what `train` is given, each of a kind that it can work with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from honestdp.checks import InvalidArgument
from honestdp.optimizers import Rule
from honestdp.optimizers.decay import check_decay
from honestdp.optimizers.schedules import Schedule
from honestdp.run import Run


def check_run(run: Any) -> None:
    """Refuse anything but a Run or a list of them."""
    runs = [run] if isinstance(run, Run) else run
    if not isinstance(runs, list | tuple) or not all(isinstance(each, Run) for each in runs):
        raise InvalidArgument("run", run, "a honestdp.Run, or a list of them")


def check_rules(optimizers: Sequence[Rule], runs: list[Run], schedule: str | Schedule) -> None:
    """An error where a rule cannot be what a run of a population is trained by."""
    for rule, run in zip(optimizers, runs, strict=True):
        for field in fields(rule):
            if isinstance(getattr(rule, field.name), torch.Tensor):
                wanted = "a plain number; a population takes one optimizer for each run"
                raise InvalidArgument(f"{type(rule).__name__}.{field.name}", "a tensor", wanted)
        check_decay(rule)
        rule.check(lot=run.lot, noise=run.noise)
        if rule.own_pace and schedule != "constant":
            wanted = f"'constant' for {type(rule).__name__}, which sets its own pace"
            raise InvalidArgument("schedule", schedule, wanted)
