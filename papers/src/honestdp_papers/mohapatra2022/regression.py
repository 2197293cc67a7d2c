"""Linear regression on made-up records: step size against clip (figure 2), and the optimal step size (theorem 2).

The trainings are of every pair of a step size and a clip: x ~ U(0,1)^10, y = 10 (x_1 + ... + x_10), zero weights at
first, 100 steps, sigma 4. The paper gives neither the number of records nor the lot; here they are 10000 and 250, the
lot of its other experiments.

Figure 2. Which pairs are the best is a choice. The authors' notebook marks the lowest 1 % of the losses; the claims are
judged by that, on the losses that they published and on ours. Two readings of our own came before, and the verdicts by
them are told beside.

Theorem 2. For a convex f, steps x - a (g + z) with g the gradient clipped to C and E|z|^2 = (sigma C)^2, and the
average of T iterates, the bound R^2/(2aT) + a C^2 (1 + sigma^2)/2 is least at a = R/(C sqrt((1 + sigma^2) T)). The text
at hand, which was read by machine, has T in place of sqrt(T) in the theorem; the appendix, whose derivation is right on
this point, has sqrt(T). The proof takes <g, x - x*> >= f(x) - f(x*), which is convexity for the gradient itself; a
clipped gradient is shorter, and the bound can fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.training.population import Population
from honestdp_papers.claims import NUMBERS, OURS, Claim, Outcome, Table, jackknifed, judged
from honestdp_papers.curves import Bench, placed
from honestdp_papers.look import named, panels
from honestdp_papers.parts import Array, Arrays, Finished, Part, Tell

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


def _from_zero() -> torch.nn.Module:
    model = torch.nn.Linear(DIMENSIONS, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    return model


def _losses(device: str, repeats: int, tell: Tell) -> Array:
    """Training losses, `[repeats, step sizes, clips]`."""
    x, y = drawn(RECORDS, seed=0)
    grid = [rules.SGD(lr=lr, clip=clip) for lr in VALUES for clip in VALUES]
    run = Run(records=RECORDS, lot=LOT, steps=STEPS, noise=NOISE)
    bench = Bench(_from_zero(), (x, y), placed(device), records=RECORDS)
    starts = bench.starts(_from_zero, [0], each=len(grid))
    found = []

    def loss(population: Population) -> Array:
        weights = population.weights().double().cpu().numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            each: Array = np.mean((x.astype(np.float64) @ weights.T - y) ** 2, axis=0)
        return each

    for repeat in range(repeats):

        def tell_of(done: float, before: int = repeat) -> None:
            tell((before + done) / repeats)

        how: dict[str, Any] = {"seed": repeat, "every": STEPS, "together": len(grid), "tell": tell_of}
        found.append(bench.trained(run, grid, starts, {"loss": loss}, [STEPS], **how)["loss"])
    return np.stack(found).reshape(repeats, len(VALUES), len(VALUES))


SHARE = 0.01
"""Of all losses, the lowest of which are the best: as in the authors' notebook."""
BEST = 1.0
"""A loss of at most this counted as one of the best in our second reading. Untrained weights have 2600."""
SLOPE_TOLERANCE = 0.15
ORDERS = 100.0
"""What spans more than this factor spans several orders of magnitude."""
AUTHORS = (
    (0.4, 0.05), (0.2, 0.08), (10.0, 0.002), (0.08, 0.2), (20.0, 0.0008), (0.8, 0.02), (0.1, 0.2), (50.0, 0.0004), (0.5, 0.04),
    (8.0, 0.004), (8.0, 0.005),
)  # fmt: skip
"""(step size, clip) of the lowest 1 % of the authors' 900 losses (Simulation/Results/dpsgd-nm4.txt), with ties."""
AUTHORS_BEST = {0.0002: 84.7091, 0.0005: 84.7101, 0.05: 84.7085, 0.1: 84.7087, 1.0: 84.7093, 80.0: 85.6269}
"""The least of the authors' losses at some clips; the least of all is that at 0.05, the largest from 0.0002 on that at 80."""
AUTHORS_UNTRAINED = 3714.3
"""Their loss at the least step size and clip."""
EXAMPLES = (0.1, 0.2)
"""Clips that the text names as having no best partner."""


@dataclass(frozen=True)
class Reading:
    """One reading of which pairs are the best: those with a loss of at most `most`.

    slope: how log step size goes with log clip over these pairs; None for fewer than 3 clips.
    """

    words: str
    pairs: int
    clips: list[float]
    sizes: list[float]
    slope: float | None

    @property
    def is_inverse(self) -> bool:
        return self.slope is not None and abs(self.slope + 1) <= SLOPE_TOLERANCE

    @property
    def told_slope(self) -> str:
        return "none (fewer than 3 clips)" if self.slope is None else f"{self.slope:.2f}"

    def claims(self) -> list[Claim]:
        without = [f"{len(VALUES) - len(having)} of {len(VALUES)}" for having in (self.clips, self.sizes)]
        spans = [f"{span(values):.0f}" for values in (self.clips, self.sizes)]
        return [
            judged(
                f"The best (step size, clip) pairs lie on a diagonal that shows an inverse relation ({self.words})",
                [self.is_inverse],
                f"{self.pairs} pairs of {len(VALUES) ** 2}, slope {self.told_slope} on logarithmic axes; inverse is -1, within "
                f"{SLOPE_TOLERANCE:g}",
            ),
            judged(
                f"Not every clip and not every step size has a best partner ({self.words})",
                [len(values) < len(VALUES) for values in (self.clips, self.sizes)],
                f"{without[0]} clips and {without[1]} step sizes have none",
            ),
            judged(
                f"Both have to be searched over several orders of magnitude ({self.words})",
                [span(values) > ORDERS for values in (self.clips, self.sizes)],
                f"the best pairs span a factor of {spans[0]} in the clip and {spans[1]} in the step size (several orders: above "
                f"{ORDERS:g})",
            ),
        ]

    def examples(self) -> Claim:
        named_in_text = " and ".join(f"{clip:g}" for clip in EXAMPLES)
        have = [f"{clip:g} has {'one' if clip in self.clips else 'none'}" for clip in EXAMPLES]
        return judged(
            f"Standard choices of the clip, for example {named_in_text}, have no best partner ({self.words})",
            [clip not in self.clips for clip in EXAMPLES],
            ", ".join(have),
            kind=NUMBERS,
        )


def span(values: list[float]) -> float:
    return max(values) / min(values) if values else 0.0


def reading(loss: Array, most: float, words: str, *, by_clip: bool = False) -> Reading:
    """by_clip: the slope over the best pair of every clip, as our first two readings had it, and not over all pairs."""
    best = loss <= most
    rows, columns = np.nonzero(best)
    own = loss.argmin(axis=0)
    pairs = {(VALUES[own[c]] if by_clip else VALUES[r], VALUES[c]) for r, c in zip(rows, columns, strict=True)}
    slope = slope_of(sorted(pairs))
    clips, sizes = ([VALUES[i] for i in sorted(set(places.tolist()))] for places in (columns, rows))
    return Reading(words, int(best.sum()), clips, sizes, slope)


def slope_of(pairs: list[tuple[float, float]]) -> float | None:
    """Of log step size over log clip."""
    if len({clip for _, clip in pairs}) < 3:
        return None
    sizes, clips = np.log10(pairs).T
    return float(np.polyfit(clips, sizes, 1)[0])


def lowest(loss: Array) -> float:
    return float(np.sort(loss, axis=None)[round(SHARE * loss.size) - 1])


def figure2(parts: Finished, quick: bool) -> Outcome:
    repeats = np.where(np.isfinite(parts["figure2/grid"]["loss"]), parts["figure2/grid"]["loss"], np.inf).astype(float)
    loss = repeats.mean(axis=0)
    share = f"the lowest {SHARE:.0%} of the losses"
    sizes, clips = (sorted(set(values)) for values in zip(*AUTHORS, strict=True))
    published = Reading(f"{share} that the authors published", len(AUTHORS), clips, sizes, slope_of(list(AUTHORS)))
    lowest_ours = reading(loss, lowest(loss), f"{share} of our trainings")
    others = [
        reading(loss, 2 * loss.min(), "ours within twice the least loss, our first reading", by_clip=True),
        reading(
            loss, BEST, f"ours of {BEST:g} or less, our second, after the first had been seen to fail", by_clip=True
        ),
    ]
    by_claim = zip(*([*one.claims(), one.examples()] for one in (published, lowest_ours)), strict=True)
    claims = [*(claim for both in by_claim for claim in both), _partner(repeats)]
    with np.errstate(divide="ignore"):
        logs = np.log10(loss)
    every = (published, lowest_ours, *others)
    numbers = {
        "values": VALUES,
        "log10 of the loss, by step size and clip": logs.round(4).tolist(),
        "readings": {one.words: asdict(one) for one in every},
    }
    rows: list[list[str | float]] = [
        [one.words, str(one.pairs), one.told_slope, *(claim.verdict for claim in one.claims())] for one in every
    ]
    header = ["which pairs are the best", "pairs", "slope", "on an inverse diagonal", "not every value has a partner",
              "several orders of magnitude"]  # fmt: skip
    low = lowest_ours.clips
    notes = [
        f"The paper does not give the number of records ({RECORDS} here) nor the lot ({LOT}). Losses are means over "
        f"{len(repeats)} repeats.",
        "Which pairs count as best decides the verdicts. The authors' notebook (`Simulation Experiment.ipynb`) marks the "
        "lowest 1 % of the losses, and so do the verdicts. Before it was known here, two readings of ours had been tried, the "
        "second after the first had been seen to fail on the diagonal; the table has the verdicts by all.",
        f"The lowest 1 % of our losses lie at clips of {min(low):g} to {max(low):g}, where gradients near the optimum are not "
        f"clipped and the loss falls to {loss.min():.3f}. The authors' losses level off at 84.7 for every good pair (why is "
        "not known here; the text's regression can be fitted exactly), so that theirs are spread along the whole diagonal.",
        _other_data(loss),
        _equally_good(),
    ]
    table = Table("Verdicts by four readings of what is best", header, rows)
    return Outcome(claims, numbers, [table], notes, draw=lambda file: _draw2(file, logs, loss))


def _other_data(loss: Array) -> str:
    products = [size * clip for size, clip in AUTHORS]
    return (
        "Their losses seem to be of another regression than the text describes: at the least step size and clip, where nothing "
        f"is learned, theirs is {AUTHORS_UNTRAINED:.0f} and ours {loss[0, 0]:.0f} (the text's data give 2583), and step size "
        f"times clip is {min(products):.2g} to {max(products):.2g} for their best pairs. So their diagonal lies beside ours in "
        "the figure, which is drawn over our losses; that it is a diagonal is what the two have in common."
    )


def _equally_good() -> str:
    least, most = min(AUTHORS_BEST.values()), max(AUTHORS_BEST.values())
    up_to_1 = max(loss for clip, loss in AUTHORS_BEST.items() if clip <= 1)
    return (
        f"Which clips have a partner among the lowest 1 % is decided in the sixth digit of the authors' losses: the best of clip "
        f"0.1, which has none, is {AUTHORS_BEST[0.1]:.4f}, the least of all {least:.4f}. Every clip from 0.0002 to 1 has a step "
        f"size with a loss within {up_to_1 / least - 1:.3%} of the least, and every one from 0.0002 to 80 within "
        f"{most / least - 1:.1%}. So their losses do not show that a fixed clip misses the optimum."
    )


def _partner(repeats: Array) -> Claim:
    """Of every clip, and not of the best pairs alone, with the error of the repeats."""
    best = repeats.mean(axis=0).argmin(axis=0)
    inside = [i for i, row in enumerate(best) if 0 < row < len(VALUES) - 1]
    logs = np.log10(VALUES)

    def slope(means: Sequence[Array]) -> float:
        return (
            float(np.polyfit(logs[inside], logs[means[0][:, inside].argmin(axis=0)], 1)[0]) if len(inside) > 2 else 0.0
        )

    found = jackknifed([repeats], slope)
    products = [VALUES[best[i]] * VALUES[i] for i in inside if VALUES[i] <= 1]
    ends = list(dict.fromkeys(f"{product:g}" for product in (min(products), max(products)))) if products else []
    told = f"; up to a clip of 1 their product is {' to '.join(ends)}" if ends else ""
    return judged(
        "Ours: the best step size of every clip is inversely proportional to it",
        [abs(found.value + 1) <= SLOPE_TOLERANCE],
        f"over the {len(inside)} clips whose best step size is not at the grid's edge it goes with the clip to the power "
        f"{found.value:.2f} ± {found.error:.2f} (-1 within {SLOPE_TOLERANCE:g} agrees){told}",
        kind=OURS,
    )


def _draw2(file: Path, logs: Array, loss: Array) -> None:
    with panels(file, 1, 1, size=(7, 6)) as axes:
        one = axes[0][0]
        one.grid(False)
        shown = one.imshow(np.minimum(logs, 6), origin="lower", cmap="inferno")
        rows, columns = np.nonzero(loss <= lowest(loss))
        one.plot(
            columns, rows, "o", markerfacecolor="none", markeredgecolor="#7fd4ff", markersize=8, label="our lowest 1 %"
        )
        sizes, clips = ([VALUES.index(value) for value in values] for values in zip(*AUTHORS, strict=True))
        one.plot(clips, sizes, "x", color="black", markersize=6, label="the lowest 1 % of the authors' losses")
        ticks = range(0, len(VALUES), 5)
        one.set_xticks(ticks, [f"{VALUES[i]:g}" for i in ticks])
        one.set_yticks(ticks, [f"{VALUES[i]:g}" for i in ticks])
        one.figure.colorbar(shown, label="log10 of the training loss (cut at 6)")
        one.legend(loc="lower left", fontsize=9)
        named(one, "Linear regression, DPSGD, sigma 4, 100 steps: our training loss", "clip C", "step size")


POWER_TOLERANCE, FACTOR = 0.2, 5.0
"""By how much a measured power may differ from the stated one, and within which factor a measured step size must lie."""


def theorem2(parts: Finished, quick: bool) -> Outcome:
    clips, noises = (0.3, 1.0, 3.0, 10.0), (1.0, 4.0)
    lengths = [100, 400] if quick else [100, 400, 1600]
    x, y = drawn(1000, seed=1)
    distance = 10 * math.sqrt(DIMENSIONS)
    rows: list[list[str | float]] = []
    for noise in noises:
        for steps in lengths:
            for clip in clips:
                theory = distance / (clip * math.sqrt((1 + noise**2) * steps))
                sizes = theory * np.geomspace(1e-2, 1e2, 41)
                risk = _average_risk(x.astype(float), y[:, 0].astype(float), sizes, clip, noise, steps)
                measured = float(sizes[risk.argmin()])
                bound = distance * clip * math.sqrt(1 + noise**2) / math.sqrt(steps)
                at_theory = float(risk[len(sizes) // 2])
                rows.append(
                    [noise, steps, clip, theory, measured, measured / theory, at_theory, float(risk.min()), bound]
                )
    table = np.array(rows, dtype=float)
    by_clip = _slope(table, 2)
    by_steps = _slope(table, 1)
    ratios = table[:, 5]
    inside, best_inside = table[:, 6] <= table[:, 8], table[:, 7] <= table[:, 8]
    close = [1 / FACTOR < ratio < FACTOR for ratio in ratios]
    claims = [
        judged(
            "The optimal step size is inversely proportional to the clip",
            [abs(by_clip + 1) < POWER_TOLERANCE],
            f"the measured optimum goes with the clip to the power {by_clip:.2f} (-1 within {POWER_TOLERANCE:g} agrees)",
        ),
        judged(
            "Ours: the step size that is best in fact is R/(C sqrt((1 + sigma^2) T)), which is best for the bound",
            close,
            f"the measured one is within a factor of {FACTOR:g} of it in {sum(close)} of {len(close)} settings; measured over "
            f"predicted: from {ratios.min():.2f} to {ratios.max():.2f}, median {np.median(ratios):.2f}",
            kind=OURS,
        ),
        judged(
            "With the predicted step size the excess risk is at most R C sqrt(1 + sigma^2)/sqrt(T)",
            list(inside),
            f"at the predicted step size the risk is at most this in {int(inside.sum())} of {len(inside)} settings",
        ),
    ]
    header = ["sigma", "T", "C", "predicted", "measured", "ratio", "risk at predicted", "risk at measured", "bound"]
    notes = [
        "The proof uses <g, x - x*> >= f(x) - f(x*) for the clipped gradient g; convexity gives it for the unclipped one only.",
        f"At the measured best step size, which the theorem says nothing of, the risk is within the bound in "
        f"{int(best_inside.sum())} of {len(inside)} settings.",
        "The bound goes to 0 with C, while a gradient that is clipped to nothing learns nothing: it cannot hold for small clips.",
        "As the text reads the optimum goes with 1/T; as the appendix derives it, with 1/sqrt(T). The theorem minimises an "
        "upper bound of the risk, and the step size that is best in fact need not be the one that is best for the bound, so "
        f"that what is measured decides neither: on this quadratic the best step size goes with T to the power {by_steps:.2f}.",
        "Theorem 2 is about a process whose noise has E|z|^2 = (sigma C)^2 and no lot; it is simulated as stated, on f(w) = mean "
        "squared error of the regression of figure 2 with 1000 records.",
    ]
    if quick:
        notes.append("Quick version: T of 100 and 400, without 1600.")
    return Outcome(claims, {"rows": rows}, [Table("Step sizes", header, rows, digits=3)], notes)


def _slope(table: Array, column: int) -> float:
    """How the logarithm of the measured optimum goes with that of a column, the others held fixed."""
    logs = np.log(table[:, :5])
    design = np.column_stack([np.log1p(table[:, 0] ** 2), logs[:, 1], logs[:, 2], np.ones(len(logs))])
    found = np.linalg.lstsq(design, logs[:, 4], rcond=None)[0]
    return float(found[column])


def _average_risk(x: Array, y: Array, sizes: Array, clip: float, noise: float, steps: int, repeats: int = 16) -> Array:
    """E f(average iterate) - f(x*), `[sizes]`, by simulation."""
    rng = np.random.default_rng(2)
    second, first = x.T @ x / len(x), x.T @ y / len(x)
    best = np.full(DIMENSIONS, 10.0)
    at: Any = np.zeros((len(sizes) * repeats, DIMENSIONS))
    total = np.zeros_like(at)
    pace = np.repeat(sizes, repeats)[:, None]
    for _ in range(steps):
        total += at
        gradient = 2 * (at @ second - first)
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        clipped = gradient * np.minimum(1, clip / np.maximum(length, 1e-30))
        at = at - pace * (clipped + rng.standard_normal(at.shape) * (noise * clip / math.sqrt(DIMENSIONS)))
    apart = total / steps - best
    risk = np.einsum("ri,ij,rj->r", apart, second, apart)
    means: Array = risk.reshape(len(sizes), repeats).mean(axis=1)
    return means
