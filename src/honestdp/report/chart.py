"""Epsilon against the number of candidates, for every selection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from honestdp import checks
from honestdp.files import check_place, written
from honestdp.plain_words import shown_delta
from honestdp.run import Run
from honestdp.selection import Series, catalogue

FORMATS = (".png", ".svg")
ONE_RUN = Series("one run", "one run, no search", lambda candidates: catalogue.one_run(), "#000000", ":", undercuts=())


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
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    ks = sorted({round(k) for k in np.geomspace(1, max(candidates, 2), 10)})
    lines = [*catalogue.series(coverage=coverage), ONE_RUN]
    values: list[list[float]] = []
    for done, series in enumerate(lines):
        progress(done, len(lines))
        values.append([series.make(k).epsilon(run.event, delta=delta) for k in ks])
    if not np.isfinite(values).all():
        wanted = "above 0 for a chart, since every epsilon is infinite without noise"
        raise checks.InvalidArgument("noise", run.noise, wanted)
    figure, axes = plt.subplots(figsize=(9, 5.4), layout="constrained")
    for series, line in zip(lines, values, strict=True):
        axes.plot(ks, line, color=series.colour, linestyle=series.style, linewidth=1.8, marker="o", markersize=2.5)
    axes.set(xscale="log", yscale="log", xlabel="candidates", ylabel=f"epsilon at delta {shown_delta(delta)}")
    setting = f"{run.records} records, lot {run.lot:g}, {run.steps} steps, noise {run.noise:.4g}"
    axes.set_title(f"What a search costs: {setting}", loc="left")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    ends = [(series.label, line[-1], series.colour) for series, line in zip(lines, values, strict=True)]
    _name_lines(axes, ks[-1], ends)
    save(figure, file, "plot", force=force)


def save(figure: Any, file: Path, argument: str, *, force: bool) -> None:
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
