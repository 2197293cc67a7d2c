"""Figures 3 to 5: the best configuration of every method at every budget of a whole grid, for three granularities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from honestdp_papers.claims import OURS, Claim, Outcome, judged
from honestdp_papers.galli2024.comparing import UNTRAINED, Case, Compared, compared, outcome_of
from honestdp_papers.galli2024.measures import BEST, LAST, Scores, lead, unit
from honestdp_papers.galli2024.one_image import GREY, MEAN, error_of
from honestdp_papers.galli2024.setting import (
    FASHION,
    MNIST,
    ONLINE,
    QUANTILE,
    THRESHOLD,
    WOSM,
    Task,
    sized,
    text_task,
)
from honestdp_papers.galli2024.training import task_parts
from honestdp_papers.measured import Measured, counted
from honestdp_papers.parts import Part
from honestdp_papers.registry import Finished

LEVEL = {False: 0.5, True: 2.0}
"""Points of accuracy, or per cent of an error, within which two methods are equal; the paper gives no number."""
PLATEAU = 0.08
"""By which part an error may be below that of a grey image and be none."""
SLOW = 2.0
"""Per cent by which an error must still fall over the last quarter of a training that is slow."""


def parts3(quick: bool) -> list[Part]:
    return task_parts(MNIST, quick)


def parts4(quick: bool) -> list[Part]:
    return task_parts(FASHION, quick)


def parts5(quick: bool) -> list[Part]:
    return task_parts(text_task(), quick)


def figure3(parts: Finished, quick: bool) -> Outcome:
    here = compared(parts, MNIST, quick)
    level, first = LEVEL[False], here.at(MNIST.epsilons[:1])
    above = here.at(MNIST.epsilons[1:])
    equal = [
        here.sure(case, (ONLINE, WOSM), _within(gap, level)) for case, gap in here.leads(ONLINE, WOSM, first).items()
    ]
    claims = [
        judged(
            "Online and AdamWOSM are equal at epsilon 3 (MNIST)",
            equal,
            f"within {level:g} points in {counted(equal)}; Online less AdamWOSM: {here.spoken(ONLINE, WOSM, first)}",
        ),
        _ahead(here, ONLINE, WOSM, above, "Online is ahead of AdamWOSM at epsilon 5, 7 and 9 (MNIST)"),
        _below(here, THRESHOLD, "FixedThreshold is below Online and AdamWOSM at every epsilon (MNIST)"),
        _below(here, QUANTILE, "FixedQuantile is below Online and AdamWOSM at every epsilon (MNIST)"),
        _not_better(here, "FixedQuantile is no better than FixedThreshold (MNIST)"),
        *_last_iterate(here, ((ONLINE, WOSM, above), (ONLINE, THRESHOLD, None), (WOSM, THRESHOLD, None))),
    ]
    return outcome_of(here, claims)


def figure4(parts: Finished, quick: bool) -> Outcome:
    here = compared(parts, FASHION, quick)
    first, above = here.at(FASHION.epsilons[:1]), here.at(FASHION.epsilons[1:])
    constant = constant_error(sized(FASHION, quick))
    first = here.having((QUANTILE,), first)
    lost = [float(here.cases[case][QUANTILE].read(BEST).min()) for case in first]
    best = [case for name in (WOSM, THRESHOLD, QUANTILE) for case in here.ahead(ONLINE, name, [*here.cases])]
    second = [case for name in (WOSM, THRESHOLD) for case in here.ahead(QUANTILE, name, above)]
    both = here.having((WOSM, ONLINE), [*here.cases])
    falls = {case: _falling(here.cases[case][WOSM]) for case in both}
    slow = [here.sure(case, (WOSM, ONLINE), falls[case] > SLOW and _above(here.cases[case])) for case in both]
    claims = [
        judged(
            "Online has the least error at every epsilon (Fashion-MNIST)",
            best,
            f"ahead in {counted(best)} comparisons; of AdamWOSM by {here.spoken(ONLINE, WOSM, [*here.cases])} per cent of the "
            f"error; of FixedThreshold by {here.spoken(ONLINE, THRESHOLD, [*here.cases])}; of FixedQuantile by "
            f"{here.spoken(ONLINE, QUANTILE, [*here.cases])}",
        ),
        judged(
            "All trainings of FixedQuantile diverge at epsilon 1 (Fashion-MNIST)",
            [here.sure(case, (QUANTILE,), value >= constant) for case, value in zip(first, lost, strict=True)],
            f"the least error of all its candidates at any look: {_errors(lost)}; a constant image "
            f"has {constant:.4f}, and what is not below it has not converged",
        ),
        judged(
            "FixedQuantile is second best at epsilon 2, 3 and 4 (Fashion-MNIST)",
            second,
            f"ahead in {counted(second)} comparisons; of AdamWOSM by {here.spoken(QUANTILE, WOSM, above)}; of FixedThreshold by "
            f"{here.spoken(QUANTILE, THRESHOLD, above)}",
        ),
        judged(
            "AdamWOSM is too slow to converge within the epochs (Fashion-MNIST)",
            slow,
            f"its error is above Online's and falls by more than {SLOW:g} per cent over the last quarter in {counted(slow)}: "
            + ", ".join(f"{fall:.1f} (k {k}, epsilon {epsilon:g})" for (k, epsilon), fall in falls.items()),
        ),
        *_last_iterate(here, ((ONLINE, WOSM, None), (ONLINE, THRESHOLD, None), (ONLINE, QUANTILE, None))),
    ]
    found = outcome_of(here, claims)
    return replace(found, notes=[*found.notes, *_plateau(here)])


def figure5(parts: Finished, quick: bool) -> Outcome:
    task = text_task()
    here = compared(parts, task, quick)
    every = [*here.cases]
    best = [case for name in (ONLINE, THRESHOLD, QUANTILE) for case in here.ahead(WOSM, name, every)]
    near, both = [], here.having((ONLINE, WOSM), every)
    for case in both:
        own, other = here.cases[case][ONLINE], here.cases[case][WOSM]
        within = lead(other, own, BEST).value <= max(own.deviation(BEST), other.deviation(BEST))
        near.append(here.sure(case, (ONLINE, WOSM), within))
    claims = [
        judged(
            f"AdamWOSM is the best ({task.title})",
            best,
            f"ahead in {counted(best)} comparisons; of Online by {here.spoken(WOSM, ONLINE, every)} points",
        ),
        judged(
            f"Online is within a standard deviation of AdamWOSM ({task.title})",
            near,
            f"AdamWOSM less Online is at most the larger deviation over the seeds in {counted(near)}: "
            + ", ".join(
                f"{here.cases[case][ONLINE].deviation(BEST):.2f} and {here.cases[case][WOSM].deviation(BEST):.2f} "
                f"(k {case[0]}, epsilon {case[1]:g})"
                for case in both
            ),
        ),
        *_last_iterate(here, ((WOSM, ONLINE, None), (ONLINE, THRESHOLD, None), (ONLINE, QUANTILE, None))),
    ]
    return outcome_of(here, claims)


def _within(gap: Measured, level: float) -> bool | None:
    return Measured(abs(gap.value), gap.error).at_most(level)


def _ahead(here: Compared, first: str, second: str, cases: list[Case], words: str) -> Claim:
    verdicts = here.ahead(first, second, cases)
    return judged(
        words, verdicts, f"ahead in {counted(verdicts)}: {here.spoken(first, second, cases)} {unit(here.task)}"
    )


def _below(here: Compared, method: str, words: str) -> Claim:
    every = [*here.cases]
    verdicts = [case for name in (ONLINE, WOSM) for case in here.ahead(name, method, every)]
    return judged(
        words,
        verdicts,
        f"below in {counted(verdicts)} comparisons; Online less it: {here.spoken(ONLINE, method, every)}; AdamWOSM less it: "
        f"{here.spoken(WOSM, method, every)}",
    )


def _not_better(here: Compared, words: str) -> Claim:
    every = [*here.cases]
    leads = here.leads(QUANTILE, THRESHOLD, every)
    verdicts = [here.sure(case, (QUANTILE, THRESHOLD), gap.at_most(LEVEL[False])) for case, gap in leads.items()]
    return judged(
        words,
        verdicts,
        f"ahead by at most {LEVEL[False]:g} points in {counted(verdicts)}: {here.spoken(QUANTILE, THRESHOLD, every)}",
    )


def _last_iterate(here: Compared, pairs: Sequence[tuple[str, str, list[Case] | None]]) -> list[Claim]:
    """The same order by the last iterate, the one that a budget covers."""
    found = []
    for first, second, cases in pairs:
        chosen = [*here.cases] if cases is None else cases
        verdicts = here.ahead(first, second, chosen, reading=LAST)
        found.append(
            judged(
                f"By the last iterate, which is what a budget covers, {first} is ahead of {second} ({here.task.title})",
                verdicts,
                f"ahead in {counted(verdicts)}: {here.spoken(first, second, chosen, LAST)} {unit(here.task)}",
                kind=OURS,
            )
        )
    return found


def _errors(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4f}" if np.isfinite(value) else "diverged" for value in values) or UNTRAINED


def _above(scores: dict[str, Scores]) -> bool:
    """Whether AdamWOSM's error is above Online's."""
    return scores[WOSM].top(BEST).value > scores[ONLINE].top(BEST).value


def _falling(scores: Scores) -> float:
    """Per cent by which the mean error of the best candidate falls over the last quarter of its training."""
    curve = scores.curves.mean(axis=0)[scores.winner(BEST)]
    begin, end = curve[3 * len(curve) // 4 - 1], curve[-1]
    return float(100 * (1 - end / begin)) if np.isfinite(begin) and begin > 0 else float("nan")


def _plateau(here: Compared) -> list[str]:
    """How many trainings end at the error of one grey for all pixels, where another seed of theirs does not.

    A method with one seed has no other, and is left out where there are methods with more.
    """
    grey, counts = grey_error(sized(here.task, here.quick)), []
    for (k, epsilon), scores in here.cases.items():
        several = [own for own in scores.values() if own.seeds > 1] or [*scores.values()]
        ends = [own.read(LAST).T for own in several]  # [candidates, seeds] of every method
        learning = np.concatenate([own[own.min(axis=1) < grey / 2].ravel() for own in ends])
        stuck = int((learning > (1 - PLATEAU) * grey).sum())
        counts.append(f"{stuck} of {learning.size} (k {k}, epsilon {epsilon:g})")
    if not counts:
        return []
    return [
        f"Trainings linger at the error of one grey for all pixels, {grey:.4f}, before this deep network lets anything through, "
        "and some never leave it. Of the candidates with which a seed ends below half of that error, so many trainings end "
        f"less than {100 * PLATEAU:g} per cent below it or above: {', '.join(counts)}. One of them spoils a candidate's mean, so "
        "that more privacy does not always mean a larger error here. The strides, the initial weights and the plain last layer "
        "are ours: another network of the same size may have no such plateau."
    ]


def constant_error(task: Task) -> float:
    """The error of the mean training image on the test images."""
    return error_of(task, MEAN)


def grey_error(task: Task) -> float:
    """The error of the mean pixel of the training images on the test images."""
    return error_of(task, GREY)
