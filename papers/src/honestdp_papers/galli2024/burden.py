"""The text's word on compute: that the second answer costs little. Steps of four optimizers are timed, and what is in them.

OSO's step has what DP-SGD's has (a lot, its gradients' norms, a weighted sum, noise, an update) and besides a second weighted sum
of the same gradients, a second noise of as many numbers, and two inner products. Steps are timed whole, for one run and for a
population, and then by piece; memory is what the optimizer keeps between steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.capture import free_captured
from honestdp.boundary.intake import Intake
from honestdp.boundary.noise import noise_source
from honestdp.boundary.query import Constants, Release
from honestdp.boundary.rounding import noisy
from honestdp.boundary.seed import Seed
from honestdp.optimizers import OSO, SGD, AdamWOSM, Quantile, Rule
from honestdp.optimizers.rule import stack_rules
from honestdp_papers.claims import ERRORS, OURS, SENTENCE, Claim, Outcome, Table, judged
from honestdp_papers.curves import Bench, placed
from honestdp_papers.galli2024.setting import FASHION, MNIST, Task, records_of, sized
from honestdp_papers.parts import Array, Arrays, Finished, Part, Tell

RULES: dict[str, Rule] = {
    "FixedThreshold": SGD(lr=0.1, clip=1.0),
    "AdamWOSM": AdamWOSM(clip=1.0),
    "FixedQuantile": Quantile(lr=0.1),
    "Online": OSO(lr=0.1),
    "Online, automatic clipping (ours)": OSO(lr=0.1, automatic=True),
}
PIECES = ("gradients and norms", "a weighted sum", "a noise", "FixedThreshold's update", "Online's update")
NOISE = 1.0
MINIMAL = 1.25
"""Times FixedThreshold's step, up to which we call the second answer's compute minimal."""
Ratios = dict[str, dict[str, tuple[float, float]]]
"""Of a rule's step to FixedThreshold's, by task and number of runs, with their errors."""


def tasks(quick: bool) -> list[Task]:
    return [sized(task, quick) for task in (MNIST, FASHION)]


def sizes(quick: bool) -> tuple[tuple[int, ...], int, int]:
    """Runs that are trained together; steps of a block; timed blocks, one besides."""
    return ((1, 4), 16, 6) if quick else ((1, 8), 40, 8)


def parts(quick: bool) -> list[Part]:
    return [_part(task, quick) for task in tasks(quick)]


def name_of(task: Task) -> str:
    return f"burden/{task.name}"


def _part(task: Task, quick: bool) -> Part:
    runs, steps, blocks = sizes(quick)
    identity = {
        "task": task.name,
        "records": task.records,
        "lot": task.lot,
        "runs": runs,
        "steps": steps,
        "blocks": blocks,
    }

    def work(device: str, tell: Tell) -> Arrays:
        return measured(task, runs, steps, blocks, device, tell)

    return Part(name_of(task), identity, 15.0, work)


def measured(task: Task, runs: tuple[int, ...], steps: int, blocks: int, device: str, tell: Tell) -> Arrays:
    """step: seconds, `[runs, rules, blocks]`. state: bytes a run, `[rules]`. pieces: seconds, `[runs, pieces, blocks]`."""
    place = placed(device)
    data = records_of(task).train
    bench = Bench(task.make(), data, place, records=task.records, loss=task.loss)
    run = type(task.run(NOISE))(records=task.records, lot=task.lot, steps=steps * (blocks + 1), noise=NOISE)
    found = {
        "step": np.zeros((len(runs), len(RULES), blocks)),
        "state": np.zeros(len(RULES)),
        "pieces": np.zeros((len(runs), len(PIECES), blocks)),
    }
    for i, together in enumerate(runs):
        starts = bench.starts(task.make, [0], each=together)
        for j, rule in enumerate(RULES.values()):
            own = Seed.fixed(7).child(0)
            population = bench.population(run, [rule] * together, starts.clone(), own, every=steps)
            found["step"][i, j] = _timed(lambda p=population: p.block(steps), blocks, place) / steps  # type: ignore[misc]
            kept = (value for value in population.state.values() if isinstance(value, Tensor))
            found["state"][j] = sum(value.numel() * value.element_size() for value in kept) / together
            del population
            free_captured()
            tell((i + (j + 1) / (len(RULES) + 1)) / len(runs))
        lot = [part[: int(task.lot)].to(place) for part in data]
        found["pieces"][i] = _pieces(bench.intake, starts, lot, run.lot, blocks, place)
    return found


@torch.no_grad()
def _pieces(intake: Intake, starts: Tensor, lot: list[Tensor], size: float, blocks: int, place: torch.device) -> Array:
    """Seconds of each piece of a step by itself, `[pieces, blocks]`."""
    runs, layout, vetted = len(starts), intake.layout, intake.vetted
    x, y = (part.expand(runs, *part.shape) for part in lot)
    sigma = starts.new_full((runs,), NOISE)
    constants = Constants(len(lot[0]), size, 2, sigma, layout, starts.new_ones(2))
    source = noise_source(place, Seed.fixed(3), secure=False)
    release = Release(torch.randn_like(starts), torch.randn_like(starts))
    rules = [
        stack_rules([RULES[name]] * runs, dtype=starts.dtype, device=place) for name in ("FixedThreshold", "Online")
    ]
    states = [rule.init(starts, constants) for rule in rules]
    with vetted.untouched.lent(starts) as lent:
        views = layout.views(lent)
        found = vetted.gradients(views, x, y)
        weights = (1 / found.norms).clamp(max=1)
        work: list[Callable[[], object]] = [
            lambda: vetted.gradients(views, x, y).norms,
            lambda: found.add_weighted_sum(layout.views(torch.zeros_like(starts)), weights),
            lambda: noisy(starts, sigma / size, source, dtype=starts.dtype),
            lambda: rules[0].update(starts, states[0], release, constants),
            lambda: rules[1].update(starts, states[1], release, constants),
        ]
        return np.stack([_timed(each, blocks, place) for each in work])


def _timed(work: Callable[[], object], blocks: int, place: torch.device) -> Array:
    """Seconds of each call but the first, which prepares."""
    times = []
    for _ in range(blocks + 1):
        began = _now(place)
        work()
        times.append(_now(place) - began)
    return np.array(times[1:])


def _now(place: torch.device) -> float:
    """A CPU's own time, whoever else is busy on it; of a GPU, that of the clock."""
    if place.type == "cuda":
        torch.cuda.synchronize(place)
        return time.perf_counter()
    return time.process_time()


def computation(parts: Finished, quick: bool) -> Outcome:
    runs, names = sizes(quick)[0], list(RULES)
    rows: list[list[str | float]] = []
    split: list[list[str | float]] = []
    ratios: Ratios = {name: {} for name in names}
    there = [task for task in tasks(quick) if name_of(task) in parts]
    for task in there:
        kept = parts[name_of(task)]
        for i, together in enumerate(runs):
            where = f"{task.title}, {together} {'run' if together == 1 else 'runs'}"
            for j, name in enumerate(names):
                ratios[name][where] = _ratio(kept["step"][i, j], kept["step"][i, 0])
            times = 1e6 * np.median(kept["step"][i], axis=-1) / together
            rows.append(
                [task.title, str(together), *times.tolist(), "{:.2f} ± {:.2f}".format(*ratios["Online"][where])]
            )
            split.append(
                [task.title, str(together), *(1e6 * np.median(kept["pieces"][i], axis=-1) / together).tolist()]
            )
    memory = [[task.title, *(parts[name_of(task)]["state"] / 2**20).tolist()] for task in there]
    claims = [
        _claim("The second answer's additional compute is minimal", ratios["Online"], "Online's step takes"),
        _claim(
            "Automatic clipping, which needs no second answer, leaves Online the update alone to add",
            ratios[names[-1]],
            "its step takes",
            kind=OURS,
        ),
    ]
    tables = [
        Table("Microseconds per run and step", ["task", "runs", *names, "Online over FixedThreshold"], rows, 1),
        Table("Microseconds per run of the pieces of a step, each by itself", ["task", "runs", *PIECES], split, 1),
        Table("MiB that a run's optimizer keeps between steps", ["task", *names], memory, 2),
    ]
    notes = [
        "Medians of several blocks of steps. Online's step has a weighted sum and a noise more than FixedThreshold's, and keeps "
        "two vectors of the size of the weights. A step is replayed from a graph of all of it; its pieces are begun one by one, "
        "so that they take more than their share of a step where there are few runs.",
    ]
    if quick:
        notes.append(
            "Small networks, whose gradients are cheap beside noise and update: the claim is of the full ones."
        )
    numbers = {"ratios": ratios, "steps": rows, "pieces": split, "conclusions": _conclusions(ratios, names[-1])}
    return Outcome(claims, numbers, tables, notes)


def _conclusions(ratios: Ratios, automatic: str) -> list[str]:
    each = {name: ", ".join(f"{ratio:.2f} ({where})" for where, (ratio, _) in ratios[name].items()) for name in ratios}
    if not each[automatic]:
        return []
    return [
        f"The second question's time: Online's step takes {each['Online']} times FixedThreshold's; with automatic clipping, "
        f"which asks none, {each[automatic]}."
    ]


def _ratio(times: Array, plain: Array) -> tuple[float, float]:
    """The medians' ratio, and its standard error from the blocks."""
    ratio = float(np.median(times) / np.median(plain))
    errors = [float(each.std(ddof=1) / math.sqrt(len(each)) / np.median(each)) for each in (times, plain)]
    return ratio, ratio * math.hypot(*errors)


def _claim(words: str, ratios: dict[str, tuple[float, float]], subject: str, kind: str = SENTENCE) -> Claim:
    cases = [None if abs(ratio - MINIMAL) < ERRORS * error else ratio <= MINIMAL for ratio, error in ratios.values()]
    told = ", ".join(f"{ratio:.2f} ± {error:.2f} ({where})" for where, (ratio, error) in ratios.items())
    return judged(words, cases, f"{subject} {told} times FixedThreshold's (agreeing up to {MINIMAL:g})", kind=kind)
