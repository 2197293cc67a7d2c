"""Charts: epsilon against the number of candidates for every selection; and what lots, steps and noises of a plan buy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from honestdp import checks
from honestdp.accounting import quiet
from honestdp.accounting.pld import comparing
from honestdp.files import check_place, written
from honestdp.plain_words import rounded_up, shown_delta
from honestdp.planner.comparison import Plan, typical
from honestdp.planner.prospects import most_parameters
from honestdp.planner.shapes import share
from honestdp.run import Run
from honestdp.selection import catalogue

FORMATS = (".png", ".svg")
STEPS = (100, 300, 1000, 3000, 10_000)
COLOURS = ("#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08306b")  # of more and more steps
MARK, OTHER = "#d62728", "#555555"
POINTS = 13  # noises at which epsilons are computed


def check(file: Path, argument: str = "plot", *, force: bool = False) -> None:
    """Refuse a file that no chart can be written to, before long work. argument: the name that it was given by."""
    if file.suffix.lower() not in FORMATS:
        raise checks.InvalidArgument(argument, str(file), "a file name ending in .png or .svg")
    check_place(file, argument=argument, force=force)


def draw(
    run: Run,
    *,
    delta: float,
    candidates: int,
    coverage: float,
    file: Path,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Draws every selection's epsilon at the run's noise into a PNG or SVG file, each line named at its end."""
    plt = _pyplot()
    ks = sorted({round(k) for k in np.geomspace(1, max(candidates, 2), 10)})
    lines = typical(coverage=coverage)
    values: list[list[float]] = []
    for done, make in enumerate(lines.values()):
        progress(done, len(lines))
        values.append([make(k).epsilon(run.event, delta=delta) for k in ks])
    names = [*lines, "one run, no search"]
    values.append([catalogue.one_run().epsilon(run.event, delta=delta)] * len(ks))
    if not np.isfinite(values).all():
        wanted = "above 0 for a chart, since every epsilon is infinite without noise"
        raise checks.InvalidArgument("noise", run.noise, wanted)
    figure, axes = plt.subplots(figsize=(9, 5.4), layout="constrained")
    colours = [f"C{number}" for number in range(len(names))]  # of matplotlib's own cycle
    for colour, line in zip(colours, values, strict=True):
        axes.plot(ks, line, color=colour, linewidth=1.8, marker="o", markersize=2.5)
    axes.set(xscale="log", yscale="log", xlabel="candidates", ylabel=f"epsilon at delta {shown_delta(delta)}")
    setting = f"{run.records} records, lot {run.lot:g}, {run.steps} steps, noise {run.noise:.4g}"
    axes.set_title(f"What a search costs: {setting}, coverage {coverage:g}", loc="left")
    _by_powers(axes)
    _plain(axes, which="both")
    ends = [(name, line[-1], colour) for name, line, colour in zip(names, values, colours, strict=True)]
    _name_lines(axes, ks[-1], ends)
    _save(figure, file, "plot", force=force)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


def _plain(axes: Any, which: str = "major") -> None:
    axes.grid(alpha=0.25, which=which)
    axes.spines[["top", "right"]].set_visible(False)


def _by_powers(axes: Any) -> None:
    """Numbers along two logarithmic axes."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _save(figure: Any, file: Path, argument: str, *, force: bool) -> None:
    """Write a figure as its file's name says, and let it go."""
    import matplotlib.pyplot as plt

    with written(file, argument=argument, force=force) as to:
        figure.savefig(to, dpi=150, format=file.suffix.lower()[1:])
    plt.close(figure)


def _name_lines(axes: Any, x: float, ends: list[tuple[str, float, str]]) -> None:
    """Writes each name beside the end of its line, pushed apart where they would overlap."""
    low, high = np.log(axes.get_ylim())
    gap = 0.045 * (high - low)
    position = -np.inf
    for name, value, colour in sorted(ends, key=lambda end: end[1]):
        position = max(float(np.log(value)), position + gap)
        axes.annotate(
            f"{name}  {value:.3g}",
            xy=(x, value),
            xytext=(1.02, (position - low) / (high - low)),
            textcoords="axes fraction",
            color=colour,
            fontsize=8.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6},
            annotation_clip=False,
        )


def draw_choices(
    plan: Plan, *, file: Path, force: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
) -> None:
    """Draw what lots, steps and noises buy, with the choice of the plan marked, into a PNG or SVG file.

    The plan must be one at a budget.
    Left: the part of the signal that lots and steps keep, of what the budget buys at most. Right: the epsilon of the whole
    search, and of one run alone, against the noise, for the plan's lot and steps.
    """
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    _lots_and_steps(left, plan)
    _epsilons(right, plan, progress)
    for axes in (left, right):
        _plain(axes)
    count = "1 candidate" if plan.candidates == 1 else f"{plan.candidates} candidates"
    figure.suptitle(
        f"{plan.records} records, {plan.run.records} of which train; {count}; delta {shown_delta(plan.delta)}",
        x=0.01,
        ha="left",
    )
    _save(figure, file, "chart", force=force)


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
    _by_powers(axes)
    room = f"room for {most_parameters(plan.run_of(best)):.1e} weights between inputs and outputs"
    axes.text(0.02, 0.03, f"this plan has {room}", transform=axes.transAxes, color=MARK, fontsize=9)
    axes.set_title("Which epsilon, at which noise?", loc="left", fontsize=11)
    axes.legend(loc="upper right", fontsize=9, frameon=False)


def own_label(*, noise: float, epsilon: float) -> str:
    """What the mark of the plan's own choice says."""
    return f"this plan: noise {noise:.3g}, epsilon {rounded_up(epsilon, 3)}"
