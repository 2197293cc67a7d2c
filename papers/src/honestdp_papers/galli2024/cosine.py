"""Figure 1: the cosine of the sanitised and the true gradient of a lot, against the clip, at five steps of trainings on MNIST.

A lot is clipped at every C of a range and averaged, and the noise of a step, nu C / L, is drawn 20 times; what comes out is
compared with the lot's own average gradient. The paper says neither which training nor which noise its figure has: Online is
trained here at the noises of the least and the largest epsilon, and its lots are probed at these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from honestdp.boundary.capture import free_captured
from honestdp.boundary.intake import Intake
from honestdp.boundary.seed import Seed
from honestdp.optimizers import OSO
from honestdp_papers.claims import ERRORS, OURS, Measured, Outcome, Table, jackknifed, judged
from honestdp_papers.curves import Bench, placed
from honestdp_papers.galli2024.setting import MNIST, Task, records_of, sized
from honestdp_papers.look import named, panels, shared_legend
from honestdp_papers.parts import Array, Arrays, Finished, Part, Tell

CLIPS = np.geomspace(1e-3, 1e2, 31)
NOISES = (1.50, 0.80)
"""nu of Online's grid at epsilon 3 and 9 (figure 2)."""
LR = 1.467
"""Table 2, at all epsilons but the least."""
REALISATIONS, REPEATS, QUICK_REPEATS = 20, 5, 3
PART = "cosine/mnist"
PROMINENT = 1.1
"""The highest cosine over the larger one of those at both ends of the range of clips, at least."""
NEAR = 3.0
"""The factor within which a learnt clip is at the best one."""


@dataclass(frozen=True)
class Probe:
    """Steps after which lots are probed, in trainings from so many initial weights at every noise."""

    task: Task
    steps: tuple[int, ...]
    repeats: int


def probe_of(quick: bool) -> Probe:
    task = sized(MNIST, quick)
    return (
        Probe(task, (20, 50, 100, 150, 190), QUICK_REPEATS)
        if quick
        else Probe(task, (100, 250, 500, 750, 950), REPEATS)
    )


def parts(quick: bool) -> list[Part]:
    probe = probe_of(quick)
    task = probe.task
    identity = {
        "task": task.name, "network": task.words if not quick else "small", "records": task.records, "lot": task.lot,
        "steps": probe.steps, "repeats": probe.repeats, "noises": NOISES, "lr": LR, "clips": CLIPS.tolist(),
        "realisations": REALISATIONS,
    }  # fmt: skip
    weight = 10.0 + 2 * probe.repeats * max(probe.steps) * task.price

    def work(device: str, tell: Tell) -> Arrays:
        return measured(probe, device, tell)

    return [Part(PART, identity, weight, work)]


def measured(probe: Probe, device: str, tell: Tell) -> Arrays:
    """cosine `[noises, repeats, steps, clips, realisations]`; clip, the learnt one, and median, of the norms: `[noises, repeats,
    steps]`."""
    task, place = probe.task, placed(device)
    data = records_of(task).train
    bench = Bench(task.make(), data, place, records=task.records, loss=task.loss)
    starts = bench.starts(task.make, range(probe.repeats))
    shape = (len(NOISES), probe.repeats, len(probe.steps))
    found = {
        "cosine": np.zeros((*shape, len(CLIPS), REALISATIONS)),
        "clip": np.zeros(shape),
        "median": np.zeros(shape),
    }
    every, generator = reduce(math.gcd, probe.steps), torch.Generator().manual_seed(20)
    for i, noise in enumerate(NOISES):
        rules, own = [OSO(lr=LR)] * probe.repeats, Seed.fixed(16).child(i)
        population = bench.population(task.run(noise), rules, starts.clone(), own, every=every)
        for k, step in enumerate(probe.steps):
            while population.step < step:
                population.block(step - population.step)
                tell((i + population.step / max(probe.steps)) / len(NOISES))
            found["clip"][i, :, k] = population.state["clip"].cpu().numpy()
            for r, params in enumerate(population.weights()):
                lot = torch.randperm(len(data[0]), generator=generator)[: int(task.lot)]
                x, y = (part[lot].to(place) for part in data)
                found["cosine"][i, r, k], found["median"][i, r, k] = _cosines(
                    bench.intake, params[None], x, y, noise, generator
                )
        del population
        free_captured()
    return found


@torch.no_grad()
def _cosines(
    intake: Intake, params: Tensor, x: Tensor, y: Tensor, noise: float, generator: torch.Generator
) -> tuple[Array, float]:
    """`[clips, realisations]`, and the median norm of a record's gradient.

    A realisation z is one vector for all clips, so only products with it are needed: |s + a z|^2 = |s|^2 + 2 a s.z + a^2 |z|^2.
    """
    vetted, layout = intake.vetted, intake.layout
    with vetted.untouched.lent(params) as lent:
        found = vetted.gradients(layout.views(lent), x[None], y[None])
        norms = found.norms

        def averaged(weights: Tensor) -> Tensor:
            total = torch.zeros_like(params)
            found.add_weighted_sum(layout.views(total), (weights / len(x)).to(params.dtype))
            return total[0]

        true = averaged(torch.ones_like(norms))
        clipped = torch.stack([averaged((float(clip) / norms).clamp(max=1)) for clip in CLIPS])
    draws = torch.randn(REALISATIONS, params.shape[1], generator=generator).to(params)
    for gap in layout.gaps:
        draws[:, gap] = 0
    clips = torch.from_numpy(CLIPS).to(params)
    spread = (noise / len(x) * clips)[:, None]
    along = (clipped @ true)[:, None] + spread * (draws @ true)
    sizes = (
        clipped.square().sum(dim=1)[:, None]
        + 2 * spread * (clipped @ draws.T)
        + spread.square() * draws.square().sum(dim=1)
    )
    cosine: Array = (along / (sizes.sqrt() * true.norm())).double().cpu().numpy()
    return cosine, float(norms.median())


def figure1(parts: Finished, quick: bool) -> Outcome:
    kept, probe = parts[PART], probe_of(quick)
    curves = kept["cosine"].mean(
        axis=-1
    )  # [noises, repeats, steps, clips]: averages of 20 realisations, as in the paper
    mean = curves.mean(axis=1)
    best = best_clip(mean)
    heights = [[height(curves[i, :, k]) for k in range(len(probe.steps))] for i in range(len(NOISES))]
    ends = (best == 0) | (best == len(CLIPS) - 1)
    prominent = [
        None if ends[i, k] else one.above(PROMINENT) for i, row in enumerate(heights) for k, one in enumerate(row)
    ]
    moves, near = _judgements(curves, best, kept["clip"])
    least = curves.min(axis=(1, 2, 3))
    blur = kept["cosine"].std(axis=-1) / math.sqrt(REALISATIONS)
    told = [float(CLIPS[one]) for one in best.flat]
    below = curves < 0
    claims = [
        judged(
            "At every iteration there is a fairly prominent best clip",
            prominent,
            f"the highest cosine over the larger one of those at C = {CLIPS[0]:g} and {CLIPS[-1]:g}: "
            + "; ".join(
                f"nu {noise:g}: " + ", ".join(f"{one.value:.2f} ± {one.error:.2f}" for one in row)
                for noise, row in zip(NOISES, heights, strict=True)
            )
            + f" at steps {', '.join(map(str, probe.steps))} (agreeing from {PROMINENT:g} on, by {ERRORS:g} standard errors of "
            f"the repeats); in {ends.sum()} of {best.size} the best clip is the first or the last of the range, so that a peak "
            "may lie beyond it, and none is told",
        ),
        judged(
            "It moves within one optimization",
            moves,
            "; ".join(
                f"nu {noise:g}: C = " + ", ".join(f"{CLIPS[one]:.3g}" for one in best[i])
                for i, noise in enumerate(NOISES)
            )
            + f" at steps {', '.join(map(str, probe.steps))} (agreeing where the largest is twice the smallest, by {ERRORS:g} "
            "standard errors of the logarithm)",
        ),
        judged(
            "For some clips the cosine is negative, in averages of 20 realisations",
            [bool(one < 0) for one in least],
            "least averages " + ", ".join(f"{one:.4f}" for one in least) + f"; {below.sum()} of {below.size} are below 0",
        ),
        judged(
            "The sanitised gradient points away from the true one by more than the noise of 20 realisations lets an average be",
            [bool((curves[i] + 4 * blur[i] < 0).any()) for i in range(len(NOISES))],
            "averages more than 4 of their standard errors below 0: "
            + ", ".join(str(int((curves[i] + 4 * blur[i] < 0).sum())) for i in range(len(NOISES))),
            kind=OURS,
        ),
        judged(
            "The clip that Online has learnt by then is near the best one",
            near,
            f"Online's over the best: {_span(kept['clip'].mean(axis=1) / CLIPS[best])} (agreeing within a factor of {NEAR:g})",
            kind=OURS,
        ),
    ]  # fmt: skip
    header = [
        "nu",
        "step",
        "best C",
        "cosine there",
        "highest cosine",
        f"at C = {CLIPS[0]:g}",
        f"at C = {CLIPS[-1]:g}",
        "median norm",
        "Online's C",
    ]
    rows: list[list[str | float]] = [
        [
            f"{noise:g}",
            str(step),
            f"{CLIPS[best[i, k]]:.3g}",
            float(mean[i, k, best[i, k]]),
            float(mean[i, k].max()),
            float(mean[i, k, 0]),
            float(mean[i, k, -1]),
            float(kept["median"][i, :, k].mean()),
            float(kept["clip"][i, :, k].mean()),
        ]
        for i, noise in enumerate(NOISES)
        for k, step in enumerate(probe.steps)
    ]
    notes = [
        f"Online (step size {LR:g}) from {probe.repeats} initial weights at each noise; a lot of {int(probe.task.lot)} records "
        "is drawn for each probe. Where every record is clipped, signal and noise are both proportional to C: towards small "
        "clips the cosine does not fall to 0 but to that of unit gradients. The best clip is the largest within a per cent of "
        "the highest cosine; its prominence is judged by the highest cosine itself, of the mean over the repeats, with the "
        "jackknife's error.",
        "The paper says neither which training its figure is of nor at which noise: at another step size, say, gradients are "
        "of other sizes, and so are their best clips.",
        *(["A small network and fewer records and steps: the shape of the figure, not its numbers."] if quick else []),
    ]
    numbers = {"clips": CLIPS.tolist(), "steps": probe.steps, "cosine": mean.tolist(), "best": told}
    return Outcome(
        claims, numbers, [Table("The best clip", header, rows, 3)], notes, lambda file: _draw(file, curves, probe)
    )


def best_clip(curves: Array) -> Array:
    """Which clip of the last axis is best: the largest whose cosine is within a per cent of the highest.

    Where every record is clipped the cosine is the same at all smaller clips; the largest of those is meant.
    """
    enough = curves >= 0.99 * curves.max(axis=-1, keepdims=True)
    found: Array = curves.shape[-1] - 1 - enough[..., ::-1].argmax(axis=-1)
    return found


def height(curves: Array) -> Measured:
    """The highest point of the repeats' mean curve over the larger one of its two ends; curves `[repeats, clips]`.

    Infinite where both ends are at 0 or below it and the highest point is not.
    """

    def number(means: Sequence[Array]) -> float:
        top, end = float(means[0].max()), float(means[0][[0, -1]].max())
        return top / end if end > 0 else math.inf if top > 0 else math.nan

    return jackknifed([curves], number)


def _judgements(curves: Array, best: Array, learnt: Array) -> tuple[list[bool | None], list[bool | None]]:
    """Movement of the best clip by noise, and nearness of Online's by noise and step."""
    moves, near = list[bool | None](), list[bool | None]()
    for i, of_noise in enumerate(curves):
        for k in range(of_noise.shape[1]):
            near.append(_above(math.log(NEAR) - np.abs(np.log(learnt[i, :, k] / CLIPS[best[i, k]]))))
        logs = np.log(CLIPS)[best_clip(of_noise)]  # [repeats, steps]
        first, last = logs.mean(axis=0).argmin(), logs.mean(axis=0).argmax()
        moves.append(_above(logs[:, last] - logs[:, first] - math.log(2)))
    return moves, near


def _above(values: Array) -> bool | None:
    """Whether the mean of the repeats is above 0; None where less than two standard errors decide."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return None if abs(values.mean()) < ERRORS * error else bool(values.mean() > 0)


def _span(values: Array) -> str:
    return f"{values.min():.2g} to {values.max():.2g}"


def _draw(file: Path, curves: Array, probe: Probe) -> None:
    with panels(file, 1, len(NOISES), size=(11, 4)) as axes:
        for one, of_noise, noise in zip(axes[0], curves, NOISES, strict=True):
            for k, step in enumerate(probe.steps):
                (drawn,) = one.plot(CLIPS, of_noise[:, k].mean(axis=0), linewidth=1.6, label=f"step {step}")
                low, high = of_noise[:, k].min(axis=0), of_noise[:, k].max(axis=0)
                one.fill_between(CLIPS, low, high, color=drawn.get_color(), alpha=0.12, linewidth=0)
            one.set_xscale("log")
            one.axhline(0, color="#999999", linewidth=0.8)
            named(one, f"nu = {noise:g}; bands: all repeats", "C", "cosine")
        shared_legend(axes[0][0], "The cosine of sanitised and true gradients, MNIST", columns=5)
