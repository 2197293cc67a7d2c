"""The experiment `honest`: grids of every optimizer, and Horizon, at one budget that covers the whole search.

The paper compares grids at one noise and prices the searches beside it. Here the price is fixed and all else follows
from it: the budget covers all runs, all scores and the choice among them; a selection leaves the runs what noise it
must; noisy scores of validation records find the winner. A cell of the table is the winner's accuracy on the test
records over 20 searches.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from honestdp.search.design import Design
from honestdp.search.secret import drawn
from honestdp_papers.claims import OURS, Claim, Measured, Outcome, Table, counted, judged
from honestdp_papers.honest_search import COVERAGE, FRACTION, SEARCHES, Kept, Search, right_answers
from honestdp_papers.look import COLOURS, named, panels, shared_legend
from honestdp_papers.mohapatra2022.honest_training import (
    ADULT,
    DELTA,
    OPTIMIZERS,
    SELECTIONS,
    SINGLE,
    STEPS,
    TASKS,
    epsilons,
    pairs,
    pool_name,
    repeats_of,
    search_of,
    searches,
)
from honestdp_papers.mohapatra2022.setting import LOT, OUR_TASKS, RELU, Pair, Task, pair_title
from honestdp_papers.mohapatra2022.setting import pairs as every_pair
from honestdp_papers.parts import Arrays, Finished

FEW, MANY = ("DPAdam", "DPAdamWOSM"), ("DPSGD", "DPMomentum")
AS_GOOD = 0.5
"""Points of accuracy within which two ways count as equally good."""


def honest(parts: Finished, quick: bool) -> Outcome:
    present = [pair for pair in pairs(quick) if all(pool_name(pair, name) in parts for name in (*OPTIMIZERS, SINGLE))]
    cases = [case(parts, pair, epsilon, quick) for epsilon in epsilons(quick) for pair in present]
    return outcome_of(cases, present, quick=quick)


def outcome_of(cases: list[Case], present: list[Pair], *, quick: bool) -> Outcome:
    """What the cases of the pairs that were trained come to."""
    designs = _designs(quick)
    spent = {key: design.spending.epsilon(delta=DELTA) for key, design in designs.items()}
    claims = [*judgements(cases), _within_budget(designs, spent)]
    said = [conclusion([one for one in cases if one.epsilon == epsilon]) for epsilon in epsilons(quick)]
    numbers: dict[str, Any] = {
        "delta": DELTA,
        "steps": STEPS,
        "accuracies": {
            f"{one.title}, epsilon {one.epsilon:g}": {
                **{", ".join(way): [round(value, 3) for value in cell.values] for way, cell in one.cells.items()},
                SINGLE: [round(value, 3) for value in one.single.values],
            }
            for one in cases
        },
        "epsilon recomputed": spent,
        "conclusions": said,
    }
    tables = [*(_table(cases, epsilon) for epsilon in epsilons(quick)), *_price_tables(designs)]
    return Outcome(
        claims, numbers, tables, [*said, *stray(cases), *_notes(present, quick)], lambda file: _draw(file, cases)
    )


def _designs(quick: bool) -> dict[str, Design]:
    """Every price that the table rests on, once."""
    tasks = dict.fromkeys(task for task, _ in pairs(quick))
    each = [search for task in tasks for name in (*OPTIMIZERS, SINGLE) for search in searches(task, name, quick)]
    return {search.key: search.kept() for search in each}


def judgements(cases: list[Case]) -> list[Claim]:
    """The paper's thesis at one budget, and what better selections and no search at all make of it."""
    gaps = [
        one.gap(one.cells[few, "compose"], one.cells[many, "compose"]) for one in cases for few in FEW for many in MANY
    ]
    first = [gap.above(0) for gap in gaps]
    ahead = {s: [one.gap(one.best(FEW, s), one.best(MANY, s)) for one in cases] for s in SELECTIONS}
    closed = [
        Measured(now.value - later.value, math.hypot(now.error, later.error)).above(0)
        for later, now in zip(ahead["envelope"], ahead["compose"], strict=True)
    ]
    single = [one.gap(one.single, max(one.cells.values(), key=lambda cell: cell.mean)) for one in cases]
    as_good = [gap.above(-AS_GOOD) for gap in single]
    return [
        judged(
            "Ours, of the paper's thesis: at one honest budget, every candidate charged by composition, the few candidates of "
            "DPAdam and DPAdamWOSM beat the grids of DPSGD and DPMomentum",
            first,
            f"ahead in {counted(first)} comparisons; from {min(gaps, key=_value)} to {max(gaps, key=_value)} points, "
            f"{np.median([gap.value for gap in gaps]):+.1f} in the median",
            kind=OURS,
        ),
        judged(
            "Ours, beyond the paper: a better selection helps the large grids more than the small ones (the lead of the better "
            "of DPAdam and DPAdamWOSM over the better of DPSGD and DPMomentum is less under envelope than under composition)",
            closed,
            f"in {counted(closed)} cases; the lead, on average over the cases, and in how many cases there is one: "
            + ", ".join(
                f"{np.mean([one.value for one in gap]):+.1f} and {sum(one.above(0) is True for one in gap)} ({name})"
                for name, gap in ahead.items()
            ),
            kind=OURS,
        ),
        judged(
            "Ours, beyond the paper: Horizon's single run is as good as the best of all searches",
            as_good,
            f"{AS_GOOD:g} points below it or less in {counted(as_good)} cases; "
            + ", ".join(
                f"{gap} ({one.title}, epsilon {one.epsilon:g})" for one, gap in zip(cases, single, strict=True)
            ),
            kind=OURS,
        ),
    ]


def _value(gap: Measured) -> float:
    return gap.value


def _within_budget(designs: dict[str, Design], spent: dict[str, float]) -> Claim:
    within = [spent[key] <= design.budget.epsilon for key, design in designs.items()]
    used = [spent[key] / design.budget.epsilon for key, design in designs.items()]
    return judged(
        "Ours: every search and every single run of the table is within its budget",
        within,
        f"recomputed from what a ledger would be charged, {sum(within)} of {len(within)} are; they use from {min(used):.2%} to "
        f"{max(used):.2%} of it",
        kind=OURS,
    )


def conclusion(cases: list[Case]) -> str:
    """What a practitioner should do at one epsilon, in a sentence: the mean over the cases decides."""
    epsilon = cases[0].epsilon
    means = {way: float(np.mean([one.cells[way].mean for one in cases])) for way in cases[0].cells}
    way = max(means, key=lambda way: means[way])
    alone, best = float(np.mean([one.single.mean for one in cases])), means[way]
    runs = search_of(pairs(False)[0][0], *way, epsilon).kept().selection.runs
    over = f"on average over {', '.join(one.title for one in cases)}"
    search = (
        f"{way[0]} under {way[1]} ({runs:.0f} trainings {'' if way[1] in SELECTIONS[:2] else 'in the mean'}".rstrip()
        + ")"
    )
    large = f"DPMomentum's 280 candidates give {means['DPMomentum', 'compose']:.1f} % composed and "
    large += f"{means['DPMomentum', 'envelope']:.1f} % under envelope"
    if alone >= best - AS_GOOD:
        advice = (
            f"train {SINGLE} once: {alone:.1f} % {over}, where the best of all searches, {search}, gives {best:.1f} %"
        )
    else:
        advice = f"search by {search}: {best:.1f} % {over}, where {SINGLE}'s single run gives {alone:.1f} %"
    return f"Conclusion at epsilon {epsilon:g}, delta {DELTA:g}: {advice}; {large}."


def _table(cases: list[Case], epsilon: float) -> Table:
    rows: list[list[str | float]] = []
    for one in cases:
        if one.epsilon != epsilon:
            continue
        for name in OPTIMIZERS:
            rows.append([one.title, f"{name}, {_count(name)}", *(str(one.cells[name, s]) for s in SELECTIONS), ""])
        rows.append([one.title, SINGLE, *[""] * len(SELECTIONS), str(one.single)])
    return Table(
        f"The winner's test accuracy at epsilon {epsilon:g}, delta {DELTA:g}, per cent: median and quartiles over {SEARCHES} "
        "searches that share trainings, so that equal quartiles say that they mostly have one winner; liu-talwar with gamma = "
        f"1/(9 (k - 1)) for k candidates, so that a given one is drawn with probability {COVERAGE:g}",
        ["dataset, model", "optimizer, candidates", *SELECTIONS, "one run"],
        rows,
    )


def _count(optimizer: str) -> int:
    return len(search_of(pairs(False)[0][0], optimizer, "compose", 1.0).candidates)


def _price_tables(designs: dict[str, Design]) -> list[Table]:
    """Trainings of a search in the mean, noise of its runs and noise of its scores, a row for each (dataset, grid, epsilon)."""
    rows: dict[str, list[list[str | float]]] = {"runs": [], "noise": [], "score": []}
    header = ["dataset", "candidates", "epsilon", *SELECTIONS]
    titles = {task.name: form_of(task).title for task in TASKS}
    for key, first in designs.items():
        task, count, selection, epsilon = key.split("/")
        if selection != "compose":
            continue
        own = [designs.get(f"{task}/{count}/{name}/{epsilon}") for name in SELECTIONS]
        label: list[str | float] = [titles[task], SINGLE if count == "1" else int(count), f"{first.budget.epsilon:g}"]
        rows["runs"].append([*label, *("" if one is None else f"{one.selection.runs:.0f}" for one in own)])
        rows["noise"].append([*label, *("" if one is None else one.runs[0].noise for one in own)])
        if first.metric is not None:
            rows["score"].append([*label, *("" if one is None else _score_noise(one) for one in own)])
    return [
        Table("Trainings of a search, in the mean", header, rows["runs"]),
        Table("Noise multiplier of every training", header, rows["noise"], digits=3),
        Table(
            "Standard deviation of a score's noise, in points of validation accuracy", header, rows["score"], digits=3
        ),
    ]


def _score_noise(design: Design) -> float:
    """In points; of a composed grid that of the noisy maximum, geometric of scale 2/epsilon. A right answer moves S by 2."""
    assert design.multiplier is not None
    scale = design.multiplier if design.choice is None else 2 / design.choice
    return 100 * scale / (2 * design.validation_records)


def _notes(present: list[Pair], quick: bool) -> list[str]:
    counts = ", ".join(
        f"{repeats_of(count, quick)} of each of {count} candidates" for count in sorted({_count(n) for n in OPTIMIZERS})
    )
    here = [(task.plain_title, model) for task, model in present]
    left = ", ".join(
        f"{task.title if task.plain_title != 'Adult' else ADULT.title} with {model}"
        for task, model in every_pair(False)
        if (task.plain_title, model.replace("TLNN", RELU)) not in here
    )
    cut = "Quick version: epsilon 1 alone and fewer trainings of each candidate; " if quick else ""
    return [
        f"{cut}{'left' if cut else 'Left'} out for the time on a device that they would take: {left}. Inputs and models "
        "are in our form: MNIST's pixels in [0, 1], a ReLU in TLNN, and Adult (104), the dataset's plain columns, without the "
        "paper's second copy of the one-hot codes.",
        f"Accuracies on test records and {SEARCHES} searches are evaluation on public data, covered by no budget: a practitioner "
        "makes one search and sees its winner and a noisy score. So is picking the best cell of the table.",
        "A cell charges and does what `honestdp.tune` with that optimizer, selection and budget does: a coin puts "
        f"{FRACTION:g} of the records on the validation side, the scores' noise costs no more than the runs, and random stopping "
        "(liu-talwar, papernot-steinke, envelope) draws a geometric number of runs, so many in the mean that a given "
        f"candidate is run with probability {COVERAGE:g}. compose leaves with every model and finds the best by one noisy "
        f"maximum; of the others the winner alone leaves. {SINGLE} is `tune` with validation=0: it trains "
        "on all records, scores nothing and has the whole budget.",
        f"{SINGLE}'s constants were fixed before these searches, but with MNIST and Adult among the public datasets in view: its "
        "lead on them may be flattered.",
        f"The {SEARCHES} searches of a cell are drawn from trainings that were made once: {counts}, all independent and at the "
        "noise of the cell. A search that tries a candidate more often takes a training again, with new noise of its score; "
        "searches share trainings and one split by coins. So the spread over searches is understated, most so for DPMomentum.",
        f"Every training has {STEPS} steps of lot {LOT}, where the paper's have 5000 and 10000: DPAdam, which moves a weight by "
        "about 0.001 a step at most, has not arrived everywhere, and the first verdict is for so many steps. "
        f"ADADP takes two of them for one iteration. {SINGLE} has {repeats_of(1, quick)} trainings.",
        "The standard error of a cell's mean, by which differences are judged, is the deviation over its searches, or that of "
        f"{SINGLE}'s trainings where it is larger, over the root of the number of different winners: searches that have one "
        "winner are one training.",
    ]


def _draw(file: Path, cases: list[Case]) -> None:
    levels = sorted({one.epsilon for one in cases})
    titles = [*dict.fromkeys(one.title for one in cases)]
    with panels(file, len(titles), len(levels), size=(4.5 * len(levels), 3.2 * len(titles) + 1)) as axes:
        for one in cases:
            panel = axes[titles.index(one.title)][levels.index(one.epsilon)]
            for shift, name in enumerate(OPTIMIZERS):
                cells = [one.cells[name, selection] for selection in SELECTIONS]
                low, middle, high = np.array([cell.quartiles for cell in cells]).T
                panel.errorbar(
                    np.arange(len(SELECTIONS)) + 0.13 * (shift - 2),
                    middle,
                    [middle - low, high - middle],
                    fmt="o",
                    color=COLOURS[name],
                    linewidth=1.2,
                    markersize=4,
                    capsize=2,
                    label=f"{name}, {_count(name)}",
                )
            panel.axhline(
                one.single.quartiles[1],
                color=COLOURS[SINGLE],
                linestyle="--",
                linewidth=1.4,
                label=f"{SINGLE}, one run",
            )
            panel.set_xticks(range(len(SELECTIONS)), SELECTIONS, rotation=20)
            named(panel, f"{one.title}, epsilon {one.epsilon:g}", "", "the winner's test accuracy, %")
        shared_legend(axes[0][0], f"Median and quartiles over {SEARCHES} searches, delta {DELTA:g}")


FAR = 5.0
"""Points below the median of its cell from which on a search is told of by itself."""

Way = tuple[str, str]
"""(optimizer, selection)."""


@dataclass(frozen=True)
class Cell:
    """Test accuracies of the winners, in per cent, and how many trainings each search made, `[searches]`."""

    values: list[float]
    tried: tuple[int, ...] = ()

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        return float(np.std(self.values, ddof=1))

    @property
    def quartiles(self) -> tuple[float, float, float]:
        low, middle, high = np.percentile(self.values, (25, 50, 75))
        return float(low), float(middle), float(high)

    @property
    def winners(self) -> int:
        """How many different trainings won, as far as their accuracies tell them apart."""
        return len(set(self.values))

    def __str__(self) -> str:
        low, middle, high = self.quartiles
        return f"{middle:.1f} ({low:.1f} to {high:.1f})"


@dataclass(frozen=True)
class Case:
    """One dataset and model at one epsilon: every search, and Horizon's runs."""

    title: str
    epsilon: float
    cells: dict[Way, Cell]
    single: Cell

    def best(self, optimizers: tuple[str, ...], selection: str) -> Cell:
        return max((self.cells[name, selection] for name in optimizers), key=lambda cell: cell.mean)

    def error(self, cell: Cell) -> float:
        """The standard error of a cell's mean. Searches share trainings: those with one winner are one training."""
        return max(cell.deviation, self.single.deviation) / math.sqrt(cell.winners)

    def gap(self, one: Cell, other: Cell) -> Measured:
        return Measured(one.mean - other.mean, math.hypot(self.error(one), self.error(other)))


def form_of(task: Task) -> Task:
    """The dataset under the title that tells its form."""
    return next((own for own in OUR_TASKS.values() if own.name == task.name), task)


def title_of(pair: Pair) -> str:
    return pair_title((form_of(pair[0]), pair[1]))


def case(parts: Finished, pair: Pair, epsilon: float, quick: bool) -> Case:
    """Play the searches of one dataset and model at one epsilon from what was trained."""
    cells = {}
    for optimizer in OPTIMIZERS:
        pool = parts[pool_name(pair, optimizer)]
        for number, search in enumerate(searches(pair[0], optimizer, quick)):
            if search.budget.epsilon == epsilon:
                cells[optimizer, search.selection] = _cell(pool, number, pair, search)
    alone = parts[pool_name(pair, SINGLE)]
    right = alone["test"][epsilons(quick).index(epsilon), :, 0].astype(float)
    return Case(title_of(pair), epsilon, cells, Cell((100 * right / int(alone["tests"])).tolist()))


def _cell(pool: Arrays, number: int, pair: Pair, search: Search) -> Cell:
    own = Kept(pool["validation"][number], pool["test"][number], pool["finite"][number], held=int(pool["held"]))
    name = f"{pair[0].plain_title}, {pair[1]}/{search.name}/{search.selection}/{search.budget.epsilon:g}"
    design = search.kept()
    secrets = [drawn(design, seed=zlib.crc32(f"{name}/{i}".encode())) for i in range(SEARCHES)]
    return Cell(
        [100 * right / int(pool["tests"]) for right in right_answers(design, own, secrets)],
        tuple(len(secret.candidates) for secret in secrets),
    )


def stray(cases: list[Case]) -> list[str]:
    """What large deviations come from: the searches far below the others of their cell, and how many trainings they made."""
    told = []
    for one in cases:
        for way, cell in one.cells.items():
            low = [i for i, value in enumerate(cell.values) if value < float(np.median(cell.values)) - FAR]
            if low and cell.tried:
                each = ", ".join(f"{cell.values[i]:.1f} % after {_trainings(cell.tried[i])}" for i in low)
                told.append(f"{way[0]} under {way[1]} on {one.title} at epsilon {one.epsilon:g}: {each}")
    if not told:
        return []
    return [
        "Random stopping may make very few trainings, and then a bad candidate, such as one that diverged, may be all there is. "
        f"Large deviations come from searches that ended more than {FAR:g} points below the median of their cell: "
        + "; ".join(told)
        + "."
    ]


def _trainings(count: int) -> str:
    return "a single training" if count == 1 else f"{count} trainings"
