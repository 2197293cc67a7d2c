"""What the paper says of LT and MA without a figure: delta2 hardly matters, and other noises, lots and steps show the same
trends as figure 1.
"""

from __future__ import annotations

import itertools
from typing import Any

from honestdp import accounting
from honestdp.run import Run
from honestdp.selection.liu_talwar import DELTA2
from honestdp_papers.claims import Claim, Outcome, Table, judged
from honestdp_papers.mohapatra2022.costs import BARELY, GROWTH_SLACK, delta_of, first_dearer, moments, run_of, theorem_1
from honestdp_papers.registry import Finished

DELTAS2 = (1e-10, 1e-15, 1e-20, 1e-30, 1e-40)
HARDLY = 0.05
"""Of the epsilon at delta2 = 1e-20, within which another delta2 hardly matters."""
NOISES, LOTS, LENGTHS = (2.0, 4.0, 8.0), (100, 250, 1000), (1000, 10000)
RECORDS = (5000, 50000, 950000)
CASES = ((5000, 1.0), (5000, 0.001), (950000, 1.0), (950000, 0.001))


def trends(parts: Finished, quick: bool) -> Outcome:
    with accounting.quiet():  # orders at the edge of the paper's range are the paper's own
        return _trends(quick)


def _trends(quick: bool) -> Outcome:
    by_delta2 = {
        (n, gamma): {d: theorem_1(run_of(n), delta_of(n), gamma, delta2=d) for d in DELTAS2} for n, gamma in CASES
    }
    settings = list(itertools.product(NOISES, LOTS, LENGTHS))
    chosen = settings[::5] if quick else settings
    found = {setting: {n: _at(setting, n) for n in RECORDS} for setting in chosen}
    claims = [_little(by_delta2), *_alike(found)]
    tables = [
        Table(
            "Final epsilon of LT by delta2 (log2 in Upsilon, as in figure 1)",
            ["records", "gamma", *(f"{d:g}" for d in DELTAS2)],
            [[str(n), f"{gamma:g}", *line.values()] for (n, gamma), line in by_delta2.items()],
            digits=3,
        ),
        Table(
            "Other settings: LT's least cost over one run, its growth from 1 to 1000 candidates, and candidates composed for "
            "it, at n = " + ", ".join(map(str, RECORDS)),
            ["sigma", "lot", "steps", "times one run", "growth", "candidates"],
            [[f"{s:g}", str(lot), str(steps), *_cells(each)] for (s, lot, steps), each in found.items()],
        ),
    ]
    numbers: dict[str, Any] = {
        "delta2": {f"n = {n}, gamma {gamma:g}": list(line.values()) for (n, gamma), line in by_delta2.items()},
        "settings": [[*setting, {str(n): values for n, values in each.items()}] for setting, each in found.items()],
    }
    return Outcome(claims, numbers, tables, ["Quick version: a fifth of the settings."] if quick else [])


def _at(setting: tuple[float, int, int], records: int) -> tuple[float, float, int]:
    """LT's least cost over one run's, its growth to 1000 candidates, and how many candidates MA composes for it."""
    noise, lot, steps = setting
    run, delta = Run(records=records, lot=lot, steps=steps, noise=noise), delta_of(records)
    least = theorem_1(run, delta, 1.0)
    growth = theorem_1(run, delta, 0.001) / least
    return least / moments(run, delta, 1), growth, first_dearer(run, delta, least)


def _cells(each: dict[int, tuple[float, float, int]]) -> list[str]:
    times, growth, count = zip(*each.values(), strict=True)
    return [
        ", ".join(f"{t:.2f}" for t in times),
        ", ".join(f"{g - 1:.0%}" for g in growth),
        ", ".join(str(c) for c in count),
    ]


def _little(found: dict[tuple[int, float], dict[float, float]]) -> Claim:
    apart = [max(abs(value / line[DELTA2] - 1) for value in line.values()) for line in found.values()]
    return judged(
        "delta2 does not significantly affect LT's final epsilon",
        [each <= HARDLY for each in apart],
        f"from delta2 = {DELTAS2[0]:g} to {DELTAS2[-1]:g} epsilon moves by at most {max(apart):.1%} of its value at {DELTA2:g} "
        f"(up to {HARDLY:.0%} agrees)",
    )


def _alike(found: dict[tuple[float, int, int], dict[int, tuple[float, float, int]]]) -> list[Claim]:
    times = [[each[n][0] for n in RECORDS] for each in found.values()]
    growth = [max(each[n][1] for n in RECORDS) for each in found.values()]
    counts = [[each[n][2] for n in RECORDS] for each in found.values()]
    rising, barely, more = (
        [line[-1] > line[0] and line[1] >= (1 - GROWTH_SLACK) * line[0] for line in times],
        [each <= BARELY for each in growth],
        [line == sorted(line) and line[0] > 4 for line in counts],
    )
    return [
        judged(
            "The trends of LT are the same for other noises, lots and steps: an overhead that grows with the dataset, and "
            "little more for more candidates",
            [a and b for a, b in zip(rising, barely, strict=True)],
            f"the overhead grows with n (falls of {GROWTH_SLACK:.0%} let pass) in {sum(rising)} of {len(rising)} settings, and "
            f"from 1 to 1000 candidates the cost grows by {BARELY - 1:.0%} or less in {sum(barely)}; overheads from "
            f"{min(map(min, times)):.1f} to {max(map(max, times)):.1f} times, growth of up to {max(growth) - 1:.0%}",
        ),
        judged(
            "So are those of MA: for LT's least cost it composes a considerable number of candidates, more the larger the "
            "dataset",
            more,
            f"more than DPAdam's 4 and growing with n in {sum(more)} of {len(more)} settings; from {min(map(min, counts))} to "
            f"{max(map(max, counts))} candidates",
        ),
    ]
