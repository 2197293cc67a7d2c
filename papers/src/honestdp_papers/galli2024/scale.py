"""Are the printed step sizes those of another optimizer? Of all methods whose step is SGD's ours are larger, by one factor.

A heavy-ball momentum of 0.9 goes up to ten times as far as plain SGD at the same step size. If the paper's trainings had it, ten
times a printed step size is best without it, and the printed one with it. AdamWOSM's step knows no such factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from honestdp_papers.claims import FAILS, HOLDS, OURS, Claim, judged
from honestdp_papers.galli2024.comparing import UNTRAINED
from honestdp_papers.galli2024.judging import LEVEL
from honestdp_papers.galli2024.measures import BEST, Scores, behind, decided, lead, unit
from honestdp_papers.galli2024.printed import PRINTED, Cell, words_of
from honestdp_papers.galli2024.setting import MNIST, ONLINE, QUANTILE, THRESHOLD, WOSM, Task, step_sizes
from honestdp_papers.measured import Measured

FACTOR = 10.0
"""1 / (1 - 0.9)."""
STEPPED = (ONLINE, THRESHOLD, QUANTILE)
"""Those whose step is SGD's."""
ANSWERS = {HOLDS: "yes", FAILS: "no"}


def tenfold(cells: Sequence[Cell], task: Task, k: int) -> list[Claim]:
    """Whether ten times the printed step sizes are as good as the best, by method; of the two values around it the better."""
    found = []
    for method in STEPPED:
        own = [cell for cell in cells if cell.method == method and cell.printed is not None]
        gaps = {cell.epsilon: _behind(_longer(cell), k) for cell in own}
        cases = [decided(gaps[cell.epsilon].above(-LEVEL[task.error]), cell.scores.seeds, False) for cell in own]
        before = ", ".join(f"{_shown(_behind(cell, k))} (epsilon {cell.epsilon:g})" for cell in own)
        after = ", ".join(f"{_shown(gap)} (epsilon {epsilon:g})" for epsilon, gap in gaps.items())
        told = f"behind our best by {after} {unit(task)}, at the better of the grid's two values around it; "
        told += f"as printed by {before}"
        found.append(
            judged(
                f"Ten times the printed step sizes, as far as a momentum of 0.9 goes, are best: {method} ({task.title})",
                cases,
                told if own else UNTRAINED,
                kind=OURS,
            )
        )
    return found


def as_in_figure3(online: dict[float, Scores], other: dict[float, Scores]) -> Claim:
    """Whether Online with momentum stands to AdamWOSM as Figure 3 says: equal at the least epsilon, and ahead at the last."""
    gaps = {epsilon: lead(online[epsilon], other[epsilon], BEST) for epsilon in online if epsilon in other}
    cases = [
        decided(
            Measured(abs(gap.value), gap.error).at_most(LEVEL[False]) if epsilon == MNIST.epsilons[0] else gap.above(0),
            min(online[epsilon].seeds, other[epsilon].seeds),
            False,
        )
        for epsilon, gap in gaps.items()
    ]
    return judged(
        "With a momentum of 0.9 Online and AdamWOSM are equal at epsilon 3, and Online is ahead at epsilon 9 (MNIST)",
        cases,
        f"within {LEVEL[False]:g} points at epsilon 3; Online with momentum less AdamWOSM: "
        + ", ".join(f"{gap} (epsilon {epsilon:g})" for epsilon, gap in gaps.items())
        if gaps
        else UNTRAINED,
        kind=OURS,
    )


def scale_note(cells: Sequence[Cell], task: Task, k: int) -> str:
    """By which factor our best step sizes are above the printed ones, and what may be behind it."""
    factors = _factors(cells)
    fixed = [-_behind(cell, k).value for cell in cells if cell.method == WOSM]
    control = (
        f" AdamWOSM's step knows no such factor, and its printed clips are {_range(fixed)} {unit(task)} behind ours."
        if fixed
        else ""
    )
    return (
        "Where a step is SGD's, our best step sizes (FixedThreshold: step size times clip) are above the printed ones, in the "
        f"geometric mean over the epsilons by a factor of {factors}{_at_the_end(cells, k)}.{control} One factor for all is what "
        "another optimizer would make: heavy-ball momentum of 0.9 goes ten times as far, and the paper's text says that momentum "
        "fits its derivation. Inputs or initial weights of another scale would make one too. None of these is among the printed "
        "settings; [ablations](#ablations) has trials of momentum and of standardised pixels, and says what they found. That "
        "factor was looked for after the numbers above were seen."
    )


def _factors(cells: Sequence[Cell]) -> str:
    """By method, where its step is SGD's: our best step sizes over the printed ones."""
    found = []
    for method in STEPPED:
        logs = [
            np.log(np.prod(own[:many]) / np.prod(cell.printed[:many]))
            for cell in cells
            if cell.method == method and cell.printed is not None
            for own in [cell.scores.values[cell.scores.winner(BEST)]]
            for many in [2 if method == THRESHOLD else 1]
        ]
        if logs:
            found.append(f"{np.exp(np.mean(logs)):.2g} ({method})")
    return ", ".join(found)


def _at_the_end(cells: Sequence[Cell], k: int) -> str:
    """Whether Online's best step sizes are the largest of the grid."""
    own = [cell.scores.values[cell.scores.winner(BEST)][0] for cell in cells if cell.method == ONLINE]
    last = own.count(step_sizes(k)[-1])
    return f"; Online's may be larger, for {last} of its {len(own)} are the last of the grid" if last else ""


def trials_note(trials: dict[str, list[tuple[Claim, str, dict[float, Scores]]]]) -> str:
    """Which of the settings that were tried makes the printed step sizes the best ones: setting -> claim, method, its grids."""
    told, sides = list[str](), {HOLDS: list[str](), FAILS: list[str]()}
    for how, every in trials.items():
        trained = [one for one in every if one[2]]
        if not trained:
            told.append(f"With {how}: {UNTRAINED}.")
            continue
        each = ", ".join(f"{ANSWERS.get(claim.verdict, claim.verdict)} ({method})" for claim, method, _ in trained)
        factors = _factors([cell for _, method, grids in trained for cell in _cells(method, grids)])
        told.append(f"With {how}: {each}; our best ones are above them by a factor of {factors}.")
        verdicts = {claim.verdict for claim, _, _ in trained}
        if len(verdicts) == 1 and (*verdicts,)[0] in sides:
            sides[(*verdicts,)[0]].append(how)
    ends = [f"{', '.join(sides[HOLDS])} would explain them"] if sides[HOLDS] else []
    ends += [f"{', '.join(sides[FAILS])} would not"] if sides[FAILS] else []
    last = f" Of what was tried, {', '.join(ends)}." if ends else ""
    return (
        f"Are the printed step sizes the best ones? {' '.join(told)}{last} FixedQuantile was tried with neither, and initial "
        "weights of another scale were not tried. What fits need not be what the paper did, which does not say it."
    )


def printed_is_best(how: str, method: str, grids: dict[float, Scores], k: int) -> Claim:
    """Whether what is printed for MNIST is best in trainings that differ from ours in one thing: epsilon -> its grid."""
    cells = _cells(method, grids)
    gaps = [_behind(cell, k) for cell in cells]
    told = [
        f"epsilon {cell.epsilon:g}: {words_of(method, cell.printed)} is {_shown(gap)} points behind ours, "
        f"{words_of(method, cell.scores.values[cell.scores.winner(BEST)])}"
        for gap, cell in zip(gaps, cells, strict=True)
        if cell.printed is not None
    ]
    return judged(
        f"{how} the printed step sizes are best: {method} (MNIST)",
        [decided(gap.above(-LEVEL[False]), cell.scores.seeds, False) for gap, cell in zip(gaps, cells, strict=True)],
        f"{'; '.join(told)} (seeds: {min(cell.scores.seeds for cell in cells)})" if told else UNTRAINED,
        kind=OURS,
    )


def _cells(method: str, grids: dict[float, Scores]) -> list[Cell]:
    """With what is printed for MNIST."""
    return [
        Cell(method, epsilon, PRINTED["mnist"][method][MNIST.epsilons.index(epsilon)], scores)
        for epsilon, scores in grids.items()
    ]


def _longer(cell: Cell) -> Cell:
    assert cell.printed is not None
    return replace(cell, printed=(FACTOR * cell.printed[0], *cell.printed[1:]))


def _behind(cell: Cell, k: int) -> Measured:
    return behind(cell.scores, cell.chosen(k), BEST)


def _shown(gap: Measured) -> str:
    return f"{max(0.0, -gap.value):.1f} ± {gap.error:.1f}" if np.isfinite(gap.value) else "all, as it diverged,"


def _range(values: Sequence[float]) -> str:
    return f"{max(0.0, min(values)):.1f} to {max(0.0, *values):.1f}"
