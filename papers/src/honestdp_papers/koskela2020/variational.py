"""Figures 5 and 6, and Figure 1 of the supplement: variational inference of a Gaussian mixture, ADADP against tuned DPVI."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from honestdp_papers.claims import NUMBERS, OURS, Claim, Outcome, Table, judged
from honestdp_papers.koskela2020 import mixture
from honestdp_papers.koskela2020.mixture import CLIP, EPOCH, FIRST, FIRSTS, LOT, RECORDS, STEPS, TAU, TESTS, part_name
from honestdp_papers.koskela2020.setting import DELTA, SWITCH
from honestdp_papers.look import COLOURS, logarithmic, named, panels, shared_legend
from honestdp_papers.measured import Measured, counted, jackknifed
from honestdp_papers.parts import Array, Part
from honestdp_papers.registry import Finished

PRINTED = {1.2: 6.7, 6.0: 1.6}
"""Epsilon by noise."""
CLOSE = 0.1
"""Of what DPVI gains from its start at the best step size: within it a held-out log-likelihood is competitive."""
ALIKE = 1.25
"""Factor within which two step sizes are the same."""
SETTLED = slice(10, SWITCH + 1)
"""Epochs over which a step size that was found is averaged."""
SETTINGS = [
    f"- The mixture: {RECORDS} records and {TESTS} held-out ones of five normal distributions of unit covariance at 0 and "
    f"(+-1, +-1), made up; lot {LOT}, clip {CLIP:g}, {', '.join(f'{n} releases at sigma {s:g}' for s, n in STEPS.items())} (that "
    f"these are releases follows from the printed epsilon); ADADP with tau {TAU:g} and rejections, after {SWITCH} epochs the "
    "decay of what it found; DPVI is DPSGD with the same decay.",
]


def parts5(quick: bool) -> list[Part]:
    return mixture.parts_at(6.0, quick)


def parts_supplement(quick: bool) -> list[Part]:
    return mixture.parts_at(1.2, quick)


def parts6(quick: bool) -> list[Part]:
    return [*parts_supplement(quick), *parts5(quick)]


def figure5(parts: Finished, quick: bool) -> Outcome:
    return _compared(parts, 6.0, quick)


def supplement_figure1(parts: Finished, quick: bool) -> Outcome:
    return _compared(parts, 1.2, quick)


@dataclass(frozen=True)
class Trained:
    """The trainings at one noise: held-out log-likelihoods `[repeats, step sizes, looks]` and ADADP's step sizes alike."""

    noise: float
    rates: tuple[float, ...]
    dpvi: Array
    adadp: Array
    eta: Array

    @staticmethod
    def read(parts: Finished, noise: float, quick: bool) -> Trained:
        dpvi, adadp = (parts[part_name(noise, method)] for method in ("DPVI", "ADADP"))
        kept = dpvi["likelihood"].astype(float), adadp["likelihood"].astype(float), adadp["eta"].astype(float)
        return Trained(noise, mixture.rates(quick), *kept)

    @property
    def first(self) -> Array:
        """ADADP from eta0 = 0.1, `[repeats, 1, looks]`."""
        place = FIRSTS.index(FIRST)
        return self.adadp[:, place : place + 1]

    def order(self) -> list[int]:
        """Places of DPVI's step sizes, the best at the end of training first."""
        return [int(place) for place in np.argsort(-self.dpvi.mean(axis=0)[:, -1])]

    @property
    def gain(self) -> float:
        """What DPVI gains at its best step size."""
        best = self.dpvi.mean(axis=0)[self.order()[0]]
        return float(best[-1] - best[0])

    def above(self, rank: int, *, average: bool = False) -> Measured:
        """ADADP's log-likelihood less that of DPVI at its best step size but `rank`, at the end or averaged over training."""

        def gap(means: Any) -> float:
            place = np.argsort(-means[1][:, -1])[rank]
            line = means[0][0, 1:] - means[1][place, 1:]
            return float(line.mean() if average else line[-1])

        return jackknifed([self.first, self.dpvi], gap)

    def found(self, place: int) -> Measured:
        """ln of the step size that ADADP finds from the eta0 at this place, averaged over the repeats and epochs 10 to 50."""
        logs = np.log(self.eta[:, place, SETTLED]).mean(axis=1, keepdims=True)
        return jackknifed([logs], lambda means: float(means[0][0]))

    def arrival(self, place: int) -> int:
        """The first epoch after which the mean of ln eta is within ALIKE of where it settles."""
        line = np.log(self.eta[:, place]).mean(axis=0)
        near = np.abs(line - self.found(place).value) <= math.log(ALIKE)
        return int(np.argmax(near))

    def allowed(self, place: int) -> int:
        """The epochs that eta needs at least for that, since an iteration moves it by 0.9 to 1.1."""
        way = self.found(place).value - math.log(FIRSTS[place])
        iterations = max(0.0, abs(way) - math.log(ALIKE)) / abs(math.log(1.1 if way > 0 else 0.9))
        return math.ceil(2 * iterations / EPOCH)


def shown(measured: Measured) -> str:
    return f"{measured.value:+.3f} ± {measured.error:.3f}"


def _compared(parts: Finished, noise: float, quick: bool) -> Outcome:
    from honestdp import Run, epsilon

    trained = Trained.read(parts, noise, quick)
    run = Run(records=RECORDS, lot=LOT, steps=STEPS[noise], noise=noise)
    spent = epsilon(run, delta=DELTA, accountant="moments")
    grid = len(trained.rates)
    costs: list[list[str | float]] = [
        ["one run, moments accountant, as in the paper", spent],
        ["one run", epsilon(run, delta=DELTA)],
        [f"DPVI at all {grid} step sizes, composed", epsilon(run, delta=DELTA, selection="compose", candidates=grid)],
        [
            "a search among them by random stopping, only the winner leaves",
            epsilon(run, delta=DELTA, selection="envelope", candidates=grid),
        ],
    ]
    claims = [*_competitive(trained), _printed(noise, spent)]
    tables = [_ends(trained), Table(f"Epsilon at delta {DELTA:g}", ["what is done", "epsilon"], costs, digits=2)]
    steps = (np.arange(trained.dpvi.shape[2]) * EPOCH).tolist()
    lines = {"ADADP": trained.first[:, 0]} | {
        f"DPVI, eta {trained.rates[place]:.3g}{' (best)' if rank == 0 else ''}": trained.dpvi[:, place]
        for rank, place in enumerate(trained.order()[:3])
    }
    numbers = {
        "sigma": noise,
        "steps": steps,
        "lines": {name: line.mean(axis=0).round(4).tolist() for name, line in lines.items()},
        "errors": {name: _error(line).round(4).tolist() for name, line in lines.items()},
    }
    return Outcome(claims, numbers, tables, _notes(quick), lambda file: _draw(file, numbers, noise))


def _competitive(trained: Trained) -> list[Claim]:
    room = CLOSE * trained.gain
    best = [trained.above(0), trained.above(0, average=True)]
    close = [gap.above(-room) for gap in best]
    others = [trained.above(rank) for rank in (1, 2)]
    better = [gap.above(0) for gap in others]
    return [
        judged(
            "ADADP is competitive with optimally tuned DPVI",
            close,
            f"its held-out log-likelihood is at most {room:.3f} lower, a tenth of what DPVI gains, in {counted(close)} cases; at "
            f"the end {shown(best[0])}, averaged over training {shown(best[1])}",
        ),
        judged(
            "ADADP ends above DPVI at its second and third best step size",
            better,
            f"in {counted(better)} cases; {shown(others[0])} and {shown(others[1])}",
            kind=OURS,
        ),
    ]


def _printed(noise: float, spent: float) -> Claim:
    return judged(
        f"Epsilon is {PRINTED[noise]:g} at the end",
        [round(spent, 1) == PRINTED[noise]],
        f"{spent:.2f} for {STEPS[noise]} releases by the moments accountant; an iteration of ADADP is two of them",
        kind=NUMBERS,
    )


def _error(line: Array) -> Array:
    """Standard errors of the mean over the repeats, `[looks]`."""
    found: Array = line.std(axis=0, ddof=1) / math.sqrt(len(line))
    return found


def _ends(trained: Trained) -> Table:
    rows: list[list[str | float]] = [["ADADP, eta0 0.1", *_end(trained.first[:, 0])]]
    rows += [[f"DPVI, eta {rate:.3g}", *_end(trained.dpvi[:, place])] for place, rate in enumerate(trained.rates)]
    return Table("Held-out log-likelihood a record at the end", ["method", "mean", "error"], rows, digits=3)


def _end(line: Array) -> list[str | float]:
    return [float(line[:, -1].mean()), float(_error(line)[-1])]


def figure6(parts: Finished, quick: bool) -> Outcome:
    every = [Trained.read(parts, noise, quick) for noise in STEPS]
    cases: list[bool | None] = []
    levels: list[list[Any]] = []
    for one in every:
        reference = one.found(FIRSTS.index(FIRST))
        for place, first in enumerate(FIRSTS):
            found = one.found(place)
            if first != FIRST:
                apart = Measured(abs(found.value - reference.value), math.hypot(found.error, reference.error))
                cases.append(apart.at_most(math.log(ALIKE)))
            levels.append(
                [f"{one.noise:g}", f"{first:g}", math.exp(found.value), one.arrival(place), one.allowed(place)]
            )
    suitable = [_suitable(one) for one in every]
    ends = [(one, place) for one in every for place, first in enumerate(FIRSTS) if first != FIRST]
    same_end = [_same_end(one, place) for one, place in ends]
    quickly = [row[3] <= row[4] + 1 for row in levels]
    claims = [
        judged(
            "ADADP finds the suitable step size from different initial ones: it is the same one",
            cases,
            f"within a factor of {ALIKE:g} of that from {FIRST:g} in {counted(cases)} cases; "
            + "; ".join(f"sigma {row[0]} from {row[1]}: {row[2]:.3f}" for row in levels),
        ),
        judged(
            "and it is suitable: DPVI at the nearest step size of its grid is competitive with its best",
            [case for case, _ in suitable],
            "; ".join(words for _, words in suitable),
        ),
        judged(
            "It is there as soon as factors of 0.9 to 1.1 an iteration can bring it, or an epoch later",
            quickly,
            f"in {counted(quickly)} cases; after {max(row[3] for row in levels)} epochs at most",
            kind=OURS,
        ),
        judged(
            "The held-out log-likelihood at the end does not depend on the initial step size",
            [case for case, _ in same_end],
            f"within a tenth of what DPVI gains of that from {FIRST:g} in {counted([case for case, _ in same_end])} cases; "
            + ", ".join(words for _, words in same_end),
            kind=OURS,
        ),
    ]
    header = ["sigma", "eta0", "step size, epochs 10 to 50", "epochs until there", "epochs that it takes at least"]
    numbers = {
        f"{one.noise:g}": {f"{first:g}": _middle(one.eta[:, place]) for place, first in enumerate(FIRSTS)}
        for one in every
    }
    table = Table("The step size that ADADP finds", header, levels, digits=3)
    return Outcome(claims, numbers, [table], _notes(quick), lambda file: _draw_sizes(file, numbers))


def _suitable(one: Trained) -> tuple[bool | None, str]:
    found = one.found(FIRSTS.index(FIRST)).value
    place = int(np.argmin([abs(math.log(rate) - found) for rate in one.rates]))
    gap = jackknifed([one.dpvi], lambda means: float(means[0][place, -1] - means[0][:, -1].max()))
    words = f"sigma {one.noise:g}: found {math.exp(found):.3f}, DPVI at {one.rates[place]:.3g} is {shown(gap)} from its best"
    return gap.above(-CLOSE * one.gain), words


def _same_end(one: Trained, place: int) -> tuple[bool | None, str]:
    groups = [one.adadp[:, place : place + 1], one.first]
    gap = jackknifed(groups, lambda means: float(means[0][0, -1] - means[1][0, -1]))
    room = CLOSE * one.gain
    # Beyond the room on either side; the error is small beside it or nothing can be told.
    return Measured(abs(gap.value), gap.error).at_most(room), shown(gap)


def _middle(line: Array) -> list[float]:
    """The geometric mean over the repeats, `[looks]`."""
    found: list[float] = np.exp(np.log(line).mean(axis=0)).round(6).tolist()
    return found


def _notes(quick: bool) -> list[str]:
    notes = [
        f"Averages over {mixture.QUICK_REPEATS if quick else mixture.REPEATS} trainings, each with lots, noise and draws of its "
        "own, on one set of records; ± is one standard error. The held-out log-likelihood is E_q ln p(x) a record, by "
        f"{mixture.DRAWS} draws of q that are the same for all: evaluation on public data, covered by no budget.",
        "Not in the paper: how q is written and where it begins. As in the published code of DPVI (github.com/DPBayes/DPVI-code) "
        "q is a normal distribution with independent coordinates of sticks, means and ln tau, and begins as the standard one; "
        "one draw a record and step, where that code shares a draw among a lot. The step sizes of DPVI are chosen by the "
        "held-out log-likelihood at the end, as the paper does, which no budget covers.",
    ]
    if quick:
        notes.append(
            f"Quick version: {STEPS[1.2]} releases at either noise, {mixture.QUICK_REPEATS} trainings, "
            f"{len(mixture.QUICK_RATES)} step sizes; epsilon is that of the full length."
        )
    return notes


def _draw(file: Path, numbers: dict[str, Any], noise: float) -> None:
    colours = (COLOURS["ADADP"], COLOURS["DPSGD"], COLOURS["DPAdam"], COLOURS["DPMomentum"])
    with panels(file, 1, 1, size=(7, 4.2)) as axes:
        one = axes[0][0]
        for (name, line), colour in zip(numbers["lines"].items(), colours, strict=False):
            values, half = np.array(line), np.array(numbers["errors"][name])
            one.plot(numbers["steps"], values, color=colour, linewidth=1.5, label=name)
            one.fill_between(numbers["steps"], values - half, values + half, color=colour, alpha=0.2, linewidth=0)
        named(one, f"sigma {noise:g}", "releases", "held-out log-likelihood a record")
        shared_legend(one, "Gaussian mixture, private variational inference", columns=2)


def _draw_sizes(file: Path, numbers: dict[str, Any]) -> None:
    shades = ("#264653", "#2a9d8f", "#e0a100", "#d62728")
    with panels(file, 1, 2, size=(9, 3.9)) as axes:
        for one, (noise, lines) in zip(axes[0], numbers.items(), strict=True):
            for (first, line), colour in zip(lines.items(), shades, strict=True):
                line = line[: SWITCH + 1]
                one.plot(range(len(line)), line, color=colour, linewidth=1.5, label=f"eta0 {first}")
            logarithmic(one.yaxis)
            named(one, f"sigma {noise}", "epochs of 50 releases", "step size")
        shared_legend(axes[0][0], "The step size that ADADP finds", columns=4)
