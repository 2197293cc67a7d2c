"""Table 1 (with the supplement's): one run of ADADP against private selection of DP-SGD's step size, at one budget.

The candidates are 10^(-i/2), i = 1..10, constant for half of the epochs and then decaying. Every selection has a noise of its
own, with which its whole search meets ADADP's (epsilon, delta) (`table1_noise`). Each candidate is trained a few times at that
noise, and searches are drawn from these trainings: which candidates are run, how often, and the best by a score with Laplace
noise on the test set, which the paper takes for validation. Then the same under today's selections: all candidates once
(winner), and a random number of runs by a published bound (papernot-steinke) and by ours (envelope).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from honestdp.optimizers import SGD
from honestdp_papers.claims import OURS, Claim, Outcome, Table, judged
from honestdp_papers.koskela2020.setting import CIFAR, DELTA
from honestdp_papers.koskela2020.table1_noise import (
    ADADP_NOISES,
    COVERAGE,
    PRINTED,
    QUICK_SIZES,
    SIZES,
    STOPPING,
    WINNER,
    noises,
    selections,
)
from honestdp_papers.koskela2020.training import (
    ADADP,
    PUBLISHED,
    REPEATS,
    Grid,
    epochs_of,
    grid_part,
    optimizer_part,
    part_name,
    sized,
    switch_of,
)
from honestdp_papers.measured import UNKNOWN, Measured, accuracy, jackknifed
from honestdp_papers.parts import Array, Part
from honestdp_papers.registry import Finished

SEARCHES, QUICK_SEARCHES = 2000, 400
SUPPLEMENT = {
    -9: (63.86, 0.11, 601.04),
    -8: (63.68, 1.13, 224.30),
    -7: (63.17, 3.99, 131.76),
    -6: (62.66, 5.16, 49.77),
    -5: (62.15, 5.52, 32.25),
    -4: (60.53, 6.62, 14.79),
    -3: (55.76, 12.80, 6.72),
    -2: (54.67, 12.78, 3.42),
    -1: (47.28, 16.88, 2.04),
}
"""Printed, by the exponent of gamma: mean and deviation of the accuracy in per cent, and mean runs."""
NEAR, AS_GOOD = 2.0, 0.5
"""Points within which a mean agrees with the printed one, and by which one method may be behind and still be as good."""
MODERN = (WINNER, *STOPPING)


def selection_part(name: str, noise: float, quick: bool) -> Part:
    """DP-SGD at every candidate step size, at the noise of one selection."""
    task = sized(CIFAR, quick)
    rules = [SGD(clip=task.clip, lr=lr) for lr in (QUICK_SIZES if quick else SIZES)]
    epochs = epochs_of(quick)
    grid = Grid(
        task, rules, noise, 1 if quick else REPEATS, epochs, quick, f"decay:{switch_of(quick)}", every=epochs // 10
    )
    return grid_part(f"table1/{name}", grid)


def parts_of(quick: bool) -> list[Part]:
    """ADADP at several noises first, from which the noises of the selections follow; see `table1_noise`."""
    found = noises(quick)
    own = {found["adadp"]} if quick else {*ADADP_NOISES, found["adadp"]}
    sought = [optimizer_part(CIFAR, PUBLISHED, noise, quick) for noise in sorted(own)]
    return [*sought, optimizer_part(CIFAR, ADADP, found["adadp"], quick)] + [
        selection_part(name, noise, quick) for name, noise in found["noise"].items()
    ]


@dataclass(frozen=True, eq=False)
class Searched:
    """What searches by one selection came to. accuracies, runs: of every search, per cent."""

    name: str
    noise: float
    accuracies: Array
    runs: Array
    mean: Measured


def searched(parts: Finished, quick: bool) -> list[Searched]:
    found, count = noises(quick), QUICK_SEARCHES if quick else SEARCHES
    return [
        _drawn(name, selection, found, accuracy(parts, f"table1/{name}")[:, :, -1], count, quick)
        for name, selection in selections(quick).items()
        if f"table1/{name}" in parts
    ]


def _drawn(name: str, selection: Any, found: dict[str, Any], kept: Array, count: int, quick: bool) -> Searched:
    """Searches drawn from trainings `[repeats, candidates]`; the error is that of the trainings, by leaving each repeat out."""
    from honestdp.accounting import epsilon  # here: a bare GPU machine, which asks for parts alone, has no accountants

    task, noise = sized(CIFAR, quick), found["noise"][name]
    # Of the test set: what one run of the search may spend, as for the training records.
    alone = epsilon(task.run(noise=noise, epochs=epochs_of(quick)).event, delta=DELTA, accountant="moments")
    scale = 100 / (task.tests * min(alone, found["epsilon"]["moments"]))

    def searches(bank: Array, several: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(1)
        accuracies, runs = np.empty(several), np.empty(several)
        for i in range(several):
            tried = np.array(selection.draws(rng, bank.shape[1]))
            values = bank[rng.integers(0, len(bank), len(tried)), tried] if len(tried) else np.array([10.0])
            scores = values + rng.laplace(scale=scale, size=len(values))
            accuracies[i], runs[i] = values[int(np.argmax(scores))], len(tried)
        return accuracies, runs

    accuracies, runs = searches(kept, count)
    left_out = [
        float(searches(np.delete(kept, i, axis=0), count // 4)[0].mean()) for i in range(len(kept)) if len(kept) > 1
    ]
    variance = accuracies.var() / count
    if left_out:
        variance += (len(kept) - 1) / len(kept) * float(np.square(np.array(left_out) - np.mean(left_out)).sum())
    return Searched(name, noise, accuracies, runs, Measured(float(accuracies.mean()), math.sqrt(variance)))


def adadp(parts: Finished, quick: bool, rule: str = PUBLISHED) -> tuple[Measured, Array]:
    kept = accuracy(parts, part_name(CIFAR, rule, noises(quick)["adadp"]))[:, 0, -1]
    return jackknifed([kept], lambda means: float(means[0])), kept


def _less(first: Measured, second: Measured) -> Measured:
    return Measured(first.value - second.value, math.hypot(first.error, second.error))


def table1(parts: Finished, quick: bool) -> Outcome:
    own, kept = adadp(parts, quick)
    text, text_kept = adadp(parts, quick, ADADP)
    found_by = searched(parts, quick)
    published = [one for one in found_by if one.name.startswith("liu")]
    modern = [one for one in found_by if one.name in MODERN]
    claims = [
        *_printed(published, found_by),
        *_sentences(own, published),
        *_today(own, modern),
        *_today(text, modern, ", by the text's rule"),
        _by_the_text(own, text),
    ]
    found = noises(quick)
    rows: list[list[str | float]] = [
        [name, f"{found['adadp']:g}", mean.value, mean.error, _deviation(runs), 1.0, printed]
        for name, mean, runs, printed in (
            ("ADADP, published code", own, kept, f"{PRINTED:.2f}, 0.33, 1"),
            ("ADADP, the text's rule", text, text_kept, ""),
        )
    ]
    for one in found_by:
        printed = SUPPLEMENT.get(exponent(one.name)) if one.name.startswith("liu") else None
        shown = "" if printed is None else f"{printed[0]:.2f}, {printed[1]:.2f}, {printed[2]:g}"
        deviation, runs = float(one.accuracies.std()), float(one.runs.mean())
        rows.append([one.name, f"{one.noise:.4g}", one.mean.value, one.mean.error, deviation, runs, shown])
    header = [
        "",
        "sigma",
        "mean accuracy, %",
        "standard error",
        "deviation",
        "mean runs",
        "printed: mean, deviation, runs",
    ]
    table = Table("One run of ADADP and private selections at one budget", header, rows)
    numbers = {
        "adadp": [own.value, own.error],
        "adadp by the text": [text.value, text.error],
        "noises": found,
        "selections": {one.name: [one.mean.value, one.mean.error, float(one.runs.mean())] for one in found_by},
    }
    return Outcome(claims, numbers, [table], notes_of(found, quick))


def _deviation(runs: Array) -> float:
    return float(runs.std(ddof=1)) if len(runs) > 1 else 0.0


def _by_the_text(own: Measured, text: Measured) -> Claim:
    gap = _less(text, own)
    return judged(
        "ADADP as the text has it is as good at this budget as the published code",
        [gap.above(-AS_GOOD)],
        f"{text.value:.1f} % and {own.value:.1f} %: text less code {gap}; at most {AS_GOOD:g} behind counts as good",
        kind=OURS,
    )


def exponent(name: str) -> int:
    return int(name.rpartition("^")[2])


def _printed(published: list[Searched], every: list[Searched]) -> list[Claim]:
    cases = [
        Measured(one.mean.value - SUPPLEMENT[exponent(one.name)][0], one.mean.error).within(NEAR) for one in published
    ]
    least = min(every, key=lambda one: one.noise)
    told = ", ".join(
        f"{one.mean.value:.1f} and {SUPPLEMENT[exponent(one.name)][0]:.1f} (2^{exponent(one.name)})"
        for one in published
    )
    return [
        judged(
            "Mean accuracies of Liu & Talwar's selection, as printed",
            cases,
            f"ours and printed: {told}; agreeing within {NEAR:g} points. The least noise of any selection here, "
            f"{least.noise:.3g} ({least.name}), gives {least.mean.value:.1f}",
            kind="numbers",
        )
    ]


def _sentences(own: Measured, published: list[Searched]) -> list[Claim]:
    gaps = {one: _less(own, one.mean) for one in published}
    as_good = [one for one, gap in gaps.items() if gap.above(AS_GOOD) is not True]
    fewest = min((float(one.runs.mean()) for one in as_good), default=math.inf)
    few = {one: gap for one, gap in gaps.items() if one.runs.mean() < 100}
    many = [gap.above(-AS_GOOD) for gap in gaps.values()]
    order = sorted(published, key=lambda one: exponent(one.name))
    steps = [_less(one.mean, other.mean).above(-AS_GOOD) for one, other in itertools.pairwise(order)]
    told = ", ".join(f"{gap} ({one.runs.mean():.0f} runs)" for one, gap in few.items())
    if len(order) > 1:
        steps.append(_less(order[0].mean, order[-1].mean).above(AS_GOOD))  # or all alike would count as better
    return [
        judged(
            "One run of ADADP is better than Liu & Talwar's selection with fewer than a hundred runs",
            [gap.above(0) for gap in few.values()],
            f"ADADP less the selection: {told}",
        ),
        judged(
            "One run of ADADP is as good as any of Liu & Talwar's selections",
            many,
            f"at most {AS_GOOD:g} points behind; the fewest runs with which the selection is as good: "
            + (f"{fewest:.0f} on average" if math.isfinite(fewest) else "more than any tried"),
        ),
        judged(
            "The smaller gamma is, the better the selection, and the more runs it needs",
            steps,
            ", ".join(f"{one.mean.value:.1f} % with {one.runs.mean():.0f} runs" for one in order)
            + f"; no step towards more runs loses more than {AS_GOOD:g}, and all steps together gain more than that",
        ),
    ]


def _today(own: Measured, modern: list[Searched], words: str = "") -> list[Claim]:
    """Whether one run is still as good when a search costs twice one run: computed from the table. words: whose run, where it is
    not that of the published code."""
    gaps = {one: _less(own, one.mean) for one in modern}
    cases = [gap.above(-AS_GOOD) for gap in gaps.values()]
    told = ", ".join(
        f"{gap} against {one.name} ({one.mean.value:.1f} %, {one.runs.mean():.0f} runs, sigma {one.noise:.4g})"
        for one, gap in gaps.items()
    )
    behind = [one.name for one, gap in gaps.items() if gap.above(-AS_GOOD) is False]
    ahead = [one.name for one, gap in gaps.items() if gap.above(AS_GOOD) is True]
    if behind:
        word = f"no longer against {', '.join(behind)}: there a search is better than one run of ADADP"
    elif ahead:
        word = f"still, and better than {', '.join(ahead)}: such a search pays more in noise than it gains"
    else:
        word = "still as good, and no better"
    return [
        judged(
            f"Under today's selections one run of ADADP is still as good as a search for DP-SGD's step size{words}",
            cases,
            f"{word}; ADADP less the search, in points: {told}; at most {AS_GOOD:g} behind counts as good",
            kind=OURS,
        )
    ]


def notes_of(found: dict[str, Any], quick: bool) -> list[str]:
    notes = [
        f"ADADP's sigma is not printed: {found['adadp']:g} is "
        + ("a choice of ours" if quick else f"where its accuracy is the printed {PRINTED:g} %")
        + (" (PROVISIONAL: not found yet)" if found["provisional"] else "")
        + ". ADADP is that of the published code, from which the printed numbers are. Its run costs "
        f"epsilon {found['epsilon']['moments']:.3f} by moments, which Liu & Talwar's searches were given, and "
        f"{found['epsilon']['pld']:.3f} by the tight accountant, which today's selections were given; delta {DELTA:g}.",
        "Searches are drawn from "
        + (
            UNKNOWN
            if quick
            else f"{REPEATS} trainings of each candidate at each noise; the standard error is that of the trainings"
        )
        + ". papernot-steinke and envelope run so many candidates that a given one is among them with probability "
        f"{COVERAGE:g}.",
        "The score of a run is its accuracy on the test set with Laplace noise of what the run may spend, as in the paper; the "
        "choice among scores is not charged beyond that.",
    ]
    if quick:
        notes.append(
            "Quick version: 10000 records, a few epochs, narrow layers, images as they are, four candidates, three gammas, "
            "and a sigma that was not sought."
        )
    return notes
