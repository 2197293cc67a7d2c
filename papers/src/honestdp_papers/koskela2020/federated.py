"""Figures 2 to 4 of the supplement: federated averaging by ADADP, SGD and Adam, on clients whose data are alike or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from honestdp_papers.claims import OURS, Claim, Measured, Outcome, Table, counted, jackknifed, judged
from honestdp_papers.koskela2020.federation import (
    APART,
    TAU,
    THIRD,
    levels,
    part_name,
    repeats,
    step_sizes,
    world,
)
from honestdp_papers.look import COLOURS, logarithmic, named, panels
from honestdp_papers.parts import Array, Finished


def accuracy(parts: Finished, method: str, level: int, quick: bool) -> Array:
    """In per cent, `[repeats, step sizes, looks]`."""
    kept = parts[part_name(level, method)]
    found: Array = 100 * kept[f"right_{method}"].astype(float) / float(kept["tests"])
    return found


def levels_in(parts: Finished, quick: bool) -> tuple[int, ...]:
    """The shares of random images that were trained; one of them a figure can do without."""
    return tuple(level for level in levels(quick) if part_name(level, "ADADP") in parts)


def final(parts: Finished, method: str, level: int, quick: bool) -> Array:
    """After the last round, `[repeats, step sizes]`."""
    last: Array = accuracy(parts, method, level, quick)[:, :, -1]
    return last


def rounds_of(parts: Finished, level: int) -> Array:
    """The rounds after which was looked."""
    kept = parts[part_name(level, "ADADP")]
    seen: Array = (np.arange(kept["right_ADADP"].shape[-1]) + 1) * int(kept["every"])
    return seen


def step_sizes_found(parts: Finished, level: int) -> Array:
    """Of ADADP from its usual first step size, `[repeats, clients, looks]`."""
    found: Array = parts[part_name(level, "ADADP")]["eta"][:, -1]
    return found


def tuned(means: Array) -> float:
    """Of SGD: that of its best step size, which is picked on the test images."""
    return float(means.max())


def usual(means: Array) -> float:
    """Of ADADP: that of its usual first step size."""
    return float(means[-1])


def lead(parts: Finished, level: int, quick: bool) -> Measured:
    """By how many points ADADP ends above SGD tuned for this level."""
    found = [final(parts, method, level, quick) for method in ("ADADP", "SGD")]
    return jackknifed(found, lambda means: usual(means[0]) - tuned(means[1]))


def loss_of(parts: Finished, method: str, level: int, quick: bool) -> Measured:
    """By how many points a method ends lower at a level than where all images are dealt out at random."""
    of = usual if method == "ADADP" else tuned
    found = [final(parts, method, at, quick) for at in (100, level)]
    return jackknifed(found, lambda means: of(means[0]) - of(means[1]))


def kept_better(parts: Finished, level: int, quick: bool) -> Measured:
    """By how many points less ADADP loses than tuned SGD."""
    found = [final(parts, method, at, quick) for method in ("SGD", "ADADP") for at in (100, level)]
    return jackknifed(found, lambda m: (tuned(m[0]) - tuned(m[1])) - (usual(m[2]) - usual(m[3])))


DRASTIC = 10.0
"""Points of accuracy that a method loses drastically by: the paper gives no number."""
POOR = 5.0
"""Points below the adaptive method from which on another one is poor here."""
ALIKE = 3.0
"""Points between the first step sizes of ADADP within which it does not depend on them."""
RUNS_AWAY = 10.0
"""How many times its least a step size ends at, where it is said to have run away."""


def notes_of(quick: bool) -> list[str]:
    here = world(quick)
    notes = [
        f"{here.title}: {here.clients} clients of {here.records} images, {here.rounds} rounds of {here.steps} lots of "
        f"{here.lot}, {repeats(quick)} runs with splits, initial weights and lots of their own; ± is one standard error. Test "
        "accuracy of the averaged model.",
        "NOT PRIVATE, as in the paper: no noise, no gradient clipped. From the same lots the clients of honestdp.federated, "
        "which with noise are private, and those that Flower runs (make federated) find the same weights.",
        "A round is one epoch of a client's images, shuffled and cut into lots, for every method, so that ADADP makes half as "
        f"many iterations as SGD makes steps; tau {TAU:g} and rejection; step sizes and moments are kept from round to round. "
        "The text does not say.",
        "Tuned means the best step size of the grid on the test images, as in the paper.",
    ]
    if quick:
        notes.append(
            "Quick version: images of 8 by 8 and a network of one hidden layer, fewer rounds, shorter grids. As in full size, "
            "ADADP is below tuned SGD and loses more as the clients' data become less alike, and depends little on its first "
            "step size. Its step sizes do not run away in so few rounds. Whether a claim holds is for the full size."
        )
    return notes


def federated2a(parts: Finished, quick: bool) -> Outcome:
    """Test accuracy against the share of random images."""
    below = [level for level in levels_in(parts, quick) if level < 100]
    better = [kept_better(parts, level, quick) for level in below]
    ahead = {level: lead(parts, level, quick) for level in levels_in(parts, quick)}
    fall = loss_of(parts, "SGD", APART, quick)
    stays = loss_of(parts, "ADADP", APART, quick)
    first, second = [one.above(0) for one in better], [fall.above(DRASTIC)]
    claims = [
        judged(
            "The adaptive method keeps its accuracy better than tuned SGD as the data of the clients become less alike",
            first,
            "points that it loses less than SGD, against all images at random: "
            + ", ".join(f"{gap} ({level} %)" for level, gap in zip(below, better, strict=True)),
        ),
        judged(
            "The accuracy of even an optimally tuned SGD falls drastically where every class is at one client",
            second,
            f"it loses {fall} points (drastically: more than {DRASTIC:g}), the adaptive method {stays}",
        ),
        judged(
            "The adaptive method ends above tuned SGD at every share of random images below 100 %",
            [ahead[level].above(0) for level in below],
            "points above: " + ", ".join(f"{gap} ({level} %)" for level, gap in ahead.items()),
            kind=OURS,
        ),
    ]
    rows: list[list[str | float]] = []
    for level in levels_in(parts, quick):
        ends = {method: final(parts, method, level, quick).mean(axis=0) for method in ("ADADP", "SGD")}
        best = step_sizes("SGD", quick)[int(ends["SGD"].argmax())]
        rows.append([f"{level}", usual(ends["ADADP"]), tuned(ends["SGD"]), f"{best:.2g}", str(ahead[level])])
    header = ["% random", "ADADP, eta0 0.1", "SGD, tuned", "its step size", "ADADP above SGD"]
    numbers = {"levels": list(levels_in(parts, quick)), "accuracy": _numbers(parts, levels_in(parts, quick), quick)}
    table = Table("Test accuracy after the last round, per cent", header, rows, digits=1)
    return Outcome(claims, numbers, [table], notes_of(quick), partial(draw_levels, parts=parts, quick=quick))


def federated2b(parts: Finished, quick: bool) -> Outcome:
    """Test accuracy against the step size."""
    spread = {
        method: {level: _spread(final(parts, method, level, quick)) for level in levels_in(parts, quick)}
        for method in ("ADADP", "SGD")
    }
    alike = [one.at_most(ALIKE) for one in spread["ADADP"].values()]
    less = [
        jackknifed(
            [final(parts, method, level, quick) for method in ("SGD", "ADADP")],
            lambda means: float(np.ptp(means[0]) - np.ptp(means[1])),
        ).above(0)
        for level in levels_in(parts, quick)
    ]
    claims = [
        judged(
            "The adaptive method does not depend on its first step size",
            alike,
            f"its first step sizes are within {ALIKE:g} points of each other at {counted(alike)} shares; apart by "
            + ", ".join(f"{gap} ({level} %)" for level, gap in spread["ADADP"].items()),
        ),
        judged(
            "SGD depends on its step size more than the adaptive method on its first one",
            less,
            "SGD's step sizes are apart by " + ", ".join(f"{gap} ({level} %)" for level, gap in spread["SGD"].items()),
        ),
    ]
    numbers = {"levels": list(levels_in(parts, quick)), "accuracy": _numbers(parts, levels_in(parts, quick), quick)}
    rows: list[list[str | float]] = [
        [
            f"{method}, {size:.2g}",
            *(float(final(parts, method, level, quick).mean(axis=0)[place]) for level in levels_in(parts, quick)),
        ]
        for method in ("ADADP", "SGD")
        for place, size in enumerate(step_sizes(method, quick))
    ]
    header = ["step size (ADADP: the first)", *(f"{level} % random" for level in levels_in(parts, quick))]
    table = Table("Test accuracy after the last round, per cent", header, rows, digits=1)
    return Outcome(claims, numbers, [table], notes_of(quick), partial(draw_sizes, parts=parts, quick=quick))


def over_rounds(parts: Finished, quick: bool, level: int) -> Outcome:
    """One share of random images: accuracy over the rounds."""
    where = "With every class at one client" if level == APART else f"With {level} % of the images at random"
    end = lead(parts, level, quick)
    found = [accuracy(parts, method, level, quick).mean(axis=2) for method in ("ADADP", "SGD")]
    whole = jackknifed(found, lambda means: usual(means[0]) - tuned(means[1]))
    claims = [
        judged(
            f"{where} the adaptive method is better than tuned SGD",
            [end.above(0)],
            f"it ends {end} points above; averaged over the rounds it is {whole} above the step size of SGD that is best so",
        ),
        _wandering(parts, level, quick, where),
    ]
    best = int(final(parts, "SGD", level, quick).mean(axis=0).argmax())
    curves = {
        "ADADP, eta0 0.1": ("ADADP", accuracy(parts, "ADADP", level, quick)[:, -1]),
        f"SGD, step size {step_sizes('SGD', quick)[best]:.2g}": ("SGD", accuracy(parts, "SGD", level, quick)[:, best]),
    }
    numbers = {
        "rounds": rounds_of(parts, level).tolist(),
        "accuracy": {name: values.mean(axis=0).round(2).tolist() for name, (_, values) in curves.items()},
    }
    return Outcome(
        claims,
        numbers,
        [_ends(curves), _found(parts, level)],
        [*notes_of(quick), *_runaway(parts, level)],
        partial(draw_rounds, curves=curves, seen=rounds_of(parts, level), title=where),
    )


def _wandering(parts: Finished, level: int, quick: bool, where: str) -> Claim:
    """The paper's motivation: clients need step sizes of their own."""
    found = np.log10(
        step_sizes_found(parts, level)
    )  # [repeats, clients, looks]; by their logarithms, since some run away
    apart = jackknifed([np.ptp(found, axis=1).mean(axis=1)], lambda means: float(means[0]))
    return judged(
        f"{where} clients find step sizes that differ by more than a factor of two",
        [apart.above(math.log10(2.0))],
        f"in a round the largest is 10^({apart.size}) times the smallest, by the geometric mean over the rounds",
        kind=OURS,
    )


def _found(parts: Finished, level: int) -> Table:
    """What ADADP's step sizes were over the rounds, of all clients and runs."""
    found, seen = step_sizes_found(parts, level), rounds_of(parts, level)
    rows: list[list[str | float]] = [
        [f"{seen[look]}", *(f"{value:.2g}" for value in np.quantile(found[:, :, look], (0, 0.5, 1)))]
        for look in sorted({0, *(len(seen) * quarter // 4 - 1 for quarter in (1, 2, 3, 4))} - {-1})
    ]
    return Table("ADADP's step sizes after a round", ["round", "smallest", "median", "largest"], rows, digits=1)


def _runaway(parts: Finished, level: int) -> list[str]:
    medians, seen = np.median(step_sizes_found(parts, level), axis=(0, 1)), rounds_of(parts, level)
    low = int(medians.argmin())
    if not medians[-1] > RUNS_AWAY * medians[low]:
        return []
    return [
        f"tau bounds the estimated error, and nothing bounds the step size: its median is {medians[low]:.2g} after round "
        f"{seen[low]} and {medians[-1]:.2g} after the last. Where a client knows its images by heart, gradients vanish and the "
        "error with them. The paper does not give tau for these experiments; 1 is that of its networks."
    ]


def federated4(parts: Finished, quick: bool) -> Outcome:
    """Adam at its step sizes, a third of the images at random."""
    gaps = {
        method: jackknifed(
            [final(parts, method, THIRD, quick), final(parts, "Adam", THIRD, quick)],
            lambda means, of=of: of(means[0]) - tuned(means[1]),  # type: ignore[misc]
        )
        for method, of in (("ADADP", usual), ("SGD", tuned))
    }
    claims = [
        judged(
            "Adam gives poor results",
            [gaps["ADADP"].above(POOR)],
            f"its best step size ends {gaps['ADADP']} points below the adaptive method (poor: more than {POOR:g}), and "
            f"{gaps['SGD']} below tuned SGD",
        )
    ]
    curves = {
        f"Adam, step size {size:.2g}": ("Adam", accuracy(parts, "Adam", THIRD, quick)[:, place])
        for place, size in enumerate(step_sizes("Adam", quick))
    }
    curves["ADADP, eta0 0.1"] = ("ADADP", accuracy(parts, "ADADP", THIRD, quick)[:, -1])
    numbers = {
        "rounds": rounds_of(parts, THIRD).tolist(),
        "accuracy": {name: values.mean(axis=0).round(2).tolist() for name, (_, values) in curves.items()},
    }
    seen, title = rounds_of(parts, THIRD), f"Adam, {THIRD} % of the images at random"
    return Outcome(
        claims, numbers, [_ends(curves)], notes_of(quick), partial(draw_rounds, curves=curves, seen=seen, title=title)
    )


def _spread(ends: Array) -> Measured:
    return jackknifed([ends], lambda means: float(np.ptp(means[0])))


def _numbers(parts: Finished, at: Sequence[int], quick: bool) -> dict[str, dict[str, list[list[float]]]]:
    """method -> level -> `[repeats][step sizes]`."""
    return {
        method: {str(level): final(parts, method, level, quick).round(2).tolist() for level in at}
        for method in ("ADADP", "SGD")
    }


def _ends(curves: Curves) -> Table:
    rows: list[list[str | float]] = [
        [name, float(values[:, -1].mean()), float(values.mean()), float(np.ptp(values[:, -1]))]
        for name, (_, values) in curves.items()
    ]
    header = ["method", "after the last round", "averaged over the rounds", "range of the runs"]
    return Table("Test accuracy, per cent", header, rows, digits=1)


COLOUR = {"ADADP": COLOURS["ADADP"], "SGD": COLOURS["DPSGD"], "Adam": COLOURS["DPAdam"]}
UNPROTECTED = "NOT PRIVATE"
"""In every title: a figure is shown without the page beside it."""
Curves = dict[str, tuple[str, Array]]
"""Label -> method and accuracies `[repeats, looks]`."""


def draw_levels(file: Path, *, parts: Finished, quick: bool) -> None:
    with panels(file, 1, 1, size=(6.5, 4)) as axes:
        for method in ("ADADP", "SGD"):
            for place, size in enumerate(step_sizes(method, quick)):
                ends = [final(parts, method, level, quick)[:, place].mean() for level in levels_in(parts, quick)]
                style = "-" if method == "ADADP" else ":"
                width = 1 + place / 2
                axes[0][0].plot(
                    levels_in(parts, quick),
                    ends,
                    style,
                    marker="o",
                    markersize=3,
                    color=COLOUR[method],
                    linewidth=width,
                    label=f"{method} {size:.2g}",
                )
        named(
            axes[0][0],
            f"{world(quick).title}: after the last round; {UNPROTECTED}",
            "% of the images dealt out at random",
            "test accuracy, %",
        )
        axes[0][0].legend(fontsize=8, frameon=False)


def draw_sizes(file: Path, *, parts: Finished, quick: bool) -> None:
    with panels(file, 1, len(levels_in(parts, quick)), size=(3 * len(levels_in(parts, quick)), 3.4)) as axes:
        for one, level in zip(axes[0], levels_in(parts, quick), strict=True):
            for method in ("ADADP", "SGD"):
                ends = final(parts, method, level, quick)
                half = ends.std(axis=0, ddof=1) / len(ends) ** 0.5
                one.errorbar(
                    step_sizes(method, quick),
                    ends.mean(axis=0),
                    half,
                    marker="o",
                    markersize=3,
                    color=COLOUR[method],
                    label=method,
                )
            logarithmic(one.xaxis)
            named(one, f"{level} % random; {UNPROTECTED}", "step size (ADADP: the first)", "test accuracy, %")
        axes[0][0].legend(fontsize=8, frameon=False)


def draw_rounds(file: Path, *, curves: Curves, seen: Array, title: str) -> None:
    with panels(file, 1, 1, size=(6.5, 4)) as axes:
        one = axes[0][0]
        several = sum(method == "Adam" for method, _ in curves.values())
        for place, (label, (method, values)) in enumerate(curves.items()):
            shade = 0.4 + 0.6 * (place + 1) / several if method == "Adam" else 1.0
            one.plot(seen, values.mean(axis=0), color=COLOUR[method], alpha=shade, linewidth=1.6, label=label)
            one.fill_between(
                seen, values.min(axis=0), values.max(axis=0), color=COLOUR[method], alpha=0.12, linewidth=0
            )
        named(one, f"{title}; band: the runs; {UNPROTECTED}", "rounds", "test accuracy, %")
        one.legend(fontsize=8, frameon=False)
