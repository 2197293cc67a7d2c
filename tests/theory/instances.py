"""Seeded instances for the bounds: random ones, ones on a uniform grid of losses, and ones built to be nearly tight.

The near-tight ones follow the ordering of docs/theory.md, "How tight": a set of low losses on top (Q-mass s, Q'-mass
s' > s), a rare outcome of high loss next, everything else below. There the exact delta comes close to the bound, so a
formula that is too small shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .brute_force import Array, LawOfK, Mechanism, delta, grid_winner_law, renyi, winner_law
from .reference_bounds import ORDERS, Pair, pair_rdp

Rng = np.random.Generator
TOLERANCE = 1e-11
RENYI_TOLERANCE = 1e-7
SMALLEST = 1e-7  # the exact law of the winner is a difference of values of phi, good to about 1e-16


@dataclass(frozen=True)
class Instance:
    """Best of K runs of one mechanism, a pair that dominates it, and some epsilons."""

    mechanism: Mechanism
    law: LawOfK
    epsilons: tuple[float, ...]
    pair: Pair

    def exact(self, epsilon: float) -> float:
        a, a_prime = (winner_law(q, self.mechanism.score, self.law) for q in (self.mechanism.q, self.mechanism.q_prime))
        return delta(a, a_prime, epsilon)


@dataclass(frozen=True)
class GridInstance:
    """Candidates that are each run once; `pair` dominates every one of them."""

    candidates: tuple[Mechanism, ...]
    pair: Pair
    ties: str
    epsilons: tuple[float, ...]

    def exact(self, epsilon: float) -> float:
        scores = [c.score for c in self.candidates]
        a = grid_winner_law([c.q for c in self.candidates], scores, self.ties)
        a_prime = grid_winner_law([c.q_prime for c in self.candidates], scores, self.ties)
        return delta(a, a_prime, epsilon)


Bound = Callable[[Pair, LawOfK, float], float]
GridBound = Callable[[Pair, int, float], float]
RenyiFormula = Callable[[Array, Array, Array, LawOfK, Pair], Array]


@dataclass(frozen=True)
class Violation:
    instance: Instance | GridInstance
    epsilon: float
    exact: float
    claimed: float


def violations(bound: Bound, instances: Iterator[Instance]) -> Iterator[Violation]:
    """Every instance and epsilon at which the exact delta exceeds bound(pair, law, epsilon)."""
    for instance in instances:
        for epsilon in instance.epsilons:
            exact, claimed = instance.exact(epsilon), bound(instance.pair, instance.law, epsilon)
            if not exact <= claimed + TOLERANCE:
                yield Violation(instance, epsilon, exact, claimed)


def grid_violations(bound: GridBound, instances: Iterator[GridInstance]) -> Iterator[Violation]:
    """Every instance and epsilon at which the exact delta exceeds bound(pair, candidates, epsilon)."""
    for instance in instances:
        for epsilon in instance.epsilons:
            exact, claimed = instance.exact(epsilon), bound(instance.pair, len(instance.candidates), epsilon)
            if not exact <= claimed + TOLERANCE:
                yield Violation(instance, epsilon, exact, claimed)


def renyi_violations(formula: RenyiFormula, instances: Iterator[Instance]) -> Iterator[Violation]:
    """Every instance and order (in the place of epsilon) at which the exact Renyi divergence exceeds the formula."""
    for instance in instances:
        mechanism, pair = instance.mechanism, instance.pair
        a, a_prime = (winner_law(q, mechanism.score, instance.law) for q in (mechanism.q, mechanism.q_prime))
        bounds = formula(ORDERS, pair_rdp(pair), pair_rdp(pair.reversed), instance.law, pair.reversed)
        for order, exact, claimed in zip(ORDERS, renyi(a, a_prime, ORDERS), bounds, strict=True):
            if not exact <= claimed + RENYI_TOLERANCE and np.isfinite(exact):
                yield Violation(instance, float(order), float(exact), float(claimed))


def random_law(
    rng: Rng, kinds: tuple[str, ...] = ("fixed", "geometric", "tnb", "poisson", "binomial", "pmf")
) -> LawOfK:
    kind = kinds[rng.integers(len(kinds))]
    gamma = float(math.exp(rng.uniform(math.log(0.02), math.log(0.95))))
    if kind == "fixed":
        return LawOfK("fixed", (int(rng.integers(1, 7)),))
    if kind == "geometric":
        return LawOfK("tnb", (1.0, gamma))
    if kind == "tnb":
        return LawOfK("tnb", (float(rng.choice([0.0, rng.uniform(-0.98, 0), rng.uniform(0, 5)])), gamma))
    if kind == "poisson":
        return LawOfK("poisson", (float(rng.uniform(0.1, 12)),))
    if kind == "binomial":
        return LawOfK("binomial", (int(rng.integers(1, 12)), float(rng.uniform(0.05, 0.95))))
    return LawOfK("pmf", tuple(rng.dirichlet(np.full(int(rng.integers(2, 6)), 0.5)).tolist()))


def random_mechanism(rng: Rng) -> Mechanism:
    """Two to six outcomes, often with ties in the score and with outcomes that only one neighbour can give."""
    n = int(rng.integers(2, 7))
    q = rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 5.0])))
    q_prime = (
        rng.dirichlet(np.full(n, 1.0)) if rng.random() < 0.4 else q * np.exp(rng.normal(0, rng.uniform(0.1, 2), n))
    )
    q, q_prime = q + SMALLEST, q_prime + SMALLEST
    for mass in (q, q_prime):
        if n > 2 and rng.random() < 0.25:
            mass[rng.integers(n)] = 0.0
    return Mechanism(q / q.sum(), q_prime / q_prime.sum(), rng.integers(0, n if rng.random() < 0.5 else 3, n))


def grid_pair(rng: Rng) -> tuple[Pair, float]:
    """A pair on all losses i h of a uniform grid, some of mass zero, with or without infinite losses; and h."""
    while True:
        h = float(rng.choice([0.05, 0.25, 0.6]))
        losses = h * np.arange(-int(rng.integers(1, 5)), int(rng.integers(1, 5)) + 1)
        weights = (1e-3 + rng.gamma(0.7, size=len(losses))) * (rng.random(len(losses)) < 0.7)
        p_inf, r_inf = (float(rng.uniform(0, 0.1)) if rng.random() < 0.4 else 0.0 for _ in range(2))
        low, high = weights * (losses < 0), weights * (losses >= 0)
        # The masses below and above loss 0 are scaled apart until both P and R have mass one.
        system = np.array([[low.sum(), high.sum()], [low @ np.exp(-losses), high @ np.exp(-losses)]])
        if low.sum() == 0 or high.sum() == 0 or abs(np.linalg.det(system)) < 1e-9:
            continue
        below, above = np.linalg.solve(system, [1 - p_inf, 1 - r_inf])
        if below > 1e-6 and above > 1e-6:
            p = below * low + above * high
            return Pair(losses, p, p * np.exp(-losses), p_inf, r_inf), h


def mechanism_on(pair: Pair, rng: Rng) -> Mechanism:
    """Outcomes with this pair of laws and random scores; the masses of a loss may be split between two outcomes."""
    p, r = pair.masses
    part = rng.uniform(0.2, 0.8, len(p)) if rng.random() < 0.5 else np.ones(len(p))
    q, q_prime = np.concatenate([p * part, p * (1 - part)]), np.concatenate([r * part, r * (1 - part)])
    here = (q > 0) | (q_prime > 0)
    return Mechanism(q[here], q_prime[here], rng.integers(0, 6, int(here.sum())))


def some_epsilons(mechanism: Mechanism, rng: Rng, count: int = 5) -> tuple[float, ...]:
    """Zero, a negative one, and some up to beyond the largest loss."""
    both = (mechanism.q > 0) & (mechanism.q_prime > 0)
    top = float(np.abs(np.log(mechanism.q[both] / mechanism.q_prime[both])).max()) if both.any() else 1.0
    return (0.0, -float(rng.uniform(0, 1)), *(float(rng.uniform(0, 2 * top + 0.1)) for _ in range(count - 2)))


def random_instances(seed: int, count: int, *, kinds: tuple[str, ...] | None = None) -> Iterator[Instance]:
    rng = np.random.default_rng(seed)
    for i in range(count):
        mechanism = mechanism_on(grid_pair(rng)[0], rng) if i % 3 == 0 else random_mechanism(rng)
        law = random_law(rng, kinds) if kinds else random_law(rng)
        yield Instance(mechanism, law, some_epsilons(mechanism, rng), Pair.of(mechanism))


def tight_mechanism(rng: Rng) -> tuple[Mechanism, float]:
    """Low losses on top, then a rare outcome of high loss, then the rest; and the largest loss of the rest."""
    s_prime = float(rng.uniform(0.02, 0.7))
    s = 0.0 if rng.random() < 0.4 else s_prime * float(rng.uniform(0.05, 0.9))
    rare = float(math.exp(rng.uniform(math.log(1e-5), math.log(1e-2))))
    # An infinite high loss half of the time.
    rare_prime = 0.0 if rng.random() < 0.5 else rare * math.exp(-rng.uniform(0.5, 8))
    # Some of the low losses at the bottom half of the time: the best place may be inside a piece of the trade-off.
    top = 1.0 if rng.random() < 0.5 else float(rng.uniform(0.02, 0.9))
    q = np.array([s * top, rare, 1 - s - rare, s * (1 - top)])
    q_prime = np.array([s_prime * top, rare_prime, 1 - s_prime - rare_prime, s_prime * (1 - top)])
    return Mechanism(q, q_prime, np.array([2, 1, 0, 0])), math.log(q[2] / q_prime[2])


def tight_instances(seed: int, count: int, *, kinds: tuple[str, ...] | None = None) -> Iterator[Instance]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        mechanism, rest = tight_mechanism(rng)
        law = random_law(rng, kinds) if kinds else random_law(rng)
        # Just above the epsilon at which the rest stops to count in any order, and further up.
        with np.errstate(divide="ignore"):
            s, s_prime = mechanism.q[0], mechanism.q_prime[0]
            shift = float(np.log(law.slope(np.array(s)) / law.slope(np.array(s_prime))))
        base = max(rest, 0.0) + min(shift, 5.0)
        epsilons = (-0.5, 0.0, *(base + float(x) for x in rng.uniform(-0.2, 1.5, 3)))
        yield Instance(mechanism, law, epsilons, Pair.of(mechanism))


def grid_instances(seed: int, count: int) -> Iterator[GridInstance]:
    """Two to four candidates over one pair: a share of its losses merged (which it still dominates), or all of it."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        pair = grid_pair(rng)[0] if i % 2 else Pair.of(random_mechanism(rng))
        p, r = pair.masses
        here = (p > 0) | (r > 0)
        p, r = p[here], r[here]
        candidates = []
        for _ in range(int(rng.integers(2, 5)) if len(p) < 6 else int(rng.integers(2, 4))):
            merge = rng.integers(0, len(p), len(p)) if rng.random() < 0.5 else np.arange(len(p))
            q, q_prime = (np.bincount(merge, mass, minlength=len(p)) for mass in (p, r))
            candidates.append(Mechanism(q, q_prime, rng.integers(0, 8, len(p))))
        ties = "uniform" if rng.random() < 0.5 else "index"
        yield GridInstance(tuple(candidates), pair, ties, some_epsilons(candidates[0], rng, 4))


def tight_grid_instances(seed: int, count: int) -> Iterator[GridInstance]:
    """The first candidates keep their low losses on top, above the rare outcomes of all; the others at the bottom."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        k, above = int(rng.integers(2, 5)), 1
        if rng.random() < 0.5:
            above = int(rng.integers(1, k + 1))
        t = 0.0 if rng.random() < 0.2 else float(rng.uniform(0.05, 2.5))
        gain = float(rng.uniform(0.1, 1.5))
        s, s_prime = -math.expm1(-t), -math.expm1(-t - gain)
        rare = (1 - s_prime) * float(math.exp(rng.uniform(math.log(1e-5), math.log(1e-2))))
        # At this epsilon the rest no longer counts in any order, and the rare outcome does if above enough low losses.
        epsilon = gain * k + 0.1
        rare_prime = rare * math.exp(-epsilon + gain * above * float(rng.uniform(-1, 1))) * (rng.random() < 0.8)
        q, q_prime = np.array([s, rare, 1 - s - rare]), np.array([s_prime, rare_prime, 1 - s_prime - rare_prime])
        scores = [np.array([9 if i < above else 0, 5, 1]) for i in range(k)]
        candidates = tuple(Mechanism(q, q_prime, score) for score in scores)
        epsilons = (epsilon, *(epsilon * float(x) for x in rng.uniform(0, 1.3, 2)))
        yield GridInstance(candidates, Pair.of(candidates[0]), "uniform", epsilons)


def spread(mechanism: Mechanism, h: float, reach: int = 12) -> Pair:
    """The mechanism on the uniform grid of losses i h, |i| <= reach, by step 1 of the recipe: a dominating pair.

    An outcome goes to the two grid losses around its own, keeping both masses; beyond the grid to infinite losses.
    """
    losses = h * np.arange(-reach, reach + 1)
    ratio, r = np.exp(losses), np.zeros(len(losses))
    p_inf = r_inf = 0.0
    for q, q_prime in zip(mechanism.q, mechanism.q_prime, strict=True):
        if q >= ratio[-1] * q_prime or q <= ratio[0] * q_prime:
            p_inf, r_inf = p_inf + float(q), r_inf + float(q_prime)
            continue
        i = int(np.searchsorted(ratio, q / q_prime, side="right")) - 1
        right = (q - ratio[i] * q_prime) / (ratio[i + 1] - ratio[i])
        r[i + 1] += right
        r[i] += q_prime - right
    return Pair(losses, r * ratio, r, p_inf, r_inf)


def on_uniform_grid(instances: Iterator[Instance], h: float) -> Iterator[Instance]:
    """The same instances with pairs on a uniform grid of losses, as an accountant's are."""
    for x in instances:
        yield Instance(x.mechanism, x.law, x.epsilons, spread(x.mechanism, h))
