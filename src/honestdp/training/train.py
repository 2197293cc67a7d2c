"""Train one model or a population of candidates under differential privacy.

Everything private goes through `intake` to the mechanism; what is handled here are releases, weights and public
constants. A population is split into chunks of runs of one rule that fit the machine; each chunk is one batched
program.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from honestdp import checks
from honestdp.augment import Augmentation
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.metrics import Metric
from honestdp.boundary.ranks import ALONE, Ranks
from honestdp.boundary.seed import Seed
from honestdp.boundary.vetted import Vetted, vet
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import load_row, stack
from honestdp.losses import Loss
from honestdp.losses.class_weights import ClassWeighted, Weights
from honestdp.optimizers import Rule
from honestdp.optimizers.default import default_note, default_rule
from honestdp.optimizers.rule import kind, rule_of
from honestdp.optimizers.schedules import Schedule, factors
from honestdp.planner.prospects import stated
from honestdp.run import Run
from honestdp.training.charging import Charging, charging_of, said_to_stay, uncharged
from honestdp.training.checkpoint import File, Place
from honestdp.training.history import Past, marks_of, remember_job
from honestdp.training.loop import Interrupted, Job
from honestdp.training.population import Model, check_alike, modules_of
from honestdp.training.progress import spinner
from honestdp.training.result import Result
from honestdp.training.spec import (
    Compute,
    Preparation,
    TrainSpec,
    check_rules,
    checked,
    preparation,
    runs_of,
    shaped,
    try_rule,
)
from honestdp.training.torchrun import begin_alike, compare, joined, note_of
from honestdp.training.watching import OnStep, watch_of

if TYPE_CHECKING:
    from honestdp.ledger import Ledger

__all__ = ["Interrupted", "Result", "assemble", "train", "train_population"]


@checks.hinted
def train(
    model: Model,
    data: Any,
    *,
    run: Run | None = None,
    optimizer: str | Rule | type[Rule] | None = None,
    delta: float | None = None,
    loss: Loss | None = None,
    class_weights: Weights | None = None,
    prevalence: Sequence[float] | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    schedule: str | Schedule = "constant",
    augment: Augmentation | None = None,
    budget: Budget | None = None,
    strict: bool = False,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    note: str = "",
    preprocessing: str | None = None,
    on_step: OnStep | None = None,
    every: int | None = None,
    compute: Compute | None = None,
) -> Result:
    """Train one model under differential privacy.

    optimizer: a rule of honestdp.optimizers or of your own; a name or a class where it needs no numbers. Left out, it is one that
        has nothing to tune: "echo" where the loss is a cross-entropy, "horizon" for any other and for a Dataset without a loss.
    on_step: called as on_step(step, model) with a copy of the model at that step, in eval mode: 0 before a record is read, then
        every so many steps, and after the last. Free, for all iterates are in the guarantee; evaluate on public records alone.
        It changes nothing of the training, but may end it by raising honestdp.errors.StopTraining, at the price of all steps.
    every: steps between two calls, by default a hundredth of all; a GPU, which makes eight steps at once, rounds up to those.
    The other arguments are those of `train_population`, for one run; with a budget nothing else has to be named.

    Returns a Result: the trained copy of the model, and the statement of what is guaranteed.

    Raises InvalidArgument for an argument that nothing can be trained with, RefusedModel for a model whose examples influence one
    another, ModelWritten where the model changes its own weights, and Interrupted after Ctrl-C with a checkpoint. With a ledger
    BudgetExceeded, NoBudget and others, before anything is charged or read.

    >>> import torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=20, noise=2.0)
    >>> result = honestdp.train(torch.nn.Linear(64, 10), (x, y), run=run, delta=1e-5)
    >>> round(result.epsilon, 2), result.hyperparameters["optimizer"]
    (0.45, 'echo')
    """
    spec = TrainSpec(
        budget=budget,
        loss=loss,
        class_weights=class_weights,
        prevalence=prevalence,
        schedule=schedule,
        augment=augment,
        noise_seed=noise_seed,
        secure=secure,
        strict=strict,
        ledger=ledger,
        dataset=dataset,
        note=note,
        preprocessing=preprocessing,
        compute=compute,
    )
    notes: tuple[str, ...] = ()
    if optimizer is None:
        shapes = PrivateData(data).shapes
        optimizer = default_rule(spec.weighted_loss, None if shapes is None else shapes.y)
        notes = (default_note(optimizer),)
    rules = [rule_of(optimizer)]
    results = _trained(model, data, spec, run=run, rules=rules, delta=delta, on_step=on_step, every=every)
    return replace(results[0], notes=(*results[0].notes, *notes))


@checks.hinted
def train_population(
    model: Model | Sequence[Model],
    data: Any,
    *,
    run: Run | Sequence[Run] | None = None,
    optimizers: Sequence[str | Rule | type[Rule]],
    delta: float | None = None,
    loss: Loss | None = None,
    class_weights: Weights | None = None,
    prevalence: Sequence[float] | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    schedule: str | Schedule = "constant",
    augment: Augmentation | None = None,
    budget: Budget | None = None,
    strict: bool = False,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    note: str = "",
    preprocessing: str | None = None,
    on_step: OnStep | None = None,
    every: int | None = None,
    compute: Compute | None = None,
) -> list[Result]:
    """Train one run for each optimizer, as few batched programs, all of which are charged.

    model: a module (every run starts from a copy of it), a function that makes one (every run has its own initial
        weights), or a list with one of these for each run. The given module is not changed.
    data: (x, y), or x without labels, of tensors, arrays or memory-mapped arrays, x one, a tuple or a dict, or a Dataset.
    run: the public constants, or one Run for each optimizer that differ in their noise alone. Left out with a budget, lot and
        steps are chosen from it and from the number of records, and the statement says so.
    optimizers: rules of honestdp.optimizers or of your own; names or classes of those that need no numbers.
    delta: of the guarantee; needed as soon as an epsilon or a statement is asked for.
    loss: loss(output, y) -> one number an example; by default cross-entropy for integer labels, squared error, else -output.
    class_weights: a list with a number for each class that the losses of its examples are multiplied by, or "balanced" with
        prevalence, the part of each class: 1 for the rarest and less for the others, since the clip would cut larger ones. Both
        are declared: counted from the data they would tell of it without any noise.
    noise_seed: fixes lots and noise to repeat a result, which is then NOT PRIVATE.
    secure: noise from a cryptographic generator (CPU).
    schedule: "constant", "decay" (Koskela & Honkela), "cosine", "warmup" or "warmup-cosine" (over the first tenth of the steps,
        or as "warmup:0.05" over another part), or a function of the step that gives a factor.
    augment: how the records of a lot are varied, each by itself and anew in every step, such as
        honestdp.augment.CropAndFlip(pad=4).
    budget: calibrates the noise so that all runs together meet it; a Run then has noise=0 in its place.
    strict: each example goes through model and loss under a map of its own (torch.func), so that none can depend on
        another, whatever they do; slower. Without it their independence is tried on made-up inputs.
    ledger, dataset: charge all runs to this dataset's budget in that ledger, or its file, before any record is read; a training
        that resumes from its checkpoint is not charged again. With a dataset alone the ledger is that of the environment
        variable HONESTDP_LEDGER; without a dataset nothing is charged.
    note: for people, kept in the ledger's entry with who charged it and when. It is public.
    preprocessing: what was done to the data beforehand, for the statement, which otherwise says that it was not stated.
    on_step, every: for one run alone; see `train`.
    compute: device, workers, progress and checkpoint; see `Compute`.

    Returns the results in the order of the optimizers. The epsilon of each is that of all runs together.

    Raises what `train` raises.

    >>> import torch, honestdp
    >>> from honestdp.optimizers import SGD
    >>> x, y = honestdp.load_dataset("digits").train
    >>> run = honestdp.Run(records=len(x), lot=64, steps=20, noise=2.0)
    >>> rules = [SGD(lr=0.5, clip=1.0), SGD(lr=1.0, clip=0.5)]
    >>> first, second = honestdp.train_population(torch.nn.Linear(64, 10), (x, y), run=run, optimizers=rules, delta=1e-5)
    >>> round(first.epsilon, 2), round(first.epsilon_alone, 2)
    (0.62, 0.45)
    """
    if not isinstance(optimizers, list | tuple):
        raise InvalidArgument("optimizers", optimizers, "a list of optimizers, one for each run")
    spec = TrainSpec(
        budget=budget,
        loss=loss,
        class_weights=class_weights,
        prevalence=prevalence,
        schedule=schedule,
        augment=augment,
        noise_seed=noise_seed,
        secure=secure,
        strict=strict,
        ledger=ledger,
        dataset=dataset,
        note=note,
        preprocessing=preprocessing,
        compute=compute,
    )
    rules = [rule_of(optimizer, argument="optimizers") for optimizer in optimizers]
    return _trained(model, data, spec, run=run, rules=rules, delta=delta, on_step=on_step, every=every)


def _trained(
    model: Model | Sequence[Model],
    data: Any,
    spec: TrainSpec,
    *,
    run: Run | Sequence[Run] | None,
    rules: Sequence[Rule],
    delta: float | None,
    on_step: OnStep | None,
    every: int | None,
) -> list[Result]:
    """Train one run for each rule: charge, train, state."""
    if delta is not None:
        checks.probability(delta=delta)
    if spec.budget is not None and delta not in (None, spec.budget.delta):
        raise InvalidArgument("delta", delta, f"left out, or the budget's own, {spec.budget.delta}")
    with joined(checked(spec.compute)) as (ranks, compute):
        done = preparation(private := PrivateData(data).augmented(spec.augment), spec.preprocessing)
        spec = replace(spec, budget=done.left(spec.budget), compute=compute)
        run, chosen = shaped(run, private, declared=done.declared, budget=spec.budget, runs=len(rules))
        place = None if compute.checkpoint is None else File(Path(compute.checkpoint))
        resumed = ranks.first(lambda: place is not None and place.path.exists())
        watch = partial(watch_of, on_step, every, len(rules))
        charging = ranks.together(
            lambda: charging_of(spec, place=place, rules=rules, watch=watch, ranks=ranks), words=True
        )
        with said_to_stay(charging):
            job = assemble(model, private, run=run, optimizers=rules, spec=spec, charging=charging, ranks=ranks)
            job.watch = watch(job.runs[0].steps)
            past = remember_job(job, data, books=charging.books, place=place, resumed=resumed)
            weights = job.work(compute.progress)
    charging.end()
    return results_of(
        job,
        weights,
        delta=delta if spec.budget is None else spec.budget.delta,
        seeded=spec.noise_seed is not None,
        charging=charging,
        past=past,
        preparation=done,
        notes=(*chosen, *note_of(ranks)),
    )


def assemble(
    model: Model | Sequence[Model],
    data: Any,
    *,
    run: Run | Sequence[Run],
    optimizers: Sequence[Rule],
    spec: TrainSpec | None = None,
    by_coin: bool = False,
    seed: Seed | None = None,
    keep: Place | None = None,
    together: int = 0,
    memory: int | None = None,
    charging: Charging | None = None,
    ranks: Ranks = ALONE,
    vetted: Vetted | None = None,
    metric: Metric | None = None,
) -> Job:
    """Check everything and make the job of a population. Nothing is released yet.

    Args:
        by_coin: see `take_in`.
        seed: replaces the spec's noise_seed.
        keep: replaces the checkpoint, for a caller that compares the data itself.
        together, memory: see `Job`.
        charging: pays before a record is read.
        vetted: the model and the loss, tested before. By default they are tested here, once: before the charge where the data's
            shapes are known without a record, else after it. metric: what is tested here is tested to be scored by it, too.
    """
    spec = TrainSpec() if spec is None else spec
    compute, loss = checked(spec.compute), spec.weighted_loss
    runs = runs_of(run, len(optimizers), spec.budget)
    check_rules(optimizers, runs, spec.schedule)
    device = compute.place()
    modules = modules_of(model, len(runs))
    if vetted is not None or not isinstance(model, torch.nn.Module):
        check_alike(modules if vetted is None else [vetted.given, *modules])
    begin_alike(ranks, modules)
    private, place = PrivateData(data), None if compute.checkpoint is None else File(Path(compute.checkpoint))
    pace = factors(spec.schedule, runs[0])
    compare(ranks, private, modules, runs, optimizers, spec=spec, factors=pace, device=device.type)
    drawn = seed or (Seed.fresh() if spec.noise_seed is None else Seed.fixed(checks.seed(noise_seed=spec.noise_seed)))
    secret = ranks.first(lambda: drawn)
    size: dict[str, Any] = {"records": runs[0].records, "lot": runs[0].lot, "strict": spec.strict, "device": device}
    size["metric"] = metric
    shapes = private.shapes if vetted is None else None
    if shapes is not None:
        shown = compute.progress and ranks.is_first
        with spinner("testing the model on synthetic inputs", first=2.0) if shown else nullcontext():
            vetted = ranks.together(lambda: vet(modules[0], shapes, loss=loss, runs=len(runs), **size), words=True)
    if charging is not None:
        tried = replace(spec, budget=None, compute=Compute(device=device, workers=0))
        made_up = partial(assemble, modules, run=runs, optimizers=optimizers, spec=tried, vetted=vetted)
        charging.pay(private, modules, runs, device, made_up)
    intake = ranks.together(
        lambda: take_in(
            vetted or modules[0],
            private.read(),
            loss=loss,
            workers=compute.workers,
            by_coin=by_coin or not private.exact,
            marked=compute.checkpoint is not None,
            ranks=ranks,
            secret=secret,
            **size,
        )
    )
    intake.compare()
    for rule, each in {kind(rule): (rule, each) for rule, each in zip(optimizers, runs, strict=True)}.values():
        try_rule(rule, each, intake.layout, runs=min(2, len(runs)))
    return Job(
        intake=intake,
        modules=modules,
        runs=runs,
        rules=list(optimizers),
        initial=stack(modules, intake.layout, device),
        factors=torch.tensor(pace, dtype=intake.dtype, device=device),
        seed=secret,
        secure=spec.secure,
        place=place or keep,
        seconds=compute.checkpoint_seconds,
        together=together,
        memory=memory,
        start=None if charging is None else charging.start,
    )


def results_of(
    job: Job,
    weights: Tensor,
    *,
    delta: float | None,
    seeded: bool,
    charging: Charging,
    past: Past,
    preparation: Preparation,
    notes: tuple[str, ...] = (),
) -> list[Result]:
    """The results of a job that ended with these weights `[runs, d]`. Without a delta it is that of the ledger's budget."""
    balance = charging.balance
    if delta is None and balance is not None:
        delta = balance.budget.delta
    past.marks.update(marks_of(weights, job.intake.layout) if job.runs[0].steps else ())
    return [
        Result(
            load_row(module, job.intake.layout, row).eval(),
            run,
            rule,
            delta,
            seeded,
            siblings=tuple(other for j, other in enumerate(job.runs) if j != i),
            strict=job.intake.vetted.strict,
            weighted=isinstance(job.intake.vetted.loss, ClassWeighted),
            stopped=job.stopped,
            watched=job.watched,
            balance=balance,
            key=charging.charge.get("key", ""),
            notes=(
                *notes,
                *stated(run, job.intake.layout.shapes),
                *uncharged(charging.books),
                *past.notes,
            ),
            preprocessing=preparation.words,
            spent=preparation.spent,
            alone=not past.notes,
            unit=job.intake.unit,
        )
        for i, (module, row, run, rule) in enumerate(zip(job.modules, weights, job.runs, job.rules, strict=True))
    ]
