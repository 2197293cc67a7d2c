"""Proposition 1: two Gaussian answers about one lot, with nu_g = (nu^-2 - nu_q^-2)^-1/2, cost one Gaussian of multiplier nu.

Three ways. Integrated: moments of the pair of answers to a sampled lot against those of one answer, in both directions. Measured:
the engine's own releases of a record, whose shift and noise are read off 20000 draws. And in epsilon: what the pair
costs as the algorithm is printed, whose line 13 has nu_g on both answers. Beside it, that the step size costs nothing more.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from honestdp.accounting import epsilon
from honestdp.boundary.noise import noise_source
from honestdp.boundary.query import Constants, Direction, Query
from honestdp.boundary.records import Examples
from honestdp.boundary.release import Question, release
from honestdp.boundary.seed import Seed
from honestdp.gradients.layout import layout_of, stack
from honestdp.losses import cross_entropy
from honestdp_papers.claims import ERRORS, OURS, Outcome, Table, judged
from honestdp_papers.galli2024.free_steps import free_step_sizes
from honestdp_papers.galli2024.frontier import PRINTED, online_noise
from honestdp_papers.galli2024.setting import DELTA, MNIST, PRINTED_K
from honestdp_papers.parts import Array
from honestdp_papers.registry import Finished

RATES, NOISES, SHARES, ORDERS = (512 / 60000, 0.1, 1.0), (0.8, 1.5, 3.88), (1.5, PRINTED), (2, 8)
STEP, WIDE = 0.1, 9.0
"""Of the integrals, in deviations of the noise."""
NEAR = 1e-6
"""By which an integral may differ, as a part of it."""
DRAWS, QUICK_DRAWS, CLIP = 20000, 4000, 0.5
LARGE, SMALL = "norm above the clip", "norm half of the clip"
"""The two records."""


def proposition1(parts: Finished, quick: bool) -> Outcome:
    rows, same = _integrated()
    measured, cases, below = _all_measured(QUICK_DRAWS if quick else DRAWS)
    costs, stated = _costs(), MNIST.epsilons
    claims = [
        judged(
            "Proposition 1: the moments of the pair of answers are those of one Gaussian of multiplier nu",
            same,
            f"within {max(abs(float(row[-1]) - 1) for row in rows):.0e} of them in {len(rows)} settings (noises, shares, rates), "
            f"orders {' and '.join(map(str, ORDERS))}, both directions",
        ),
        judged(
            "The same of the engine's releases: their privacy loss for a record above the clip is that of one Gaussian",
            cases,
            "mean over the Gaussian's " + ", ".join(f"{row[3]:.3f} ± {row[4]:.3f}" for row in measured if row[2] == LARGE)
            + "; delta(1) over the Gaussian's "
            + ", ".join(f"{row[5]:.3f} ± {row[6]:.3f}" for row in measured if row[2] == LARGE),
            kind=OURS,
        ),
        judged(
            "It is a bound, reached by records above the clip alone: others are not in the second answer, and cost less",
            below,
            "mean over the Gaussian's " + ", ".join(f"{row[3]:.3f}" for row in measured if row[2] == SMALL)
            + " at half of the clip",
            kind=OURS,
        ),
        judged(
            "Line 13 of Algorithm 1, nu_g on both answers, is a misprint: it would overspend",
            [both > budget for (both, _), budget in zip(costs, stated, strict=True)],
            ", ".join(f"{both:.2f} in the place of {budget:g}" for (both, _), budget in zip(costs, stated, strict=True)),
            kind=OURS,
        ),
        free_step_sizes(),
    ]  # fmt: skip
    tables = [
        Table(
            "Moments of the pair over those of one answer, the furthest from 1",
            ["nu", "nu_q over nu", "rate", "found"],
            rows,
            9,
        ),
        Table(
            "The engine's privacy loss over that of one Gaussian",
            ["nu", "nu_q over nu", "record", "mean", "standard error", "delta at epsilon 1", "standard error"],
            measured,
            3,
        ),
        Table(
            f"Epsilon of Online's grid on MNIST, {PRINTED_K} runs by moments at delta {DELTA:g}",
            ["stated", "nu_g on both answers, as in line 13", "two lots in the place of one"],
            [[f"{budget:g}", *each] for budget, each in zip(stated, costs, strict=True)],
            3,
        ),
    ]
    notes = [
        "Asked of two lots, each drawn for itself, the two answers are composed as two queries of more noise each: that would "
        "cost a little less than stated, for twice the gradients."
    ]
    numbers = {"integrated": rows, "measured": measured, "costs": costs}
    return Outcome(claims, numbers, tables, notes)


def _integrated() -> tuple[list[list[str | float]], list[bool | None]]:
    rows: list[list[str | float]] = []
    cases: list[bool | None] = []
    for noise in NOISES:
        for share in SHARES:
            shifts = (math.sqrt(1 - share**-2) / noise, 1 / (share * noise))
            for rate in RATES:
                ratios = [
                    _log_moment(shifts, rate, order, flipped) / _log_moment((1 / noise,), rate, order, flipped)
                    for order in ORDERS
                    for flipped in (False, True)
                ]
                furthest = max(ratios, key=lambda ratio: abs(ratio - 1))
                cases.append(abs(furthest - 1) < NEAR)
                rows.append([f"{noise:g}", f"{share:g}", f"{rate:.3g}", furthest])
    return rows, cases


def _log_moment(shifts: tuple[float, ...], rate: float, order: int, flipped: bool) -> float:
    """ln E_P (P/Q)^order of answers of unit noise that a sampled record shifts by so much; P has the record, or, flipped, Q."""
    axes = [np.arange(-WIDE - order * shift, WIDE + (order + 1) * shift, STEP) for shift in shifts]
    points: Array = np.stack(np.meshgrid(*axes, indexing="ij"))
    without: Array = -(points**2).sum(axis=0) / 2 - len(shifts) / 2 * math.log(2 * math.pi)
    ratio: Array = np.tensordot(np.array(shifts), points, axes=1) - float(np.square(shifts).sum()) / 2
    loss = np.logaddexp(math.log(rate) + ratio, math.log1p(-rate)) if rate < 1 else ratio
    terms = without - order * loss if flipped else without + (order + 1) * loss
    most = float(terms.max())
    return most + math.log(float(np.exp(terms - most).sum()) * STEP ** len(shifts))


def _all_measured(draws: int) -> tuple[list[list[str | float]], list[bool | None], list[bool | None]]:
    """Rows of what the engine's losses are, whether they are the Gaussian's, and whether the small record's are below."""
    rows: list[list[str | float]] = []
    cases: list[bool | None] = []
    below: list[bool | None] = []
    for noise in NOISES[:2]:
        for share in SHARES:
            for record in (LARGE, SMALL):
                loss = _losses(noise, share, draws, CLIP * (4 if record == LARGE else 0.5))
                expected, tail = 1 / (2 * noise**2), _gaussian_delta(noise, 1.0)
                over = np.maximum(0, 1 - np.exp(1 - loss))
                numbers = []
                for values, whole in ((loss, expected), (over, tail)):
                    numbers += [float(values.mean()) / whole, float(values.std()) / math.sqrt(draws) / whole]
                if record == LARGE:
                    cases += [abs(numbers[at] - 1) < ERRORS * numbers[at + 1] for at in (0, 2)]
                else:
                    below.append(numbers[0] + ERRORS * numbers[1] < 1)
                rows.append([f"{noise:g}", f"{share:g}", record, *numbers])
    return rows, cases, below


def _losses(noise: float, share: float, draws: int, norm: float) -> Array:
    """The privacy loss of releases that hold a record of this gradient norm, against those of an empty lot, `[draws]`.

    What the record shifts the answers by and the deviation of their noise are both taken from the draws, not from a formula. The
    model is linear from weights 0: softmax says 1/2, so that a record x has a gradient of norm |x| / sqrt(2).
    """
    model = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(model.weight)
    layout, device = layout_of(model), torch.device("cpu")
    x = torch.tensor([norm * math.sqrt(2.0), 0.0]).expand(draws, 1, 2)
    lot = Examples(x, torch.zeros(draws, 1, dtype=torch.int64), torch.ones(draws, 1))
    sigma, ones = torch.full((draws,), noise), torch.ones(draws)
    constants = Constants(1, 1.0, 1, sigma, layout, torch.ones(1))
    query = Query(clip=CLIP * ones, second=Direction(share * sigma))
    found = release(
        [lot],
        stack([model] * draws, layout, device),
        query,
        question=Question(model, cross_entropy),
        constants=constants,
        noise=noise_source(device, Seed.fixed(1), secure=False),
        width=1,
    )
    assert found.second is not None
    loss = torch.zeros(draws, dtype=torch.float64)
    for answer in (found.gradient.double(), found.second.double()):
        mean = answer.mean(dim=0)
        loss += (answer @ mean - mean @ mean / 2) / (answer - mean).square().mean()
    return loss.numpy()


def _gaussian_delta(noise: float, at: float) -> float:
    """delta(epsilon) of one Gaussian answer (Balle & Wang 2018)."""
    from scipy.stats import norm

    first, second = 1 / (2 * noise) - at * noise, -1 / (2 * noise) - at * noise
    return float(norm.cdf(first) - math.exp(at) * norm.cdf(second))


def _costs() -> list[tuple[float, float]]:
    """At each epsilon of Online's grid: with nu_g on both answers, and with a lot for each of the two."""
    import dp_accounting

    found = []
    for budget in MNIST.epsilons:
        noise = online_noise(budget)
        gradient = noise / math.sqrt(1 - PRINTED**-2)
        run = MNIST.priced
        events = [
            type(run)(records=run.records, lot=run.lot, steps=PRINTED_K * run.steps, noise=each).event
            for each in (gradient / math.sqrt(2), gradient, PRINTED * noise)
        ]
        apart = dp_accounting.ComposedDpEvent(events[1:])
        found.append((*(epsilon(each, delta=DELTA, accountant="moments") for each in (events[0], apart)),))
    return found  # type: ignore[return-value]
