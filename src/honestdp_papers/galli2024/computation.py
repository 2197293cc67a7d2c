"""What Online costs in time: a step of it against a step of FixedThreshold's DP-SGD, whole.

"The additional computational burden is minimal": a step of Online has a second weighted sum of the gradients and a second noise
of as many numbers, and two inner products; forward pass, backward pass and norms are the same.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from honestdp.boundary.capture import free_captured
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import stack
from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.curves import placed, seeded
from honestdp_papers.galli2024.setting import ONLINE, QUANTILE, THRESHOLD, Task, records_of, sized, tasks
from honestdp_papers.galli2024.training import population_of, rule_of
from honestdp_papers.parts import Arrays, Part, Tell
from honestdp_papers.registry import Finished

COMPARED = {ONLINE: (0.3,), QUANTILE: (0.01, 0.5), THRESHOLD: (0.3, 0.1)}
RUNS = {"cuda": 14, "cpu": 2}
STEPS, BLOCKS = 50, 6
MINIMAL = 1.25
"""How many times as long a step may take and still be minimally longer; the paper gives no number."""


def parts_of(quick: bool) -> list[Part]:
    return [_part(sized(task, quick), quick) for task in tasks()]


def _part(task: Task, quick: bool) -> Part:
    steps = 10 if quick else STEPS
    identity = {"dataset": task.dataset, "network": task.make.__name__, "runs": RUNS, "blocks": BLOCKS, "steps": steps}

    def work(device: str, tell: Tell) -> Arrays:
        return _measured(task, steps, device, tell)

    seconds = 15 + 3 * 14 * steps * (BLOCKS + 1) * task.price
    return Part(f"steptime/{task.name}", identity, seconds, work, __name__)


def _measured(task: Task, steps: int, device: str, tell: Tell) -> Arrays:
    """Seconds of a run's step, `[methods, blocks]`, after a first block that prepares and captures."""
    place = placed(device)
    runs, found = RUNS[place.type], np.zeros((len(COMPARED), BLOCKS))
    private = PrivateData(records_of(task).train)
    intake = take_in(task.make(), private, records=task.records, loss=task.loss, device=place, workers=0)
    starts = stack([seeded(task.make, 0)] * runs, intake.layout, place)
    for i, (method, values) in enumerate(COMPARED.items()):
        rules, noises = [rule_of(method, values)] * runs, np.full(runs, 1.5)
        population = population_of(intake, task, rules, noises, starts.clone(), Seed.fixed(i), pause=steps)
        for block in range(BLOCKS + 1):
            began, target = _now(place), (block + 1) * steps
            while population.step < target:
                population.block()
            if block:
                found[i, block - 1] = (_now(place) - began) / (steps * runs)
        del population
        free_captured()
        tell((i + 1) / len(COMPARED))
    return {"seconds": found}


def _now(place: torch.device) -> float:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
    return time.perf_counter()


def computation(parts: Finished, quick: bool) -> Outcome:
    rows, cases, ratios = list[list[str | float]](), list[bool | None](), []
    names = list(COMPARED)
    for task in tasks():
        kept = parts.get(f"steptime/{task.name}")
        if kept is None:
            continue
        # The least of the blocks: what else a machine does only adds to a time.
        least = kept["seconds"].min(axis=1)
        ratio = float(least[names.index(ONLINE)] / least[names.index(THRESHOLD)])
        ratios.append(f"{ratio:.2f} ({task.title})")
        cases.append(ratio <= MINIMAL)
        for i, name in enumerate(names):
            rows.append([task.title, name, 1e6 * float(least[i]), float(least[i] / least[names.index(THRESHOLD)])])
    claims = [
        judged(
            "The extra computation of Online is minimal",
            cases,
            f"a step takes as many times as long as DP-SGD's: {', '.join(ratios)}; at most {MINIMAL:g} counts as minimal",
        )
    ]
    header = ["task", "method", "a run's step, microseconds", "as many times as long as FixedThreshold's"]
    notes = [
        f"The least of {BLOCKS} blocks of {10 if quick else STEPS} steps of a population; a whole step with its lot, gradients, "
        "noise and update. Online has a second weighted sum and a second noise of as many numbers as weights.",
    ]
    return Outcome(
        claims, {"microseconds": {f"{r[0]}, {r[1]}": r[2] for r in rows}}, [Table("Steps", header, rows)], notes
    )
