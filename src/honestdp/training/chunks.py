"""How many runs to train together: bounded by memory, chosen by measured speed. Public numbers alone decide.

The measurement runs the true model over made-up records, so no record is read for it and nothing is released.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter

import torch

from honestdp.optimizers import Rule
from honestdp.optimizers.rule import kind
from honestdp.training.population import Population

_WORTH_MEASURING = 4000
"""Run-steps below which a measurement would cost more than it could save."""
_MEMORY_SHARE = 0.5
_TURNS = 4
_REPLAYED = 8  # steps that a GPU makes together
_CLEARLY = 1.1
"""A smaller chunk has to be faster by more than this: on a busy machine no measurement is better than that."""


def free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def largest_chunk(bytes_per_run: int, memory: int) -> int:
    """How many runs half of the memory holds, by estimate; out of memory corrects it later."""
    return max(1, int(memory * _MEMORY_SHARE) // bytes_per_run)


def worth_measuring(runs: int, steps: int) -> bool:
    return runs >= 2 and runs * steps >= _WORTH_MEASURING


def quickest_chunk(rehearse: Callable[[int], Population], *, most: int, runs: int, steps: int) -> int:
    """The number of runs, among halvings of the largest possible, whose steps take the least time per run; the largest
    of those that are not clearly slower than the best.
    """
    most = min(most, runs)
    if most < 2 or not worth_measuring(runs, steps):
        return most
    sizes = [most]
    least = 16 if torch.cuda.is_available() else 1
    while sizes[-1] // 2 >= least and len(sizes) < 5:
        sizes.append(sizes[-1] // 2)
    times = {}
    for size in sizes:
        try:
            times[size] = seconds_per_step(rehearse(size), size)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    return max(size for size, time in times.items() if time <= _CLEARLY * min(times.values())) if times else 1


def seconds_per_step(population: Population, size: int) -> float:
    """Of one run, by the best of several turns: what else the machine does can only add to the time."""
    on_gpu = population.params.is_cuda
    turns = []
    for _ in range(1 + _TURNS):
        began = perf_counter()
        for _ in range(2):
            population.block(_REPLAYED if on_gpu else 1)
        if on_gpu:
            torch.cuda.synchronize(population.params.device)
        turns.append(perf_counter() - began)
    return min(turns[1:]) / size / (2 * (_REPLAYED if on_gpu else 1))


def plan_chunks(rules: Sequence[Rule], most: int) -> list[list[int]]:
    """Runs of one kind of rule together, in chunks of nearly equal size of at most `most`."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, rule in enumerate(rules):
        groups.setdefault(kind(rule), []).append(number)
    chunks = []
    for group in groups.values():
        pieces = -(-len(group) // most)
        bounds = [len(group) * i // pieces for i in range(pieces + 1)]
        chunks += [group[a:b] for a, b in pairwise(bounds)]
    return chunks
