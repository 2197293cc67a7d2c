"""Figures 5, 10 and 11 (DPAdam, ADADP and DPAdamWOSM at sigma 4, 2, 8) and Theorem 3.

Theorem 3. Where noise dominates, the second moment of the released gradient is (sigma C / L)^2, so Adam's effective step size
a / (sqrt(v) + xi) converges to a / (sigma C / L + xi).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.look import COLOURS, named, panels
from honestdp_papers.mohapatra2022.setting import CLIPS, LOT, MODELS, TASKS, Pair, model_of, pair_title, pairs
from honestdp_papers.mohapatra2022.training import looks, mean_accuracy, part_name, parts_at, trained_notes
from honestdp_papers.parts import Array, Arrays, Part, Tell
from honestdp_papers.registry import Finished

OPTIMIZERS = ("DPAdam", "ADADP", "DPAdamWOSM")
ALONGSIDE = 1.0
"""Points of accuracy, averaged over training, within which two lines run alongside each other."""
AS_GOOD = 0.5


def parts5(quick: bool) -> list[Part]:
    return parts_at(OPTIMIZERS, 4.0, quick)


def parts10(quick: bool) -> list[Part]:
    return parts_at(OPTIMIZERS, 2.0, quick)


def parts11(quick: bool) -> list[Part]:
    return parts_at(OPTIMIZERS, 8.0, quick)


def figure5(parts: Finished, quick: bool) -> Outcome:
    return _compared(parts, 4.0, quick)


def figure10(parts: Finished, quick: bool) -> Outcome:
    return _compared(parts, 2.0, quick)


def figure11(parts: Finished, quick: bool) -> Outcome:
    return _compared(parts, 8.0, quick)


def _compared(parts: Finished, noise: float, quick: bool) -> Outcome:
    found = {pair_title(pair): _pair(parts, noise, pair) for pair in pairs(quick)}

    def gap(title: str, kind: str, first: str, second: str) -> Array:
        lines = found[title][kind]
        difference: Array = np.array(lines[first]) - np.array(lines[second])
        return difference

    apart = {t: float(np.abs(gap(t, "best", "DPAdamWOSM", "DPAdam")).mean()) for t in found}
    median = {t: float(gap(t, "median", "DPAdamWOSM", "DPAdam").mean()) for t in found}
    early = {
        t: float(gap(t, "best", "DPAdamWOSM", "DPAdam")[: max(1, len(found[t]["steps"]) // 10)].mean()) for t in found
    }
    below = {t: max(float(gap(t, "best", "ADADP", other).mean()) for other in ("DPAdam", "DPAdamWOSM")) for t in found}
    adult = [t for t in found if t.startswith("Adult")]
    agree = [below[t] >= -AS_GOOD if t in adult else below[t] < 0 for t in found]
    claims = [
        judged(
            "DPAdamWOSM's maximum runs alongside DPAdam's",
            [value <= ALONGSIDE for value in apart.values()],
            f"they are {ALONGSIDE:g} point or less apart, averaged over training, in "
            f"{sum(v <= ALONGSIDE for v in apart.values())} of {len(apart)} cases; {max(apart.values()):.1f} points at most",
        ),
        judged(
            "DPAdamWOSM's median is as good as DPAdam's or better",
            [value >= -AS_GOOD for value in median.values()],
            f"averaged over training it is at most {AS_GOOD:g} points lower in {sum(v >= -AS_GOOD for v in median.values())} of "
            f"{len(median)} cases; from {min(median.values()):+.1f} to {max(median.values()):+.1f} points",
        ),
        judged(
            "DPAdamWOSM is better in the first steps",
            [value > 0 for value in early.values()],
            f"in the first tenth of training its maximum is higher in {sum(v > 0 for v in early.values())} of {len(early)} "
            f"cases; from {min(early.values()):+.1f} to {max(early.values()):+.1f} points",
        ),
        judged(
            "ADADP's maximum lies beneath both except on Adult",
            agree,
            f"agreeing (below 0; on Adult at least -{AS_GOOD:g}) in {sum(agree)} of {len(agree)} cases; averaged over training "
            "it is above the lower of the two by " + ", ".join(f"{below[t]:+.1f} ({t})" for t in found),
        ),
    ]
    notes = [
        *trained_notes(quick),
        "ADADP takes two releases for one iteration and is given as many releases as the others; tau is sqrt(d / 2T) for T "
        "iterations; the step that used both releases is kept and none is rejected.",
    ]
    table = _table(found)
    return Outcome(claims, {"sigma": noise, "pairs": found}, [table], notes, lambda file: _draw(file, found, noise))


def _pair(parts: Finished, noise: float, pair: Pair) -> dict[str, Any]:
    accuracy = {name: mean_accuracy(parts, part_name(noise, pair, name)) for name in OPTIMIZERS}
    return {
        "steps": looks(parts, part_name(noise, pair, "DPAdam")).tolist(),
        "best": {name: values.max(axis=0).round(3).tolist() for name, values in accuracy.items()},
        "median": {name: np.median(values, axis=0).round(3).tolist() for name, values in accuracy.items()},
    }


def _table(found: dict[str, Any]) -> Table:
    kinds = [(kind, name) for kind in ("best", "median") for name in OPTIMIZERS]
    rows: list[list[str | float]] = [
        [title, *(lines[kind][name][-1] for kind, name in kinds)] for title, lines in found.items()
    ]
    header = ["dataset, model", *(f"{name}, {kind}" for kind, name in kinds)]
    return Table("Test accuracy at the last step, per cent", header, rows, digits=1)


def _draw(file: Path, found: dict[str, Any], noise: float) -> None:
    with panels(file, len(MODELS), len(TASKS), size=(15, 7)) as axes:
        for row, model in enumerate(MODELS):
            for column, task in enumerate(TASKS):
                one, title = axes[row][column], pair_title((task, model))
                if title not in found:
                    one.set_axis_off()
                    continue
                lines = found[title]
                for kind, style in (("best", "-"), ("median", ":")):
                    for name, line in lines[kind].items():
                        one.plot(
                            lines["steps"], line, style, color=COLOURS[name], linewidth=1.5, label=f"{name}, {kind}"
                        )
                top = max(max(line) for line in lines["best"].values()) + 1
                one.set_ylim(top - 15, top)
                named(one, f"{title}, sigma {noise:g}", "steps", "test accuracy, %")
        axes[0][0].legend(frameon=False, fontsize=7, loc="lower right")


NOISE3, QUANTILES = 4.0, (0.05, 0.5, 0.95)
CONVERGED = 0.05
"""Of the predicted step size, within which the measured one has converged to it."""


def parts_theorem3(quick: bool) -> list[Part]:
    """MNIST and Adult, logistic regression, DPAdam with the four clips: the effective step size while it trains."""
    steps, every = (400, 50) if quick else (4000, 100)
    made = []
    for task in (TASKS[0], TASKS[3]):
        identity = {"dataset": task.name, "steps": steps, "every": every, "noise": NOISE3}

        def work(device: str, tell: Tell, task: Any = task) -> Arrays:
            return {"ratio": _step_sizes(task, steps, every, device, tell), "every": np.array(every)}

        made.append(Part(f"theorem3/{task.name}-LR", identity, 4e-6 * len(CLIPS) * steps, work))
    return made


def _step_sizes(task: Any, steps: int, every: int, device: str, tell: Tell) -> Array:
    """Adam's effective step size over the predicted one: quantiles over the weights, `[clips, looks, quantiles]`."""
    import torch

    from honestdp.boundary.data import PrivateData
    from honestdp.boundary.intake import take_in
    from honestdp.gradients.layout import stack
    from honestdp.optimizers import Adam
    from honestdp.optimizers.adam import XI
    from honestdp_papers.curves import Plan, placed, population_of

    dataset = task.dataset
    plan = Plan([Adam(clip=clip) for clip in CLIPS], task.run(noise=NOISE3, steps=steps), 1, every, seed=3)
    torch.manual_seed(0)
    module = model_of("LR", features=dataset.features, classes=dataset.classes)()
    place = placed(device)
    intake = take_in(module, PrivateData(dataset.train), records=task.records, loss=None, device=place, workers=0)
    starts = stack([module] * len(CLIPS), intake.layout, place)
    population = population_of(intake, plan, list(plan.rules), starts, 0)
    clips = torch.tensor(CLIPS, device=place)[:, None]
    predicted = 1 / (NOISE3 * clips / LOT + XI)
    levels = torch.tensor(QUANTILES, device=place)
    found = []
    while population.step < steps:
        population.block()
        if population.step % every == 0:
            moment = population.state["second"] / (1 - Adam(clip=1.0).beta2 ** population.step)
            ratio = 1 / (moment.sqrt() + XI) / predicted
            found.append(torch.quantile(ratio, levels, dim=1).T.cpu().numpy())
            tell(population.step / steps)
    return np.stack(found, axis=1)


def theorem3(parts: Finished, quick: bool) -> Outcome:
    tasks = (TASKS[0], TASKS[3])
    ratio = {f"{task.title}, LR": parts[f"theorem3/{task.name}-LR"]["ratio"] for task in tasks}
    every = int(parts[f"theorem3/{tasks[0].name}-LR"]["every"])
    last = {(title, clip): found[i, -1] for title, found in ratio.items() for i, clip in enumerate(CLIPS)}
    off = max(abs(float(value[1]) - 1) for value in last.values())
    claims = [
        judged(
            "DPAdam's effective step size converges to a / (sigma C / L + xi)",
            [abs(float(value[1]) - 1) <= CONVERGED for value in last.values()],
            f"at the last step the median over the weights is at most {off:.1%} off for every clip and dataset (within "
            f"{CONVERGED:.0%} agrees)",
        )
    ]
    rows: list[list[str | float]] = [[title, clip, *(float(v) for v in value)] for (title, clip), value in last.items()]
    table = Table(
        "Effective step size over the predicted one at the last step, quantiles over the weights",
        ["dataset, model", "clip", *(f"{q:.0%}" for q in QUANTILES)],
        rows,
        digits=3,
    )
    numbers = {"every": every, "clips": list(CLIPS), "ratio": {t: r.round(4).tolist() for t, r in ratio.items()}}
    steps = every * next(iter(ratio.values())).shape[1]
    notes = [f"{steps} steps at sigma {NOISE3:g}. The paper derives the claim and shows no numbers for it."]
    if quick:
        notes.append("Quick version: a tenth of the steps.")
    return Outcome(claims, numbers, [table], notes, draw=lambda file: _draw3(file, ratio, every))


def _draw3(file: Path, ratio: dict[str, Array], every: int) -> None:
    with panels(file, 1, len(ratio), size=(11, 3.9)) as axes:
        for one, (title, found) in zip(axes[0], ratio.items(), strict=True):
            steps = (np.arange(found.shape[1]) + 1) * every
            for i, clip in enumerate(CLIPS):
                one.plot(steps, found[i, :, 1], label=f"clip {clip:g}", linewidth=1.4)
                one.fill_between(steps, found[i, :, 0], found[i, :, 2], alpha=0.15)
            one.axhline(1, color="black", linestyle=":")
            one.legend(frameon=False, fontsize=8)
            named(one, title, "steps", "effective step size / predicted")
