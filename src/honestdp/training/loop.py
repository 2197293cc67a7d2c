"""`Job`: trains a population chunk by chunk, with checkpoints, interruptions and a lack of memory.

What is handled here are releases, weights and public constants; everything private is behind `Intake`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, partial
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.capture import free_captured
from honestdp.boundary.intake import Intake
from honestdp.boundary.query import Constants
from honestdp.boundary.ranks import RankLost, Ranks
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.identity.values import identity
from honestdp.logs import logger
from honestdp.optimizers import Rule
from honestdp.optimizers.default import classes_at
from honestdp.optimizers.echo import echoes
from honestdp.optimizers.rule import kind, stack_rules
from honestdp.run import Run
from honestdp.training import checkpoint as checkpoints
from honestdp.training.chunks import free_memory, largest_chunk, plan_chunks, quickest_chunk
from honestdp.training.population import Population
from honestdp.training.progress import Advance, bar, spinner, unshown
from honestdp.training.watching import StopTraining, Watch

_log = logger(__name__)
_REHEARSED_STEPS = 1000


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a training. Its words say whether a checkpoint is kept, and how to resume from it."""


@dataclass(kw_only=True, eq=False, repr=False)
class Job:
    """A population on its way from initial weights to final ones.

    initial: weights `[runs, d]`. factors: of the learning rate in each step. place, seconds: where a checkpoint is kept, and how
    long may pass between two writings of it. together: the most runs that are trained together. memory: bytes that the runs
    may take, from which that number follows where it is not given. Where neither is, both are measured. watch: who looks at the
    iterates of a single run. start: called before the next step with the progress so far, unless it is over. named: the numbers
    that runs have in what is drawn for them, where they are part of a larger population that is trained elsewhere.
    After `work`, stopped: the step at which it was ended; watched: whether anybody saw an iterate.
    """

    intake: Intake
    modules: list[nn.Module]
    runs: list[Run]
    rules: list[Rule]
    initial: Tensor
    factors: Tensor
    seed: Seed
    secure: bool
    place: checkpoints.Place | None
    seconds: float
    together: int = 0
    memory: int | None = None
    watch: Watch | None = None
    start: Callable[[checkpoints.Progress], None] | None = None
    named: list[int] | None = None
    stopped: int | None = field(init=False, default=None)
    watched: bool = field(init=False, default=False)
    _written: float = field(init=False, default_factory=monotonic)

    @property
    def ranks(self) -> Ranks:
        """The processes that do this job together."""
        return self.intake.ranks

    def work(self, show: bool) -> Tensor:
        """The final weights of all runs, `[runs, d]`."""
        about, todo = {} if self.place is None else self._identity(), None
        if self.place is not None:
            content = self.ranks.first(self.place.read)
            todo = None if content is None else checkpoints.load(content, str(self.place), about, self.initial.device)
        if todo is not None and len(todo.finished) == len(todo.chunks):
            _log.info("the training of %s is over; its result is read from there", self.place)
        self.initial = self.initial if todo is None or todo.initial is None else todo.initial
        if todo is None or len(todo.finished) < len(todo.chunks):
            self._hear(show)
        todo = todo or checkpoints.Progress(about, self.seed, self.ranks.first(self.chunks))
        self.seed, todo.watched = todo.seed, todo.watched or self.watch is not None
        todo.initial = self.initial
        if self.start is not None and len(todo.finished) < len(todo.chunks):
            self.start(todo)
        runs, steps = len(self.runs), self.runs[0].steps
        shown = (
            bar(total=runs * steps, done=todo.made(steps), runs=runs)
            if show and self.ranks.is_first
            else nullcontext(unshown)
        )
        with shown as advance, lent(), self.intake.decoding():
            while len(todo.finished) < len(todo.chunks):
                self._finish_chunk(todo, advance)
        self.stopped, self.watched = todo.stopped, todo.watched
        weights = torch.empty_like(self.initial)
        for chunk, final in zip(todo.chunks, todo.finished, strict=True):
            weights[torch.tensor(chunk, device=weights.device)] = final
        return weights

    def _finish_chunk(self, todo: checkpoints.Progress, advance: Advance) -> None:
        """Train the next chunk, or split it where it does not fit: nothing of it has left, and its halves begin anew."""
        number = len(todo.finished)
        chunk = todo.chunks[number]
        weights, interrupted = None, False
        try:
            weights = self._train(chunk, todo, advance)
        except torch.OutOfMemoryError:
            if len(chunk) == 1 or self.ranks.size > 1:  # the other ranks are in the middle of the chunk
                raise
        except RankLost as lost:
            self._keep(todo, always=True)
            raise RankLost(f"{lost}; {self._stopped(todo)}") from lost
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:  # raised here and not there: where in a step it was helps nobody
            raise self._interrupted(todo)
        todo.current = None
        if weights is not None:
            todo.finished.append(weights)
            self._keep(todo, always=True)
        else:
            half = len(chunk) // 2
            _log.warning("out of memory with %d runs together; going on with %d", len(chunk), half)
            todo.chunks[number : number + 1] = [chunk[:half], chunk[half:]]
        if len(todo.chunks) > 1:
            free_captured()  # so that the next chunk, and the weights of all of them, have the room

    def _train(self, chunk: list[int], todo: checkpoints.Progress, advance: Advance) -> Tensor:
        """The final weights of some runs of one rule, `[runs, d]`.

        What a model draws, such as dropout, follows from the chunk and the step, whoever resumes it: the same noise on two
        different masks would betray the difference between them.
        """
        population = self.population(chunk)
        if todo.current is not None:
            population.restore(todo.current)
        watch, before = self.watch, population.step
        while population.step < population.total and todo.stopped is None:
            if population.between_blocks:
                todo.current = population.snapshot()
                self._keep(todo, always=population.step == 0)
                seed_all(self.ranks.seed_of(self.seed.child("model", *self._names(chunk), population.step)).number(63))
            if watch is None:
                population.block()
            else:
                population.block(look=watch.until(population.step))
            advance((population.step - before) * len(chunk))
            if watch is not None and watch.due(before, population.step, population.total):
                row = population.weights()[0]  # by all ranks; the first of them shows it
                todo.stopped = self.ranks.first(partial(self._seen, watch, population, todo, row))
            before = population.step
        return population.weights()

    def _seen(self, watch: Watch, population: Population, todo: checkpoints.Progress, row: Tensor) -> int | None:
        """Show the iterate; the step where `on_step` stops the training here."""
        try:
            watch.look(population.step, self.modules[0], self.intake.layout, row)
        except StopTraining:
            return population.step
        except Exception as trouble:
            self._keep(todo, always=True)
            trouble.add_note(f"raised by on_step at step {population.step} of {population.total}; {self._kept()}")
            raise
        return None

    def population(self, chunk: list[int]) -> Population:
        """The runs of a chunk before their first step."""
        seed = self.seed.child("chunk", *self._names(chunk))  # a half draws nothing that the whole has drawn
        mechanism = self.intake.mechanism(self._constants(chunk), seed=seed, secure=self.secure, rows=self.seed)
        return Population(mechanism, self._rule(chunk), self.initial[torch.tensor(chunk)])

    def _names(self, chunk: list[int]) -> list[int]:
        return chunk if self.named is None else [self.named[i] for i in chunk]

    def _keep(self, todo: checkpoints.Progress, always: bool = False) -> None:
        if self.place is not None and self.ranks.is_first and (always or monotonic() - self._written >= self.seconds):
            checkpoints.save(self.place, todo)
            self._written = monotonic()

    def _interrupted(self, todo: checkpoints.Progress) -> Interrupted:
        self._keep(todo, always=True)
        return Interrupted(self._stopped(todo))

    def _stopped(self, todo: checkpoints.Progress) -> str:
        step = 0 if todo.current is None else todo.current.step
        return f"stopped at step {step} of {self.runs[0].steps}; {self._kept()}"

    def _kept(self) -> str:
        if self.place is None:
            return (
                "nothing was kept, since no checkpoint= was given: compute=honestdp.Compute(checkpoint=PATH) keeps one"
            )
        again = "" if self.ranks.size == 1 else f"start all {self.ranks.size} ranks and "
        again += f"call again with the same arguments and compute=honestdp.Compute(checkpoint={str(self.place)!r})"
        return f"the checkpoint is kept in {self.place}; to resume, {again}"

    def _constants(self, chunk: list[int], *, heard: bool = True) -> Constants:
        """heard: with what noise does to the outputs, where a rule goes by it; that takes some seconds."""
        first = self.runs[0]
        sigma = [self.runs[i].noise for i in chunk]
        noise = torch.tensor(sigma, dtype=self.intake.dtype, device=self.initial.device)
        echo = self._echo[torch.tensor(chunk)] if heard and any(self.rules[i].by_echo for i in chunk) else None
        return Constants(first.records, first.lot, first.steps, noise, self.intake.layout, self.factors, echo)

    def _hear(self, show: bool) -> None:
        """What rules go by, before they are asked for: a model of ten million weights takes a CPU some seconds."""
        if any(rule.by_echo for rule in self.rules):
            with spinner("measuring what noise does to the outputs") if show and self.ranks.is_first else nullcontext():
                _ = self._echo

    @cached_property
    def _echo(self) -> Tensor:
        """`[runs, norms, shakes]`: how far noise in the initial weights moves the outputs; zeros for rules that do not ask.

        The first rank measures it for all: its last digits may differ on another machine, and the steps would differ with them.
        """
        asks = torch.tensor([rule.by_echo for rule in self.rules], device=self.initial.device)

        def measured() -> Tensor:
            question, layout, blank = self.intake.vetted, self.intake.layout, self.intake.blank()
            return echoes(question.model, layout, self.initial[asks], blank, classes_at(question.loss)).cpu()

        table = self.ranks.first(measured).to(self.initial)
        return table.new_zeros(len(asks), *table.shape[1:]).masked_scatter(asks[:, None, None], table)

    def _rule(self, chunk: list[int]) -> Rule:
        rules = [self.rules[i] for i in chunk]
        return stack_rules(rules, dtype=self.intake.dtype, device=self.initial.device)

    def chunks(self) -> list[list[int]]:
        """Which runs to train together, in order."""
        return plan_chunks(self.rules, self.together or self.most_together(len(self.runs)))

    def most_together(self, runs: int) -> int:
        """How many of so many runs are trained together at most."""
        memory = free_memory(self.initial.device) if self.memory is None else self.memory
        most = largest_chunk(self.intake.bytes_per_run(self.runs[0]), memory)
        # A measured choice would differ from day to day, and the draws with it: a fixed seed takes the same one always.
        if self.seed.is_fixed or self.memory is not None:
            return most
        return quickest_chunk(self.rehearsal, most=most, runs=runs, steps=self.runs[0].steps)

    def rehearse(self) -> None:
        """One release of every kind of rule, its second question included, over made-up records. What fails says why."""
        named = type(self.modules[0]).__name__
        with lent():
            for number in {kind(rule): i for i, rule in enumerate(self.rules) if self.runs[i].steps}.values():
                chunk = [number]
                constants = self._constants(chunk, heard=False)
                population = Population(self.intake.rehearsal(constants), self._rule(chunk), self.initial[number, None])
                try:
                    population.rehearse()
                except (HonestdpError, KeyboardInterrupt, MemoryError, torch.OutOfMemoryError, torch.AcceleratorError):
                    raise
                except Exception as trouble:
                    words = " ".join(f"{type(trouble).__name__}: {trouble}".split())
                    wanted = f"one that makes a step of training on made-up records of the data's shapes ({words})"
                    raise InvalidArgument("model", named, wanted) from trouble

    def rehearsal(self, size: int) -> Population:
        """A population over made-up records, with so many steps that no rule runs past its last while it is timed."""
        chunk = [0] * size
        factors = torch.ones(_REHEARSED_STEPS, dtype=self.factors.dtype, device=self.factors.device)
        constants = replace(self._constants(chunk), steps=_REHEARSED_STEPS, factors=factors)
        mechanism = self.intake.rehearsal(constants)
        return Population(mechanism, self._rule(chunk), self.initial[:1].expand(size, -1).clone())

    def _identity(self) -> dict[str, Any]:
        """What must agree between a checkpoint and the training that resumes from it."""
        model, loss = self.intake.vetted.model, self.intake.vetted.loss
        trained = set(self.intake.layout.names)
        fixed = {n: p for n, p in model.state_dict().items() if n not in trained}
        digest = hashlib.sha256()
        for name, value in sorted(fixed.items()):
            numbers = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
            digest.update(name.encode() + numbers.tobytes())
        described = re.sub(r" at 0x[0-9a-f]+", "", repr(model))
        augment = self.intake.augment
        varied = {} if augment is None else identity(augment, values=True).named("the augmentation's code")
        return {
            "model": hashlib.sha256(described.encode()).hexdigest(),
            "runs": [list(astuple(run)) for run in self.runs],
            "optimizers": [f"{rule!r} of form {rule.form}" if rule.form else repr(rule) for rule in self.rules],
            "schedule": hashlib.sha256(self.factors.cpu().numpy().tobytes()).hexdigest(),
            "loss": getattr(loss, "__qualname__", type(loss).__qualname__),
            "data": self.intake.fingerprint,
            "dtype": str(self.intake.dtype),
            "parameters": [list(self.intake.layout.names), [list(shape) for shape in self.intake.layout.shapes]],
            "frozen parameters": digest.hexdigest(),
            "device": self.initial.device.type,
            "ranks": self.ranks.size,
            "noise_seed": self.seed.key.hex() if self.seed.is_fixed else None,
            "secure": self.secure,
            "strict": self.intake.vetted.strict,
            "code": self.intake.vetted.gradients.code | checkpoints.code_of_rules(self.rules) | varied,
        }
