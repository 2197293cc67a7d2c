"""Figures 3 to 5: the best configuration of every method at every budget of a whole grid, for three granularities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from honestdp_papers.claims import Claim, Outcome, judged
from honestdp_papers.galli2024 import one_image
from honestdp_papers.galli2024.comparing import UNTRAINED, Case, Compared, compared, outcome_of
from honestdp_papers.galli2024.judging import (
    ahead,
    below,
    best_of,
    comparable,
    converging,
    equal,
    falling,
    last_iterate,
    not_better,
    within_deviation,
)
from honestdp_papers.galli2024.measures import BEST, LAST
from honestdp_papers.galli2024.setting import (
    FASHION,
    MNIST,
    ONLINE,
    QUANTILE,
    THRESHOLD,
    WOSM,
    sized,
    text_task,
)
from honestdp_papers.galli2024.strides import doubt
from honestdp_papers.galli2024.training import task_parts
from honestdp_papers.parts import Part
from honestdp_papers.registry import Finished

PLATEAU = 0.08
"""By which part an error may be below that of a grey image and be none."""


def parts3(quick: bool) -> list[Part]:
    return task_parts(MNIST, quick)


def parts4(quick: bool) -> list[Part]:
    return task_parts(FASHION, quick)


def parts5(quick: bool) -> list[Part]:
    return task_parts(text_task(), quick)


def figure3(parts: Finished, quick: bool) -> Outcome:
    here = compared(parts, MNIST, quick)
    first, above = here.at(MNIST.epsilons[:1]), here.at(MNIST.epsilons[1:])
    claims = [
        equal(here, ONLINE, WOSM, first, "Online and AdamWOSM are equal at epsilon 3 (MNIST)"),
        ahead(here, ONLINE, WOSM, above, "Online is ahead of AdamWOSM at epsilon 5, 7 and 9 (MNIST)"),
        within_deviation(here),
        below(here, THRESHOLD, "FixedThreshold is below Online and AdamWOSM at every epsilon (MNIST)"),
        below(here, QUANTILE, "FixedQuantile is below Online and AdamWOSM at every epsilon (MNIST)"),
        not_better(here, "FixedQuantile is no better than FixedThreshold (MNIST)"),
        comparable(here),
        converging(here),
        *last_iterate(here, ((ONLINE, WOSM, above), (ONLINE, THRESHOLD, None), (WOSM, THRESHOLD, None))),
    ]
    return outcome_of(here, claims)


def figure4(parts: Finished, quick: bool) -> Outcome:
    here = compared(parts, FASHION, quick)
    every, others = [*here.cases], (WOSM, THRESHOLD, QUANTILE)
    above = here.at(FASHION.epsilons[1:])
    claims = [
        best_of(here, ONLINE, others, every, "Online has the least error at every epsilon (Fashion-MNIST)"),
        _all_diverge(here, here.at(FASHION.epsilons[:1])),
        best_of(
            here,
            QUANTILE,
            (WOSM, THRESHOLD),
            above,
            "FixedQuantile is second best at epsilon 2, 3 and 4 (Fashion-MNIST)",
        ),
        falling(here, WOSM, "AdamWOSM may be too slow to converge within the epochs (Fashion-MNIST)"),
        comparable(here),
        converging(here),
        *last_iterate(here, ((ONLINE, WOSM, None), (ONLINE, THRESHOLD, None), (ONLINE, QUANTILE, None))),
    ]
    found, doubts = outcome_of(here, claims), doubt(here)
    numbers = found.numbers | ({"conclusions": doubts} if doubts else {})
    return replace(found, numbers=numbers, notes=[*found.notes, *doubts, *_plateau(here)])


def figure5(parts: Finished, quick: bool) -> Outcome:
    task = text_task()
    here = compared(parts, task, quick)
    claims = [
        best_of(here, WOSM, (ONLINE, THRESHOLD, QUANTILE), [*here.cases], f"AdamWOSM is the best ({task.title})"),
        within_deviation(here),
        comparable(here),
        converging(here),
        *last_iterate(here, ((WOSM, ONLINE, None), (ONLINE, THRESHOLD, None), (ONLINE, QUANTILE, None))),
    ]
    return outcome_of(here, claims)


def _all_diverge(here: Compared, cases: list[Case]) -> Claim:
    constant, ready = one_image.constant_error(sized(FASHION, here.quick)), here.ready((QUANTILE,), cases)
    lost = [float(here.cases[case][QUANTILE].read(BEST).min()) for case in ready]
    return judged(
        "All trainings of FixedQuantile diverge at epsilon 1 (Fashion-MNIST)",
        [value >= constant for value in lost],
        f"the least error of all its candidates at any look: {_errors(lost)}{here.waiting((QUANTILE,), cases)}; a constant image "
        f"has {constant:.4f}, and what is not below it has not converged",
    )


def _errors(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4f}" if np.isfinite(value) else "diverged" for value in values) or UNTRAINED


def _plateau(here: Compared) -> list[str]:
    """How many trainings end at the error of one grey for all pixels, where another seed of theirs does not.

    A method with one seed has no other, and is left out where there are methods with more.
    """
    grey, counts = one_image.grey_error(sized(here.task, here.quick)), []
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
