"""Is there a good default for momentum? Read from DPMomentum's grid of figure 4.

The paper looked for one as it did for DPAdam's numbers in figure 3, found none, and defers the details to a supplement that is
not at hand. Two readings: a momentum is a good default if, with step size and clip tuned for it, it is close to the best
everywhere; or, as figure 3 shows it, if most candidates that have it are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.measured import Measured, accuracy, jackknifed
from honestdp_papers.mohapatra2022.measures import trained_notes
from honestdp_papers.mohapatra2022.setting import MOMENTA, Pair, grid, pair_title, pairs
from honestdp_papers.mohapatra2022.training import part_name, parts_at
from honestdp_papers.parts import Array, Part
from honestdp_papers.registry import Finished

NOISE = 4.0
NEAR = 2.0
"""Points of accuracy within which a candidate counts as close to the best, as in figure 3."""


def parts_of(quick: bool) -> list[Part]:
    return parts_at(("DPMomentum",), NOISE, quick)


def momentum(parts: Finished, quick: bool) -> Outcome:
    values = [float(rule.momentum) for rule in grid("DPMomentum", quick)]  # type: ignore[attr-defined]
    momenta = [m for m in MOMENTA if m in values]
    rows = {m: [i for i, value in enumerate(values) if value == m] for m in momenta}
    last = {pair: accuracy(parts, part_name(NOISE, pair, "DPMomentum"))[:, :, -1] for pair in _trained(parts, quick)}
    below = {pair: {m: _below(found, rows[m]) for m in momenta} for pair, found in last.items()}
    share = {pair: {m: _share(found.mean(axis=0), rows[m]) for m in momenta} for pair, found in last.items()}
    tuned = {m: _everywhere([below[pair][m].at_most(NEAR) for pair in last]) for m in momenta}
    plain = {m: all(share[pair][m] > 0.5 for pair in last) for m in momenta}
    worst = {m: max((below[pair][m] for pair in last), key=lambda gap: gap.value) for m in momenta}
    good = [m for m in momenta if tuned[m]]
    shares = [one for each in share.values() for one in each.values()]
    least = min(momenta, key=lambda m: worst[m].value)
    claims = [
        judged(
            "There is no good default for momentum (step size and clip tuned for each)",
            [None if not good and None in tuned.values() else not good],
            f"within {NEAR:g} points of the best of the whole grid on every dataset and model: "
            + (", ".join(f"{m:g}" for m in good) or "none")
            + f"; the best default is {least:g}, {worst[least].size} points below at worst",
        ),
        judged(
            "There is no good default for momentum (over all step sizes and clips, as figure 3 shows DPAdam's)",
            [not any(plain.values())],
            f"more than half of its candidates within {NEAR:g} points of the best on every dataset and model: "
            + (", ".join(f"{m:g}" for m in momenta if plain[m]) or "none")
            + f"; shares from {min(shares):.0%} to {max(shares):.0%}",
        ),
    ]
    header = ["dataset, model", *(f"{m:g}" for m in momenta)]
    tables = [
        Table(
            "Points below the best of the grid with this momentum, step size and clip tuned",
            header,
            [[pair_title(pair), *(_told(below[pair][m]) for m in momenta)] for pair in last],
        ),
        Table(
            f"Share of the candidates with this momentum that are within {NEAR:g} points of the best",
            header,
            [[pair_title(pair), *(f"{share[pair][m]:.0%}" for m in momenta)] for pair in last],
        ),
    ]
    numbers = {
        "momenta": momenta,
        "below": {pair_title(p): {f"{m:g}": [b.value, b.error] for m, b in each.items()} for p, each in below.items()},
    }
    return Outcome(claims, numbers, tables, [*trained_notes(quick), "Accuracy at the last step, sigma 4."])


def _trained(parts: Finished, quick: bool) -> list[Pair]:
    return [pair for pair in pairs(quick) if part_name(NOISE, pair, "DPMomentum") in parts]


def _below(found: Array, rows: list[int]) -> Measured:
    def gap(means: Sequence[Array]) -> float:
        return float(means[0].max() - means[0][rows].max())

    return jackknifed([found], gap)


def _share(means: Array, rows: list[int]) -> float:
    return float(np.mean(means[rows] >= means.max() - NEAR))


def _everywhere(cases: list[bool | None]) -> bool | None:
    return False if False in cases else None if None in cases else True


def _told(gap: Measured) -> str:
    return f"{gap.value:.1f} ± {gap.error:.1f}"
