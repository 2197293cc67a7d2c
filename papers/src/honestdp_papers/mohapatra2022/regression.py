"""The trainings behind figure 2: linear regression on made-up records, for every pair of a step size and a clip.

x ~ U(0,1)^10, y = 10 (x_1 + ... + x_10), zero weights at first, 100 steps, sigma 4. The paper gives neither the number of
records nor the lot; here they are 10000 and 250, the lot of its other experiments.
"""

from __future__ import annotations

import numpy as np
import torch

from honestdp import optimizers as rules
from honestdp.boundary.capture import free_captured
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.gradients.layout import stack
from honestdp.run import Run
from honestdp.training.chunks import plan_chunks
from honestdp_papers.curves import Plan, placed, population_of
from honestdp_papers.parts import Array, Arrays, Part, Tell

VALUES = tuple(float(f"{m}e{e}") for e in range(-4, 2) for m in (1, 2, 4, 5, 8))
DIMENSIONS, RECORDS, LOT, STEPS, NOISE = 10, 10000, 250, 100, 4.0
REPEATS, QUICK_REPEATS = 24, 3


def drawn(records: int, seed: int) -> tuple[Array, Array]:
    """x `[records, 10]`, y `[records, 1]`."""
    x = np.random.default_rng(seed).random((records, DIMENSIONS))
    return x.astype(np.float32), 10 * x.sum(axis=1, keepdims=True).astype(np.float32)


def parts(quick: bool) -> list[Part]:
    repeats = QUICK_REPEATS if quick else REPEATS
    identity = {"values": VALUES, "records": RECORDS, "lot": LOT, "steps": STEPS, "noise": NOISE, "repeats": repeats}

    def work(device: str, tell: Tell) -> Arrays:
        return {"loss": _losses(device, repeats, tell).astype(np.float32)}

    return [Part("figure2/grid", identity, 4e-6 * len(VALUES) ** 2 * STEPS * repeats, work)]


def _losses(device: str, repeats: int, tell: Tell) -> Array:
    """Training losses, `[repeats, step sizes, clips]`."""
    x, y = drawn(RECORDS, seed=0)
    place = placed(device)
    model = torch.nn.Linear(DIMENSIONS, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    grid = [rules.SGD(lr=lr, clip=clip) for lr in VALUES for clip in VALUES]
    run = Run(records=RECORDS, lot=LOT, steps=STEPS, noise=NOISE)
    intake = take_in(model, PrivateData((x, y)), records=RECORDS, loss=None, device=place, workers=0)
    found = np.empty((repeats, len(grid)))
    for repeat in range(repeats):
        plan = Plan(grid, run, 1, STEPS, seed=repeat)
        for chunk in plan_chunks(grid, len(grid)):
            starts = stack([model] * len(chunk), intake.layout, place)
            population = population_of(intake, plan, [grid[i] for i in chunk], starts, chunk[0])
            while population.step < STEPS:
                population.block()
            weights = population.weights().double().cpu().numpy()
            with np.errstate(over="ignore", invalid="ignore"):
                found[repeat, chunk] = np.mean((x.astype(np.float64) @ weights.T - y) ** 2, axis=0)
            del population
            free_captured()
        tell((repeat + 1) / repeats)
    return found.reshape(repeats, len(VALUES), len(VALUES))
