"""The trainings behind figure 2: linear regression on made-up records, for every pair of a step size and a clip.

x ~ U(0,1)^10, y = 10 (x_1 + ... + x_10), zero weights at first, 100 steps, sigma 4. The paper gives neither the number of
records nor the lot; here they are 10000 and 250, the lot of its other experiments.
"""

from __future__ import annotations

import numpy as np
import torch

from honestdp import optimizers as rules
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.run import Run
from honestdp.training.population import Population
from honestdp_papers.curves import looked_at, placed, population_of, taken_in
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
    intake = taken_in(model, (x, y), place, records=RECORDS)
    found = []

    def loss(population: Population) -> Array:
        weights = population.weights().double().cpu().numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            each: Array = np.mean((x.astype(np.float64) @ weights.T - y) ** 2, axis=0)
        return each

    for repeat in range(repeats):

        def begun(chunk: list[int], seed: int = repeat) -> Population:
            starts, own = stack([model] * len(chunk), intake.layout, place), Seed.fixed(seed).child(chunk[0])
            return population_of(intake, run, [grid[i] for i in chunk], starts, own, every=STEPS)

        def tell_of(done: float, before: int = repeat) -> None:
            tell((before + done) / repeats)

        found.append(looked_at(grid, begun, {"loss": loss}, [STEPS], together=len(grid), tell=tell_of)["loss"])
    return np.stack(found).reshape(repeats, len(VALUES), len(VALUES))
