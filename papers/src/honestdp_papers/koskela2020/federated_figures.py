"""How the federated figures are drawn: accuracy by the share of random images, by the step size, and over the rounds."""

from __future__ import annotations

from pathlib import Path

from honestdp_papers.koskela2020.federated_measures import final, levels_in
from honestdp_papers.koskela2020.federation import step_sizes, world
from honestdp_papers.look import COLOURS, logarithmic, named, panels
from honestdp_papers.parts import Array
from honestdp_papers.registry import Finished

COLOUR = {"ADADP": COLOURS["ADADP"], "SGD": COLOURS["DPSGD"], "Adam": COLOURS["DPAdam"]}
UNPROTECTED = "NOT PRIVATE"
"""In every title: a figure is shown without the page beside it."""
Curves = dict[str, tuple[str, Array]]
"""Label -> method and accuracies `[repeats, looks]`."""


def draw_levels(file: Path, *, parts: Finished, quick: bool) -> None:
    with panels(file, 1, 1, size=(6.5, 4)) as axes:
        for method in ("ADADP", "SGD"):
            for place, size in enumerate(step_sizes(method, quick)):
                ends = [final(parts, method, level, quick)[:, place].mean() for level in levels_in(parts, quick)]
                style = "-" if method == "ADADP" else ":"
                width = 1 + place / 2
                axes[0][0].plot(
                    levels_in(parts, quick),
                    ends,
                    style,
                    marker="o",
                    markersize=3,
                    color=COLOUR[method],
                    linewidth=width,
                    label=f"{method} {size:.2g}",
                )
        named(
            axes[0][0],
            f"{world(quick).title}: after the last round; {UNPROTECTED}",
            "% of the images dealt out at random",
            "test accuracy, %",
        )
        axes[0][0].legend(fontsize=8, frameon=False)


def draw_sizes(file: Path, *, parts: Finished, quick: bool) -> None:
    with panels(file, 1, len(levels_in(parts, quick)), size=(3 * len(levels_in(parts, quick)), 3.4)) as axes:
        for one, level in zip(axes[0], levels_in(parts, quick), strict=True):
            for method in ("ADADP", "SGD"):
                ends = final(parts, method, level, quick)
                half = ends.std(axis=0, ddof=1) / len(ends) ** 0.5
                one.errorbar(
                    step_sizes(method, quick),
                    ends.mean(axis=0),
                    half,
                    marker="o",
                    markersize=3,
                    color=COLOUR[method],
                    label=method,
                )
            logarithmic(one.xaxis)
            named(one, f"{level} % random; {UNPROTECTED}", "step size (ADADP: the first)", "test accuracy, %")
        axes[0][0].legend(fontsize=8, frameon=False)


def draw_rounds(file: Path, *, curves: Curves, seen: Array, title: str) -> None:
    with panels(file, 1, 1, size=(6.5, 4)) as axes:
        one = axes[0][0]
        several = sum(method == "Adam" for method, _ in curves.values())
        for place, (label, (method, values)) in enumerate(curves.items()):
            shade = 0.4 + 0.6 * (place + 1) / several if method == "Adam" else 1.0
            one.plot(seen, values.mean(axis=0), color=COLOUR[method], alpha=shade, linewidth=1.6, label=label)
            one.fill_between(
                seen, values.min(axis=0), values.max(axis=0), color=COLOUR[method], alpha=0.12, linewidth=0
            )
        named(one, f"{title}; band: the runs; {UNPROTECTED}", "rounds", "test accuracy, %")
        one.legend(fontsize=8, frameon=False)
