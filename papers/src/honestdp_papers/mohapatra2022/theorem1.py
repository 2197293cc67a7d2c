"""Theorem 1 (Liu & Talwar's selection with hard stopping), checked by brute force on mechanisms whose every probability is known.

A mechanism here draws one of a few outcomes with known probabilities on two neighbouring datasets; outcomes are ordered by their
score. The best of K independent draws, K a geometric number cut at Upsilon, then has probabilities in closed form: with F(j) the
probability of an outcome no better than j, that of the winner is no better than j is E F(j)^K. So the exact epsilon at the
theorem's delta is known, and the theorem holds for a mechanism if that is no larger than its epsilon. A search looks for
mechanisms that come close. A check is no proof; a mechanism above the bound would be a disproof.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.parts import Array, Finished

EPSILONS, DELTAS = (0.1, 0.5, 1.0), (0.0, 1e-8, 1e-6)
GAMMAS, DELTAS2 = (1.0, 0.5, 0.1, 0.01), (1e-3, 1e-9)
TRIED, QUICK_TRIED = 400, 20


def theorem1(parts: Finished, quick: bool) -> Outcome:
    tried = QUICK_TRIED if quick else TRIED
    rows: list[list[str | float]] = []
    holds = []
    rng = np.random.default_rng(0)
    epsilons = EPSILONS[1:2] if quick else EPSILONS
    for epsilon1, delta1, gamma, delta2 in itertools.product(epsilons, DELTAS, GAMMAS, DELTAS2):
        most = math.floor(math.log(1 / delta2) / gamma)
        epsilon, delta = 3 * epsilon1 + 3 * math.sqrt(2 * delta1), math.sqrt(2 * delta1) * most + delta2
        if delta >= 1:
            continue
        worst = max(_exact(pair, gamma, most, delta) for pair in _mechanisms(epsilon1, delta1, tried, rng))
        holds.append(worst <= epsilon)
        rows.append(
            [
                f"{epsilon1:g}",
                f"{delta1:g}",
                f"{gamma:g}",
                f"{delta2:g}",
                f"{delta:.2g}",
                epsilon,
                worst,
                worst / epsilon1,
            ]
        )
    shares = [float(row[6]) / float(row[5]) for row in rows]
    shown = _worst_rows(rows)
    claims = [
        judged(
            "Theorem 1: if a run is (eps1, delta1)-DP, the selection is DP with 3 eps1 + 3 sqrt(2 delta1) and sqrt(2 delta1) "
            "Upsilon + delta2",
            holds,
            f"no mechanism above the bound in {sum(holds)} of {len(holds)} settings, {tried} and more mechanisms each; the "
            f"worst that was found needs {max(shares):.0%} of the theorem's epsilon",
        )
    ]
    header = [
        "eps1",
        "delta1",
        "gamma",
        "delta2",
        "delta of the theorem",
        "epsilon of the theorem",
        "worst found",
        "worst / eps1",
    ]
    notes = [
        f"Settings: eps1 {_listed(EPSILONS)}, delta1 {_listed(DELTAS)}, gamma {_listed(GAMMAS)}, delta2 {_listed(DELTAS2)}, each "
        "with each. A mechanism draws one of up to 6 outcomes with known probabilities; that none is above the bound "
        "is no proof of it.",
        "Checked with the natural logarithm in Upsilon, rounded down, where the hard stop comes earliest; settings in which the "
        "theorem's delta is 1 or more say nothing and are left out.",
        "The factor of 3 is no slack of the proof where gamma is small: a mechanism whose best outcome is less likely on the "
        "neighbour, and whose second best is likelier by as much, comes close to it. At gamma = 1, where there is one run, the "
        "factor is 1, and the theorem says 3.",
    ]
    return Outcome(
        claims,
        {"rows": rows},
        [
            Table(
                "Of every eps1 and gamma the delta1 and delta2 with the worst mechanism found", header, shown, digits=3
            )
        ],
        notes,
    )


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _worst_rows(rows: list[list[str | float]]) -> list[list[str | float]]:
    """Of every eps1 and gamma the setting with the worst mechanism."""
    worst: dict[tuple[str | float, str | float], list[str | float]] = {}
    for row in rows:
        kept = worst.setdefault((row[0], row[2]), row)
        if float(row[7]) > float(kept[7]):
            worst[row[0], row[2]] = row
    return list(worst.values())


def _mechanisms(epsilon: float, delta: float, count: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Pairs of probabilities that are (epsilon, delta)-DP both ways: extreme ones by construction, and some by chance."""
    made = []
    for p in np.geomspace(1e-6, 0.5, 25):  # the best outcome is rare, and likelier or less likely on the neighbour
        for tilt in (math.exp(epsilon), math.exp(-epsilon)):
            if p * tilt < 1:
                made.append((np.array([1 - p, p]), np.array([1 - p * tilt, p * tilt])))
    for p, top in itertools.product(np.geomspace(1e-6, 0.1, 8), np.geomspace(1e-4, 0.3, 12)):
        # An outcome likelier by as much as the better one is less likely: it gains twice, for it is beaten less often too.
        near, far = math.exp(epsilon), math.exp(-epsilon)
        made.append((np.array([1 - p - top, p, top]), np.array([1 - p * near - top * far, p * near, top * far])))
        made.append((np.array([1 - p - top, p, top]), np.array([1 - p * far - top * near, p * far, top * near])))
    for _ in range(count):
        size = int(rng.integers(2, 6))
        first = rng.dirichlet(np.full(size, rng.choice([0.1, 0.5, 2.0])))
        made.append((first, first * np.exp(epsilon * rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size))))
    found = []
    for first, second in made:
        if second.min() <= 0:
            continue
        q = second / second.sum()
        if delta:  # mass that only one of the two has, on a best outcome of its own
            first, q = np.append(first * (1 - delta), delta), np.append(q, 0.0)
        if max(_hockey(first, q, epsilon), _hockey(q, first, epsilon)) <= delta + 1e-15:
            found.append((first, q))
    return found


def _hockey(first: Array, second: Array, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def _winner(probabilities: Array, gamma: float, most: int) -> Array:
    """The winner's probabilities: differences of E F^K, K = min(geometric, most)."""
    below = np.cumsum(probabilities).clip(0, 1)
    stay = (1 - gamma) * below
    with np.errstate(divide="ignore", invalid="ignore"):
        each = gamma * below * (1 - stay**most) / (1 - stay) + stay**most
    each = np.where(below >= 1, 1.0, each)
    found: Array = np.diff(np.append(0.0, each))
    return found.clip(0)


def _exact(pair: tuple[Array, Array], gamma: float, most: int, delta: float) -> float:
    """The least epsilon at which the winner is (epsilon, delta)-DP, both ways."""
    first, second = (_winner(each, gamma, most) for each in pair)
    low, high = 0.0, 60.0
    if max(_hockey(first, second, 0.0), _hockey(second, first, 0.0)) <= delta:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        enough = max(_hockey(first, second, middle), _hockey(second, first, middle)) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high
