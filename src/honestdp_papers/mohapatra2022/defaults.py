"""Figure 3: do Adam's published defaults hold under privacy?

180 settings (5 step sizes, 6 x 6 decay rates), clip 0.5, 2500 steps, every dataset and model, three repeats. The paper does not
name the noise of this figure; sigma 4 is that of its other figures in the main text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from honestdp.optimizers import Adam
from honestdp_papers.claims import Outcome, Table, judged
from honestdp_papers.look import named, panels
from honestdp_papers.mohapatra2022.setting import pair_name, pair_title, pairs
from honestdp_papers.mohapatra2022.training import mean_accuracy, trained_notes, training_part
from honestdp_papers.parts import Part
from honestdp_papers.registry import Finished

STEP_SIZES = (0.001, 0.05, 0.01, 0.2, 0.5)
DECAYS = (0.8, 0.85, 0.9, 0.95, 0.99, 0.999)
CLIP, STEPS, NOISE = 0.5, 2500, 4.0
NEAR = 2.0
"""Points of accuracy within which a setting counts as close to the best."""


def settings(quick: bool) -> list[tuple[float, float, float]]:
    decays = (0.9, 0.999) if quick else DECAYS
    return [(lr, beta1, beta2) for lr in STEP_SIZES for beta1 in decays for beta2 in decays]


def parts3(quick: bool) -> list[Part]:
    rules = [Adam(clip=CLIP, lr=lr, beta1=beta1, beta2=beta2) for lr, beta1, beta2 in settings(quick)]
    return [
        training_part(f"figure3/{pair_name(pair)}", pair, rules, noise=NOISE, quick=quick, steps=STEPS)
        for pair in pairs(quick)
    ]


def figure3(parts: Finished, quick: bool) -> Outcome:
    tried = settings(quick)
    black = [i for i, setting in enumerate(tried) if setting[0] == 0.001]
    gold = tried.index((0.001, 0.9, 0.999))
    final = {pair_title(pair): mean_accuracy(parts, f"figure3/{pair_name(pair)}")[:, -1] for pair in pairs(quick)}
    gap = {title: float(found.max() - found[gold]) for title, found in final.items()}
    small = {title: float(found.max() - found[black].min()) for title, found in final.items()}
    best = {title: tried[int(found.argmax())][0] == 0.001 for title, found in final.items()}
    claims = [
        judged(
            "With step size 0.001 and the default decay rates DPAdam is close to the best everywhere",
            [value <= NEAR for value in gap.values()],
            f"within {NEAR:g} points of the best of {len(tried)} settings in {sum(v <= NEAR for v in gap.values())} of "
            f"{len(gap)} cases; {max(gap.values()):.1f} points below at worst",
        ),
        judged(
            "With step size 0.001 every choice of decay rates is close to the best",
            [value <= NEAR for value in small.values()],
            f"the worst of them is within {NEAR:g} points in {sum(v <= NEAR for v in small.values())} of {len(small)} cases, "
            f"{max(small.values()):.1f} points below at worst",
        ),
        judged(
            "In most cases the best setting has step size 0.001",
            list(best.values()),
            f"in {sum(best.values())} of {len(best)} cases (most: more than half)",
            most=True,
        ),
    ]
    rows: list[list[str | float]] = [
        [
            title,
            float(found.max()),
            float(found[gold]),
            float(found[black].min()),
            float(np.median(found)),
            float(found.min()),
        ]
        for title, found in final.items()
    ]
    header = ["dataset, model", "best", "defaults", "worst with 0.001", "median", "worst"]
    numbers: dict[str, Any] = {
        "settings": [list(setting) for setting in tried],
        "accuracy": {title: found.round(3).tolist() for title, found in final.items()},
    }
    notes = [
        *trained_notes(quick),
        f"The paper does not name the noise of this figure; here sigma is {NOISE:g}.",
    ]
    table = Table("Test accuracy, per cent", header, rows, digits=1)
    return Outcome(claims, numbers, [table], notes, lambda file: _draw(file, numbers["accuracy"], black, gold))


def _draw(file: Path, final: dict[str, list[float]], black: list[int], gold: int) -> None:
    with panels(file, 1, 1, size=(11, 4.6)) as axes:
        one = axes[0][0]
        for place, values in enumerate(final.values()):
            one.boxplot([values], positions=[place], widths=0.5, showfliers=False, medianprops={"color": "#777777"})
            one.plot([place] * len(black), [values[i] for i in black], ".", color="black", markersize=3)
            one.plot([place], [values[gold]], "o", color="#e0a100", markersize=6)
        one.set_xticks(range(len(final)), [title.replace(", ", "\n") for title in final])
        named(one, "DPAdam's settings: black, step size 0.001; gold, the published defaults", "", "test accuracy, %")
