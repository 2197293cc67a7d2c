"""Figures 5, 10 and 11: DPAdam, ADADP and DPAdamWOSM at sigma 4, 2, 8.

ADADP is shown as Koskela & Honkela describe it with the tolerance that the paper's text names, and as in the published code that
the authors ran (`published_adadp`), which is another algorithm in several ways. The paper's claims of ADADP are judged by both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from honestdp_papers.claims import Claim, Measured, Outcome, Table, accuracy, counted, jackknifed, judged
from honestdp_papers.look import COLOURS, Line, draw_curves
from honestdp_papers.mohapatra2022.comparison import MAIN
from honestdp_papers.mohapatra2022.setting import PUBLISHED, Pair, beside, pair_title, pairs
from honestdp_papers.mohapatra2022.training import looks, part_name, parts_at, trained_notes
from honestdp_papers.parts import Array, Finished, Part

OPTIMIZERS = ("DPAdam", "ADADP", "DPAdamWOSM")
ALONGSIDE = 1.0
"""Points of accuracy, averaged over training, within which two lines run alongside each other."""
AS_GOOD = 0.5


def parts(quick: bool, noise: float) -> list[Part]:
    if noise == MAIN:
        return parts_at((*OPTIMIZERS, PUBLISHED), noise, quick, ours=OPTIMIZERS)
    return parts_at(OPTIMIZERS, noise, quick, extra=(PUBLISHED,))


def _best(means: Array) -> Array:
    line: Array = means.max(axis=0)
    return line


def _median(means: Array) -> Array:
    line: Array = np.median(means, axis=0)
    return line


@dataclass(frozen=True)
class Curves:
    """One dataset and model at one noise: accuracies by optimizer, `[repeats, candidates, looks]`."""

    pair: Pair
    steps: Array
    kept: dict[str, Array]

    @property
    def title(self) -> str:
        return pair_title(self.pair)

    def gap(
        self,
        first: str,
        second: str,
        line: Callable[[Array], Array] = _best,
        reduced: Callable[[Array], float] = lambda gap: float(gap.mean()),
    ) -> Measured:
        """One optimizer's line less another's, averaged over training."""
        groups = [self.kept[first], self.kept[second]]
        return jackknifed(groups, lambda means: reduced(line(means[0]) - line(means[1])))

    def apart(self) -> Measured:
        """Between DPAdamWOSM's and DPAdam's maximum, whichever is higher."""
        return self.gap("DPAdamWOSM", "DPAdam", reduced=lambda gap: float(np.abs(gap).mean()))

    def early(self) -> Measured:
        first = max(1, len(self.steps) // 10)
        return self.gap("DPAdamWOSM", "DPAdam", reduced=lambda gap: float(gap[:first].mean()))

    def above_lower(self, name: str) -> Measured:
        """By how much an optimizer's maximum is above the lower of DPAdam's and DPAdamWOSM's."""
        return max((self.gap(name, other) for other in ("DPAdam", "DPAdamWOSM")), key=lambda gap: gap.value)

    def as_dict(self) -> dict[str, Any]:
        means = {name: kept.mean(axis=0) for name, kept in self.kept.items()}
        return {
            "steps": self.steps.tolist(),
            "best": {name: _best(one).round(3).tolist() for name, one in means.items()},
            "median": {name: _median(one).round(3).tolist() for name, one in means.items()},
        }


def _read(parts: Finished, noise: float, pair: Pair, names: Sequence[str]) -> Curves:
    kept = {name: accuracy(parts, part_name(noise, pair, name)) for name in names}
    return Curves(pair, looks(parts, part_name(noise, pair, "DPAdam")), kept)


def compared(parts: Finished, quick: bool, noise: float) -> Outcome:
    everywhere = [
        name for name in (*OPTIMIZERS, PUBLISHED) if all(part_name(noise, pair, name) in parts for pair in pairs(quick))
    ]
    curves = [_read(parts, noise, pair, everywhere) for pair in pairs(quick)]
    claims = [
        *_wosm(curves),
        *_mnist(curves, noise),
        *(_adadp(curves, name) for name in everywhere if name.startswith("ADADP")),
    ]
    notes = [
        *trained_notes(quick),
        "ADADP takes two releases for one iteration and is given as many releases as the others; tau is sqrt(d / 2T) for T "
        "iterations; the step that used both releases is kept and none is rejected.",
    ]
    if PUBLISHED in everywhere:
        notes.append(
            f"{PUBLISHED} is ADADP as in the code that the authors ran (github.com/mshubhankar/ADADP): a step whose error is "
            "above tau is taken back, the step size moves with sqrt(tau / error), the error sums over 10 copies of the "
            "weights, tau is 0.1 for LR and 1 for TLNN, the first step size 0.001."
        )
    found = {one.title: one.as_dict() for one in curves}
    tables, numbers = [_table(curves)], {"sigma": noise, "pairs": found}
    own = [(a, o) for a, o in beside(quick) if all(part_name(noise, o, name) in parts for name in OPTIMIZERS)]
    if own:
        both = [(next(one for one in curves if one.pair == a), _read(parts, noise, o, OPTIMIZERS)) for a, o in own]
        numbers["ours"] = {one.title: one.as_dict() for _, one in both}
        tables.append(_beside(both))
    return Outcome(claims, numbers, tables, notes, lambda file: _draw(file, found, noise))


def _wosm(curves: list[Curves]) -> list[Claim]:
    apart, early = [one.apart() for one in curves], [one.early() for one in curves]
    median = [one.gap("DPAdamWOSM", "DPAdam", _median) for one in curves]
    close = [gap.at_most(ALONGSIDE) for gap in apart]
    as_good = [gap.above(-AS_GOOD) for gap in median]
    first = [gap.above(0) for gap in early]
    return [
        judged(
            "DPAdamWOSM's maximum runs alongside DPAdam's",
            close,
            f"they are {ALONGSIDE:g} point or less apart, averaged over training, in {counted(close)} cases; {_most(apart).size} "
            "points at most",
        ),
        judged(
            "DPAdamWOSM's median is as good as DPAdam's or better",
            as_good,
            f"averaged over training it is at most {AS_GOOD:g} points lower in {counted(as_good)} cases; from {_least(median)} "
            f"to {_most(median)} points",
        ),
        judged(
            "DPAdamWOSM is better in the first steps",
            first,
            f"in the first tenth of training its maximum is higher in {counted(first)} cases; from {_least(early)} to "
            f"{_most(early)} points",
        ),
    ]


def _mnist(curves: list[Curves], noise: float) -> list[Claim]:
    """The paper's example, of the figure in its main text."""
    gaps = {one.title: one.gap("DPAdamWOSM", "DPAdam", _median) for one in curves if one.title.startswith("MNIST")}
    if noise != MAIN or not gaps:
        return []
    cases = [gap.above(0) for gap in gaps.values()]
    return [
        judged(
            "In some cases, as MNIST with LR and with TLNN, DPAdamWOSM's median is above DPAdam's",
            cases,
            f"on MNIST it is, averaged over training, in {counted(cases)} cases; by "
            + ", ".join(f"{gap} ({title})" for title, gap in gaps.items()),
        )
    ]


def _adadp(curves: list[Curves], name: str) -> Claim:
    above = {one.title: one.above_lower(name) for one in curves}
    cases = [
        gap.above(-AS_GOOD) if title.startswith("Adult") else _opposite(gap.above(0)) for title, gap in above.items()
    ]
    words = "as in the published code" if name == PUBLISHED else "as the text describes it"
    return judged(
        f"ADADP's maximum lies beneath both except on Adult (ADADP {words})",
        cases,
        f"agreeing (below 0; on Adult at least -{AS_GOOD:g}) in {counted(cases)} cases; averaged over training it lies, against "
        "the lower of the two, at " + ", ".join(f"{gap} ({title})" for title, gap in above.items()),
    )


def _opposite(case: bool | None) -> bool | None:
    return None if case is None else not case


def _most(gaps: list[Measured]) -> Measured:
    return max(gaps, key=lambda gap: gap.value)


def _least(gaps: list[Measured]) -> Measured:
    return min(gaps, key=lambda gap: gap.value)


def _table(curves: list[Curves]) -> Table:
    kinds = [(kind, name) for kind in ("best", "median") for name in curves[0].kept]
    rows: list[list[str | float]] = []
    for one in curves:
        lines = one.as_dict()
        rows.append([one.title, *(lines[kind][name][-1] for kind, name in kinds)])
    header = ["dataset, model", *(f"{name}, {kind}" for kind, name in kinds)]
    return Table("Test accuracy at the last step, per cent", header, rows, digits=1)


def _beside(both: list[tuple[Curves, Curves]]) -> Table:
    rows: list[list[str | float]] = []
    for pair in both:
        for one, form in zip(pair, ("authors'", "ours"), strict=True):
            median = one.gap("DPAdamWOSM", "DPAdam", _median)
            rows.append(
                [
                    one.title,
                    form,
                    one.apart().size,
                    str(median),
                    str(one.early()),
                    str(one.above_lower("ADADP")),
                ]
            )
    header = ["dataset, model", "form", "DPAdamWOSM and DPAdam apart", "medians, DPAdamWOSM less DPAdam",
              "maxima in the first tenth of training", "ADADP against the lower of the two"]  # fmt: skip
    return Table("The authors' form and ours side by side: points of accuracy, averaged over training", header, rows)


def _draw(file: Path, found: dict[str, Any], noise: float) -> None:
    panels = {
        title: (
            lines["steps"],
            [
                Line(f"{name}, {kind}", values, COLOURS[name], style)
                for kind, style in (("best", "-"), ("median", ":"))
                for name, values in lines[kind].items()
            ],
        )
        for title, lines in found.items()
    }
    draw_curves(file, panels, f"sigma {noise:g}: the best and the median of each optimizer's 4 clips")
