"""Runs of one rule trained together: block of steps after block of steps, eagerly or captured on a GPU.

All randomness of a step is drawn inside the mechanism; this module sees releases only.

On a GPU, `UNROLL` steps are captured in one CUDA graph and replayed, so that a step needs no work of the host. The lots
of a block are drawn before its steps, and the host knows how long each is: steps whose lots fit the captured shape are
replayed, the rare others run eagerly, in as many pieces as their lots need. No lot is cut to a shape.
"""

from __future__ import annotations

import functools
import gc
from dataclasses import dataclass

import torch
from torch import Tensor

from honestdp.boundary.mechanism import Lots, Mechanism, presence
from honestdp.optimizers import Rule, State

UNROLL = 8


@dataclass(frozen=True)
class Snapshot:
    """A population between two blocks: everything needed to go on as if nothing had happened."""

    step: int
    params: Tensor
    state: State
    generators: list[Tensor]


class Population:
    """The weights and the state of the runs of one rule, and how far they are."""

    def __init__(self, mechanism: Mechanism, rule: Rule, params: Tensor) -> None:
        self._mechanism, self._rule = mechanism, rule
        self.params = params
        self.state = rule.init(params, mechanism.constants)
        self.step = 0
        self._captured: Captured | None = None
        self._capturable = params.is_cuda and mechanism.records.resident

    @property
    def total(self) -> int:
        return self._mechanism.constants.steps

    @property
    def block_steps(self) -> int:
        """How many steps a block has, but for the last."""
        return self._mechanism.block

    def snapshot(self) -> Snapshot:
        """Safe to keep: captured steps write into buffers of their own, so those are copied."""
        copy = self._captured is not None
        params = self.params.clone() if copy else self.params
        state = {name: value.clone() if copy else value for name, value in self.state.items()}
        return Snapshot(self.step, params, state, self._mechanism.state())

    def restore(self, saved: Snapshot) -> None:
        self.step, self.params, self.state = saved.step, saved.params, dict(saved.state)
        self._captured = None
        self._mechanism.restore(saved.generators)

    @torch.no_grad()
    def block(self) -> None:
        """The next block of steps."""
        if not self._mechanism.drawing:
            self._mechanism.start(min(self._mechanism.block, self.total - self.step))
        lots = self._mechanism.lots()
        steps = len(lots.longest)
        if self.step + steps < self.total:
            self._mechanism.start(min(self._mechanism.block, self.total - self.step - steps))
        first = 0
        while first < steps:
            together = min(UNROLL, steps - first)
            if self._fits(lots.longest[first : first + together]):
                self._replay(lots.indices[first : first + together], lots.counts[first : first + together])
            else:
                for step in range(first, first + together):
                    self._eager(lots, step)
            first += together
        self._mechanism.settle(wait=False)
        self.step += steps

    @torch.no_grad()
    def rehearse(self, steps: int) -> None:
        """Make some steps for timing and wait for them: a population over made-up records, thrown away after."""
        for _ in range(steps):
            if self._capturable:
                blank = torch.zeros(UNROLL, *self.params.shape[:1], self._mechanism.width, device=self.params.device)
                counts = torch.full(blank.shape[:2], self._mechanism.width, device=self.params.device)
                self._replay(blank.long(), counts)
                torch.cuda.synchronize(self.params.device)
            else:
                self._mechanism.start(1)
                self._eager(self._mechanism.lots(), 0)

    def _eager(self, lots: Lots, step: int) -> None:
        query = self._rule.query(self.state, self._mechanism.constants)
        released = self._mechanism.release(lots, step, self.params, query)
        self._set(*self._rule.update(self.params, self.state, released, self._mechanism.constants))

    def _fits(self, longest: list[int]) -> bool:
        return self._capturable and len(longest) == UNROLL and max(longest) <= self._mechanism.width

    def _set(self, params: Tensor, state: State) -> None:
        if self._captured is None:
            self.params, self.state = params, state
        else:
            self._captured.load(params, state)

    def _replay(self, indices: Tensor, counts: Tensor) -> None:
        if self._captured is None:
            self._captured = Captured(self._mechanism, self._rule, self.params, self.state)
            self.params, self.state = self._captured.params, self._captured.state
        self._captured.replay(indices, counts)

    def weights(self) -> Tensor:
        """What leaves at the end, `[runs, d]`."""
        self._mechanism.settle()
        return self._rule.weights(self.params, self.state)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for every rehearsal and capture on a device: each new one would keep product workspaces of its own."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def free_captured() -> None:
    """Give back the memory of captured steps that are over: they hold it until the cycles they are part of are found."""
    gc.collect()
    torch.cuda.empty_cache()


class Captured:
    """`UNROLL` steps as one CUDA graph over fixed buffers."""

    def __init__(self, mechanism: Mechanism, rule: Rule, params: Tensor, state: State) -> None:
        self._mechanism, self._rule = mechanism, rule
        self.params = params.clone()
        self.state = {name: value.clone() for name, value in state.items()}
        runs = len(params)
        self._indices = torch.zeros(UNROLL, runs, mechanism.width, dtype=torch.int64, device=params.device)
        self._counts = torch.zeros(UNROLL, runs, dtype=torch.int64, device=params.device)
        self._rehearse()
        self._graph = torch.cuda.CUDAGraph()
        for generator in mechanism.generators:
            self._graph.register_generator_state(generator)
        with torch.cuda.graph(self._graph, stream=_side_stream(params.device)):
            self.load(*self._steps())

    def _steps(self) -> tuple[Tensor, State]:
        params, state = self.params, self.state
        for indices, present in zip(self._indices, presence(self._counts, self._mechanism.width), strict=True):
            query = self._rule.query(state, self._mechanism.constants)
            lot = self._mechanism.examples(indices, present)
            released = self._mechanism.release_of([lot], params, query)
            params, state = self._rule.update(params, state, released, self._mechanism.constants)
        return params, state

    def _rehearse(self) -> None:
        """Capture needs libraries that have been used once. The rehearsal's noise is thrown away and its randomness
        given back.
        """
        saved = [generator.get_state() for generator in self._mechanism.generators]
        side = _side_stream(self.params.device)
        side.wait_stream(torch.cuda.current_stream(self.params.device))
        with torch.cuda.stream(side):
            self._steps()
        torch.cuda.current_stream(self.params.device).wait_stream(side)
        for generator, state in zip(self._mechanism.generators, saved, strict=True):
            generator.set_state(state)

    def load(self, params: Tensor, state: State) -> None:
        if params is not self.params:
            self.params.copy_(params)
        for name, value in state.items():
            if value is not self.state[name]:
                self.state[name].copy_(value)

    def replay(self, indices: Tensor, counts: Tensor) -> None:
        """indices `[UNROLL, runs, at most or at least width]`, counts `[UNROLL, runs]`, no count above the width."""
        width = min(indices.shape[-1], self._indices.shape[-1])
        self._indices[..., :width].copy_(indices[..., :width])
        self._counts.copy_(counts)
        self._graph.replay()
