"""Figures 1, 3 and 4: ADADP on networks, against DP-Adam at its best step sizes and against DP-SGD tuned at another
noise.

Figure 1. DP-Adam at the best and the second best of half-decade step sizes, chosen for each noise by the test accuracy
in the end: what only somebody who looks at the test set for free can have. Figures 3 and 4. DP-SGD with the constant
step size that is best at sigma 2, run at the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from honestdp import optimizers
from honestdp_papers.claims import (
    OURS,
    SENTENCE,
    UNKNOWN,
    Claim,
    Measured,
    Outcome,
    Table,
    accuracy,
    counted,
    jackknifed,
    judged,
)
from honestdp_papers.koskela2020.training import (
    ADADP,
    ADADP_REPEATS,
    ADAM,
    CIFAR,
    DELTA,
    FIRST,
    MNIST,
    NOISES,
    PUBLISHED,
    QUICK_EPOCHS,
    QUICK_RECORDS,
    QUICK_SIZES,
    REPEATS,
    SGD,
    TAU,
    TUNED_AT,
    Grid,
    Task,
    epochs_of,
    grid_part,
    optimizer_part,
    part_name,
    rules_of,
    sized,
    switch_of,
)
from honestdp_papers.look import COLOURS, Line, draw_curves
from honestdp_papers.parts import Array, Finished, Part

QUICK_NOISES = (2.0, 8.0)
STARTS = (1e-3, 1e-2, 1e-1, 1.0)
COMPETITIVE = 1.0
"""Points of accuracy by which a competitive method may be behind; the paper gives no number."""
ALIKE = 0.1
"""By which step sizes found from different starts may differ, as a part of them."""
TASK = {"mnist": MNIST, "cifar10": CIFAR}
NOISELESS, PRINTED_NOISELESS, NEAR = "noiseless", 96.0, 1.0


def noises(quick: bool) -> tuple[float, ...]:
    return QUICK_NOISES if quick else NOISES


def parts1(quick: bool, task: str) -> list[Part]:
    """With ADADP from several first step sizes, and on MNIST without noise."""
    own = TASK[task]
    noiseless = [_noiseless_part(quick)] if own is MNIST else []
    return [*_parts(own, (ADADP, ADAM), quick), _starts_part(own, quick), *noiseless]


def parts3(quick: bool, task: str) -> list[Part]:
    return _parts(TASK[task], (ADADP, SGD), quick)


def _parts(task: Task, names: Sequence[str], quick: bool) -> list[Part]:
    needed = [optimizer_part(task, name, noise, quick) for noise in noises(quick) for name in names]
    return needed + [optimizer_part(task, PUBLISHED, noise, quick, optional=True) for noise in noises(quick)]


def _starts_part(task: Task, quick: bool) -> Part:
    """ADADP from several first step sizes."""
    own = sized(task, quick)
    switch = switch_of(quick) * own.epoch
    rules = [optimizers.ADADP(clip=task.clip, lr=lr, tau=TAU, switch=switch) for lr in STARTS]
    grid = Grid(own, rules, TUNED_AT, 1 if quick else REPEATS, epochs_of(quick), quick)
    return grid_part(part_name(task, "starts", TUNED_AT), grid)


def _noiseless_part(quick: bool) -> Part:
    rules = [*rules_of(ADADP, MNIST, quick), *rules_of(ADAM, MNIST, quick)]
    grid = Grid(sized(MNIST, quick), rules, 0.0, 1 if quick else REPEATS, epochs_of(quick), quick)
    return grid_part(part_name(MNIST, NOISELESS, 0.0), grid)


@dataclass(frozen=True)
class Compared:
    """One task at one noise. lines: accuracies `[repeats, looks]` by a line's name."""

    noise: float
    lines: dict[str, Array]

    def gap(self, first: str, second: str) -> Measured:
        """One line less another at the last look."""
        return jackknifed([self.lines[first], self.lines[second]], lambda means: float(means[0][-1] - means[1][-1]))


def beside_adam(parts: Finished, quick: bool, task: str) -> Outcome:
    own = TASK[task]
    compared = [_with_adam(parts, own, noise, quick) for noise in _trained(parts, own, ADAM, quick)]
    best = f"ADADP is competitive with DP-Adam at its best step size on {own.title}"
    claims = _by_both(compared, best, "best", COMPETITIVE)
    if own is MNIST:
        second = "ADADP is better than DP-Adam at its second best step size on MNIST"
        claims += [*_by_both(compared, second, "second best", 0), *_noiseless(parts)]
    claims += [*_insensitive(parts, own, quick), *_published(compared, f"{own.title}: ")]
    return _outcome(own, compared, claims, quick, f"{own.title}: ADADP and DP-Adam at its best step sizes")


def _by_both(
    compared: Sequence[Compared], claim: str, other: str, behind: float, *, kind: str = SENTENCE
) -> list[Claim]:
    """A claim about ADADP as the text has it, and as the published code computes it where that was trained.

    other: the line that it is compared with. behind: points by which it may be below that.
    """
    found = []
    for name, words in ((ADADP, ""), (PUBLISHED, ", by the published code")):
        there = [one for one in compared if name in one.lines]
        gaps = [one.gap(name, _line(one, other)) for one in there]
        cases = [gap.above(-behind) for gap in gaps]
        counts = f"at most {behind:g} points behind" if behind else "above"
        told = f"{counts} in {counted(cases)} noises; {name} less the other in the end: {_by_noise(there, gaps)}"
        found += [judged(claim + words, cases, told, kind=kind)] if there else []
    return found


def _line(one: Compared, place: str) -> str:
    return next(name for name in one.lines if name.endswith(f", {place}"))


def _ranked(kept: Array) -> list[int]:
    """Candidates by their mean accuracy at the last look, the best first."""
    return [int(i) for i in np.argsort(-kept.mean(axis=0)[:, -1])]


def _with_adam(parts: Finished, task: Task, noise: float, quick: bool) -> Compared:
    kept = accuracy(parts, part_name(task, ADAM, noise))
    order, sizes = _ranked(kept), [rule.lr for rule in rules_of(ADAM, task, quick)]  # type: ignore[attr-defined]
    lines = _own(parts, task, noise)
    for place, at in zip(("best", "second best"), order, strict=False):
        lines[f"{ADAM} {sizes[at]:.2g}, {place}"] = kept[:, at]
    return Compared(noise, lines)


def _own(parts: Finished, task: Task, noise: float) -> dict[str, Array]:
    names = [name for name in (ADADP, PUBLISHED) if part_name(task, name, noise) in parts]
    return {name: accuracy(parts, part_name(task, name, noise))[:, 0] for name in names}


def _by_noise(compared: Sequence[Compared], gaps: Sequence[Measured]) -> str:
    return ", ".join(f"{gap} (sigma {one.noise:g})" for one, gap in zip(compared, gaps, strict=True))


def _trained(parts: Finished, task: Task, other: str, quick: bool) -> list[float]:
    """The noises at which ADADP and the other optimizer were trained: all of them, but where kept parts alone are used."""
    return [noise for noise in noises(quick) if all(part_name(task, name, noise) in parts for name in (ADADP, other))]


def _noiseless(parts: Finished) -> list[Claim]:
    """The text does not say which optimizer: the best of DP-Adam's step sizes, and ADADP beside it."""
    if part_name(MNIST, NOISELESS, 0.0) not in parts:
        return []
    kept = accuracy(parts, part_name(MNIST, NOISELESS, 0.0))[:, :, -1]
    found = jackknifed([kept[:, 1:]], lambda means: float(means[0].max()))
    near = Measured(found.value - PRINTED_NOISELESS, found.error).within(NEAR)
    return [
        judged(
            "Without noise the network reaches around 96 % on MNIST",
            [near],
            f"{found.value:.1f} ± {found.error:.1f} at the best step size of DP-Adam (agreeing within {NEAR:g} of "
            f"{PRINTED_NOISELESS:g}); {kept[:, 0].mean():.1f} by ADADP, whose error has no noise to hold it back",
            kind="numbers",
        )
    ]


def _insensitive(parts: Finished, task: Task, quick: bool) -> list[Claim]:
    """The step size found from several starts after an epoch, and where that leads."""
    kept = parts.get(part_name(task, "starts", TUNED_AT))
    if kept is None:
        return []
    eta = kept["eta"][:, :, 0].mean(axis=0)
    last = accuracy(parts, part_name(task, "starts", TUNED_AT))[:, :, -1]
    apart = float(eta.max() / eta.min() - 1)
    ends = [jackknifed([last], lambda means, i=i: float(means[0][i] - means[0].mean())) for i in range(len(STARTS))]  # type: ignore[misc]
    cases = [end.within(COMPETITIVE) for end in ends]
    return [
        judged(
            f"ADADP finds its step size within the first epoch, whatever eta0 is ({task.title})",
            [apart <= ALIKE],
            f"after an epoch from eta0 {', '.join(f'{start:g}' for start in STARTS)}: "
            f"{', '.join(f'{size:.3g}' for size in eta)}; {apart:.0%} apart (agreeing up to {ALIKE:.0%})",
        ),
        judged(
            f"The results are insensitive to eta0 ({task.title})",
            cases,
            f"within {COMPETITIVE:g} points of their mean in {counted(cases)} starts: "
            + ", ".join(f"{end} (eta0 {start:g})" for end, start in zip(ends, STARTS, strict=True)),
        ),
    ]


def _published(compared: Sequence[Compared], what: str) -> list[Claim]:
    there = [one for one in compared if PUBLISHED in one.lines]
    if not there:
        return []
    gaps = [one.gap(PUBLISHED, ADADP) for one in there]
    cases = [gap.within(COMPETITIVE) for gap in gaps]
    return [
        judged(
            f"{what}ADADP as the published code computes it ends where the text's does",
            cases,
            f"within {COMPETITIVE:g} points in {counted(cases)} noises; published less text: {_by_noise(there, gaps)}",
            kind=OURS,
        )
    ]


def against_sgd(parts: Finished, quick: bool, task: str) -> Outcome:
    own_task = TASK[task]
    sizes = [rule.lr for rule in rules_of(SGD, own_task, quick)]  # type: ignore[attr-defined]
    tuned = _ranked(accuracy(parts, part_name(own_task, SGD, TUNED_AT)))[0]
    compared = []
    for noise in _trained(parts, own_task, SGD, quick):
        kept = accuracy(parts, part_name(own_task, SGD, noise))
        lines = _own(parts, own_task, noise)
        lines[f"{SGD} {sizes[tuned]:.2g}, tuned at sigma {TUNED_AT:g}"] = kept[:, tuned]
        own = _ranked(kept)[0]
        lines[f"{SGD} {sizes[own]:.2g}, tuned at this sigma"] = kept[:, own]
        compared.append(Compared(noise, lines))
    others = [one for one in compared if one.noise != TUNED_AT]
    better = f"ADADP is better than DP-SGD with the step size that is best at sigma 2, at the larger noises ({own_task.title})"
    level = f"ADADP is competitive with DP-SGD whose step size is tuned at each noise ({own_task.title})"
    claims = [
        *_by_both(others, better, f"tuned at sigma {TUNED_AT:g}", 0),
        *_by_both(compared, level, "tuned at this sigma", COMPETITIVE, kind=OURS),
    ]
    return _outcome(
        own_task, compared, claims, quick, f"{own_task.title}: ADADP and DP-SGD tuned at sigma {TUNED_AT:g}"
    )


def spent(task: Task, noise: float, quick: bool) -> float:
    """Epsilon after all epochs, by the moments accountant."""
    from honestdp.accounting import epsilon  # here: a bare GPU machine, which asks for parts alone, has no accountants

    made = sized(task, quick).run(noise=noise, epochs=epochs_of(quick))
    return epsilon(made.event, delta=DELTA, accountant="moments")


def notes_of(task: Task, quick: bool) -> list[str]:
    trained = (
        UNKNOWN
        if quick
        else f"{ADADP_REPEATS} trainings of ADADP and {REPEATS} of every other candidate. ± is one standard error"
    )
    notes = [
        f"Test accuracies, evaluated on public data and covered by no budget: {trained}. Best and second "
        "best are chosen by the same test accuracies, as in the paper, which favours them.",
        f"ADADP: eta0 {FIRST:g}, tau {TAU:g}; after half of the epochs the step size that it found decays. From there on a "
        "release moves the weights by the whole step size, where before it moved them by half of it: accuracy falls there. ADADP "
        "of the published code adapts to the end. DP-Adam and DP-SGD have constant step sizes.",
    ]
    if quick:
        notes.append(
            f"Quick version: {QUICK_RECORDS} records, {QUICK_EPOCHS} epochs, layers "
            f"{'-'.join(map(str, QUICK_SIZES[task.name]))}, "
            "fewer noises and step sizes" + ("; images as they are, without crops." if task is CIFAR else ".")
        )
    return notes


def _outcome(task: Task, compared: Sequence[Compared], claims: list[Claim], quick: bool, heading: str) -> Outcome:
    found = {
        f"{one.noise:g}": {name: line.mean(axis=0).tolist() for name, line in one.lines.items()} for one in compared
    }
    costs = {f"{one.noise:g}": spent(task, one.noise, quick) for one in compared}
    rows: list[list[str | float]] = [
        [f"{one.noise:g}", costs[f"{one.noise:g}"], name, *(float(line.mean(axis=0)[at]) for at in _at(line))]
        for one in compared
        for name, line in one.lines.items()
    ]
    quarters = ["a quarter", "half", "three quarters", "the end"]
    table = Table("Test accuracy, per cent, after parts of the training", ["sigma", "epsilon", "line", *quarters], rows)
    return Outcome(
        claims,
        {"accuracies": found, "epsilon": costs},
        [table],
        notes_of(task, quick),
        lambda file: _draw(file, compared, costs, heading),
    )


def _at(line: Array) -> list[int]:
    looks = line.shape[1]
    return [max(0, looks * part // 4 - 1) for part in (1, 2, 3, 4)]


STYLES = {"best": "-", "second best": "--", f"tuned at sigma {TUNED_AT:g}": "-", "tuned at this sigma": "--"}


def _draw(file: Path, compared: Sequence[Compared], costs: dict[str, float], heading: str) -> None:
    found: dict[str, tuple[Sequence[float], list[Line]]] = {}
    for one in compared:
        sizes = ", ".join(name.split(",")[0] for name in one.lines if "," in name)
        title = f"sigma {one.noise:g}, epsilon {costs[f'{one.noise:g}']:.2f}: {sizes}"
        looks = next(iter(one.lines.values())).shape[1]
        found[title] = range(1, looks + 1), [_drawn(name, values) for name, values in one.lines.items()]
    heading = f"{heading} (bands: least and largest)"
    draw_curves(file, found, heading, axis="epochs", shown=25.0, columns=2)


def _drawn(name: str, values: Array) -> Line:
    label, colour, style = _shown(name)
    return Line(label, values.mean(axis=0), colour, style, (values.min(axis=0), values.max(axis=0)))


def _shown(name: str) -> tuple[str, str, str]:
    """Label without the step size, which is another in each panel; colour and style."""
    first, _, place = name.partition(", ")
    kind = first.split()[0]
    return (f"{kind}, {place}" if place else kind), COLOURS[kind], STYLES.get(place, "-")
