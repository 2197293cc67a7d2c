"""A chart that answers "which lot, which steps, which epsilon?": what each of them buys, with the plan's own choice marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from honestdp.accounting import quiet
from honestdp.accounting.pld import comparing
from honestdp.plain_words import rounded_up, shown_delta
from honestdp.planner.comparison import Plan
from honestdp.planner.prospects import most_parameters
from honestdp.planner.shapes import share
from honestdp.report.chart import save

STEPS = (100, 300, 1000, 3000, 10_000)
COLOURS = ("#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08306b")  # of more and more steps
MARK, OTHER = "#d62728", "#555555"
POINTS = 13  # noises at which epsilons are computed


def draw(
    plan: Plan, *, file: Path, force: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
) -> None:
    """Two panels into a PNG or SVG file. The plan must be one at a budget.

    Left: the part of the signal that lots and steps keep, of what the budget buys at most. Right: the epsilon of the whole
    search, and of one run alone, against the noise, for the plan's lot and steps.
    """
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    _lots_and_steps(left, plan)
    _epsilons(right, plan, progress)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    count = "1 candidate" if plan.candidates == 1 else f"{plan.candidates} candidates"
    figure.suptitle(
        f"{plan.records} records, {plan.run.records} of which train; {count}; delta {shown_delta(plan.delta)}",
        x=0.01,
        ha="left",
    )
    save(figure, file, "chart", force=force)


def _lots_and_steps(axes: Any, plan: Plan) -> None:
    assert plan.budget is not None
    run = plan.run
    lots = np.geomspace(min(8.0, run.lot, run.records / 4), run.records, 60)
    for steps, colour in zip(STEPS, COLOURS, strict=True):
        kept = [
            100 * share(plan.budget, records=run.records, lot=lot, steps=steps, candidates=plan.candidates)
            for lot in lots
        ]
        axes.plot(lots, kept, color=colour, linewidth=1.8, label=f"{steps} steps")
    here = 100 * share(plan.budget, records=run.records, lot=run.lot, steps=run.steps, candidates=plan.candidates)
    axes.plot(
        [run.lot],
        [here],
        "o",
        color=MARK,
        markersize=8,
        zorder=5,
        label=f"this plan: lot {run.lot:g}, {run.steps} steps",
    )
    axes.set(xscale="log", ylim=(0, 104), xlabel="lot", ylabel="signal kept, % of what the budget buys at most")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title("Which lot, how many steps?", loc="left", fontsize=11)
    axes.legend(loc="lower right", fontsize=9, frameon=False)


def _epsilons(axes: Any, plan: Plan, progress: Callable[[int, int], None]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    best, one = plan.recommended, plan.one_run
    lines = [(one, "one run alone", OTHER)]
    if not best.selection.one_run:
        lines.append((best, f"the whole search ({best.selection.name})", COLOURS[2]))
    noises = np.geomspace(best.noise / 4, best.noise * 4, POINTS)
    for number, (method, label, colour) in enumerate(lines):
        values = []
        for done, noise in enumerate(noises):
            progress(number * POINTS + done, POINTS * len(lines))
            with comparing(), quiet():
                values.append(method.selection.epsilon(plan.run.with_noise(noise).event, delta=plan.delta))
        axes.plot(noises, values, color=colour, linewidth=1.8, label=label)
    label = own_label(noise=best.noise, epsilon=best.epsilon)
    axes.plot([best.noise], [best.epsilon], "o", color=MARK, markersize=8, label=label)
    axes.set(xscale="log", yscale="log", xlabel="noise of a step", ylabel=f"epsilon at delta {shown_delta(plan.delta)}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    room = f"room for {most_parameters(plan.run_of(best)):.1e} weights between inputs and outputs"
    axes.text(0.02, 0.03, f"this plan has {room}", transform=axes.transAxes, color=MARK, fontsize=9)
    axes.set_title("Which epsilon, at which noise?", loc="left", fontsize=11)
    axes.legend(loc="upper right", fontsize=9, frameon=False)


def own_label(*, noise: float, epsilon: float) -> str:
    """What the mark of the plan's own choice says."""
    return f"this plan: noise {noise:.3g}, epsilon {rounded_up(epsilon, 3)}"
