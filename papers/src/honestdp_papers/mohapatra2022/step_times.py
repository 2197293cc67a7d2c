"""The trainings behind "DPAdamWOSM needs less computation": time and memory of a step, by optimizer.

A step is timed whole (lot, gradients, noise, update) and the update alone, for one run and for a population, which is how a
search trains. Memory is what the optimizer keeps between steps, and on a GPU the most that a step held at once.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.capture import free_captured
from honestdp.boundary.query import Constants, Release
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import stack_rules
from honestdp_papers.curves import placed, population_of, seeded, taken_in
from honestdp_papers.mohapatra2022.setting import Pair, grid, model_of, pair_name, pairs
from honestdp_papers.parts import Array, Arrays, Part, Tell

OPTIMIZERS = ("DPAdam", "DPAdamWOSM", "DPSGD")
RUNS = (1, 40)
NOISE, STEPS, BLOCKS = 4.0, 100, 8
"""Timed in blocks of so many steps, so often; the first block, which prepares and captures, is left out."""


def parts(quick: bool) -> list[Part]:
    chosen = [pair for pair in pairs(quick) if pair[0].name in ("mnist-signed", "enron-counts")]
    return [_part(pair, quick) for pair in chosen]


def name_of(pair: Pair) -> str:
    return f"steptime/{pair_name(pair)}"


def _part(pair: Pair, quick: bool) -> Part:
    blocks = 3 if quick else BLOCKS
    identity = {"dataset": pair[0].name, "model": pair[1], "runs": RUNS, "blocks": blocks, "steps": STEPS}

    def work(device: str, tell: Tell) -> Arrays:
        return _measured(pair, blocks, device, tell)

    return Part(name_of(pair), identity, 3.0, work)


def _measured(pair: Pair, blocks: int, device: str, tell: Tell) -> Arrays:
    """step, update: seconds, `[runs, optimizers, blocks]`. state, peak: bytes, `[runs, optimizers]`; peak 0 on a CPU."""
    task, kind = pair
    dataset, place = task.dataset, placed(device)
    shape = (len(RUNS), len(OPTIMIZERS))
    found = {"step": np.zeros((*shape, blocks)), "update": np.zeros((*shape, blocks))}
    found |= {"state": np.zeros(shape, np.int64), "peak": np.zeros(shape, np.int64)}
    module = seeded(model_of(kind, features=dataset.features, classes=dataset.classes), 0)
    intake = taken_in(module, dataset.train, place, records=task.records)
    run = task.run(noise=NOISE, steps=STEPS * (blocks + 1))
    for i, runs in enumerate(RUNS):
        starts = stack([module] * runs, intake.layout, place)
        for j, name in enumerate(OPTIMIZERS):
            rules = [grid(name)[0]] * runs
            if place.type == "cuda":
                torch.cuda.reset_peak_memory_stats(place)
            own = Seed.fixed(7).child(0)
            population = population_of(intake, run, rules, starts.clone(), own, every=STEPS)
            times = []
            while population.step < run.steps:
                before, began = population.step, _now(place)
                population.block()
                times.append((_now(place) - began) / (population.step - before))
            found["step"][i, j] = times[-blocks:]
            found["peak"][i, j] = torch.cuda.max_memory_allocated(place) if place.type == "cuda" else 0
            kept = (value for value in population.state.values() if isinstance(value, Tensor))
            found["state"][i, j] = sum(value.numel() * value.element_size() for value in kept)
            del population
            free_captured()
            noise, factors = starts.new_full((runs,), NOISE), starts.new_ones(run.steps)
            constants = Constants(task.records, run.lot, run.steps, noise, intake.layout, factors)
            found["update"][i, j] = _updates(rules, starts, constants, blocks, place)
            tell((i * len(OPTIMIZERS) + j + 1) / (len(RUNS) * len(OPTIMIZERS)))
    return found


def _updates(rules: list[Rule], params: Tensor, constants: Constants, blocks: int, place: torch.device) -> Array:
    """Seconds of an update alone, from releases that are made up, `[blocks]`."""
    rule = stack_rules(rules, dtype=params.dtype, device=place)
    state = rule.init(params, constants)
    release = Release(gradient=torch.randn_like(params))
    times = []
    for _ in range(blocks + 1):
        began = _now(place)
        for _ in range(STEPS):
            params, state = rule.update(params, state, release, constants)
        times.append((_now(place) - began) / STEPS)
    return np.array(times[1:])


def _now(place: torch.device) -> float:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.perf_counter()
