"""Steps captured on a GPU: eight of them as one CUDA graph over fixed buffers, replayed without work of the host.

Lots of records pass through here, so it is part of the boundary. What comes out are weights and a rule's state.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from honestdp.boundary.query import State, Steps
from honestdp.boundary.sampling import presence

UNROLL = 8
Step = Callable[[Tensor, State, Tensor, Tensor], tuple[Tensor, State]]
"""(params, state, indices `[runs, width]`, presence `[runs, width]`) -> (params, state)."""


_streams: dict[torch.device, list[tuple[torch.cuda.Stream, weakref.ref[Captured]]]] = {}
"""Streams to rehearse and capture on, and the graph that each was last lent to."""
_DEALT = 64
"""New streams that are asked for at most: torch deals out 32 in turn."""


def _side_stream(device: torch.device, graph: Captured) -> torch.cuda.Stream:
    """A stream for the rehearsal and the capture of a graph, which no other living graph was captured on.

    torch keeps the workspace of matrix products by stream. A graph has its address, and not a share in it: when one graph of a
    stream ends, torch (from 2.12 on) frees that workspace, and another graph of the stream would go on writing into memory
    that is others' by then. So graphs that are over, which are part of cycles, are collected first, none of them while it runs
    or in the middle of a capture; and a stream is lent again once its graph is gone. New ones are made where several graphs
    live side by side alone, for each keeps a workspace of its own.
    """
    known = _streams.setdefault(device, [])
    if any(owner() is not None for _, owner in known):
        torch.cuda.synchronize(device)
        gc.collect()
    lent = [stream for stream, owner in known if owner() is not None]
    found = next((stream for stream, owner in known if owner() is None), None)
    for _ in range(_DEALT):
        if found is not None and found not in lent:
            break
        found = _new_stream(device)
    assert found is not None
    _streams[device] = [each for each in known if each[0] != found] + [(found, weakref.ref(graph))]
    return found


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def free_captured() -> None:
    """Release the memory of captured steps that are over: they hold it until the cycles they are part of are collected."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


class NotCapturable(Exception):
    """A step of this model waits for the host, so no graph can hold it."""


@contextmanager
def _without_the_host() -> Iterator[None]:
    """Within, what a graph cannot hold is an error: numbers read by the host, and operations that torch.func maps by a loop."""
    looped = torch._C._functorch._is_vmap_fallback_enabled()  # type: ignore[attr-defined]
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    torch._C._functorch._set_vmap_fallback_enabled(False)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(looped)  # type: ignore[attr-defined]
        torch.cuda.set_sync_debug_mode(mode)


class Captured:
    """`UNROLL` steps of a rule as one CUDA graph. generators: those that a step draws from.

    Raises NotCapturable where a step needs the host. A capture that fails in the middle would leave the device unusable.
    """

    def __init__(
        self,
        step: Step,
        rule: Steps,
        params: Tensor,
        state: State,
        *,
        width: int,
        generators: Sequence[torch.Generator],
    ) -> None:
        self._step, self.rule, self._generators = step, rule, generators
        self._stream = _side_stream(params.device, self)
        self.params = params.clone()
        self.state = {name: value.clone() for name, value in state.items()}
        shape = (UNROLL, len(params))
        self._indices = torch.zeros(*shape, width, dtype=torch.int64, device=params.device)
        self._counts = torch.zeros(*shape, dtype=torch.int64, device=params.device)
        self._rehearse()
        self._refuse_host_work()
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        with torch.cuda.graph(self._graph, stream=self._stream):
            self._load(*self._steps())

    def replay(self, params: Tensor, state: State, indices: Tensor, counts: Tensor) -> tuple[Tensor, State]:
        """indices `[UNROLL, runs, at most or at least width]`, counts `[UNROLL, runs]`, no count above the width.

        What is returned are the buffers of the graph, which the next replay overwrites.
        """
        self._load(params, state)
        width = min(indices.shape[-1], self._indices.shape[-1])
        self._indices[..., :width].copy_(indices[..., :width])
        self._counts.copy_(counts)
        self._graph.replay()
        return self.params, self.state

    def _steps(self) -> tuple[Tensor, State]:
        params, state = self.params, self.state
        for indices, present in zip(self._indices, presence(self._counts, self._indices.shape[-1]), strict=True):
            params, state = self._step(params, state, indices, present)
        return params, state

    def _rehearse(self) -> None:
        """Capture needs libraries that have been used once. The noise of the rehearsal is thrown away, and the generators are set
        back, also that from which a model draws: a training that is resumed captures again, and has to make the draws that it
        would have made, for the same noise on other draws would betray the difference between them.
        """
        drawn_from = [*self._generators, torch.cuda.default_generators[self.params.device.index]]
        before = [generator.get_state() for generator in drawn_from]
        side = self._stream
        side.wait_stream(torch.cuda.current_stream(self.params.device))
        try:
            with torch.cuda.stream(side):
                self._steps()
        finally:
            torch.cuda.current_stream(self.params.device).wait_stream(side)
            for generator, state in zip(drawn_from, before, strict=True):
                generator.set_state(state)

    def _refuse_host_work(self) -> None:
        """Once more, now that every library has been used: what still waits for the host would do so in every step."""
        try:
            with _without_the_host():
                self._rehearse()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as trouble:
            raise NotCapturable(str(trouble)) from trouble

    def _load(self, params: Tensor, state: State) -> None:
        if params is not self.params:
            self.params.copy_(params)
        for name, value in state.items():
            if value is not self.state[name]:
                self.state[name].copy_(value)
