"""Ablations of Online on MNIST, the clamp of FixedQuantile on the autoencoder, and the autoencoder's second try.

The autoencoder's strides are not printed. Fashion-MNIST is judged with stride 2; the second try has stride 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from honestdp_papers.claims import OURS, Claim, Measured, Outcome, Table, counted, jackknifed, judged
from honestdp_papers.galli2024 import known
from honestdp_papers.galli2024.comparing import (
    BEST,
    LAST,
    UNTRAINED,
    Scores,
    decided,
    lead,
    scores_of,
    shown,
    told,
    unit,
)
from honestdp_papers.galli2024.figures import LEVEL, PLATEAU
from honestdp_papers.galli2024.setting import (
    FASHION,
    METHODS,
    MNIST,
    ONLINE,
    QUANTILE,
    SEEDS,
    STANDARDISED,
    UNSTRIDED,
    WOSM,
    Task,
    sized,
    tasks,
)
from honestdp_papers.galli2024.tables import as_in_figure3, printed_is_best, trials_note
from honestdp_papers.galli2024.variants import (
    ADAM_OSO,
    AUTO_OSO,
    AUTO_WOSM,
    FIXED,
    HELD_OSO,
    PRINTED,
    ablated,
    clamped_scores,
    momentous,
    variant_scores,
    width,
)
from honestdp_papers.galli2024.variants import ablations as variants_of_online
from honestdp_papers.parts import Finished

Pairs = dict[tuple[str, float], tuple[Scores, Scores]]
"""(method, epsilon) -> its trainings with stride 2 and with stride 1."""


def pairs_of(parts: Finished, quick: bool) -> Pairs:
    """Where both were trained."""
    found: Pairs = {}
    for epsilon in FASHION.epsilons:
        for method in METHODS:
            first, second = (
                scores_of(parts, task, method, width(quick), epsilon, quick) for task in (FASHION, UNSTRIDED)
            )
            if first is not None and second is not None:
                found[method, epsilon] = first, second
    return found


def second_try(pairs: Pairs) -> Table:
    """The autoencoder of stride 1 beside the first."""
    rows: list[list[str | float]] = [
        [f"{epsilon:g}", method, task.title, *(shown(own.top(way), task, own.seeds) for way in (BEST, LAST)), str(own.seeds)]
        for (method, epsilon), both in pairs.items()
        for task, own in zip((FASHION, UNSTRIDED), both, strict=True)
    ]  # fmt: skip
    return Table("The autoencoder's strides: error", ["epsilon", "method", "network", BEST, LAST, "seeds"], rows)


def second_note(pairs: Pairs) -> list[str]:
    """What the second try shows, in words."""
    if not pairs:
        return []
    tops = {key: [own.top(BEST).value for own in both] for key, both in pairs.items()}
    methods = [name for name in METHODS if any(method == name for method, _ in tops)]
    lower = counted([second < first for first, second in tops.values()])
    spans = "; ".join(
        f"{name} {_span([own[0] for (method, _), own in tops.items() if method == name], FASHION)} with stride 2 and "
        f"{_span([own[1] for (method, _), own in tops.items() if method == name], UNSTRIDED)} with stride 1"
        for name in methods
    )
    both = [epsilon for method, epsilon in tops if method == ONLINE and (QUANTILE, epsilon) in tops]
    ahead = [counted([tops[ONLINE, e][place] < tops[QUANTILE, e][place] for e in both]) for place in (0, 1)]
    order = f" Online is ahead of FixedQuantile at {ahead[0]} epsilons with stride 2 and at {ahead[1]} with stride 1."
    ends = [tops[ONLINE, e][1] for e in (FASHION.epsilons[0], FASHION.epsilons[-1]) if (ONLINE, e) in tops]
    rising = (
        f" With stride 1 too Online's error is larger at epsilon {FASHION.epsilons[-1]:g} than at {FASHION.epsilons[0]:g}."
        if len(ends) == 2 and ends[0] < ends[1]
        else ""
    )
    seeds = min(own.seeds for _, own in pairs.values())
    single = " It has one seed, so that nothing is judged by it." if seeds == 1 else ""
    return [
        f"The second try, the autoencoder with stride 1 and the same number of weights, has the smaller error in {lower} pairs: "
        f"{spans}, over the epsilons.{order if both else ''}{rising}{single} Verdicts on Fashion-MNIST are those of stride 2."
    ]


def _span(values: list[float], task: Task) -> str:
    return f"{told(min(values), task)} to {told(max(values), task)}"


QUICKLY = "Quick version: small networks, few records and steps, 3 step sizes, one seed, so that no error is known."


def ablations(parts: Finished, quick: bool) -> Outcome:
    found, rows = ablated(parts, quick), list[list[str | float]]()
    names = [FIXED, *(variant.name for variant in variants_of_online(quick))]
    claims = [_needed(found, name, quick) for name in names]
    for (name, epsilon), own in found.items():
        tops = [own.top(reading) for reading in (BEST, LAST)]
        rows.append([f"{epsilon:g}", name, *(shown(top, MNIST, own.seeds) for top in tops), str(own.seeds)])
    tables = [Table("MNIST: accuracy at the best step size, %", ["epsilon", "Online", BEST, LAST, "seeds"], rows)]
    others, said = ([], []) if quick else _other_settings(parts)
    claims += others
    claims += _clamped(parts, quick)
    pairs = pairs_of(parts, quick)
    tables += [second_try(pairs)] if pairs else []
    notes = [
        "Each variant has every step size of k = 7 at the noise of Online's grid, so that it would cost what Online costs. "
        f"Online as printed is figure 3's, and with its step size held that of `updates`; the table says how many of the {SEEDS} "
        "seeds of each are trained.",
        "What is claimed of Online with momentum and the printed step sizes was claimed after its trainings were seen; of "
        "FixedThreshold with momentum and of standardised pixels before there were any.",
        *said,
        *([QUICKLY] if quick else second_note(pairs)),
    ]
    numbers = {f"{name}, epsilon {epsilon:g}": own.top(BEST).value for (name, epsilon), own in found.items()}
    return Outcome(claims, {"accuracies": numbers}, tables, notes)


def _needed(found: dict[tuple[str, float], Scores], name: str, quick: bool) -> Claim:
    """Whether Online as printed is at least as good as a variant of it."""
    epsilons = [epsilon for own, epsilon in found if own == name and (PRINTED, epsilon) in found]
    gaps = {epsilon: lead(found[PRINTED, epsilon], found[name, epsilon], BEST) for epsilon in epsilons}
    seeds = min((found[own, epsilon].seeds for epsilon in epsilons for own in (name, PRINTED)), default=0)
    cases = [decided(gap.above(-LEVEL[False]), seeds, quick) for gap in gaps.values()]
    return judged(
        f"Online as printed is as good as with another choice: {name} (MNIST)",
        cases,
        f"at most {LEVEL[False]:g} points behind in {counted(cases)}; printed less changed: "
        + ", ".join(f"{gap} (epsilon {epsilon:g})" for epsilon, gap in gaps.items())
        if gaps
        else UNTRAINED,
        kind=OURS,
    )


def _other_settings(parts: Finished) -> tuple[list[Claim], list[str]]:
    """Whether momentum or pixels of another scale make the printed step sizes the best ones, and what that says."""
    k, heavy = width(False), momentous(parts, False)
    grids = {(task, method): _grids(parts, task, method, k) for task, method in ((STANDARDISED, ONLINE), (MNIST, WOSM))}
    tried = {"a momentum of 0.9": heavy, "standardised pixels": {ONLINE: grids[STANDARDISED, ONLINE]}}
    trials = {
        how: [(printed_is_best(f"With {how}", method, own, k), method, own) for method, own in found.items()]
        for how, found in tried.items()
    }
    claims = [claim for found in trials.values() for claim, _, _ in found]
    return [*claims, as_in_figure3(heavy[ONLINE], grids[MNIST, WOSM])], [trials_note(trials)]


def _grids(parts: Finished, task: Task, method: str, k: int) -> dict[float, Scores]:
    each = {epsilon: scores_of(parts, task, method, k, epsilon, False) for epsilon in task.epsilons}
    return {epsilon: scores for epsilon, scores in each.items() if scores is not None}


def _clamped(parts: Finished, quick: bool) -> list[Claim]:
    """Whether the swings that the paper blames are gone where the released fraction is held to [0, 1]."""
    epsilon = FASHION.epsilons[0]
    held, free = clamped_scores(parts, quick), scores_of(parts, FASHION, QUANTILE, width(quick), epsilon, quick)
    words = (
        f"With the released fraction held to [0, 1] more of FixedQuantile's trainings converge at epsilon {epsilon:g} "
        "(Fashion-MNIST)"
    )
    if held is None and free is None:
        return [judged(words, [], UNTRAINED, kind=OURS)]
    constant, each = known.constant_error(sized(FASHION, quick)), list[str]()
    for name, scores in (("held", held), ("free", free)):
        if scores is None:
            each.append(f"{name} {UNTRAINED}")
            continue
        count, top = int((scores.read(BEST).mean(axis=0) < constant).sum()), told(scores.top(BEST).value, FASHION)
        each.append(f"{name} {count} of {len(scores.values)}, the best error {top}, seeds {scores.seeds}")
    cases = list[bool | None]()
    if held is not None and free is not None:
        more = jackknifed(
            [held.read(BEST), free.read(BEST)],
            lambda means: float((means[0] < constant).sum() - (means[1] < constant).sum()),
        )
        cases = [decided(more.above(0), min(held.seeds, free.seeds), quick)]
    return [
        judged(
            words,
            cases,
            f"candidates below the error of a constant image, {constant:.4f}: {'; '.join(each)}",
            kind=OURS,
        )
    ]


def ours(parts: Finished, quick: bool) -> Outcome:
    """Our rules beside the paper's and AdamWOSM, at the same budgets of whole searches."""
    claims, rows, numbers = list[Claim | None](), list[list[str | float]](), dict[str, float]()
    against, untrained, by_task = {name: list[bool | None]() for name in RULES}, [], list[str]()
    for task in tasks():
        found = variant_scores(parts, "ours", task, quick)
        if not found:
            untrained.append(task.title)
            continue
        for name in (ONLINE, WOSM):
            for epsilon in sized(task, quick).epsilons:
                grid = scores_of(parts, task, name, width(quick), epsilon, quick)
                if grid is not None:
                    found[name, epsilon] = grid
        for (name, epsilon), own in sorted(found.items(), key=lambda one: (one[0][1], one[0][0])):
            tops = [own.top(reading) for reading in (BEST, LAST)]
            cells = [shown(top, task, own.seeds) for top in tops]
            rows.append([task.title, f"{epsilon:g}", name, str(len(own.values)), *cells, str(own.seeds)])
            numbers[f"{task.title}, {name}, epsilon {epsilon:g}"] = tops[1].value
        for name in (ADAM_OSO, AUTO_WOSM, AUTO_OSO):
            claims += [_better(found, task.title, name, other, unit(task), quick) for other in (ONLINE, WOSM)]
        for name in RULES:
            against[name] += [decided(gap.above(0), seeds, quick) for gap, seeds in _leads(found, name).values()]
        by_task += [*_ahead_by(found, task), *_stuck(found, sized(task, quick))]
    said = [decision(against, untrained), *by_task]
    header = ["task", "epsilon of the search", "rule", "candidates", BEST, LAST, "seeds"]
    notes = [
        *said,
        "AdamOSO (OSO's clip, AdamWOSM's step) and AdamWOSM with automatic clipping have nothing left to search: one run has the "
        "whole budget. OSO with automatic clipping asks no second question and is searched over k = 7 step sizes, as Online is.",
        "Verdicts are by the last iterate, which is what a budget covers.",
        *([QUICKLY] if quick else []),
    ]
    table = Table("At the same budgets, by moments", header, rows)
    told_of = {"last iterate": numbers, "conclusions": said}
    return Outcome([claim for claim in claims if claim], told_of, [table], notes)


Found = dict[tuple[str, float], Scores]
"""(rule, epsilon) -> its trainings."""
RULES = (ADAM_OSO, HELD_OSO, AUTO_WOSM, AUTO_OSO)


def _leads(found: Found, name: str) -> dict[float, tuple[Measured, int]]:
    """By epsilon: a rule's lead, by the last iterate, over the better one of Online and AdamWOSM, and the seeds that it is by."""
    cases = {}
    for epsilon in [epsilon for own, epsilon in found if own == name]:
        others = [found[other, epsilon] for other in (ONLINE, WOSM) if (other, epsilon) in found]
        if len(others) == 2:
            gaps = [lead(found[name, epsilon], other, LAST) for other in others]
            seeds = min(scores.seeds for scores in (found[name, epsilon], *others))
            cases[epsilon] = min(gaps, key=lambda gap: gap.value), seeds
    return cases


def _ahead_by(found: Found, task: Task) -> list[str]:
    """What was found on one task, in numbers."""
    leads = {name: _leads(found, name) for name in RULES}
    epsilons = [f"{epsilon:g}" for epsilon in next(iter(leads.values()))]
    if not epsilons:
        return []
    each = "; ".join(f"{name} {', '.join(str(gap) for gap, _ in own.values())}" for name, own in leads.items())
    return [
        f"{task.title}: lead over the better one of Online and AdamWOSM by the last iterate, in {unit(task)}, below 0 where "
        f"behind, at epsilon {', '.join(epsilons)}: {each}."
    ]


def _stuck(found: Found, task: Task) -> list[str]:
    """How many trainings of rules that search nothing end at the error of one grey for all pixels, and how the others end."""
    if not task.error:
        return []
    grey, each = known.grey_error(task), []
    for name in (ADAM_OSO, HELD_OSO, AUTO_WOSM):
        counts = []
        for scores in [found[name, epsilon] for epsilon in task.epsilons if (name, epsilon) in found]:
            ends = scores.read(LAST)[:, 0]
            there = ends > (1 - PLATEAU) * grey
            rest = f"the others {ends[~there].mean():.4f}" if there.any() and not there.all() else ""
            counts.append(f"{int(there.sum())} of {len(ends)}" + (f" ({rest})" if rest else ""))
        each += [f"{name} {', '.join(counts)}"] if counts else []
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in task.epsilons)
    return [
        f"{task.title}: of the rules that search nothing so many trainings stay at the error of one grey for all pixels, "
        f"{grey:.4f}, at epsilon {epsilons}: {'; '.join(each)}. A search leaves candidates aside of which a seed stays there; "
        "with a single candidate there is none to take in its place."
    ]


def decision(against: dict[str, list[bool | None]], untrained: Sequence[str] = ()) -> str:
    """Which rule of ours is never worse than the better one of Online and AdamWOSM, and better more often than not."""
    compared = {name: cases for name, cases in against.items() if cases}
    if not compared:
        return "Whether a rule of ours dominates cannot be told: too little is trained."
    counts = "; ".join(
        f"{name} is better in {cases.count(True)}, worse in {cases.count(False)} and not to be told apart in "
        f"{cases.count(None)} of {len(cases)}"
        for name, cases in compared.items()
    )
    first = [name for name, cases in compared.items() if not cases.count(False) and 2 * cases.count(True) > len(cases)]
    lacking = f" Not trained: {', '.join(untrained)}." if untrained else ""
    verdict = f"{' and '.join(first)} dominate{'s' * (len(first) == 1)}" if first else "none of our rules dominates"
    verdict = f"Of what is trained, {verdict}" if untrained else verdict[0].upper() + verdict[1:]
    return (
        f"{verdict}. To dominate is to be never worse, and in more than half of the tasks and epsilons better, than the better "
        f"one of Online and AdamWOSM at the same budget. By the last iterate {counts}.{lacking}"
    )


def _better(found: Found, title: str, name: str, other: str, words: str, quick: bool) -> Claim | None:
    both = [epsilon for own, epsilon in found if own == name and (other, epsilon) in found]
    if not both:
        return None
    gaps = {epsilon: lead(found[name, epsilon], found[other, epsilon], LAST) for epsilon in both}
    cases = [
        decided(gap.above(0), min(found[name, epsilon].seeds, found[other, epsilon].seeds), quick)
        for epsilon, gap in gaps.items()
    ]
    return judged(
        f"{name} is better than {other} at the same budget ({title})",
        cases,
        f"in {counted(cases)} epsilons: "
        + ", ".join(f"{gap} (epsilon {epsilon:g})" for epsilon, gap in gaps.items())
        + f" {words}",
        kind=OURS,
    )
