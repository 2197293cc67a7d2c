"""Theorem 9: an iteration of ADADP costs two releases, alpha(lambda) <= 2 alpha_M(lambda).

The two releases of an iteration have lots and noises of their own, but what the second asks depends on the first. Checked for
one record against the worst of such dependence: its part of the second sum is chosen from the first answer, by several
adversaries, and the moments of the pair of answers are integrated on a grid. Then the engine is counted: how many releases an
iteration of the rule takes, and what 100 epochs cost.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from honestdp.accounting import epsilon
from honestdp_papers.claims import OURS, Outcome, Table, judged
from honestdp_papers.koskela2020.training import DELTA, EPOCHS, NOISES, TASKS
from honestdp_papers.parts import Array, Finished

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
