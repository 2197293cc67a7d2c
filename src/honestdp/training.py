"""Train one model or a population of candidates under differential privacy.

Everything private goes through `intake` to the mechanism; what is handled here are releases, weights and public
constants. A population is split into chunks of runs of one rule that fit the machine; each chunk is one batched
program.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import astuple
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from honestdp import checkpoint as checkpoints
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.chunks import largest_chunk, plan_chunks, quickest_chunk
from honestdp.intake import Intake, Model, modules_of, take_in
from honestdp.losses import Loss
from honestdp.noise import split_seed
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp.optimizers.schedules import Schedule, factors
from honestdp.parameters import stack
from honestdp.population import Population
from honestdp.progress import Bar
from honestdp.release import Constants
from honestdp.result import Result
from honestdp.run import Run

_log = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a checkpoint kept."""


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
) -> list[Result]:
    """Train one run for each optimizer, as few batched programs, and return their results in order.

    model: a module (every run starts from a copy of it), a function that makes one (every run has its own initial
    weights), or a list with one of these for each run. The given module is not changed. data: (x, y) of tensors, arrays
    or memory-mapped arrays, or a map-style Dataset of pairs. run: the public constants, or one Run for each optimizer
    that differ in their noise alone. delta: of the guarantee; needed as soon as an epsilon or a statement is asked for.
    loss: loss(output, y) -> one number per example; by default cross-entropy for integer labels, squared error for
    others. device: "cpu", "cuda", ...; by default a GPU if there is one. noise_seed: fixes lots and noise to repeat a
    result, which is then NOT PRIVATE. secure: noise from a cryptographic generator (CPU). schedule: "constant", "decay"
    (Koskela & Honkela), "cosine", or a function of the step that gives a factor. checkpoint: a file to keep progress in
    and to resume from; secret, since the noise can be recomputed from it. budget: calibrates the noise; the Run then
    has noise=0 in its place. workers: processes that decode a Dataset; 0 decodes in this one.
    """
    runs = _runs(run, len(optimizers), budget)
    delta = budget.delta if budget is not None and delta is None else delta
    _check(optimizers, runs, schedule)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    modules = modules_of(model, len(runs))
    intake = take_in(modules[0], data, records=runs[0].records, loss=loss, device=place, workers=workers)
    job = _Job(
        intake=intake,
        runs=runs,
        rules=list(optimizers),
        initial=stack(modules, intake.layout, place),
        factors=torch.tensor(factors(schedule, runs[0]), dtype=intake.dtype, device=place),
        seed=noise_seed,
        secure=secure,
        path=None if checkpoint is None else Path(checkpoint),
        seconds=checkpoint_seconds,
    )
    weights = job.work(progress)
    siblings = [tuple(other for j, other in enumerate(runs) if j != i) for i in range(len(runs))]
    return [
        Result(_loaded(module, intake, row), one, rule, delta, noise_seed is not None, rest)
        for module, row, one, rule, rest in zip(modules, weights, runs, optimizers, siblings, strict=True)
    ]


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
    from honestdp import accounting  # here, so that the engine needs torch and numpy alone

    return [accounting.calibrate_noise(runs[0], budget)] * count


def _check(optimizers: Sequence[Rule], runs: list[Run], schedule: str | Schedule) -> None:
    for rule, run in zip(optimizers, runs, strict=True):
        if not isinstance(rule, Rule):
            raise InvalidArgument("optimizer", rule, "one of honestdp.optimizers, such as SGD(lr=0.1, clip=1.0)")
        rule.check(lot=run.lot, noise=run.noise)
        if rule.own_pace and schedule != "constant":
            raise InvalidArgument(
                "schedule", schedule, f"'constant' for {type(rule).__name__}, which sets its own pace"
            )


def _loaded(module: nn.Module, intake: Intake, row: Tensor) -> nn.Module:
    """The module with a run's weights `[d]`."""
    own = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in intake.layout.views(row[None]).items():
            own[name].copy_(value[0])
    return module


class _Job:
    """A population on its way from initial weights to final ones."""

    def __init__(
        self,
        *,
        intake: Intake,
        runs: list[Run],
        rules: list[Rule],
        initial: Tensor,
        factors: Tensor,
        seed: int | None,
        secure: bool,
        path: Path | None,
        seconds: float,
    ) -> None:
        self._intake, self._runs, self._rules, self._initial = intake, runs, rules, initial
        self._factors, self._seed, self._secure = factors, seed, secure
        self._path, self._seconds, self._written = path, seconds, monotonic()

    def work(self, show: bool) -> Tensor:
        """The final weights of all runs, `[runs, d]`."""
        kept = None if self._path is None else checkpoints.load(self._path, self._identity(), self._initial.device)
        todo = kept or checkpoints.Progress(self._identity(), self._chunks())
        with Bar(total=len(self._runs) * self._runs[0].steps) if show else nullcontext() as bar:
            while len(todo.finished) < len(todo.chunks):
                self._finish_chunk(todo, bar)
        weights = torch.empty_like(self._initial)
        for chunk, found in zip(todo.chunks, todo.finished, strict=True):
            weights[torch.tensor(chunk, device=weights.device)] = found
        return weights

    def _finish_chunk(self, todo: checkpoints.Progress, bar: Bar | None) -> None:
        number = len(todo.finished)
        chunk = todo.chunks[number]
        try:
            found = self._train(chunk, todo, bar)
        except torch.OutOfMemoryError:
            if len(chunk) == 1:
                raise
            half = len(chunk) // 2
            _log.warning("out of memory with %d runs together; going on with %d", len(chunk), half)
            todo.chunks[number : number + 1] = [chunk[:half], chunk[half:]]
            todo.current = None
            torch.cuda.empty_cache()
            return
        todo.finished.append(found)
        todo.current = None
        self._keep(todo, always=True)

    def _train(self, chunk: list[int], todo: checkpoints.Progress, bar: Bar | None) -> Tensor:
        """The final weights of some runs of one rule, `[runs, d]`."""
        seed = None if self._seed is None else split_seed(self._seed, 100 + chunk[0])
        mechanism = self._intake.mechanism(self._constants(chunk), seed=seed, secure=self._secure)
        population = Population(mechanism, self._rule(chunk), self._initial[torch.tensor(chunk)])
        if todo.current is not None:
            population.restore(todo.current)
        try:
            while population.step < population.total:
                todo.current = population.snapshot()
                self._keep(todo)
                population.block()
                if bar is not None:
                    bar.advance((population.step - todo.current.step) * len(chunk))
        except KeyboardInterrupt as stop:
            raise self._interrupted(todo) from stop
        return population.weights()

    def _keep(self, todo: checkpoints.Progress, always: bool = False) -> None:
        if self._path is not None and (always or monotonic() - self._written >= self._seconds):
            checkpoints.save(self._path, todo)
            self._written = monotonic()

    def _interrupted(self, todo: checkpoints.Progress) -> KeyboardInterrupt:
        if self._path is None:
            return KeyboardInterrupt("stopped; nothing was kept, since no checkpoint= was given")
        self._keep(todo, always=True)
        step = 0 if todo.current is None else todo.current.step
        return Interrupted(
            f"stopped at step {step} of {self._runs[0].steps}; the checkpoint is kept in {self._path}; to resume, call "
            f"again with the same arguments and checkpoint={str(self._path)!r}"
        )

    def _constants(self, chunk: list[int]) -> Constants:
        first = self._runs[0]
        sigma = [self._runs[i].noise for i in chunk]
        noise = torch.tensor(sigma, dtype=self._intake.dtype, device=self._initial.device)
        return Constants(first.records, first.lot, first.steps, noise, self._intake.layout, self._factors)

    def _rule(self, chunk: list[int]) -> Rule:
        rules = [self._rules[i] for i in chunk]
        return stack_rules(rules, dtype=self._intake.dtype, device=self._initial.device)

    def _chunks(self) -> list[list[int]]:
        most = largest_chunk(self._intake.bytes_per_run(self._runs[0]), self._initial.device)
        # A measured choice would differ from day to day, and the draws with it: a fixed seed takes the same one always.
        if self._seed is None:
            most = quickest_chunk(self._rehearse, most=most, runs=len(self._runs), steps=self._runs[0].steps)
        return plan_chunks(self._rules, most)

    def _rehearse(self, size: int) -> Population:
        """A population of `size` runs over made-up records."""
        chunk = [0] * size
        mechanism = self._intake.rehearsal(self._constants(chunk))
        return Population(mechanism, self._rule(chunk), self._initial[:1].expand(size, -1).clone())

    def _identity(self) -> dict[str, Any]:
        """What must agree between a checkpoint and the training that resumes from it."""
        model = self._intake.question.model
        trained = set(self._intake.layout.names)
        fixed = {n: p for n, p in model.state_dict().items() if n not in trained}
        digest = hashlib.sha256()
        for name, value in sorted(fixed.items()):
            digest.update(
                name.encode() + value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
        return {
            "runs": [list(astuple(run)) for run in self._runs],
            "optimizers": [repr(rule) for rule in self._rules],
            "schedule": hashlib.sha256(self._factors.cpu().numpy().tobytes()).hexdigest(),
            "parameters": [list(self._intake.layout.names), [list(shape) for shape in self._intake.layout.shapes]],
            "frozen parameters": digest.hexdigest(),
            "device": self._initial.device.type,
            "noise_seed": self._seed,
            "secure": self._secure,
        }
