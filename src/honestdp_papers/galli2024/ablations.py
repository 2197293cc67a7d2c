"""Ablations of Online on MNIST, the clamp of FixedQuantile on the autoencoder, and the autoencoder's second try."""

from __future__ import annotations

from honestdp_papers.claims import OURS, Claim, Outcome, Table, judged
from honestdp_papers.galli2024.figures import LEVEL, constant_error
from honestdp_papers.galli2024.measures import BEST, LAST, Scores, decided, lead, scores_of, told, unit
from honestdp_papers.galli2024.setting import FASHION, METHODS, MNIST, ONLINE, QUANTILE, UNSTRIDED, WOSM, sized, tasks
from honestdp_papers.galli2024.variants import (
    ADAM_OSO,
    AUTO_OSO,
    AUTO_WOSM,
    PRINTED,
    clamped_scores,
    parts_ablations,
    parts_ours,
    variant_scores,
    width,
)
from honestdp_papers.measured import counted
from honestdp_papers.registry import Finished

__all__ = ["ablations", "ours", "parts_ablations", "parts_ours"]
QUICKLY = "Quick version: small networks, few records and steps, 3 step sizes, one seed, so that no error is known."


def ablations(parts: Finished, quick: bool) -> Outcome:
    found = variant_scores(parts, "ablations", MNIST, quick)
    claims, rows = [], list[list[str | float]]()
    names = [name for name in dict.fromkeys(name for name, _ in found) if name != PRINTED]
    for name in names:
        claims.append(_needed(found, name, quick))
    for (name, epsilon), own in found.items():
        tops = [own.top(reading) for reading in (BEST, LAST)]
        rows.append([f"{epsilon:g}", name, *(f"{top.value:.1f} ± {top.error:.1f}" for top in tops), str(own.seeds)])
    tables = [Table("MNIST: accuracy at the best step size, %", ["epsilon", "Online", BEST, LAST, "seeds"], rows)]
    claims += _clamped(parts, quick)
    second = _second_try(parts, quick)
    tables += [second] if second.rows else []
    notes = [
        "Each variant has every step size of k = 7 at the noise of Online's grid, so that it would cost what Online costs.",
        *([QUICKLY] if quick else []),
    ]
    numbers = {f"{name}, epsilon {epsilon:g}": own.top(BEST).value for (name, epsilon), own in found.items()}
    return Outcome(claims, {"accuracies": numbers}, tables, notes)


def _needed(found: dict[tuple[str, float], Scores], name: str, quick: bool) -> Claim:
    """Whether Online as printed is at least as good as a variant of it."""
    epsilons = [epsilon for own, epsilon in found if own == name]
    gaps = {epsilon: lead(found[PRINTED, epsilon], found[name, epsilon], BEST) for epsilon in epsilons}
    seeds = min(found[name, epsilon].seeds for epsilon in epsilons)
    cases = [decided(gap.above(-LEVEL[False]), seeds, quick) for gap in gaps.values()]
    return judged(
        f"Online as printed is as good as with another choice: {name} (MNIST)",
        cases,
        f"at most {LEVEL[False]:g} points behind in {counted(cases)}; printed less changed: "
        + ", ".join(f"{gap} (epsilon {epsilon:g})" for epsilon, gap in gaps.items()),
        kind=OURS,
    )


def _clamped(parts: Finished, quick: bool) -> list[Claim]:
    """Whether the swings that the paper blames are gone where the released fraction is held to [0, 1]."""
    epsilon = FASHION.epsilons[0]
    held, free = clamped_scores(parts, quick), scores_of(parts, FASHION, QUANTILE, width(quick), epsilon, quick)
    if held is None or free is None:
        return []
    constant = constant_error(sized(FASHION, quick))
    counts = [int((scores.read(BEST).mean(axis=0) < constant).sum()) for scores in (held, free)]
    return [
        judged(
            f"With the released fraction held to [0, 1] more of FixedQuantile's trainings converge at epsilon {epsilon:g} "
            "(Fashion-MNIST)",
            [decided(counts[0] > counts[1], min(held.seeds, free.seeds), quick)],
            f"below the error of a constant image, {constant:.4f}: {counts[0]} of {len(held.values)} candidates held and "
            f"{counts[1]} free; the best error is {told(held.top(BEST).value, FASHION)} held and "
            f"{told(free.top(BEST).value, FASHION)} free",
            kind=OURS,
        )
    ]


def _second_try(parts: Finished, quick: bool) -> Table:
    """The autoencoder of stride 1, where it was trained, beside the first."""
    rows: list[list[str | float]] = []
    for epsilon in FASHION.epsilons:
        for method in METHODS:
            for task in (FASHION, UNSTRIDED):
                scores = scores_of(parts, task, method, width(quick), epsilon, quick)
                if scores is not None and scores_of(parts, UNSTRIDED, method, width(quick), epsilon, quick) is not None:
                    tops = [told(scores.top(reading).value, task) for reading in (BEST, LAST)]
                    rows.append([f"{epsilon:g}", method, task.title, *tops, str(scores.seeds)])
    return Table("The autoencoder's strides: error", ["epsilon", "method", "network", BEST, LAST, "seeds"], rows)


def ours(parts: Finished, quick: bool) -> Outcome:
    """Our rules beside the paper's and AdamWOSM, at the same budgets of whole searches."""
    claims, rows, numbers = [], list[list[str | float]](), dict[str, float]()
    for task in tasks():
        found = variant_scores(parts, "ours", task, quick)
        for name in (ONLINE, WOSM):
            for epsilon in sized(task, quick).epsilons:
                grid = scores_of(parts, task, name, width(quick), epsilon, quick)
                if grid is not None:
                    found[name, epsilon] = grid
        for (name, epsilon), own in sorted(found.items(), key=lambda one: (one[0][1], one[0][0])):
            tops = [own.top(reading) for reading in (BEST, LAST)]
            digits = 4 if task.error else 1
            cells = [f"{told(top.value, task)} ± {top.error:.{digits}f}" for top in tops]
            rows.append([task.title, f"{epsilon:g}", name, str(len(own.values)), *cells, str(own.seeds)])
            numbers[f"{task.title}, {name}, epsilon {epsilon:g}"] = tops[1].value
        for name in (ADAM_OSO, AUTO_WOSM, AUTO_OSO):
            claims += [_better(found, task.title, name, other, unit(task), quick) for other in (ONLINE, WOSM)]
    claims = [claim for claim in claims if claim is not None]
    header = ["task", "epsilon of the search", "rule", "candidates", BEST, LAST, "seeds"]
    notes = [
        "AdamOSO (OSO's clip, AdamWOSM's step) and AdamWOSM with automatic clipping have nothing left to search: one run has the "
        "whole budget. OSO with automatic clipping asks no second question and is searched over k = 7 step sizes, as Online is.",
        "Verdicts are by the last iterate, which is what a budget covers.",
        *([QUICKLY] if quick else []),
    ]
    table = Table("At the same budgets, by moments", header, rows)
    return Outcome([claim for claim in claims if claim], {"last iterate": numbers}, [table], notes)


def _better(
    found: dict[tuple[str, float], Scores], title: str, name: str, other: str, words: str, quick: bool
) -> Claim | None:
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
