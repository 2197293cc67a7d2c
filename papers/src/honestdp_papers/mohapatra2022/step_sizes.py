"""The trainings behind Theorem 3: DPAdam's effective step size while it trains, over the predicted one.

Theorem 3. Where noise dominates, the second moment of the released gradient is (sigma C / L)^2, so Adam's effective step size
a / (sqrt(v) + xi) converges to a / (sigma C / L + xi).
"""

from __future__ import annotations

import numpy as np
import torch

from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp.optimizers import Adam
from honestdp.optimizers.adam import XI
from honestdp_papers.curves import placed, population_of, seeded, taken_in
from honestdp_papers.mohapatra2022.setting import CLIPS, EVERY, LOT, Pair, model_of, pair_name, pairs
from honestdp_papers.mohapatra2022.training import step_cost
from honestdp_papers.parts import Array, Arrays, Part, Tell

NOISE, QUANTILES = 4.0, (0.05, 0.5, 0.95)
QUICK_STEPS = 500


def parts(quick: bool) -> list[Part]:
    """Every dataset and model, DPAdam with the four clips, as long as it is trained in figure 4."""
    return [_part(pair, quick) for pair in pairs(quick)]


def name_of(pair: Pair) -> str:
    return f"theorem3/{pair_name(pair)}"


def _part(pair: Pair, quick: bool) -> Part:
    steps = QUICK_STEPS if quick else pair[0].steps
    identity = {"dataset": pair[0].name, "model": pair[1], "steps": steps, "every": EVERY, "noise": NOISE}

    def work(device: str, tell: Tell) -> Arrays:
        return {"ratio": _ratios(pair, steps, device, tell), "every": np.array(EVERY)}

    return Part(name_of(pair), identity, 1 + steps * (1e-4 + len(CLIPS) * step_cost(pair)), work)


def _ratios(pair: Pair, steps: int, device: str, tell: Tell) -> Array:
    """Adam's effective step size over the predicted one: quantiles over the weights, `[clips, looks, quantiles]`."""
    task, kind = pair
    dataset, place = task.dataset, placed(device)
    rules, run = [Adam(clip=clip) for clip in CLIPS], task.run(noise=NOISE, steps=steps)
    module = seeded(model_of(kind, features=dataset.features, classes=dataset.classes), 0)
    intake = taken_in(module, dataset.train, place, records=task.records)
    starts = stack([module] * len(CLIPS), intake.layout, place)
    population = population_of(intake, run, rules, starts, Seed.fixed(3).child(0), every=EVERY)
    predicted = 1 / (NOISE * torch.tensor(CLIPS, device=place)[:, None] / LOT + XI)
    levels = torch.tensor(QUANTILES, device=place)
    found = []
    while population.step < steps:
        population.block()
        if population.step % EVERY == 0:
            moment = population.state["second"] / (1 - Adam(clip=1.0).beta2 ** population.step)
            ratio = 1 / (moment.sqrt() + XI) / predicted
            found.append(torch.quantile(ratio, levels, dim=1).T.cpu().numpy())
            tell(population.step / steps)
    return np.stack(found, axis=1).astype(np.float32)
