"""Tables 2 to 4: the best hyperparameters of every method at k = 7, each printed cell a claim.

A printed candidate agrees where it is as good as our best one, within a tolerance: which of equally good candidates a
grid search names is chance. FixedThreshold is judged by step size times clip, for a gradient that is always clipped
moves the weights by that product alone: any candidate of the printed product counts.

What Tables 2 to 4 print, and which candidates of a grid a printed cell means.

What the text reads off Tables 2 and 3 about clips: AdamWOSM's are large on MNIST, and all are small on Fashion-MNIST.

A grid search names one of several equally good candidates by chance. So a clip is told by all candidates that may be as
good as the best one: those that are not told to be behind it by more than the tolerance of the cells. Of Online and
FixedQuantile the tables have no clip.

Are the printed step sizes those of another optimizer? Of all methods whose step is SGD's ours are larger, by one
factor.

A heavy-ball momentum of 0.9 goes up to ten times as far as plain SGD at the same step size. If the paper's trainings
had it, ten times a printed step size is best without it, and the printed one with it. AdamWOSM's step knows no such
factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from honestdp_papers.claims import FAILS, HOLDS, NUMBERS, OURS, Claim, Measured, Outcome, Table, judged
from honestdp_papers.galli2024 import known
from honestdp_papers.galli2024.comparing import (
    BEST,
    LAST,
    UNTRAINED,
    Scores,
    behind,
    best,
    decided,
    lead,
    notes_of,
    plain_scores,
    scores_of,
    spread,
    told,
    unit,
)
from honestdp_papers.galli2024.comparing import compared as all_methods
from honestdp_papers.galli2024.figures import LEVEL, kind_of
from honestdp_papers.galli2024.known import QUICK_K
from honestdp_papers.galli2024.setting import (
    METHODS,
    MNIST,
    NODP,
    NODP_ADAM,
    ONLINE,
    PRINTED_K,
    QUANTILE,
    THRESHOLD,
    WOSM,
    Task,
    clips,
    sized,
    step_sizes,
    task_of,
)
from honestdp_papers.galli2024.training import parts_at
from honestdp_papers.parts import Array, Finished, Part

Printed = tuple[float, ...]
PRINTED: dict[str, dict[str, tuple[Printed | None, ...]]] = {
    "mnist": {
        ONLINE: ((0.3162,), (1.467,), (1.467,), (1.467,)),
        THRESHOLD: ((0.01467, 1.0), (0.003162, 4.64), (6.812, 0.010), (6.812, 0.010)),
        QUANTILE: ((0.003162, 0.5), (0.003162, 0.7), (0.003162, 0.7), (0.003162, 0.7)),
        WOSM: ((21.54,),) * 4,
    },
    "fashion": {
        ONLINE: ((0.3162,), (1.467,), (1.467,), (1.467,)),
        THRESHOLD: ((0.0681, 0.010), (1.467, 0.010), (6.812, 0.010), (1.467, 0.0464)),
        QUANTILE: (None, (0.3162, 0.3), (1.467, 0.1), (1.467, 0.3)),
        WOSM: ((0.01,), (0.01,), (0.0464,), (0.01,)),
    },
    "ag-news": {
        ONLINE: ((0.06812,),) * 4,
        THRESHOLD: ((1.467, 0.01), (1.467, 0.010), (1.467, 0.010), (0.03162, 0.0464)),
        QUANTILE: ((0.003162, 0.5), (0.003162, 0.5), (0.003162, 0.7), (0.003162, 0.7)),
        WOSM: ((0.01,),) * 4,
    },
}
"""By task and method, a cell for each epsilon; the first number is the step size, or AdamWOSM's clip."""
PLAIN = {"mnist": 0.003162, "fashion": 0.01467, "ag-news": 0.003162}
NEAR = 0.02
"""By which a printed number may be off a value of the grid, as a part of it: three digits are printed."""


def key_of(task: Task) -> str:
    return task.name.removesuffix("-standin")


def meant(method: str, printed: Printed, k: int) -> list[Printed]:
    """The values of the grid that a printed cell can mean, as it is compared.

    Of FixedThreshold every candidate with the printed product; where the product lies between two of the grid, both. Of the
    others the nearest values.
    """
    if method != THRESHOLD:
        axes = clips(k) if method == WOSM else step_sizes(k)
        return [(value, *printed[1:]) for value in nearest(printed[0], axes)]
    grid = [(lr, clip) for lr in step_sizes(k) for clip in clips(k)]
    products = sorted({round(math.log10(lr * clip), 6) for lr, clip in grid})
    kept = nearest(printed[0] * printed[1], [10**p for p in products])
    return [(lr, clip) for lr, clip in grid if any(abs(lr * clip / product - 1) < 1e-3 for product in kept)]


def nearest(value: float, axis: tuple[float, ...] | list[float]) -> list[float]:
    """The one that is printed, or where none is the two around it."""
    same = [one for one in axis if abs(one / value - 1) <= NEAR]
    if same:
        return same
    return [*[one for one in axis if one < value][-1:], *[one for one in axis if one > value][:1]]


@dataclass(frozen=True, eq=False)
class Cell:
    """One printed cell and what we have for it."""

    method: str
    epsilon: float
    printed: Printed | None
    scores: Scores

    def chosen(self, k: int) -> list[int]:
        """The candidates that the cell means."""
        assert self.printed is not None
        wanted = meant(self.method, self.printed, k)
        return [
            i
            for i, own in enumerate(self.scores.values)
            if any(all(abs(a / b - 1) < 1e-3 for a, b in zip(own, one, strict=True)) for one in wanted)
        ]


def words_of(method: str, values: Printed) -> str:
    if method == WOSM:
        return f"C {values[0]:.4g}"
    rho = f"rho {values[0]:.4g}"
    if len(values) == 1:
        return rho
    return f"{rho}, C {values[1]:.3g}" if method == THRESHOLD else f"{rho}, gamma {values[1]:g}"


CLIPPED = (THRESHOLD, WOSM)
"""The methods whose clip is in the tables; it is the last number of a candidate."""
SMALL = max(cell[-1] for method in CLIPPED for cell in PRINTED["fashion"][method] if cell is not None)
"""The largest clip that is printed for Fashion-MNIST."""


def told_of_clips(cells: Sequence[Cell], task: Task, quick: bool) -> list[Claim]:
    """The sentence about a task's clips, where there is one."""
    told = {"mnist": _large, "fashion": _small}.get(key_of(task))
    return [told(cells, task, quick)] if told else []


def good_clips(scores: Scores) -> tuple[float, ...]:
    """The clips of all candidates that may be as good as the best, in order."""
    limit = -LEVEL[scores.error]
    kept = {own[-1] for i, own in enumerate(scores.values) if behind(scores, [i], BEST).above(limit) is not False}
    return tuple(sorted(kept))


def _large(cells: Sequence[Cell], task: Task, quick: bool) -> Claim:
    """Every clip that may be AdamWOSM's best against every one that may be FixedThreshold's."""
    cases, each = list[bool | None](), list[str]()
    for cell in cells:
        for other in cells:
            if (cell.method, other.method, other.epsilon) == (WOSM, THRESHOLD, cell.epsilon):
                own, others = good_clips(cell.scores), good_clips(other.scores)
                larger = True if own[0] > others[-1] else False if own[-1] <= others[0] else None
                cases.append(decided(larger, min(cell.scores.seeds, other.scores.seeds), quick))
                each.append(f"{_span(own)} and {_span(others)} (epsilon {cell.epsilon:g})")
    return judged(
        f"AdamWOSM's best clip is fairly large compared to those of the other strategies ({task.title})",
        cases,
        f"clips that may be best, of AdamWOSM and of FixedThreshold, the other one with a clip in the table: {', '.join(each)}; "
        f"{_rule(task)}, and agreeing where all of the first are above all of the second"
        if each
        else UNTRAINED,
    )


def _small(cells: Sequence[Cell], task: Task, quick: bool) -> Claim:
    """Every clip that may be best, of the two methods that have one, against the largest that is printed."""
    cases, each, limit = list[bool | None](), list[str](), (1 + NEAR) * SMALL
    for method in CLIPPED:
        for cell in cells:
            if cell.method == method:
                own = good_clips(cell.scores)
                small = True if own[-1] <= limit else False if own[0] > limit else None
                cases.append(decided(small, cell.scores.seeds, quick))
                each.append(f"{_span(own)} ({method}, epsilon {cell.epsilon:g})")
    return judged(
        f"All strategies but FixedQuantile clip aggressively, with a small best clip ({task.title})",
        cases,
        f"clips that may be best: {', '.join(each)}; {_rule(task)}, and agreeing where all are at most {SMALL:g}, the largest "
        "that is printed; Online has no clip in the table"
        if each
        else UNTRAINED,
    )


def _rule(task: Task) -> str:
    return f"these are all that are not told to be more than {LEVEL[task.error]:g} {unit(task)} behind"


def _span(clips: Sequence[float]) -> str:
    return f"{clips[0]:.3g}" if len(clips) == 1 else f"{clips[0]:.3g} to {clips[-1]:.3g}"


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
        gaps = {cell.epsilon: _gap(_longer(cell), k) for cell in own}
        cases = [decided(gaps[cell.epsilon].above(-LEVEL[task.error]), cell.scores.seeds, False) for cell in own]
        before = ", ".join(f"{_gap_words(_gap(cell, k))} (epsilon {cell.epsilon:g})" for cell in own)
        after = ", ".join(f"{_gap_words(gap)} (epsilon {epsilon:g})" for epsilon, gap in gaps.items())
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
    fixed = [-_gap(cell, k).value for cell in cells if cell.method == WOSM]
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
    gaps = [_gap(cell, k) for cell in cells]
    told = [
        f"epsilon {cell.epsilon:g}: {words_of(method, cell.printed)} is {_gap_words(gap)} points behind ours, "
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


def _gap(cell: Cell, k: int) -> Measured:
    return behind(cell.scores, cell.chosen(k), BEST)


def _gap_words(gap: Measured) -> str:
    return f"{max(0.0, -gap.value):.1f} ± {gap.error:.1f}" if np.isfinite(gap.value) else "all, as it diverged,"


def _range(values: Sequence[float]) -> str:
    return f"{max(0.0, min(values)):.1f} to {max(0.0, *values):.1f}"


NUMBER = {"mnist": 2, "fashion": 3, "ag-news": 4}


def parts_of(quick: bool, task: str) -> list[Part]:
    return parts_at(task_of(task), (QUICK_K if quick else PRINTED_K,), quick)


def best_hyperparameters(parts: Finished, quick: bool, task: str) -> Outcome:
    return _table(parts, task_of(task), quick)


def _table(parts: Finished, task: Task, quick: bool) -> Outcome:
    k = QUICK_K if quick else PRINTED_K
    cells = cells_of(parts, task, k, quick)
    claims = [*(_judged(cell, task, k, quick) for cell in cells), *_untrained(cells, task, quick)]
    claims += [*_plain(parts, task, k, quick), *told_of_clips(cells, task, quick), _product(cells, task, quick)]
    own_task = not quick and not task.name.endswith("standin")
    claims += tenfold(cells, task, k) if own_task else []
    rows: list[list[str | float]] = []
    for cell in cells:
        printed = "diverged" if cell.printed is None else words_of(cell.method, cell.printed)
        own = [_best(cell, reading) for reading in (BEST, LAST)]
        rows.append([f"{cell.epsilon:g}", cell.method, printed, *own, str(cell.scores.seeds)])
    header = ["epsilon", "method", "printed", "ours, by the best checkpoint", "ours, by the last iterate", "seeds"]
    numbers = {f"{row[0]}, {row[1]}": [str(cell) for cell in row[2:5]] for row in rows}
    note = (
        f"A cell agrees where the printed candidate is at most {LEVEL[task.error]:g} {unit(task)} behind our best; the paper "
        "gives no number for it. FixedThreshold is judged by step size times clip."
    )
    extra = (
        [
            "FixedThreshold's step size at epsilon 9, 0.03162, is on the grids of k = 5 and 9 and not on that of k = 7; read as "
            "0.3162 its product with the clip is that of the other rows. Both neighbours of the printed product count here."
        ]
        if key_of(task) == "ag-news"
        else []
    )
    if key_of(task) == "fashion":
        extra.append("This is the table that the paper's text means where it cites Table 4 for the autoencoder.")
    if task.name.endswith("standin"):
        extra.append(
            "The cells ask whether what is printed for AG News is best for the stand-in, and count as claims of ours: with other "
            "texts and lots of 41 other step sizes and clips may be best, so that none of them is a verdict on a printed cell."
        )
    if quick:
        extra.append(
            "Quick version: of 3 values of an axis a printed one is mostly missing; the nearest on either side count."
        )
    if own_task and cells and task.name == MNIST.name:
        extra.append(scale_note(cells, task, k))
    title = f"Table {NUMBER[key_of(task)]}: the best hyperparameters, {task.title}, k = {k}"
    return Outcome(
        claims,
        {"best": numbers},
        [Table(title, header, rows)],
        [note, *extra, *notes_of(all_methods(parts, task, quick), [k])],
    )


def _best(cell: Cell, reading: str) -> str:
    """The candidate that is best, unless all of them diverged."""
    if not math.isfinite(cell.scores.top(reading).value):
        return "diverged"
    return words_of(cell.method, cell.scores.values[cell.scores.winner(reading)])


def cells_of(parts: Finished, task: Task, k: int, quick: bool) -> list[Cell]:
    """The printed cells of which trainings are there."""
    cells = []
    for at, epsilon in enumerate(task.epsilons):
        for method in METHODS:
            scores = scores_of(parts, task, method, k, epsilon, quick)
            if scores is not None:
                cells.append(Cell(method, epsilon, PRINTED[key_of(task)][method][at], scores))
    return cells


def _untrained(cells: list[Cell], task: Task, quick: bool) -> list[Claim]:
    """Printed cells of which no training is there: claims that cannot be told."""
    there, found = {(cell.method, cell.epsilon) for cell in cells}, []
    for at, epsilon in enumerate(task.epsilons):
        for method in METHODS:
            if (method, epsilon) not in there and epsilon in sized(task, quick).epsilons:
                printed = PRINTED[key_of(task)][method][at]
                words = "Nothing converges" if printed is None else f"{words_of(method, printed)} is best"
                at_ = f"{method} at epsilon {epsilon:g} ({task.title})"
                found.append(judged(f"{words}: {at_}", [], UNTRAINED, kind=kind_of(task, NUMBERS)))
    return found


def _judged(cell: Cell, task: Task, k: int, quick: bool) -> Claim:
    at = f"{cell.method} at epsilon {cell.epsilon:g} ({task.title})"
    own = cell.scores.values[cell.scores.winner(BEST)]
    top = cell.scores.top(BEST)
    if cell.printed is None:
        constant = known.constant_error(sized(task, quick))  # as in figure 4: an early look is finite in any case
        lost = float(cell.scores.read(BEST).min()) >= constant
        found = f"the best of ours, {_best(cell, BEST)}, has {told(top.value, task)}; a constant image {constant:.4f}"
        return judged(
            f"Nothing converges: {at}", [decided(lost, cell.scores.seeds, quick)], found, kind=kind_of(task, NUMBERS)
        )
    chosen = cell.chosen(k)
    if not chosen:
        return judged(
            f"{words_of(cell.method, cell.printed)} is best: {at}",
            [None],
            "not on this grid",
            kind=kind_of(task, NUMBERS),
        )
    gap = behind(cell.scores, chosen, BEST)
    verdict = decided(gap.above(-LEVEL[task.error]), cell.scores.seeds, quick)
    what = f"what has its product of {cell.printed[0] * cell.printed[1]:.3g}" if cell.method == THRESHOLD else "it"
    return judged(
        f"{words_of(cell.method, cell.printed)} is best: {at}",
        [verdict],
        f"ours is {words_of(cell.method, own)} with {told(top.value, task)}; {what} {_behind(gap, task, cell.scores.seeds)} "
        f"(seeds: {cell.scores.seeds})",
        kind=kind_of(task, NUMBERS),
    )


def _behind(gap: Measured, task: Task, seeds: int) -> str:
    """In words; 0 is at the best. The error of a single seed is not known."""
    if not math.isfinite(gap.value):
        return f"diverged with {'some seeds' if math.isinf(gap.error) else 'all seeds'}"
    return f"is {max(0.0, -gap.value):.1f} ± {'?' if seeds == 1 else f'{gap.error:.1f}'} {unit(task)} behind"


def _plain(parts: Finished, task: Task, k: int, quick: bool) -> list[Claim]:
    """The printed step size without privacy, by SGD as the paper says, and by Adam."""
    claims, printed, trained = [], PLAIN[key_of(task)], plain_scores(parts, task, quick)
    if not trained:
        words = f"Without privacy the step size {printed:g} is best, by SGD ({task.title})"
        return [judged(words, [], UNTRAINED, kind=kind_of(task, NUMBERS))]
    for method, scores in trained.items():
        chosen = [i for i, (lr,) in enumerate(scores.values) if lr in nearest(printed, step_sizes(k))]
        gap = behind(scores, chosen, BEST)
        own = scores.values[scores.winner(BEST)][0]
        name = "Adam" if method == NODP_ADAM else "SGD"
        claims.append(
            judged(
                f"Without privacy the step size {printed:g} is best, by {name} ({task.title})",
                [decided(gap.above(-LEVEL[task.error]), scores.seeds, quick)],
                f"ours is {own:.4g} with {told(scores.top(BEST).value, task)}; the printed one "
                f"{_behind(gap, task, scores.seeds)} (seeds: {scores.seeds})",
                kind=kind_of(task, NUMBERS) if method == NODP else OURS,
            )
        )
    return claims


def _product(cells: list[Cell], task: Task, quick: bool) -> Claim:
    """Whether candidates of one product are alike, where the best one is: by this the cells are compared."""
    cases, gaps = list[bool | None](), []
    for cell in cells:
        if cell.method == THRESHOLD:
            lr, clip = cell.scores.values[cell.scores.winner(BEST)]
            alike = [
                i for i, (a, b) in enumerate(cell.scores.values) if abs(a * b / (lr * clip) - 1) < 1e-3 and b <= clip
            ]
            gap = spread([cell.scores.read(BEST)], partial(_worse, alike, task.error), error=task.error)
            verdict = decided(gap.at_most(2 * LEVEL[task.error]), cell.scores.seeds, quick)
            cases.append(verdict if len(alike) > 1 else None)
            gaps.append(f"{gap.size} over {len(alike)} (epsilon {cell.epsilon:g})")
    return judged(
        "What decides for FixedThreshold is step size times clip: candidates of the best product with a smaller clip are at "
        f"most {2 * LEVEL[task.error]:g} {unit(task)} worse ({task.title})",
        cases,
        f"the worst of them is behind by {', '.join(gaps)}" if gaps else UNTRAINED,
        kind=OURS,
    )


def _worse(chosen: list[int], error: bool, means: Sequence[Array]) -> float:
    """By how much the worst of some candidates is behind the best of all: in points, or in per cent of the best one's error."""
    top, own = best(means[0], error), means[0][chosen]
    return float(100 * (own.max() / top - 1) if error else top - own.min())
