"""Curves of accuracy, one panel a dataset and model, two a row: readable at the width of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from honestdp_papers.look import named, panels, shared_legend

RANGE = 15.0
"""Points of accuracy that a panel shows, as in the paper."""


@dataclass(frozen=True)
class Line:
    """label: in the legend, once for all panels. half: of an interval, `[looks]`."""

    label: str
    values: Sequence[float]
    colour: str
    style: str = "-"
    half: Sequence[float] | None = None


def draw_curves(file: Path, found: dict[str, tuple[Sequence[float], list[Line]]], heading: str) -> None:
    """found: title of a panel -> steps, and lines."""
    rows = -(-len(found) // 2)
    with panels(file, rows, 2, size=(9, 2.9 * rows + 1)) as axes:
        flat = [one for row in axes for one in row]
        for one in flat[len(found) :]:
            one.set_axis_off()
        for one, (title, (steps, lines)) in zip(flat, found.items(), strict=False):
            for line in lines:
                one.plot(steps, line.values, line.style, color=line.colour, linewidth=1.5, label=line.label)
                if line.half is not None:
                    values, half = np.asarray(line.values), np.asarray(line.half)
                    one.fill_between(steps, values - half, values + half, color=line.colour, alpha=0.2, linewidth=0)
            top = max(max(line.values) for line in lines if line.style == "-") + 1
            one.set_ylim(top - RANGE, top)
            named(one, title, "steps", "test accuracy, %")
        shared_legend(flat[0], heading)
