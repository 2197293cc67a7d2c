"""Figure 2: realisations of ADADP and of searches by private selection, from the trainings of table 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from honestdp_papers.claims import Outcome, judged
from honestdp_papers.koskela2020.table1 import MODERN, adadp, exponent, notes_of, searched
from honestdp_papers.koskela2020.table1_noise import noises
from honestdp_papers.look import COLOURS, logarithmic, named, panels
from honestdp_papers.parts import Array
from honestdp_papers.registry import Finished

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
