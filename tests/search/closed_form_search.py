"""A search so small that the law of what leaves it is known in closed form.

Records are of two kinds: A is (x, y) = (1, 1) and B is (-1, 0). The model has one weight w and the logits (0, w x); the loss is
minus the second logit, so that a record's gradient is -x, of norm 1 = the clip. Every lot is all of the training records (rate
one) and there is one step. With S = A's - B's on the training side, a run of step size a from the weight w0 ends at

    w = w0 + a (S - sigma z) / L,    z standard normal,

and every one of n validation records is right if, and only if, w > 0: the total of the accuracy is n sign(w). The sign of w0
and its size decide how rare the better sign is, and are the attacker's to choose.

A run's outcome is (c, w, s): candidate, weight, noisy score. Its law is q_c(w) p(s - n sign w), p the discrete Gaussian. Since s
depends on w through its sign alone, the winner's law has the form

    A[c, sign, s] q_c(w | sign),

a table and truncated normal laws. So the divergence of two such laws is a sum of normal probabilities, exact but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn

from honestdp.boundary import intake
from honestdp.boundary.data import PrivateData
from honestdp.boundary.metrics import Accuracy
from honestdp.budget import Budget
from honestdp.search import secret
from honestdp.search.configuration import Configuration, configuration
from honestdp.search.design import Design, Request, design
from honestdp.search.guarantee import guarantee
from honestdp.search.runs import Execution, Setting, Standing
from honestdp.search.secret import Secret
from honestdp.search.space import space_of
from honestdp.search.vault import Unkept
from honestdp.selection import Compose, LiuTalwar, RandomStopping, Selection, Winner
from honestdp.selection.counts import Poisson, TruncatedNegativeBinomial
from honestdp.selection.liu_talwar import DELTA2

Array = NDArray[np.float64]

KIND_A, KIND_B = 26, 14
RECORDS, LOT = KIND_A + KIND_B, 34
FRACTION = 1 - LOT / RECORDS  # so that the rate is one
RATES = (1.0, 1.2)
BUDGET = Budget(2.0, 1e-4)
NODES, HEIGHTS = np.polynomial.legendre.leggauss(24)
NODES, HEIGHTS = (NODES + 1) / 2, HEIGHTS / 2


class OneWeight(nn.Module):
    """Logits (0, w x)."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start]))

    def forward(self, x: Tensor) -> Tensor:
        second = x * self.w
        return torch.cat([torch.zeros_like(second), second], dim=-1)


def second_logit(output: Tensor, y: Tensor) -> Tensor:
    return -output[:, 1]


def records() -> tuple[Tensor, Tensor]:
    y = torch.tensor([1] * KIND_A + [0] * KIND_B)
    return (2.0 * y - 1)[:, None], y


def setting(start: float) -> Setting:
    return Setting(
        model=OneWeight(start),
        loss=second_logit,
        schedule="constant",
        device=torch.device("cpu"),
        secure=False,
        workers=0,
    )


def asked(selection: Selection) -> Request:
    alone = isinstance(selection, Compose) and selection.candidates == 1
    return Request(
        budget=BUDGET,
        records=RECORDS,
        fraction=FRACTION,
        space=space_of("sgd", {"lr": list(RATES[:1] if alone else RATES), "clip": 1.0}, lot=LOT, steps=1),
        selection=selection,
        coverage=0.9,
        max_runs=None,
        published=False,
        drawn=None,
        space_seed=0,
        metric=Accuracy(),
    )


@cache
def designed(selection: Selection) -> Design:
    """The product's own design of the search: selection, noise of the runs, noise of the scores."""
    return design(asked(selection))


def configured(selection: Selection, start: float, data: PrivateData) -> Configuration:
    public = {"declared": True, "seed": None, "dataset": None, "reproduce": ""}
    return configuration(asked(selection), setting(start), data, **public)


@cache
def stated(selection: Selection) -> float:
    """The epsilon of the statement."""
    return guarantee(designed(selection), seeded=False, declared=True).epsilon


def counts(selection: RandomStopping | LiuTalwar) -> Array:
    """P(K = k), k = 0, 1, ..., from the papers' definitions, not from the product's formulas."""
    if isinstance(selection, LiuTalwar):
        most = math.floor(math.log(1 / DELTA2) / selection.gamma)
        masses = selection.gamma * (1 - selection.gamma) ** np.arange(most)
        masses[-1] = (1 - selection.gamma) ** (most - 1)
        return np.append(0.0, masses)
    count, k = selection.count, np.arange(1, 4000)
    if isinstance(count, Poisson):
        every = np.arange(200)
        return np.exp(-count.mean + every * math.log(count.mean) - special.gammaln(every + 1))
    assert isinstance(count, TruncatedNegativeBinomial)
    logs = k * math.log1p(-count.gamma) + special.gammaln(k + count.shape) - special.gammaln(k + 1)
    masses = np.exp(logs - logs.max())
    return np.append(0.0, masses / masses.sum())


@dataclass(frozen=True)
class World:
    """The data and the constants that a law depends on. signal: S. held: n, the validation records."""

    start: float
    signal: int
    held: int
    sigma: float
    scale: float
    rates: tuple[float, ...]

    @property
    def means(self) -> Array:
        return self.start + np.array(self.rates) * self.signal / LOT

    @property
    def deviations(self) -> Array:
        return np.array(self.rates) * self.sigma / LOT

    @property
    def signs(self) -> Array:
        """`[candidates, 2]`: the chance of a negative and of a positive weight."""
        z = self.means / self.deviations
        return np.maximum(np.stack([special.ndtr(-z), special.ndtr(z)], axis=1), 1e-280)

    def scores(self, grid: Array) -> Array:
        """`[2, grid]`: the law of a noisy score for either sign."""
        reach = np.arange(-math.ceil(14 * self.scale), math.ceil(14 * self.scale) + 1)
        normal = np.exp(-(reach**2) / (2 * self.scale**2)).sum()
        return np.stack([np.exp(-((grid - sign * self.held) ** 2) / (2 * self.scale**2)) for sign in (-1, 1)]) / normal


def world(made: Design, start: float, *, signal: int, held: int) -> World:
    """Of a design. The discrete Gaussian's scale is the multiplier, for the accuracy's sensitivity is 1."""
    assert made.multiplier is not None
    rates = tuple(float(dict(candidate.numbers)["lr"]) for candidate in made.candidates)
    return World(start, signal, held, made.runs[0].noise, made.multiplier, rates)


def score_grid(*worlds: World) -> Array:
    reach = max(one.held + math.ceil(13 * one.scale) for one in worlds)
    return np.arange(-reach, reach + 1)


def winner_table(selection: Selection, one: World, grid: Array, masses: Array | None = None) -> Array:
    """A, `[candidates, 2, grid]`: the winner's law. masses: of K, where they are not the selection's own."""
    runs = one.signs[:, :, None] * one.scores(grid)[None]  # q(c, sign, s), each candidate by itself
    if isinstance(selection, Compose):
        assert selection.candidates == 1
        return runs
    if isinstance(selection, Winner):
        return runs * _others(runs.sum(axis=1))[:, None]
    assert isinstance(selection, RandomStopping | LiuTalwar)
    runs = runs / len(runs)
    score = runs.sum(axis=(0, 1))
    below = np.cumsum(score) - score
    masses = counts(selection) if masses is None else masses
    masses = masses[: 1 + int(np.flatnonzero(masses > 1e-22)[-1])]
    slope = np.arange(1, len(masses)) * masses[1:]
    at = np.clip(below[None] + NODES[:, None] * score[None], 0, 1)
    return runs * (HEIGHTS @ np.polynomial.polynomial.polyval(at, slope))


def _others(each: Array) -> Array:
    """`[candidates, grid]`: the chance that every other candidate has a lower score, ties broken by even coins."""
    below = np.cumsum(each, axis=1) - each
    lower = below[None] + NODES[:, None, None] * each[None]
    total = []
    for candidate in range(len(each)):
        rest = np.delete(lower, candidate, axis=1)
        total.append(HEIGHTS @ rest.prod(axis=1))
    return np.array(total)


def divergence(one: World, table: Array, other: World, other_table: Array, epsilon: float) -> float:
    """sup over events of P(event) - e^epsilon P'(event), for the laws of two winners."""
    tiny = 1e-290
    own = np.maximum(table, tiny) / one.signs[:, :, None]  # densities relative to the normal laws of w
    rest = np.maximum(other_table, tiny) / other.signs[:, :, None] * math.exp(epsilon)
    mean, shifted, deviation = one.means[:, None, None], other.means[:, None, None], one.deviations[:, None, None]
    sides = np.array([[-math.inf, 0.0], [0.0, math.inf]])
    low, high = (np.broadcast_to(sides[None, :, i, None], own.shape).copy() for i in (0, 1))
    if one.signal == other.signal:
        kept = own > rest
    else:
        middle = (mean + shifted) / 2 + deviation**2 * np.log(rest / own) / (mean - shifted)
        rises = np.broadcast_to(mean > shifted, own.shape)
        low = np.where(rises, np.maximum(low, middle), low)
        high = np.where(rises, high, np.minimum(high, middle))
        kept = low < high
    gained = own * _between(low, high, mean, deviation) - rest * _between(low, high, shifted, deviation)
    return float(np.where(kept, gained, 0.0).sum())


def _between(low: Array, high: Array, mean: Array, deviation: Array) -> Array:
    """The normal probability of an interval, from the tail in which it keeps its digits."""
    low, high = (low - mean) / deviation, (high - mean) / deviation
    found: Array = np.where(low > 0, special.ndtr(-low) - special.ndtr(-high), special.ndtr(high) - special.ndtr(low))
    return found


def chosen(totals: Array, scale: float) -> Array:
    """The law of the place of the maximum of whole totals plus geometric noise of this scale; of equals the first wins."""
    noise = np.arange(math.ceil(50 * scale) + int(np.ptp(totals)))
    mass = np.exp(-noise / scale) * -np.expm1(-1 / scale)
    chances = []
    for j, own in enumerate(totals):
        reached = own + noise
        others = [
            np.maximum(
                0.0, -np.expm1(-(reached - other + (i > j)) / scale)
            )  # P(Z < reached - other), or <= for a later one
            for i, other in enumerate(totals)
            if i != j
        ]
        chances.append(float((mass * np.prod(others, axis=0)).sum()) if others else 1.0)
    return np.array(chances)


@dataclass(frozen=True)
class Outcome:
    """What one search let out, and the public and secret facts that its exact law is conditioned on: its coins."""

    standing: Standing
    secret: Secret
    signal: int
    held: int


def searches(made: Design, start: float, *, blocks: int, each: int) -> list[Outcome]:
    """Searches by the real code, with the operating system's randomness: all that `growing` comes to."""
    *_, found = growing(made, start, blocks=blocks, each=each)
    return found


def growing(made: Design, start: float, *, blocks: int, each: int) -> Iterator[list[Outcome]]:
    """The searches made so far, after each block of them.

    The runs of `each` searches are trained as one population, which is what a population is for; all else every search does by
    itself: its draws, its scores, its winner. The searches of a block share the coins of the split.
    """
    found: list[Outcome] = []
    with rehearsed_once():
        for _ in range(blocks):
            found = [*found, *_block(made, start, each)]
            yield found


@contextmanager
def rehearsed_once() -> Iterator[None]:
    """Within, the first search alone tries model and metric on made-up records, which is most of the work of so small a search.
    All have the same, and nothing of what leaves comes from a trial.
    """
    honest, found = intake.rehearse, []

    def rehearse(*given: Any, **named: Any) -> Any:
        if not found:
            found.append(honest(*given, **named))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "rehearse", rehearse)
        yield


def _block(made: Design, start: float, each: int) -> Iterator[Outcome]:
    x, y = records()
    drawn = [secret.drawn(made, seed=None) for _ in range(each)]
    drawn = [replace(one, split=drawn[0].split) for one in drawn]
    together = replace(
        drawn[0],
        candidates=sum((one.candidates for one in drawn), ()),
        starts=sum((one.starts for one in drawn), ()),
    )
    pool = Execution(made, together, setting(start), PrivateData((x, y)), records=RECORDS, store=Unkept())
    weights = []
    for number, batch in enumerate(pool.batches()):
        weights += pool._trained(number, batch)
    coins = drawn[0].held_out(RECORDS, made.fraction)
    for one in drawn:
        mine, weights = weights[: len(one.candidates)], weights[len(one.candidates) :]
        own = Execution(made, one, setting(start), PrivateData((x, y)), records=RECORDS, store=Unkept())
        own._trained = lambda number, batch, mine=mine: [mine[run] for run in batch]  # type: ignore[method-assign]
        standing = own.finish()
        signal = int(x[torch.from_numpy(~coins)].sum())
        yield Outcome(standing, one, signal, int(coins.sum()))
