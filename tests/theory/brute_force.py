"""Best-of-K selection computed exactly on finite outcome spaces, with none of the bounds of docs/theory.md.

A mechanism is two probability vectors q (on D) and q' (on D') over the same outcomes and one score per outcome.
`winner_law` is Lemma 1; `enumerate_winner` plays every sequence of outcomes and knows nothing of Lemma 1.
`grid_winner_law` plays every combination of outcomes of candidates that are each run once.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Scores = NDArray[np.int64]


@dataclass(frozen=True)
class LawOfK:
    """The law of the number of runs: kind is fixed(k), tnb(eta, gamma), poisson(mu), binomial(n, p) or pmf(weights).

    gamma < 1 for tnb; a geometric law is tnb with eta = 1, a logarithmic one tnb with eta = 0.
    """

    kind: str
    parameters: tuple[float, ...]

    def generating(self, x: Array) -> Array:
        """phi(x) = E x^K."""
        if self.kind == "tnb":
            eta, gamma = self.parameters
            base = np.log1p(-(1 - gamma) * x)
            return base / math.log(gamma) if eta == 0 else np.expm1(-eta * base) / math.expm1(-eta * math.log(gamma))
        if self.kind == "poisson":
            return np.exp(-self.parameters[0] * (1 - x))
        if self.kind == "binomial":
            n, p = self.parameters
            return (1 - p * (1 - x)) ** n
        return np.polynomial.polynomial.polyval(x, self.pmf())

    def slope(self, s: Array) -> Array:
        """phi'(1 - s), as a function of the mass s that is better."""
        s = np.asarray(s, dtype=float)
        if self.kind == "tnb":
            eta, gamma = self.parameters
            return self.mean * (gamma / (gamma + (1 - gamma) * s)) ** (eta + 1)
        if self.kind == "poisson":
            return self.parameters[0] * np.exp(-self.parameters[0] * s)
        if self.kind == "binomial":
            n, p = self.parameters
            return n * p * (1 - p * s) ** (n - 1)
        return np.polynomial.polynomial.polyval(1 - s, np.polynomial.polynomial.polyder(self.pmf()))

    @property
    def mean(self) -> float:
        if self.kind == "tnb":
            eta, gamma = self.parameters
            if eta == 0:
                return (1 / gamma - 1) / math.log(1 / gamma)
            return eta * (1 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))
        if self.kind == "poisson":
            return self.parameters[0]
        if self.kind == "binomial":
            return self.parameters[0] * self.parameters[1]
        return float(np.arange(len(self.pmf())) @ self.pmf())

    @property
    def none(self) -> float:
        """P(K = 0)."""
        return float(self.generating(np.array(0.0)))

    def pmf(self, terms: int = 400) -> Array:
        """P(K = 0), P(K = 1), ...: all of them where K is bounded, the first `terms` otherwise."""
        if self.kind == "fixed":
            return np.eye(int(self.parameters[0]) + 1)[-1]
        if self.kind == "pmf":
            return np.array(self.parameters)
        if self.kind == "binomial":
            n, p = int(self.parameters[0]), self.parameters[1]
            return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
        if self.kind == "poisson":
            mu = self.parameters[0]
            return np.cumprod(np.concatenate([[math.exp(-mu)], mu / np.arange(1, terms)]))
        eta, gamma = self.parameters
        first = float(self.slope(np.array(1.0)))
        k = np.arange(1, terms - 1)
        return np.concatenate([[0.0], first * np.cumprod(np.concatenate([[1.0], (1 - gamma) * (k + eta) / (k + 1)]))])


@dataclass(frozen=True)
class Mechanism:
    """One run on two neighbours: probabilities q and q' of the same outcomes, and the score of each outcome."""

    q: Array
    q_prime: Array
    score: Scores

    @property
    def reversed(self) -> Mechanism:
        return Mechanism(self.q_prime, self.q, self.score)


def winner_law(q: Array, score: Scores, law: LawOfK) -> Array:
    """Lemma 1: the probability of each outcome to be released, and last that of no release (K = 0)."""
    better = (score[None, :] > score[:, None]) @ q
    tied = (score[None, :] == score[:, None]) @ q
    top = 1 - better
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(tied > 0, q / tied, 0.0)
    won = share * (law.generating(top) - law.generating(np.maximum(top - tied, 0.0)))
    return np.append(won, law.none)


def enumerate_winner(q: Array, score: Scores, pmf: Array, ties: str) -> Array:
    """The same by playing all sequences of up to len(pmf) - 1 runs; ties: uniform, first or last."""
    law = np.zeros(len(q) + 1)
    law[-1] = pmf[0]
    for k in range(1, len(pmf)):
        for sequence in itertools.product(range(len(q)), repeat=k):
            probability = pmf[k] * math.prod(q[y] for y in sequence)
            best = max(score[y] for y in sequence)
            tied = [y for y in sequence if score[y] == best]
            winners = {"uniform": tied, "first": tied[:1], "last": tied[-1:]}[ties]
            for y in winners:
                law[y] += probability / len(winners)
    return law


def grid_winner_law(laws: list[Array], scores: list[Scores], ties: str) -> Array:
    """Each candidate once, the law of (winner's index, outcome), flattened; ties: uniform or index (first wins)."""
    plays = np.array(list(itertools.product(*(range(len(q)) for q in laws))))  # [plays, candidates]
    each = np.stack([q[plays[:, i]] for i, q in enumerate(laws)], axis=1)
    key = np.stack([score[plays[:, i]] for i, score in enumerate(scores)], axis=1)
    tied = key == key.max(axis=1, keepdims=True)
    if ties == "index":
        tied &= np.cumsum(tied, axis=1) == 1
    share = each.prod(axis=1)[:, None] * tied / tied.sum(axis=1, keepdims=True)
    return np.concatenate([np.bincount(plays[:, i], share[:, i], minlength=len(q)) for i, q in enumerate(laws)])


def delta(a: Array, a_prime: Array, epsilon: float) -> float:
    """delta_{A||A'}(epsilon), for any real epsilon."""
    return float(np.maximum(a - math.exp(epsilon) * a_prime, 0).sum())


def renyi(a: Array, a_prime: Array, orders: Array) -> Array:
    """The Renyi divergences of A from A' of the given orders > 1."""
    if np.any((a > 0) & (a_prime <= 0)):
        return np.full(len(orders), math.inf)
    here = a > 0
    exponents = np.outer(orders, np.log(a[here])) + np.outer(1 - orders, np.log(a_prime[here]))  # [orders, outcomes]
    top = exponents.max(axis=1)
    return (top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))) / (orders - 1)
