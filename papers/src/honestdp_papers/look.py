"""The common style of all figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLOURS = {
    "DPSGD": "#b5651d",
    "DPMomentum": "#8a2be2",
    "DPAdam": "#d62728",
    "DPAdamWOSM": "#1f77b4",
    "ADADP": "#2a9d8f",
    "ADADP-published": "#e0a100",
    "Horizon": "#333333",
}


@contextmanager
def panels(file: Path, rows: int, columns: int, *, size: tuple[float, float]) -> Iterator[Any]:
    """Axes `[rows, columns]` to draw on; the figure is written to `file` at the end."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    try:
        for one in axes.flat:
            one.grid(alpha=0.25)
            one.spines[["top", "right"]].set_visible(False)
        yield axes
        figure.savefig(file, dpi=130)
    finally:
        plt.close(figure)


@contextmanager
def pages(file: Path, count: int, *, height: float) -> Iterator[list[Any]]:
    """So many axes, two a row, which is readable at the width of a page."""
    rows = -(-count // 2)
    with panels(file, rows, 2, size=(9, height * rows + 1)) as axes:
        flat = [one for row in axes for one in row]
        for one in flat[count:]:
            one.set_axis_off()
        yield flat[:count]


@dataclass(frozen=True)
class Line:
    """label: in the legend, once for all panels. band: least and largest value, `[looks]` each."""

    label: str
    values: Sequence[float]
    colour: str
    style: str = "-"
    band: tuple[Sequence[float], Sequence[float]] | None = None


def draw_curves(
    file: Path,
    found: dict[str, tuple[Sequence[float], list[Line]]],
    heading: str,
    *,
    axis: str = "steps",
    shown: float = 15.0,
    columns: int = 3,
) -> None:
    """Curves of accuracy. found: title of a panel -> steps, and lines. shown: points of accuracy that a panel shows."""
    with pages(file, len(found), height=2.9) as axes:
        for one, (title, (steps, lines)) in zip(axes, found.items(), strict=True):
            for line in lines:
                one.plot(steps, line.values, line.style, color=line.colour, linewidth=1.5, label=line.label)
                if line.band is not None:
                    one.fill_between(steps, *line.band, color=line.colour, alpha=0.2, linewidth=0)
            top = max(max(line.values) for line in lines if line.style == "-") + 1
            one.set_ylim(top - shown, top)
            named(one, title, axis, "test accuracy, %")
        shared_legend(axes[0], heading, columns=columns)


def shared_legend(axes: Any, heading: str, *, columns: int = 3) -> None:
    """One legend above all panels, of what is in `axes`, under a heading."""
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "outside upper center", "ncols": columns, "frameon": False, "fontsize": 9}
    axes.figure.legend(handles, labels, title=heading, title_fontsize=11, **place)


def named(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)


def logarithmic(axis: Any) -> None:
    """An axis of a plot (`axes.xaxis`, `axes.yaxis`) by powers of ten, labelled in plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
