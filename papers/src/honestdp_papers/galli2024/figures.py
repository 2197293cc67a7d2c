"""Figures 3 to 5: the best configuration of every method at every budget of a whole grid, for three granularities.

Claims about one task's methods side by side, each judged in every granularity and at every epsilon that is ready for
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from honestdp_papers.claims import OURS, SENTENCE, Claim, Measured, Outcome, counted, jackknifed, judged
from honestdp_papers.galli2024 import known
from honestdp_papers.galli2024.comparing import (
    BEST,
    LAST,
    UNTRAINED,
    Case,
    Compared,
    Scores,
    compared,
    outcome_of,
    shown,
    told,
    unit,
)
from honestdp_papers.galli2024.setting import (
    FASHION,
    METHODS,
    MNIST,
    NODP,
    NODP_ADAM,
    ONLINE,
    QUANTILE,
    THRESHOLD,
    WOSM,
    Task,
    sized,
    task_of,
)
from honestdp_papers.galli2024.training import task_parts
from honestdp_papers.parts import Finished, Part

LEVEL = {False: 0.5, True: 2.0}
"""Points of accuracy, or per cent of an error, within which two methods are equal; the paper gives no number."""
LEARNT = 50.0
"""Per cent of right answers above which something is learnt; of an autoencoder, an error below that of one image for all."""


def kind_of(task: Task, kind: str = SENTENCE) -> str:
    """What a claim is; that of a stand-in is no verdict on the paper's data, and ours."""
    return OURS if task.name.endswith("standin") else kind


def equal(here: Compared, first: str, second: str, cases: list[Case], words: str) -> Claim:
    level = LEVEL[here.task.error]
    leads = here.leads(first, second, here.ready((first, second), cases))
    verdicts = [gap.within(level) for gap in leads.values()]
    found = f"within {level:g} {unit(here.task)} in {counted(verdicts)}{here.waiting((first, second), cases)}"
    return judged(words, verdicts, f"{found}; {first} less {second}: {here.spoken(first, second, cases)}")


def ahead(here: Compared, first: str, second: str, cases: list[Case], words: str) -> Claim:
    verdicts = here.ahead(first, second, cases)
    found = f"ahead in {counted(verdicts)}{here.waiting((first, second), cases)}"
    return judged(words, verdicts, f"{found}: {here.spoken(first, second, cases)} {unit(here.task)}")


def below(here: Compared, method: str, words: str) -> Claim:
    """Whether a method is below Online and AdamWOSM in every case."""
    every = [*here.cases]
    verdicts = [case for name in (ONLINE, WOSM) for case in here.ahead(name, method, every)]
    return judged(
        words,
        verdicts,
        f"below in {counted(verdicts)} comparisons{here.waiting((ONLINE, WOSM, method), every)}; Online less it: "
        f"{here.spoken(ONLINE, method, every)}; AdamWOSM less it: {here.spoken(WOSM, method, every)}",
    )


def best_of(here: Compared, method: str, others: Sequence[str], cases: list[Case], words: str) -> Claim:
    """Whether a method is ahead of some others in every case."""
    verdicts = [case for name in others for case in here.ahead(method, name, cases)]
    each = "; ".join(f"of {name} by {here.spoken(method, name, cases)}" for name in others)
    found = f"ahead in {counted(verdicts)} comparisons{here.waiting((method, *others), cases)}; {each}"
    return judged(words, verdicts, f"{found} {unit(here.task)}", kind=kind_of(here.task))


def not_better(here: Compared, words: str) -> Claim:
    every, both = [*here.cases], (QUANTILE, THRESHOLD)
    verdicts = [gap.at_most(LEVEL[False]) for gap in here.leads(*both, here.ready(both, every)).values()]
    found = f"ahead by at most {LEVEL[False]:g} points in {counted(verdicts)}{here.waiting(both, every)}"
    return judged(words, verdicts, f"{found}: {here.spoken(*both, every)}")


def comparable(here: Compared) -> Claim:
    """The abstract: Online performs comparably to or better than each of the others."""
    every, level = [*here.cases], LEVEL[here.task.error]
    others = [name for name in METHODS if name != ONLINE]
    verdicts = {name: here.ahead(ONLINE, name, every, by=-level) for name in others}
    counts = ", ".join(f"{counted(own)} of {name}" for name, own in verdicts.items())
    return judged(
        f"Online performs comparably to or better than the other methods ({here.task.title})",
        [case for own in verdicts.values() for case in own],
        f"at most {level:g} {unit(here.task)} behind in {counts}{here.waiting(METHODS, every)}",
        kind=kind_of(here.task),
    )


def within_deviation(here: Compared) -> Claim:
    """The text: the average of Online or AdamWOSM fits within a standard deviation of the other."""
    every, both = [*here.cases], (ONLINE, WOSM)
    gaps = here.leads(WOSM, ONLINE, here.ready(both, every))
    room = {case: max(here.cases[case][name].deviation(BEST) for name in both) for case in gaps}
    verdicts = [gap.within(room[case]) for case, gap in gaps.items()]
    bare = sum(abs(gap.value) <= room[case] for case, gap in gaps.items())
    each = ", ".join(f"{gap} for {room[k, e]:.2f} (k {k}, epsilon {e:g})" for (k, e), gap in gaps.items())
    return judged(
        f"Online and AdamWOSM are within a standard deviation of each other ({here.task.title})",
        verdicts,
        f"within the larger deviation over the seeds in {counted(verdicts)}{here.waiting(both, every)}, by the bare means in "
        f"{bare}; AdamWOSM less Online, for that deviation: {each or UNTRAINED}",
        kind=kind_of(here.task),
    )


def fall(curves: np.ndarray, error: bool) -> Measured:
    """By how much the mean of the seeds still gets better over the last quarter; curves `[seeds, looks]`.

    In points, or in per cent of the error at its beginning.
    """

    def number(means: Sequence[np.ndarray]) -> float:
        begin, end = (float(means[0][place]) for place in (3 * curves.shape[1] // 4 - 1, -1))
        if not error:
            return end - begin
        return 100 * (1 - end / begin) if np.isfinite([begin, end]).all() and begin > 0 else float("nan")

    return jackknifed([curves], number)


def falling(here: Compared, method: str, words: str) -> Claim:
    """Whether the best candidate of a method is still getting better when its training ends."""
    every, limit = [*here.cases], LEVEL[here.task.error]
    falls = {}
    for case in here.ready((method,), every):
        scores = here.cases[case][method]
        falls[case] = fall(scores.curves[:, scores.winner(BEST)], here.task.error)
    verdicts = [own.above(limit) for own in falls.values()]
    each = ", ".join(f"{own.size} (k {k}, epsilon {e:g})" for (k, e), own in falls.items())
    return judged(
        words,
        verdicts,
        f"over the last quarter of a training it still gains more than {limit:g} {unit(here.task)} in {counted(verdicts)}"
        f"{here.waiting((method,), every)}: {each or UNTRAINED}",
    )


def converging(here: Compared) -> Claim:
    """The text: the epochs are enough to have most configurations converge, here all candidates of all methods."""
    every, limit = [*here.cases], LEVEL[here.task.error]
    verdicts = [
        _converged(scores, place, here)
        for case in here.ready(METHODS, every)
        for scores in here.cases[case].values()
        for place in range(len(scores.values))
    ]
    told = [one for one in verdicts if one is not None]
    return judged(
        f"The epochs are enough for most configurations to converge ({here.task.title})",
        verdicts,
        f"they have learnt something and gain at most {limit:g} {unit(here.task)} over the last quarter of their training: "
        f"{sum(told)} of the {len(told)} configurations that can be told{here.waiting(METHODS, every)}",
        most=True,
        kind=kind_of(here.task),
    )


def _converged(scores: Scores, place: int, here: Compared) -> bool | None:
    """Whether a candidate has learnt more than one answer for all, and hardly gains any more."""
    last, error = scores.curves[:, place, -1].mean(), here.task.error
    if not (last < known.constant_error(sized(here.task, here.quick)) if error else last > LEARNT):
        return False
    return fall(scores.curves[:, place], error).at_most(LEVEL[error])


def last_iterate(here: Compared, pairs: Sequence[tuple[str, str, list[Case] | None]]) -> list[Claim]:
    """The same order by the last iterate, the one that a budget covers."""
    claims = []
    for first, second, cases in pairs:
        chosen = [*here.cases] if cases is None else cases
        verdicts = here.ahead(first, second, chosen, reading=LAST)
        found = f"ahead in {counted(verdicts)}{here.waiting((first, second), chosen)}"
        claims.append(
            judged(
                f"By the last iterate, which is what a budget covers, {first} is ahead of {second} ({here.task.title})",
                verdicts,
                f"{found}: {here.spoken(first, second, chosen, LAST)} {unit(here.task)}",
                kind=OURS,
            )
        )
    return claims


PLATEAU = 0.08
"""By which part an error may be below that of a grey image and be none."""


def parts_of(quick: bool, task: str) -> list[Part]:
    return task_parts(task_of(task), quick)


def compared_task(parts: Finished, quick: bool, task: str) -> Outcome:
    here = compared(parts, task_of(task), quick)
    found = outcome_of(here, CLAIMS[task](here))
    if task != "fashion":
        return found
    doubts = doubt(here)
    numbers = found.numbers | ({"conclusions": doubts} if doubts else {})
    return replace(found, numbers=numbers, notes=[*found.notes, *doubts, *_plateau(here)])


def _of_mnist(here: Compared) -> list[Claim]:
    first, above = here.at(MNIST.epsilons[:1]), here.at(MNIST.epsilons[1:])
    return [
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


def _of_fashion(here: Compared) -> list[Claim]:
    every, above, others = [*here.cases], here.at(FASHION.epsilons[1:]), (WOSM, THRESHOLD, QUANTILE)
    second = "FixedQuantile is second best at epsilon 2, 3 and 4 (Fashion-MNIST)"
    return [
        best_of(here, ONLINE, others, every, "Online has the least error at every epsilon (Fashion-MNIST)"),
        _all_diverge(here, here.at(FASHION.epsilons[:1])),
        best_of(here, QUANTILE, (WOSM, THRESHOLD), above, second),
        falling(here, WOSM, "AdamWOSM may be too slow to converge within the epochs (Fashion-MNIST)"),
        comparable(here),
        converging(here),
        *last_iterate(here, ((ONLINE, WOSM, None), (ONLINE, THRESHOLD, None), (ONLINE, QUANTILE, None))),
    ]


def _of_text(here: Compared) -> list[Claim]:
    others, words = (ONLINE, THRESHOLD, QUANTILE), f"AdamWOSM is the best ({here.task.title})"
    return [
        best_of(here, WOSM, others, [*here.cases], words),
        within_deviation(here),
        comparable(here),
        converging(here),
        *last_iterate(here, ((WOSM, ONLINE, None), (ONLINE, THRESHOLD, None), (ONLINE, QUANTILE, None))),
    ]


CLAIMS = {"mnist": _of_mnist, "fashion": _of_fashion, "text": _of_text}


def _all_diverge(here: Compared, cases: list[Case]) -> Claim:
    constant, ready = known.constant_error(sized(FASHION, here.quick)), here.ready((QUANTILE,), cases)
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
    grey, counts = known.grey_error(sized(here.task, here.quick)), []
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


def doubt(here: Compared) -> list[str]:
    """What speaks against the network in a line, and the numbers in a second one; nothing where SGD trains it without privacy."""
    task, plain = here.task, here.plain.get(NODP)
    constant = known.constant_error(sized(task, here.quick))
    if here.quick or plain is None or plain.top(BEST).value < constant:
        return []
    adam = here.plain[NODP_ADAM]
    return [
        f"What is judged on {task.title} is judged on a network that may not be the paper's, for plain SGD hardly trains it: "
        f"without privacy the best step size has an error of {shown(plain.top(BEST), task, plain.seeds)} in the mean over the "
        f"seeds, and one constant image for all has {constant:.4f}.",
        f"Adam trains the same network to {shown(adam.top(BEST), task, adam.seeds)} without privacy. {_rising(here)}The paper "
        "prints neither strides nor initial weights: [ablations](#ablations) says what stride 1, the second try, shows.",
    ]


def _rising(here: Compared) -> str:
    """Whether Online's error is larger at the largest epsilon than at the least, by granularity."""
    first, last = here.task.epsilons[0], here.task.epsilons[-1]
    both = {
        k: [here.cases[k, epsilon][ONLINE].top(BEST).value for epsilon in (first, last)]
        for k in sorted({k for k, _ in here.cases})
        if all(ONLINE in here.cases.get((k, epsilon), {}) for epsilon in (first, last))
    }
    if not both:
        return ""
    each = ", ".join(f"{told(a, here.task)} and {told(b, here.task)} (k {k})" for k, (a, b) in both.items())
    return (
        f"Online, whose step is SGD's, has a larger error at epsilon {last:g}, with less noise, than at epsilon {first:g} in "
        f"{counted([a < b for a, b in both.values()])} granularities: {each} at {first:g} and {last:g}. "
    )
