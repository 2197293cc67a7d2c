"""Train one model or a population of candidates under differential privacy.

Everything private goes through `intake` to the mechanism; what is handled here are releases, weights and public
constants. A population is split into chunks of runs of one rule that fit the machine; each chunk is one batched
program.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from honestdp import checks
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.seed import Seed
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import load_row, stack
from honestdp.losses import Loss
from honestdp.optimizers import Rule
from honestdp.optimizers.schedules import Schedule, factors
from honestdp.run import Run
from honestdp.training.checkpoint import File, Place
from honestdp.training.loop import Interrupted, Job
from honestdp.training.models import Model, check_alike, modules_of
from honestdp.training.result import Result

__all__ = ["Interrupted", "Result", "assemble", "train", "train_population"]


def train(
    model: Model,
    data: Any,
    *,
    run: Run,
    optimizer: Rule,
    delta: float | None = None,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    schedule: str | Schedule = "constant",
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    budget: Budget | None = None,
    workers: int = 2,
    strict: bool = False,
) -> Result:
    """Train one model; see `train_population` for the arguments."""
    results = train_population(
        model,
        data,
        run=run,
        optimizers=[optimizer],
        delta=delta,
        loss=loss,
        device=device,
        noise_seed=noise_seed,
        secure=secure,
        schedule=schedule,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        budget=budget,
        workers=workers,
        strict=strict,
    )
    return results[0]


def train_population(
    model: Model | Sequence[Model],
    data: Any,
    *,
    run: Run | Sequence[Run],
    optimizers: Sequence[Rule],
    delta: float | None = None,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    schedule: str | Schedule = "constant",
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    budget: Budget | None = None,
    workers: int = 2,
    strict: bool = False,
) -> list[Result]:
    """Train one run for each optimizer, as few batched programs, and return their results in order.

    model: a module (every run starts from a copy of it), a function that makes one (every run has its own initial
        weights), or a list with one of these for each run. The given module is not changed.
    data: (x, y) of tensors, arrays or memory-mapped arrays, or a map-style Dataset of pairs.
    run: the public constants, or one Run for each optimizer that differ in their noise alone.
    delta: of the guarantee; needed as soon as an epsilon or a statement is asked for.
    loss: loss(output, y) -> one number per example; by default cross-entropy for integer labels, else squared error.
    device: "cpu", "cuda", ...; by default a GPU if there is one.
    noise_seed: fixes lots and noise to repeat a result, which is then NOT PRIVATE.
    secure: noise from a cryptographic generator (CPU).
    schedule: "constant", "decay" (Koskela & Honkela), "cosine", or a function of the step that gives a factor.
    checkpoint: a file to keep progress in and to resume from; secret, since the noise can be recomputed from it.
    checkpoint_seconds: how long may pass between two writings of it.
    budget: calibrates the noise so that all runs together meet it; the Run then has noise=0 in its place.
    workers: processes that decode a Dataset; 0 decodes in this one.
    strict: each example goes through model and loss under a map of its own (torch.func), so that none can depend on
        another, whatever they do; slower. Without it their independence is tried on made-up inputs.
    """
    if delta is not None:
        checks.probability(delta=delta)
    job = assemble(
        model,
        data,
        run=run,
        optimizers=optimizers,
        loss=loss,
        device=device,
        noise_seed=noise_seed,
        secure=secure,
        schedule=schedule,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        budget=budget,
        workers=workers,
        strict=strict,
    )
    if budget is not None and delta not in (None, budget.delta):
        raise InvalidArgument("delta", delta, f"left out, or the budget's own, {budget.delta:g}")
    weights = job.work(progress)
    delta = budget.delta if budget is not None else delta
    siblings = [tuple(other for j, other in enumerate(job.runs) if j != i) for i in range(len(job.runs))]
    return [
        Result(load_row(module, job.intake.layout, row), one, rule, delta, noise_seed is not None, rest, strict)
        for module, row, one, rule, rest in zip(job.modules, weights, job.runs, optimizers, siblings, strict=True)
    ]


def assemble(
    model: Model | Sequence[Model],
    data: Any,
    *,
    run: Run | Sequence[Run],
    optimizers: Sequence[Rule],
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    schedule: str | Schedule = "constant",
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    budget: Budget | None = None,
    workers: int = 2,
    by_coin: bool = False,
    strict: bool = False,
    seed: Seed | None = None,
    keep: Place | None = None,
    together: int = 0,
    memory: int | None = None,
) -> Job:
    """Check everything and make the job that `train_population` does. Nothing is released yet.

    by_coin: see `take_in`. seed: in the place of noise_seed. keep: in the place of checkpoint, for a caller who compares the
    data by itself. together, memory: see `Job`.
    """
    _check_kinds(run, optimizers, loss=loss, budget=budget, schedule=schedule, checkpoint=checkpoint)
    checks.whole(least=0, workers=workers)
    checks.non_negative(checkpoint_seconds=checkpoint_seconds)
    runs = _runs(run, len(optimizers), budget)
    check_rules(optimizers, runs, schedule)
    place = place_of(device)
    modules = modules_of(model, len(runs))
    if not isinstance(model, torch.nn.Module):
        check_alike(modules)
    intake = take_in(
        modules[0],
        PrivateData(data),
        records=runs[0].records,
        loss=loss,
        device=place,
        workers=workers,
        by_coin=by_coin,
        marked=checkpoint is not None,
        lot=runs[0].lot,
        strict=strict,
    )
    return Job(
        intake=intake,
        modules=modules,
        runs=runs,
        rules=list(optimizers),
        initial=stack(modules, intake.layout, place),
        factors=torch.tensor(factors(schedule, runs[0]), dtype=intake.dtype, device=place),
        seed=seed or (Seed.fresh() if noise_seed is None else Seed.fixed(_whole_seed(noise_seed))),
        secure=secure,
        place=keep if checkpoint is None else File(Path(checkpoint)),
        seconds=checkpoint_seconds,
        together=together,
        memory=memory,
    )


def _check_kinds(run: Any, optimizers: Any, *, loss: Any, budget: Any, schedule: Any, checkpoint: Any) -> None:
    if not isinstance(optimizers, list | tuple):
        raise InvalidArgument("optimizers", optimizers, "a list of optimizers, one for each run")
    runs = [run] if isinstance(run, Run) else run
    if not isinstance(runs, list | tuple) or not all(isinstance(one, Run) for one in runs):
        raise InvalidArgument("run", run, "a honestdp.Run, or a list of them")
    if loss is not None and (isinstance(loss, type) or not callable(loss)):
        wanted = "a function of (output, y), or a loss module that has been made, such as nn.MSELoss(reduction='none')"
        raise InvalidArgument("loss", loss, wanted)
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidArgument("budget", budget, "a honestdp.Budget(epsilon, delta)")
    if not isinstance(schedule, str) and not callable(schedule):
        raise InvalidArgument("schedule", schedule, "constant, decay, cosine, or a function of the step")
    if checkpoint is not None and (Path(checkpoint).is_dir() or not Path(checkpoint).absolute().parent.is_dir()):
        raise InvalidArgument("checkpoint", str(checkpoint), "a file in a folder that exists")


def _whole_seed(seed: Any) -> int:
    wanted = "a whole number of 64 bits, or None"
    try:
        number = operator.index(seed)
    except TypeError:
        raise InvalidArgument("noise_seed", seed, wanted) from None
    if isinstance(seed, bool) or not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgument("noise_seed", seed, wanted)
    return number


def place_of(device: str | torch.device | None) -> torch.device:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as trouble:  # the latter from a build of torch without that device
        raise InvalidArgument("device", str(device), "cpu, or a device that torch has here, such as cuda") from trouble
    return torch.device("cuda", torch.cuda.current_device()) if place.type == "cuda" and place.index is None else place


def _runs(run: Run | Sequence[Run], count: int, budget: Budget | None) -> list[Run]:
    if count == 0:
        raise InvalidArgument("optimizers", [], "a list of at least one optimizer")
    runs = [run] * count if isinstance(run, Run) else list(run)
    if len(runs) != count:
        raise InvalidArgument("run", f"{len(runs)} runs", f"one Run, or one for each of the {count} optimizers")
    if len({(one.records, one.lot, one.steps) for one in runs}) > 1:
        raise InvalidArgument("run", runs, "runs that differ in their noise alone; train others separately")
    if budget is None:
        return runs
    if any(one.noise != 0 for one in runs):
        raise InvalidArgument(
            "run.noise", runs[0].noise, "0 when a budget is given: the noise is then calculated from it"
        )
    from honestdp.accounting.calibration import least_noise  # here: the engine alone needs torch and numpy only
    from honestdp.selection import Compose

    first, all_of_them = runs[0], Compose(candidates=count)
    if first.steps == 0:
        return runs  # nothing is released, so any noise meets it
    return [least_noise(budget, records=first.records, lot=first.lot, steps=first.steps, selection=all_of_them)] * count


def check_rules(optimizers: Sequence[Rule], runs: list[Run], schedule: str | Schedule) -> None:
    for rule, run in zip(optimizers, runs, strict=True):
        if not isinstance(rule, Rule):
            raise InvalidArgument("optimizer", rule, "one of honestdp.optimizers, such as SGD(lr=0.1, clip=1.0)")
        for field in fields(rule):
            if isinstance(getattr(rule, field.name), torch.Tensor):
                wanted = "a plain number; a population takes one optimizer for each run"
                raise InvalidArgument(f"{type(rule).__name__}.{field.name}", "a tensor", wanted)
        rule.check(lot=run.lot, noise=run.noise)
        if rule.own_pace and schedule != "constant":
            raise InvalidArgument(
                "schedule", schedule, f"'constant' for {type(rule).__name__}, which sets its own pace"
            )
