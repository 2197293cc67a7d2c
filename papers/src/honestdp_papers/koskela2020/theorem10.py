"""Theorem 10: eta^2 d C^2 sigma^2 / (2 L^2) <= E |theta_full - theta_two|^2 <= the same + eta^2 C^2, over the noise.

The upper bound rests on sums of at most C L, which a lot of L records has. A Poisson lot may be larger: with the sizes B1 and B2
that were drawn, the second term is eta^2 C^2 (B1 + B2)^2 / (4 L^2). Simulated for lots whose gradients agree, are random, or are
opposed from one lot to the next, which reaches the bound; and measured on the engine.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from honestdp_papers.claims import ERRORS, Outcome, Table, judged
from honestdp_papers.parts import Array, Finished

LOT, RECORDS = 200.0, 50000
CASES = ((1000, 0.5), (1000, 2.0), (20000, 2.0), (20000, 8.0))
"""d and sigma."""
KINDS = ("agree", "random", "opposed")
DRAWS, QUICK_DRAWS = 400, 100
ETA, CLIP = 0.1, 3.0


def theorem10(parts: Finished, quick: bool) -> Outcome:
    draws = QUICK_DRAWS if quick else DRAWS
    rng = np.random.default_rng(10)
    rows: list[list[str | float]] = []
    below: list[bool | None] = []
    above: list[bool | None] = []
    as_printed: list[bool | None] = []
    for d, sigma in CASES:
        for kind in KINDS:
            mean, error, low, printed, realised = _simulated(d, sigma, kind, draws, rng)
            below.append(None if abs(mean - low) < ERRORS * error and mean < low else mean >= low)
            above.append(None if abs(mean - realised) < ERRORS * error and mean > realised else mean <= realised)
            as_printed.append(None if abs(mean - printed) < ERRORS * error else mean <= printed)
            rows.append([str(d), f"{sigma:g}", kind, mean / low, error / low, printed / low, realised / low])
    engine = _engine(100 if quick else 400)
    claims = [
        judged(
            "Theorem 10, lower bound: the noise alone makes the two ways differ by so much",
            [*below, engine[0] >= engine[2] - ERRORS * engine[1]],
            f"from {min(float(row[3]) for row in rows):.3f} to {max(float(row[3]) for row in rows):.2f} of it; on the engine "
            f"{engine[0] / engine[2]:.3f} ± {engine[1] / engine[2]:.3f}",
        ),
        judged(
            "Theorem 10, upper bound, with the sizes of the lots that were drawn",
            [*above, engine[0] <= engine[3] + ERRORS * engine[1]],
            f"at most {max(float(row[3]) / float(row[6]) for row in rows):.3f} of it",
        ),
        judged(
            "Theorem 10, upper bound as printed, where every lot has L records",
            as_printed,
            "Poisson lots are larger than L half of the time: opposed gradients are at "
            + ", ".join(f"{float(row[3]) / float(row[5]):.3f}" for row in rows if row[2] == "opposed")
            + " of it",
        ),
    ]
    header = [
        "d",
        "sigma",
        "gradients",
        "measured",
        "standard error",
        "upper bound as printed",
        "upper bound with the sizes drawn",
    ]
    table = Table("Mean squared difference, over the lower bound", header, rows, 3)
    notes = [
        f"{draws} draws of lots and noise for each row; eta {ETA:g}, clip {CLIP:g}, lot {LOT:g} of {RECORDS} records. The "
        "engine: a linear model of digits, many runs, their first iteration."
    ]
    return Outcome(claims, {"rows": rows, "engine": engine}, [table], notes)


def _simulated(
    d: int, sigma: float, kind: str, draws: int, rng: np.random.Generator
) -> tuple[float, float, float, float, float]:
    """Mean and standard error of the squared difference; the lower bound, the upper one as printed, and with the sizes drawn."""
    sizes = rng.binomial(RECORDS, LOT / RECORDS, size=(draws, 2))
    squares = np.empty(draws)
    for i, (first, second) in enumerate(sizes):
        apart = ETA / 2 / LOT * (_sum(d, int(first), kind, 0, rng) - _sum(d, int(second), kind, 1, rng))
        noise = ETA / 2 / LOT * CLIP * sigma * (rng.normal(size=d) - rng.normal(size=d))
        squares[i] = np.square(apart + noise).sum()
    low = ETA**2 * d * CLIP**2 * sigma**2 / (2 * LOT**2)
    realised = low + float((ETA**2 * CLIP**2 * sizes.sum(axis=1) ** 2 / (4 * LOT**2)).mean())
    return float(squares.mean()), float(squares.std() / math.sqrt(draws)), low, low + ETA**2 * CLIP**2, realised


def _sum(d: int, size: int, kind: str, lot: int, rng: np.random.Generator) -> Array:
    """A sum of clipped gradients, each of norm C."""
    if kind == "random":
        found: Array = CLIP * math.sqrt(size / d) * rng.normal(size=d)
        return found
    way = np.zeros(d)
    way[0] = -1.0 if kind == "opposed" and lot == 1 else 1.0
    return CLIP * size * way


def _engine(runs: int) -> tuple[float, float, float, float]:
    """The same of the engine's first iteration, over many runs: mean, standard error, lower bound, upper bound for lots of L."""
    import torch

    from honestdp import Run, load_dataset
    from honestdp.boundary.seed import Seed
    from honestdp.optimizers import ADADP
    from honestdp_papers.curves import Bench, seeded

    x, y = load_dataset("digits").train
    run, clip, place = Run(records=len(x), lot=100, steps=2, noise=2.0), 1.0, torch.device("cpu")
    make = partial(torch.nn.Linear, 64, 10)
    bench = Bench(seeded(make, 0), (x, y), place, records=len(x))
    rules, starts = [ADADP(clip=clip, lr=ETA, tau=1.0)] * runs, bench.starts(make, [0], each=runs)
    population = bench.population(run, rules, starts, Seed.fixed(10).child(0), every=2)
    while population.step < 2:
        population.block()
    squares = (population.weights() - population.state["full"]).double().square().sum(dim=1)
    low = ETA**2 * bench.layout.total * clip**2 * run.noise**2 / (2 * run.lot**2)
    # Sizes of lots are secret; the mean of (B1 + B2)^2 is known: 4 L^2 + 2 L (1 - L/N).
    high = low + ETA**2 * clip**2 * (1 + (1 - run.rate) / (2 * run.lot))
    return float(squares.mean()), float(squares.std() / math.sqrt(runs)), low, high
