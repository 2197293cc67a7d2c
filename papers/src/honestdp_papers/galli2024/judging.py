"""Claims about one task's methods side by side, each judged in every granularity and at every epsilon that is ready for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from honestdp_papers.claims import OURS, SENTENCE, Claim, judged
from honestdp_papers.galli2024 import one_image
from honestdp_papers.galli2024.comparing import UNTRAINED, Case, Compared
from honestdp_papers.galli2024.measures import BEST, LAST, Scores, unit
from honestdp_papers.galli2024.setting import METHODS, ONLINE, QUANTILE, THRESHOLD, WOSM, Task, sized
from honestdp_papers.measured import Measured, counted, jackknifed

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
    if not (last < one_image.constant_error(sized(here.task, here.quick)) if error else last > LEARNT):
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
