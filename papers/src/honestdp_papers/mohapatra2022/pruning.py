"""Figure 7: which DPSGD candidates are ever the best, at sigma 4."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from honestdp_papers.claims import NUMBERS, Outcome, judged
from honestdp_papers.look import named, panels
from honestdp_papers.mohapatra2022.comparison import SELDOM, wins
from honestdp_papers.mohapatra2022.measures import trained_notes
from honestdp_papers.mohapatra2022.setting import EVERY, MODELS, REPEATS, TASKS, grid, pair_name, pairs
from honestdp_papers.mohapatra2022.training import parts_at
from honestdp_papers.parts import Array, Part
from honestdp_papers.registry import Finished


def parts7(quick: bool) -> list[Part]:
    return parts_at(("DPSGD",), 4.0, quick)


def figure7(parts: Finished, quick: bool) -> Outcome:
    rules = grid("DPSGD", quick)
    counts = wins(parts, 4.0, "DPSGD", quick)
    sizes = list(dict.fromkeys(rule.lr for rule in rules))  # type: ignore[attr-defined]
    map_ = counts.reshape(len(sizes), -1)
    share = map_.sum(axis=1) / counts.sum()
    seldom = [size for size, part in zip(sizes, share, strict=True) if part < SELDOM]
    claims = [
        judged(
            "Some step sizes are hardly ever the best, so that the grid can be pruned",
            [bool(seldom)],
            f"step sizes that win less than {SELDOM:.0%} of {counts.sum()} looks: "
            + (", ".join(f"{size:g}" for size in seldom) or "none"),
        ),
    ]
    if not quick:
        each = ", ".join(f"{task.steps // EVERY} of {task.title}" for task in TASKS)
        total = f"they total {counts.sum()}: looks {each}, times {len(MODELS)} models and {REPEATS} repeats"
        claims.append(judged("The scores total 2400", [int(counts.sum()) == 2400], total, kind=NUMBERS))
    clips = list(dict.fromkeys(rule.clip for rule in rules))  # type: ignore[attr-defined]
    numbers = {
        "step sizes": sizes,
        "clips": clips,
        "wins": map_.tolist(),
        "pairs": [pair_name(p) for p in pairs(quick)],
    }
    notes = [
        *trained_notes(quick),
        "Which candidate is the best at a look is decided on test records: pruning by it favours DPSGD and DPMomentum, and no "
        "budget covers it.",
        "The paper's 2400 would be 8 pairs, 100 looks and 3 repeats; its own costs (Table 1) say that ENRON and Gisette were "
        "trained for 5000 steps, which have 50 looks.",
    ]
    return Outcome(claims, numbers, notes=notes, draw=lambda file: _draw7(file, map_, sizes, clips, quick))


def _draw7(file: Path, counts: Array, sizes: list[float], clips: list[float], quick: bool) -> None:
    with panels(file, 1, 1, size=(6, 5.6)) as axes:
        one = axes[0][0]
        one.grid(False)
        one.imshow(counts, origin="lower", cmap="Blues", aspect="auto")
        one.set_xticks(range(len(clips)), [f"{clip:g}" for clip in clips])
        one.set_yticks(range(len(sizes)), [f"{size:g}" for size in sizes])
        for (row, column), count in np.ndenumerate(counts):
            dark = count > counts.max() / 2
            one.text(column, row, str(count), ha="center", va="center", fontsize=9, color="white" if dark else "black")
        among = "without Gisette" if quick else "Gisette a stand-in"
        named(
            one,
            f"At how many looks each DPSGD candidate was the best,\nsigma 4, all datasets, models and repeats ({among})",
            "clip C",
            "step size",
        )
