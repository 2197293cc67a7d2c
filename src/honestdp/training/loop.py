"""A population on its way from initial weights to final ones: chunks, checkpoints, interruptions, lack of memory.

What is handled here are releases, weights and public constants; everything private is behind `Intake`.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import nullcontext
from dataclasses import astuple, replace
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.boundary.capture import free_captured
from honestdp.boundary.generators import lent, seed_all
from honestdp.boundary.intake import Intake
from honestdp.boundary.query import Constants
from honestdp.boundary.seed import Seed
from honestdp.logs import logger
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp.run import Run
from honestdp.training import checkpoint as checkpoints
from honestdp.training.chunks import free_memory, largest_chunk, plan_chunks, quickest_chunk
from honestdp.training.identity import identity
from honestdp.training.population import Population
from honestdp.training.progress import Bar

_log = logger(__name__)
_REHEARSED_STEPS = 1000


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a checkpoint kept."""


class Job:
    """A population on its way from initial weights to final ones. `intake`, `modules` and `runs` are what it was made
    from.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        modules: list[nn.Module],
        runs: list[Run],
        rules: list[Rule],
        initial: Tensor,
        factors: Tensor,
        seed: Seed,
        secure: bool,
        place: checkpoints.Place | None,
        seconds: float,
        together: int = 0,
        memory: int | None = None,
    ) -> None:
        """together: the most runs that are trained together. memory: bytes that the runs may take, from which that number
        follows where it is not given. Where neither is, both are measured now.
        """
        self.intake, self.modules, self.runs = intake, modules, runs
        self._rules, self._initial = rules, initial
        self._factors, self._seed, self._secure = factors, seed, secure
        self._place, self._seconds, self._written = place, seconds, monotonic()
        self._together, self._memory = together, memory

    def work(self, show: bool) -> Tensor:
        """The final weights of all runs, `[runs, d]`."""
        kept = self._kept()
        todo = kept or checkpoints.Progress(self._identity(), self._seed, self.chunks())
        self._seed = todo.seed
        if kept is not None and len(kept.finished) == len(kept.chunks):
            _log.info("the training of %s is over; its result is read from there", self._place)
        shown = Bar(total=len(self.runs) * self.runs[0].steps) if show else nullcontext()
        with shown as bar, lent(), self.intake.decoding():
            while len(todo.finished) < len(todo.chunks):
                self._finish_chunk(todo, bar)
        weights = torch.empty_like(self._initial)
        for chunk, found in zip(todo.chunks, todo.finished, strict=True):
            weights[torch.tensor(chunk, device=weights.device)] = found
        return weights

    def _kept(self) -> checkpoints.Progress | None:
        if self._place is None:
            return None
        return checkpoints.load(self._place, self._identity(), self._seed, self._initial.device)

    def _finish_chunk(self, todo: checkpoints.Progress, bar: Bar | None) -> None:
        number = len(todo.finished)
        chunk = todo.chunks[number]
        try:
            found = self._train(chunk, todo, bar)
        except torch.OutOfMemoryError:
            if len(chunk) == 1:
                raise
            found = None
        todo.current = None
        if found is None:
            self._halve(todo)
            return
        todo.finished.append(found)
        self._keep(todo, always=True)

    def _halve(self, todo: checkpoints.Progress) -> None:
        """Split the chunk that did not fit. Nothing of it has left, and its halves begin anew."""
        number = len(todo.finished)
        chunk = todo.chunks[number]
        half = len(chunk) // 2
        _log.warning("out of memory with %d runs together; going on with %d", len(chunk), half)
        todo.chunks[number : number + 1] = [chunk[:half], chunk[half:]]
        free_captured()

    def _train(self, chunk: list[int], todo: checkpoints.Progress, bar: Bar | None) -> Tensor:
        """The final weights of some runs of one rule, `[runs, d]`.

        What a model draws, such as dropout, follows from the chunk and the step, whoever resumes it: the same noise on two
        different masks would betray the difference between them.
        """
        population = self.population(chunk)
        if todo.current is not None:
            population.restore(todo.current)
        try:
            while population.step < population.total:
                todo.current = population.snapshot()
                self._keep(todo, always=population.step == 0)
                seed_all(self._seed.child("model", *chunk, population.step).number(63))
                population.block()
                if bar is not None:
                    bar.advance((population.step - todo.current.step) * len(chunk))
        except KeyboardInterrupt as stop:
            raise self._interrupted(todo) from stop
        return population.weights()

    def population(self, chunk: list[int]) -> Population:
        """The runs of a chunk before their first step."""
        seed = self._seed.child("chunk", *chunk)  # named by its runs: a half draws nothing that the whole has drawn
        mechanism = self.intake.mechanism(self._constants(chunk), seed=seed, secure=self._secure)
        return Population(mechanism, self._rule(chunk), self._initial[torch.tensor(chunk)])

    def _keep(self, todo: checkpoints.Progress, always: bool = False) -> None:
        if self._place is not None and (always or monotonic() - self._written >= self._seconds):
            checkpoints.save(self._place, todo)
            self._written = monotonic()

    def _interrupted(self, todo: checkpoints.Progress) -> KeyboardInterrupt:
        if self._place is None:
            return KeyboardInterrupt("stopped; nothing was kept, since no checkpoint= was given")
        self._keep(todo, always=True)
        step = 0 if todo.current is None else todo.current.step
        return Interrupted(
            f"stopped at step {step} of {self.runs[0].steps}; the checkpoint is kept in {self._place}; to resume, call "
            f"again with the same arguments and checkpoint={str(self._place)!r}"
        )

    def _constants(self, chunk: list[int]) -> Constants:
        first = self.runs[0]
        sigma = [self.runs[i].noise for i in chunk]
        noise = torch.tensor(sigma, dtype=self.intake.dtype, device=self._initial.device)
        return Constants(first.records, first.lot, first.steps, noise, self.intake.layout, self._factors)

    def _rule(self, chunk: list[int]) -> Rule:
        rules = [self._rules[i] for i in chunk]
        return stack_rules(rules, dtype=self.intake.dtype, device=self._initial.device)

    def chunks(self) -> list[list[int]]:
        """Which runs to train together, in order."""
        return plan_chunks(self._rules, self._together or self.most_together(len(self.runs)))

    def most_together(self, runs: int) -> int:
        """How many of so many runs are trained together at most."""
        memory = free_memory(self._initial.device) if self._memory is None else self._memory
        most = largest_chunk(self.intake.bytes_per_run(self.runs[0]), memory)
        # A measured choice would differ from day to day, and the draws with it: a fixed seed takes the same one always.
        if self._seed.is_fixed or self._memory is not None:
            return most
        return quickest_chunk(self._rehearse, most=most, runs=runs, steps=self.runs[0].steps)

    def _rehearse(self, size: int) -> Population:
        """A population of `size` runs over made-up records."""
        chunk = [0] * size
        # Long enough that no rule runs past its last step while it is timed.
        factors = torch.ones(_REHEARSED_STEPS, dtype=self._factors.dtype, device=self._factors.device)
        constants = replace(self._constants(chunk), steps=_REHEARSED_STEPS, factors=factors)
        mechanism = self.intake.rehearsal(constants)
        return Population(mechanism, self._rule(chunk), self._initial[:1].expand(size, -1).clone())

    def _identity(self) -> dict[str, Any]:
        """What must agree between a checkpoint and the training that resumes from it."""
        model = self.intake.question.model
        trained = set(self.intake.layout.names)
        fixed = {n: p for n, p in model.state_dict().items() if n not in trained}
        digest = hashlib.sha256()
        for name, value in sorted(fixed.items()):
            digest.update(
                name.encode() + value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            )
        saved = [value for value in model.state_dict(keep_vars=True).values() if isinstance(value, Tensor)]
        described = re.sub(r" at 0x[0-9a-f]+", "", repr(model))
        return {
            "model": hashlib.sha256(described.encode()).hexdigest(),
            "runs": [list(astuple(run)) for run in self.runs],
            "optimizers": [repr(rule) for rule in self._rules],
            "schedule": hashlib.sha256(self._factors.cpu().numpy().tobytes()).hexdigest(),
            "loss": _name(self.intake.question.loss),
            "data": self.intake.fingerprint,
            "dtype": str(self.intake.dtype),
            "parameters": [list(self.intake.layout.names), [list(shape) for shape in self.intake.layout.shapes]],
            "frozen parameters": digest.hexdigest(),
            "device": self._initial.device.type,
            "noise_seed": self._seed.key.hex() if self._seed.is_fixed else None,
            "secure": self._secure,
            "strict": self.intake.question.strict,
            "code": {
                "the model's code": identity(model, values=True, besides=saved).digest,
                "the loss's code": identity(self.intake.question.loss, values=True).digest,
                "the optimizers' code": identity(*{type(rule): 0 for rule in self._rules}).digest,
            },
        }


def _name(loss: object) -> str:
    return getattr(loss, "__qualname__", type(loss).__qualname__)
