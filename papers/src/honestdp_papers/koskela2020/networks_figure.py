"""How the figures on networks are drawn: a panel a noise, test accuracy over the epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from honestdp_papers.koskela2020.setting import TUNED_AT
from honestdp_papers.look import COLOURS, named, panels, shared_legend

if TYPE_CHECKING:
    from honestdp_papers.koskela2020.networks import Compared

STYLES = {"best": "-", "second best": "--", f"tuned at sigma {TUNED_AT:g}": "-", "tuned at this sigma": "--"}


def draw(file: Path, compared: Sequence[Compared], costs: dict[str, float], heading: str) -> None:
    rows = -(-len(compared) // 2)
    with panels(file, rows, 2, size=(9, 3.0 * rows + 1)) as axes:
        flat: list[Any] = [one for row in axes for one in row]
        for one in flat[len(compared) :]:
            one.set_axis_off()
        for one, what in zip(flat, compared, strict=False):
            for name, line in what.lines.items():
                label, colour, style = _shown(name)
                values, epochs = line.mean(axis=0), np.arange(1, line.shape[1] + 1)
                one.plot(epochs, values, style, color=colour, linewidth=1.5, label=label)
                one.fill_between(epochs, line.min(axis=0), line.max(axis=0), color=colour, alpha=0.15, linewidth=0)
            top = max(float(line.mean(axis=0).max()) for line in what.lines.values()) + 1
            one.set_ylim(top - 25, top)
            sizes = ", ".join(name.split(",")[0] for name in what.lines if "," in name)
            title = f"sigma {what.noise:g}, epsilon {costs[f'{what.noise:g}']:.2f}: {sizes}"
            named(one, title, "epochs", "test accuracy, %")
        shared_legend(flat[0], f"{heading} (bands: least and largest)", columns=2)


def _shown(name: str) -> tuple[str, str, str]:
    """Label without the step size, which is another in each panel; colour and style."""
    first, _, place = name.partition(", ")
    kind = first.split()[0]
    return (f"{kind}, {place}" if place else kind), COLOURS[kind], STYLES.get(place, "-")
