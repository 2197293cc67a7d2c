"""`Population`: the weights, the state and the step of runs that are trained together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import InvalidArgument
from honestdp.optimizers import Rule, State
from honestdp.optimizers.rule import with_decay

SMALL = 2**18
"""Products of a step's forward pass, in all runs: some 50 microseconds of one core."""


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Snapshot:
    """A population between two blocks of steps: everything needed to go on as if nothing had happened. Secret."""

    step: int
    params: Tensor
    state: State
    generators: list[Tensor]


class Population:
    """Runs of one rule that are trained together."""

    def __init__(self, mechanism: Mechanism, rule: Rule, params: Tensor) -> None:
        self._mechanism, self._rule, self._steps = mechanism, rule, with_decay(rule)
        self.params = params
        self.state = rule.init(params, mechanism.constants)
        self.step = 0

    @property
    def total(self) -> int:
        return self._mechanism.constants.steps

    def snapshot(self) -> Snapshot:
        self._mechanism.check_alike(self.params)
        return Snapshot(self.step, self.params, self.state, self._mechanism.random_state())

    def restore(self, snapshot: Snapshot) -> None:
        if self.state.keys() - snapshot.state.keys():  # the same noise under another rule would betray the difference
            wanted = f"resumed by the honestdp that began it: here {self._rule.name or 'its optimizer'} goes by another state"
            raise InvalidArgument("checkpoint", f"of step {snapshot.step}", wanted)
        self.step, self.params, self.state = snapshot.step, snapshot.params, dict(snapshot.state)
        self._mechanism.restore(snapshot.generators, step=snapshot.step)

    @property
    def between_blocks(self) -> bool:
        """A snapshot can be taken."""
        return self._mechanism.between_blocks

    def block(self, most: int | None = None, *, look: int | None = None) -> None:
        """The next block of steps, at most `most`. look: stop within it after so many, and go on with it in the next call."""
        left = self.total - self.step if most is None else most
        with _one_thread() if self._is_small else nullcontext():
            steps, self.params, self.state = self._mechanism.steps(
                self._steps, self.params, self.state, left=left, most=look
            )
        self.step += steps

    def rehearse(self) -> None:
        """One step that is forgotten."""
        self._mechanism.steps(self._steps, self.params, self.state, left=1)

    @property
    def _is_small(self) -> bool:
        """Whether a step on a CPU is so little work that threads cost more than they spare: they wait for each other in every
        operation, for milliseconds where another program has a core."""
        return not self.params.is_cuda and self.params.numel() * self._mechanism.constants.lot <= SMALL

    def weights(self) -> Tensor:
        """What leaves at the end, `[runs, d]`."""
        self._mechanism.settle()
        self._mechanism.check_alike(self.params)
        params, state = self.params.clone(), {name: value.clone() for name, value in self.state.items()}
        return self._rule.weights(params, state)
