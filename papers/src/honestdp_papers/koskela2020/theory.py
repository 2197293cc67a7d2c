"""The method of ADADP: its error estimate (Lemma 1), its privacy (Theorem 9), its two ways (Theorem 10), its tolerance
(4.2).

Lemma 1: 2 (theta_two - theta_full) estimates the local error of a gradient step to O(eta^3). The gradient flow of a few
smooth functions is followed by Runge-Kutta steps far finer than eta. The order is the slope of the logarithm of what is
left over that of eta: 3 for the estimate, 2 for the local error itself.

Theorem 9: an iteration of ADADP costs two releases, alpha(lambda) <= 2 alpha_M(lambda). The two releases of an
iteration have lots and noises of their own, but what the second asks depends on the first. Checked for one record
against the worst of such dependence: its part of the second sum is chosen from the first answer, by several
adversaries, and the moments of the pair of answers are integrated on a grid. Then the engine is counted: how many
releases an iteration of the rule takes, and what 100 epochs cost.

Theorem 10: eta^2 d C^2 sigma^2 / (2 L^2) <= E |theta_full - theta_two|^2 <= the same + eta^2 C^2, over the noise. The
upper bound rests on sums of at most C L, which a lot of L records has. A Poisson lot may be larger: with the sizes B1
and B2 that were drawn, the second term is eta^2 C^2 (B1 + B2)^2 / (4 L^2). Simulated for lots whose gradients agree,
are random, or are opposed from one lot to the next, which reaches the bound; and measured on the engine.

Section 4.2: with tau = sqrt(d / 2T) the noise that T iterations gather has a covariance near the identity. The rule is
given pure noise, as where gradients are small against it (sqrt(d) sigma >> L, the section's assumption). Kept full
steps gather a variance of T eta^2 (C sigma / L)^2 = 1 a weight; two half steps, which use both releases and are what
the authors' code keeps, gather half of that. The error divides by max(1, |theta|), which is above 1 for weights that
have wandered: it is smaller then, and the steps larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from honestdp.accounting import epsilon
from honestdp.boundary.query import Constants, Release
from honestdp.gradients.layout import layout_of
from honestdp.optimizers import ADADP
from honestdp_papers.claims import ERRORS, OURS, Outcome, Table, judged
from honestdp_papers.koskela2020.training import DELTA, EPOCHS, NOISES, TASKS
from honestdp_papers.look import logarithmic, named, panels
from honestdp_papers.parts import Array, Finished

Gradient = Callable[[Array], Array]
SIZES = np.geomspace(1e-3, 1e-1, 9)
FINE = 200
"""Runge-Kutta steps within one eta."""
NEAR_ORDER = 0.15
"""By which a slope may differ from the order."""


def _functions() -> dict[str, tuple[Gradient, Array]]:
    """Gradients and places to start from."""
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(5, 5))
    spread = matrix @ matrix.T / 5 + np.eye(5)
    x, y = rng.normal(size=(50, 4)), np.sign(rng.normal(size=50))

    def logistic(theta: Array) -> Array:
        found: Array = -(x * (y / (1 + np.exp(y * (x @ theta))))[:, None]).mean(axis=0) + 0.1 * theta
        return found

    def network(theta: Array) -> Array:
        """tanh(w x) v with squared error, by hand."""
        w, v = theta[:4], theta[4]
        hidden = np.tanh(x @ w)
        wrong = v * hidden - y
        return np.append((wrong * v * (1 - hidden**2)) @ x, wrong @ hidden) / len(y)

    return {
        "quadratic, 5 numbers": (lambda theta: spread @ theta, rng.normal(size=5)),
        "quartic, 3 numbers": (lambda theta: theta**3 + theta, rng.normal(size=3)),
        "logistic regression, 4": (logistic, rng.normal(size=4)),
        "tanh unit, 5": (network, rng.normal(size=5)),
    }


def lemma1(parts: Finished, quick: bool) -> Outcome:
    rows: list[list[str | float]] = []
    lines: dict[str, tuple[Array, Array]] = {}
    cases: list[bool | None] = []
    for name, (gradient, start) in _functions().items():
        local, left = np.array([_errors(gradient, start, eta) for eta in SIZES]).T
        orders = [float(np.polyfit(np.log(SIZES[:5]), np.log(line[:5]), 1)[0]) for line in (local, left)]
        lines[name] = local, left
        cases.append(abs(orders[1] - 3) < NEAR_ORDER)
        rows.append([name, *orders, float(left[0] / local[0]), float(left[-1] / local[-1])])
    claims = [
        judged(
            "Lemma 1: twice the difference between two half steps and a full one is the local error up to O(eta^3)",
            cases,
            f"slopes from {min(float(row[2]) for row in rows):.2f} to {max(float(row[2]) for row in rows):.2f} (agreeing within "
            f"{NEAR_ORDER:g} of 3); the local error itself from {min(float(row[1]) for row in rows):.2f} to "
            f"{max(float(row[1]) for row in rows):.2f}",
        )
    ]
    header = ["function", "slope of the local error", "slope of what the estimate leaves", f"left over at eta {SIZES[0]:g}, as a "
              "part of the error", f"at {SIZES[-1]:g}"]  # fmt: skip
    table = Table("Orders, over step sizes from 0.001 to 0.01", header, rows, 3)
    numbers = {name: {"local": local.tolist(), "left": left.tolist()} for name, (local, left) in lines.items()}
    return Outcome(claims, {"sizes": SIZES.tolist(), "lines": numbers}, [table], draw=lambda file: _draw(file, lines))


def _errors(gradient: Gradient, start: Array, eta: float) -> tuple[float, float]:
    """The local error of a step, and what is left of it when the estimate is taken away."""
    theta, fine = start.copy(), eta / FINE
    for _ in range(FINE):
        first = -gradient(theta)
        second = -gradient(theta + fine / 2 * first)
        third = -gradient(theta + fine / 2 * second)
        fourth = -gradient(theta + fine * third)
        theta = theta + fine / 6 * (first + 2 * second + 2 * third + fourth)
    full = start - eta * gradient(start)
    half = start - eta / 2 * gradient(start)
    two = half - eta / 2 * gradient(half)
    return float(np.linalg.norm(theta - full)), float(np.linalg.norm(theta - full - 2 * (two - full)))


def _draw(file: Path, lines: dict[str, tuple[Array, Array]]) -> None:
    with panels(file, 1, 1, size=(8, 4)) as axes:
        one = axes[0, 0]
        for name, (local, left) in lines.items():
            (drawn,) = one.plot(SIZES, local, "--", linewidth=1.2)
            one.plot(SIZES, left, color=drawn.get_color(), linewidth=1.6, label=name)
        logarithmic(one.xaxis)
        one.set_yscale("log")
        named(one, "dashed: the local error; lines: what the estimate leaves of it", "eta", "norm")
        one.legend(fontsize=9, frameon=False)


RATES, SIGMAS, ORDERS = (200 / 60000, 0.02, 0.2), (1.0, 2.0, 4.0), (1, 4, 16, 32)
ADVERSARIES = {
    "always all of the clip": lambda first: np.ones_like(first),
    "all of it after a large first answer, else none": lambda first: (first > 0.5).astype(float),
    "none of it after a large first answer, else all": lambda first: (first <= 0.5).astype(float),
    "against the first answer": lambda first: -np.sign(first),
}
POINTS, WIDE = 801, 12.0
ROOM = 1e-6
"""By which an integral may be above the bound, as a part of it."""
PUBLISHED_ORDERS = 32


def theorem9(parts: Finished, quick: bool) -> Outcome:
    rows: list[list[str | float]] = []
    cases: list[bool | None] = []
    for rate in RATES:
        for sigma in SIGMAS:
            worst = {name: max(_ratios(rate, sigma, name)) for name in ADVERSARIES}
            cases += [ratio <= 1 + ROOM for ratio in worst.values()]
            rows.append([f"{rate:.3g}", f"{sigma:g}", *worst.values()])
    iterations, releases = _counted()
    costs = [[_cost(task.run(noise=noise).event) for noise in NOISES] for task in TASKS]
    claims = [
        judged(
            "Theorem 9: the moments of an iteration are at most twice those of a release, whatever the second asks because of "
            "the first",
            cases,
            f"at most {max(float(cell) for row in rows for cell in row[2:]):.6f} of the bound in {len(cases)} settings, orders "
            f"{', '.join(map(str, ORDERS))}, both directions; the bound is reached where the record always adds all of the clip",
        ),
        judged(
            "So, with the same q, sigma and C, half as many iterations as steps of DP-SGD cost the same",
            [2 * iterations == releases],
            f"{releases} releases of the engine moved the step size {iterations} times",
        ),
        judged(
            "The published accountant, which stops at order 32, says more than the moments of all orders at small costs",
            [limited > whole for limited, whole in costs[0][2:] + costs[1][3:]],
            "; ".join(
                f"{task.title} sigma {noise:g}: {limited:.3f} and {whole:.3f}"
                for task, row in zip(TASKS, costs, strict=True)
                for noise, (limited, whole) in zip(NOISES, row, strict=True)
            ),
            kind=OURS,
        ),
    ]
    header = ["q", "sigma", *ADVERSARIES]
    table = Table(
        "The worst moment of an iteration over twice that of a release, by what the record does in the second",
        header,
        rows,
        4,
    )
    spent = Table(
        f"Epsilon after {EPOCHS} epochs at delta {DELTA:g}, by the moments accountant",
        ["dataset", "orders", *(f"sigma {noise:g}" for noise in NOISES)],
        [
            [task.title, name, *(pair[place] for pair in row)]
            for task, row in zip(TASKS, costs, strict=True)
            for place, name in ((0, f"1 to {PUBLISHED_ORDERS}, as published"), (1, "all"))
        ],
        3,
    )
    return Outcome(claims, {"ratios": rows, "costs": costs}, [table, spent])


def _log_moment(p: Array, q: Array, order: int, cell: float) -> Array:
    """ln E_p (p / q)^order over the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = (order + 1) * np.log(p) - order * np.log(q)
    found: Array = np.log(np.exp(terms).sum(axis=-1) * cell)
    return found


def _normal(x: Array, mean: Array | float, sigma: float) -> Array:
    found: Array = np.exp(-((x - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    return found


def _ratios(rate: float, sigma: float, adversary: str) -> list[float]:
    """Moments of the pair of answers over twice those of one, by order and direction."""
    x = np.linspace(-WIDE * sigma - 1, WIDE * sigma + 1 + sigma, POINTS)
    cell = float(x[1] - x[0])
    without = _normal(x, 0.0, sigma)
    found = []
    for flipped in (False, True):

        def pair(added: Array | float, flipped: bool = flipped) -> tuple[Array, Array]:
            with_it = (1 - rate) * without + rate * _normal(x, added, sigma)
            both = (np.broadcast_to(without, with_it.shape), with_it)
            return both if flipped else both[::-1]

        first = pair(1.0)
        for order in ORDERS:
            if sigma * WIDE < 1.5 * order / sigma:  # the integral would end before its mass does
                continue
            one = float(_log_moment(*first, order, cell))
            second = {added: float(_log_moment(*pair(added), order, cell)) for added in (-1.0, 0.0, 1.0)}
            each = np.array([second[added] for added in ADVERSARIES[adversary](x)])
            terms = (order + 1) * np.log(first[0]) - order * np.log(first[1]) + each
            both = math.log(float(np.exp(terms).sum() * cell))
            found.append(both / (2 * one))
    return found


def _counted() -> tuple[int, int]:
    """How often the step size moved in a small training, and how many releases were made."""
    import torch

    import honestdp

    steps, moves = 24, 0
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 3, generator=generator), torch.randint(0, 2, (60,), generator=generator)
    for last in range(1, steps + 1):
        rule = honestdp.optimizers.ADADP(clip=1.0, tau=1.0)
        moves += last % 2 == 0 and _size_after(rule, x, y, last) != _size_after(rule, x, y, last - 1)
    return moves, steps


def _size_after(rule: Any, x: Any, y: Any, steps: int) -> float:
    """ADADP's step size after so many releases."""
    import torch

    from honestdp import Run
    from honestdp.boundary.seed import Seed
    from honestdp_papers.curves import Bench, seeded

    place = torch.device("cpu")
    run = Run(records=60, lot=10, steps=24, noise=1.0)
    make = partial(torch.nn.Linear, 3, 2)
    bench = Bench(seeded(make, 0), (x, y), place, records=60)
    population = bench.population(run, [rule], bench.starts(make, [0]), Seed.fixed(0).child(0), every=1)
    while population.step < steps:
        population.block()
    return float(population.state["eta"][0])


def _cost(event: object) -> tuple[float, float]:
    """By the moments at whole orders up to 32, and at all orders."""
    from honestdp.accounting import renyi_curve

    orders = tuple(float(order + 1) for order in range(1, PUBLISHED_ORDERS + 1))
    curve = renyi_curve(event, orders)
    limited = min(
        rdp + math.log(1 / DELTA) / (order - 1) for order, rdp in zip(curve.orders, curve.values, strict=True)
    )
    return limited, epsilon(event, delta=DELTA, accountant="moments")


LOT, RECORDS = 200.0, 50000
CASES = ((1000, 0.5), (1000, 2.0), (20000, 2.0), (20000, 8.0))
"""d and sigma."""
KINDS = ("agree", "random", "opposed")
DRAWN, QUICK_DRAWN = 400, 100
ETA, CLIP = 0.1, 3.0


def theorem10(parts: Finished, quick: bool) -> Outcome:
    draws = QUICK_DRAWN if quick else DRAWN
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


WEIGHTS, QUICK_WEIGHTS = 20000, 4000
ITERATIONS = (100, 1000)
QUICK_ITERATIONS = (100,)
DEVIATION = 0.05
"""Of the noise in a released gradient: C sigma / L."""
NEAR_VARIANCE = 0.25
"""By which a variance may differ from what the section says, as a part of it."""


def section4_2(parts: Finished, quick: bool) -> Outcome:
    weights = QUICK_WEIGHTS if quick else WEIGHTS
    rows: list[list[str | float]] = []
    order: list[bool | None] = []
    halves: list[bool | None] = []
    for iterations in QUICK_ITERATIONS if quick else ITERATIONS:
        for keep, expected in (("full", 1.0), ("half", 0.5)):
            variance, eta = _gathered(weights, iterations, keep)
            predicted = math.sqrt(1 / iterations) / DEVIATION
            (order if keep == "full" else halves).append(abs(variance / expected - 1) <= NEAR_VARIANCE)
            rows.append(
                [str(iterations), f"theta_{'two' if keep == 'half' else 'full'}", expected, variance, eta / predicted]
            )
    own: list[list[str | float]] = [
        [task.title, str(task.weights), math.sqrt(task.weights / task.steps)] for task in TASKS
    ]
    claims = [
        judged(
            "tau = sqrt(d / 2T) keeps the covariance of the gathered noise at I (theta_full is kept, as in Algorithm 2)",
            order,
            ", ".join(f"{row[3]:.2f} after {row[0]} iterations" for row in rows if row[1] == "theta_full")
            + f" (agreeing within {NEAR_VARIANCE:.0%})",
        ),
        judged(
            "It is I/2 where theta_two is kept, as in the published code",
            halves,
            ", ".join(f"{row[3]:.2f} after {row[0]} iterations" for row in rows if row[1] == "theta_two")
            + f" (agreeing within {NEAR_VARIANCE:.0%} of 0.5)",
            kind="ours",
        ),
        judged(
            "For the networks d / 2T is O(1), so that tau = 1 is near the rule's",
            [0.1 < float(row[2]) ** 2 < 10 for row in own],
            ", ".join(f"{row[0]}: sqrt(d / 2T) = {row[2]:.2f}" for row in own)
            + "; agreeing where d / 2T is from 0.1 to 10; T counts iterations, of two releases",
        ),
    ]
    header = ["T", "kept", "expected", "found", "step size over that of the section"]
    tables = [
        Table("Variance of a weight after T iterations of pure noise", header, rows, 3),
        Table("The networks", ["dataset", "d", "sqrt(d / 2T)"], own, 2),
    ]
    notes = [f"{weights} weights from 0, noise of deviation {DEVIATION:g} a release, eta0 that of the section."]
    return Outcome(claims, {"rows": rows, "networks": own}, tables, notes)


def _gathered(weights: int, iterations: int, keep: str) -> tuple[float, float]:
    """The variance of the weights after so many iterations of pure noise, and the step size at the end."""
    generator = torch.Generator().manual_seed(42)
    steps = 2 * iterations
    constants = Constants(
        1000, 100.0, steps, torch.ones(1), layout_of(torch.nn.Linear(weights, 1, bias=False)), torch.ones(steps)
    )
    # From the step size of the section: the way to it is not in question here.
    first = math.sqrt(1 / iterations) / DEVIATION
    rule = ADADP(clip=1.0, lr=first, keep=keep)  # type: ignore[arg-type]
    params = torch.zeros(1, weights)
    state = rule.init(params, constants)
    for _ in range(steps):
        noise = DEVIATION * torch.randn(1, weights, generator=generator)
        params, state = rule.update(params, state, Release(noise), constants)
    return float(params.var()), float(state["eta"][0])
