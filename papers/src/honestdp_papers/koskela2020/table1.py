"""Table 1 (with the supplement's): one run of ADADP against private selection of DP-SGD's step size, at one budget.

The candidates are 10^(-i/2), i = 1..10, constant for half of the epochs and then decaying. Every selection has a noise
of its own, with which its whole search meets ADADP's (epsilon, delta). Each candidate is trained a few times at that
noise, and searches are drawn from these trainings: which candidates are run, how often, and the best by a score with
Laplace noise on the test set, which the paper takes for validation. Then the same under today's selections: all
candidates once (winner), and a random number of runs by a published bound (papernot-steinke) and by ours (envelope).

Figure 2 shows realisations of ADADP and of searches, from the same trainings.

The noises are ADADP's, found by its printed accuracy, and for every selection the least that meets ADADP's budget.

    python -m honestdp_papers.koskela2020.table1 --out papers/results

reads ADADP's trainings on CIFAR-10 (parts `cifar10/sigma*/ADADP-published`, made by `run_device koskela2020/table1
--only '*ADADP-published'`), finds the sigma at which their mean accuracy is the printed one, and writes
`table1_noise.json` beside this file. The trainings of the selections read the file, so that a bare GPU machine needs no
accountants. Without such trainings a provisional sigma is taken, and the file says so.

ADADP is that of the published code here, from which the printed numbers are: the text's rule, whose steps are some
three times as long, does not reach the printed accuracy at any sigma of the paper.

Liu & Talwar's searches are accounted as in the paper, by moments, at what ADADP's run costs by moments. Today's
selections are given what one run costs by the tight accountant (PLD), which is less.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from honestdp.optimizers import SGD
from honestdp_papers.claims import OURS, UNKNOWN, Claim, Measured, Outcome, Table, accuracy, jackknifed, judged
from honestdp_papers.koskela2020.training import (
    ADADP,
    CIFAR,
    DELTA,
    LOT,
    PUBLISHED,
    REPEATS,
    Grid,
    epochs_of,
    grid_part,
    half_decades,
    optimizer_part,
    part_name,
    sized,
    switch_of,
)
from honestdp_papers.look import COLOURS, logarithmic, named, panels
from honestdp_papers.parts import RESULTS, Array, Finished, Part, is_usable, read
from honestdp_papers.registry import parts_folder

FILE = Path(__file__).with_name("table1_noise.json")
GAMMAS = tuple(2.0**-i for i in range(9, 0, -1))
QUICK_GAMMAS = (2.0**-7, 2.0**-4, 2.0**-1)
SIZES, QUICK_SIZES = half_decades(1, 10), half_decades(1, 10)[::3]
"""Step sizes of the candidates."""
ADADP_NOISES = (1.0, 1.5, 2.0, 4.0, 6.0, 8.0)
PRINTED, PROVISIONAL = 63.49, 4.0
COVERAGE = 0.9


def liu_talwar(gamma: float) -> str:
    return f"liu-talwar 2^{int(np.log2(gamma))}"


WINNER, STOPPING = "winner", ("papernot-steinke", "envelope")


def noises(quick: bool) -> dict[str, Any]:
    """As written: `adadp`, `provisional`, `epsilon` by accountant, and `noise` by selection."""
    found: dict[str, Any] = json.loads(FILE.read_text())["quick" if quick else "full"]
    return found


def selections(quick: bool) -> dict[str, Any]:
    """Every selection by name, as the accountants know it. Needs them."""
    from honestdp.selection import LiuTalwar, named
    from honestdp.selection.counts import mean_for_coverage

    candidates = len(QUICK_SIZES if quick else SIZES)
    runs = mean_for_coverage(COVERAGE, candidates=candidates, shape=1.0)
    found: dict[str, Any] = {
        liu_talwar(gamma): LiuTalwar(gamma=gamma, accountant="moments") for gamma in (QUICK_GAMMAS if quick else GAMMAS)
    }
    return found | {WINNER: named(WINNER, candidates=candidates)} | {name: named(name, runs=runs) for name in STOPPING}


def found_noise(accuracies: dict[float, float], printed: float = PRINTED) -> float:
    """The noise at which the accuracy is the printed one, between two that were trained; the nearer end where it is beyond."""
    noise = sorted(accuracies)
    values = [accuracies[one] for one in noise]
    # Accuracy falls with the noise: numpy wants it to rise.
    return float(np.exp(np.interp(-printed, [-value for value in values], np.log(noise))))


def _trained(out: Path) -> dict[float, float]:
    """Mean accuracies of ADADP at the end, by noise, as far as they were trained."""
    folder, found = parts_folder(out, "koskela2020", False), {}
    for noise in ADADP_NOISES:
        part = optimizer_part(CIFAR, PUBLISHED, noise, False)
        if is_usable(part, folder):
            kept, _ = read(part, folder)
            found[noise] = 100 * float(kept["right"][:, 0, -1].mean()) / float(kept["tests"])
    return found


def computed(quick: bool, adadp: float, provisional: bool, tell: Callable[[str], None] = print) -> dict[str, Any]:
    from honestdp import Budget, least_noise
    from honestdp.accounting import epsilon

    task = sized(CIFAR, quick)
    run = task.run(noise=adadp, epochs=epochs_of(quick))
    spent = {name: epsilon(run.event, delta=DELTA, accountant=name) for name in ("moments", "pld")}
    noise = {}
    for name, selection in selections(quick).items():
        budget = Budget(spent["moments" if name.startswith("liu") else "pld"], DELTA)
        found = least_noise(budget, records=run.records, lot=LOT, steps=run.steps, selection=selection).noise
        noise[name] = found  # with every digit: a little more noise may cost more by the accountant's grid
        tell(f"{name}: sigma {noise[name]:g} at epsilon {budget.epsilon:.3f}")
    return {"adadp": adadp, "provisional": provisional, "epsilon": spent, "noise": noise}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"where parts are kept; {RESULTS} if left out")
    accuracies = _trained(parser.parse_args().out)
    enough = len(accuracies) > 1
    sigma = round(found_noise(accuracies), 3) if enough else PROVISIONAL
    for noise, value in accuracies.items():
        print(f"{part_name(CIFAR, PUBLISHED, noise)}: {value:.2f} %")
    print(f"ADADP at {PRINTED} %: sigma {sigma:g}{'' if enough else ' (provisional: nothing is trained)'}")
    written = {"full": computed(False, sigma, not enough), "quick": computed(True, PROVISIONAL, False)}
    FILE.write_text(json.dumps(written, indent=1) + "\n")


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
    """ADADP at several noises first, from which the noises of the selections follow."""
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


FEW = -4
"""The exponent of gamma from which on a selection has few runs: 16 on average, or fewer."""


def figure2(parts: Finished, quick: bool) -> Outcome:
    _, kept = adadp(parts, quick)
    found_by = searched(parts, quick)
    few = [one for one in found_by if one.name.startswith("liu") and exponent(one.name) >= FEW]
    worst = {one.name: float(np.quantile(one.accuracies, 0.1)) for one in few}
    claims = [
        judged(
            "Realisations of ADADP vary little, those of selections with few runs a lot",
            [bool(kept.min() >= low) for low in worst.values()],
            f"the worst of {len(kept)} runs of ADADP, {kept.min():.1f} %, against the worst tenth of the searches: "
            + (", ".join(f"{low:.1f} % ({name})" for name, low in worst.items()) or "none of these is trained yet"),
        )
    ]
    points = {one.name: (one.runs[:200], one.accuracies[:200]) for one in found_by}
    numbers = {name: {"runs": runs.tolist(), "accuracy": values.tolist()} for name, (runs, values) in points.items()}
    return Outcome(
        claims,
        {"adadp": kept.tolist(), "searches": numbers},
        [],
        notes_of(noises(quick), quick),
        lambda file: _draw(file, kept, points),
    )


def _draw(file: Path, own: Array, points: dict[str, tuple[Array, Array]]) -> None:
    import matplotlib

    matplotlib.use("agg")
    with panels(file, 1, 2, size=(10, 4.8)) as axes:
        for one, chosen in zip(axes[0], (False, True), strict=True):
            names = [name for name in points if (name in MODERN) is chosen]
            shades = matplotlib.colormaps["plasma"](np.linspace(0, 0.85, len(names)))
            for shade, name in zip(shades, names, strict=True):
                runs, values = points[name]
                one.plot(np.maximum(runs, 1), values, "o", color=shade, markersize=3, alpha=0.5, label=name)
            one.plot(np.ones(len(own)), own, "D", color=COLOURS["ADADP"], markersize=6, label="ADADP")
            logarithmic(one.xaxis)
            one.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0,)))
            title = "today's selections" if chosen else "Liu & Talwar, by gamma"
            named(one, title, "trainings in a search", "test accuracy, %")
            one.legend(fontsize=8, frameon=False, loc="lower right")


if __name__ == "__main__":
    main()
