"""What the text reads off Tables 2 and 3 about clips: AdamWOSM's are large on MNIST, and all are small on Fashion-MNIST.

A grid search names one of several equally good candidates by chance. So a clip is told by all candidates that may be as good as
the best one: those that are not told to be behind it by more than the tolerance of the cells. Of Online and FixedQuantile the
tables have no clip.
"""

from __future__ import annotations

from collections.abc import Sequence

from honestdp_papers.claims import Claim, judged
from honestdp_papers.galli2024.comparing import UNTRAINED
from honestdp_papers.galli2024.judging import LEVEL
from honestdp_papers.galli2024.measures import BEST, Scores, behind, decided, unit
from honestdp_papers.galli2024.printed import NEAR, PRINTED, Cell, key_of
from honestdp_papers.galli2024.setting import THRESHOLD, WOSM, Task

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
