"""Trainings of variants of the paper's method: OSO's update by sign and in proportion, its parts left out, and rules of ours.

A part trains all variants of one kind on one task with some seeds, each at every step size of k = 7 that it needs and at some
of the epsilons. A variant has the noise of a grid of as many candidates as it has itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from honestdp import optimizers
from honestdp.optimizers.rule import Rule
from honestdp_papers.galli2024.comparing import Scores, gathered, scores_of
from honestdp_papers.galli2024.known import QUICK_K, noise_of
from honestdp_papers.galli2024.setting import (
    FASHION,
    MNIST,
    ONLINE,
    PACE,
    PRINTED_K,
    QUANTILE,
    STANDARDISED,
    THRESHOLD,
    UNSTRIDED,
    WOSM,
    Task,
    candidates,
    quantiles,
    sized,
    step_sizes,
    tasks,
)
from honestdp_papers.galli2024.training import Grid, block_name, grid_part, method_parts, seed_blocks
from honestdp_papers.parts import Finished, Part

PACES = (2.5e-4, 2.5e-3, 2.5e-2, 2.5e-1)
"""rho_c: the paper's is the second."""
OSO = optimizers.OSO


def paces(quick: bool) -> tuple[float, ...]:
    return PACES[1::2] if quick else PACES


def width(quick: bool) -> int:
    return QUICK_K if quick else PRINTED_K


@dataclass(frozen=True)
class Variant:
    """A form of a rule and its candidates."""

    name: str
    rules: tuple[Rule, ...]


def _by_step_size(name: str, quick: bool, **numbers: float | bool) -> Variant:
    make = partial(OSO, **numbers)  # type: ignore[arg-type]
    return Variant(name, tuple(make(lr=lr) for lr in step_sizes(width(quick))))


def sign(pace: float) -> str:
    return f"sign, rho_c {pace:g}"


def proportional(pace: float) -> str:
    return f"proportional, rho_c {pace:g}"


def updates(quick: bool) -> list[Variant]:
    """The clip by sign and in proportion, eq. (19), at several rho_c; the step size is held, so that the clip alone differs."""
    return [
        _by_step_size(name(pace), quick, rho_c=pace, rho_r=0.0, proportional=name is proportional)
        for name in (sign, proportional)
        for pace in paces(quick)
    ]


PRINTED, FIXED, MOMENTUM = "as printed", "step size held", "momentum 0.9"
LESS, MORE, HIGH = "nu_q 2 sigma", "nu_q 20 sigma", "C_0 = 1"


def ablations(quick: bool) -> list[Variant]:
    """But Online as printed, which is in figure 3, and its step size held, which is in `updates`: see `ablated`."""
    every = [
        _by_step_size(MOMENTUM, quick, momentum=0.9),
        _by_step_size(LESS, quick, nu_q=2.0),
        _by_step_size(MORE, quick, nu_q=20.0),
        _by_step_size(HIGH, quick, clip=1.0),
    ]
    return every[:2] if quick else every


ADAM_OSO, HELD_OSO, AUTO_WOSM, AUTO_OSO = "AdamOSO", "AdamOSO with rho_r = 0", "AdamWOSM, automatic", "OSO, automatic"


def ours(quick: bool) -> list[Variant]:
    """OSO's clip with AdamWOSM's step, and automatic clipping: three of them have nothing left to search."""
    return [
        Variant(ADAM_OSO, (optimizers.AdamOSO(),)),
        Variant(HELD_OSO, (optimizers.AdamOSO(rho_r=0.0),)),
        Variant(AUTO_WOSM, (optimizers.AdamWOSM(clip="auto"),)),
        _by_step_size(AUTO_OSO, quick, automatic=True),
    ]


HEAVY = "FixedThreshold, momentum 0.9"


def heavy(quick: bool) -> list[Variant]:
    """FixedThreshold with a momentum of 0.9: are the printed step sizes those of such trainings?"""
    grid = candidates(THRESHOLD, width(quick), quick)
    return [Variant(HEAVY, tuple(optimizers.Momentum(lr=lr, momentum=0.9, clip=clip) for lr, clip in grid))]


KINDS = {"updates": updates, "ablations": ablations, "heavy": heavy, "ours": ours}


def epsilons_of(kind: str, task: Task) -> tuple[float, ...]:
    """All of the task's for our rules; the first and the last for the others."""
    return task.epsilons if kind == "ours" else (task.epsilons[0], task.epsilons[-1])


def variant_part(kind: str, task: Task, seeds: Sequence[int], quick: bool) -> Part:
    """Runs in the order of variants, epsilons, candidates."""
    own, rules, noises = sized(task, quick), list[Rule](), list[float]()
    for variant in KINDS[kind](quick):
        for epsilon in epsilons_of(kind, own):
            rules += variant.rules
            noises += [noise_of(own, epsilon, len(variant.rules), quick)] * len(variant.rules)
    return grid_part(_name(kind, task, seeds), Grid(own, rules, noises, seeds))


def blocks_of(kind: str, task: Task, quick: bool) -> list[tuple[int, ...]]:
    """Seeds that are trained in one part."""
    own = sized(task, quick)
    runs = sum(len(variant.rules) for variant in KINDS[kind](quick)) * len(epsilons_of(kind, own))
    return seed_blocks(own, runs, quick)


def _name(kind: str, task: Task, seeds: Sequence[int]) -> str:
    return f"{kind}/{task.name}/{block_name(seeds)}"


def variant_scores(parts: Finished, kind: str, task: Task, quick: bool) -> dict[tuple[str, float], Scores]:
    """(variant, epsilon) -> its trainings, of all seeds that are there."""
    own, found, first = sized(task, quick), {}, 0
    names = [_name(kind, task, seeds) for seeds in blocks_of(kind, task, quick)]
    for variant in KINDS[kind](quick):
        for epsilon in epsilons_of(kind, own):
            scores = gathered(parts, names, first, len(variant.rules), task)
            first += len(variant.rules)
            if scores is not None:
                found[variant.name, epsilon] = scores
    return found


def ablated(parts: Finished, quick: bool) -> dict[tuple[str, float], Scores]:
    """Online on MNIST as printed, with its step size held, and in the forms of `ablations`, of all seeds that are there."""
    found, held = dict[tuple[str, float], Scores](), variant_scores(parts, "updates", MNIST, quick)
    for epsilon in epsilons_of("ablations", sized(MNIST, quick)):
        printed = scores_of(parts, MNIST, ONLINE, width(quick), epsilon, quick)
        if printed is not None:
            found[PRINTED, epsilon] = printed
        if (sign(PACE), epsilon) in held:
            found[FIXED, epsilon] = held[sign(PACE), epsilon]
    return found | variant_scores(parts, "ablations", MNIST, quick)


def kind_parts(kind: str, some: Sequence[Task], quick: bool) -> list[Part]:
    return [variant_part(kind, task, seeds, quick) for task in some for seeds in blocks_of(kind, task, quick)]


def momentous(parts: Finished, quick: bool) -> dict[str, dict[float, Scores]]:
    """Method -> epsilon -> its grid with a momentum of 0.9 on MNIST, with the candidates' own numbers."""
    both = {ONLINE: ("ablations", MOMENTUM), THRESHOLD: ("heavy", HEAVY)}
    return {
        method: {
            epsilon: replace(scores, values=candidates(method, width(quick), quick))
            for (name, epsilon), scores in variant_scores(parts, kind, MNIST, quick).items()
            if name == own
        }
        for method, (kind, own) in both.items()
    }


def parts_updates(quick: bool) -> list[Part]:
    return kind_parts("updates", (MNIST,), quick)


def parts_ablations(quick: bool) -> list[Part]:
    """With Online's and AdamWOSM's grids of figure 3 and the updates, whose trainings are compared here too."""
    found = [*kind_parts("ablations", (MNIST,), quick), *clamped_parts(quick), *parts_updates(quick)]
    found += [part for name in (ONLINE, WOSM) for part in method_parts(MNIST, name, width(quick), quick)]
    if not quick:
        found += [*kind_parts("heavy", (MNIST,), quick)[:1], *method_parts(STANDARDISED, ONLINE, PRINTED_K, quick)]
        found += method_parts(FASHION, ONLINE, PRINTED_K, quick)  # beside its second try
        second = [part for name in (ONLINE, QUANTILE) for part in method_parts(UNSTRIDED, name, PRINTED_K, quick)]
        found += [Part(**{**vars(part), "optional": True}) for part in second if "/seed0/" in part.name]
    return found


def parts_ours(quick: bool) -> list[Part]:
    """With Online and AdamWOSM at k = 7, which they are compared with."""
    return [*kind_parts("ours", tasks(), quick), *beside(quick)]


def beside(quick: bool) -> list[Part]:
    """The grids that ours are compared with."""
    return [
        part for task in tasks() for name in (ONLINE, WOSM) for part in method_parts(task, name, width(quick), quick)
    ]


def clamped_parts(quick: bool) -> list[Part]:
    """FixedQuantile at the least epsilon of the autoencoder with the released fraction held to [0, 1], and as in figure 4."""
    own = sized(FASHION, quick)
    values = candidates(QUANTILE, width(quick), quick)
    rules = [optimizers.Quantile(lr=lr, quantile=quantile) for lr, quantile in values]
    noises = [noise_of(own, own.epsilons[0], len(rules), quick)] * len(rules)
    held = [
        grid_part(_name("clamped", FASHION, seeds), Grid(own, rules, noises, seeds))
        for seeds in seed_blocks(own, len(rules), quick)
    ]
    return [*held, *method_parts(FASHION, QUANTILE, width(quick), quick)]


def clamped_scores(parts: Finished, quick: bool) -> Scores | None:
    count = width(quick) * len(quantiles(quick))
    names = [_name("clamped", FASHION, seeds) for seeds in seed_blocks(FASHION, count, quick)]
    return gathered(parts, names, 0, count, FASHION)
