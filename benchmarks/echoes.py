"""How far noise moves the outputs at the oracle's step, and what steps by that would have reached, from kept parts of the suite.

    python benchmarks/echoes.py --seed A --out results/suite

Of every setting whose oracle is kept: the best step (step size x clip, as gradients are mostly above their clip), the deviation
of the noise that a run of it leaves in every weight, and how far that moves an output (`honestdp.gradients.echo`). Then for some
targets the accuracy of the step that moves outputs by so much, interpolated between the candidates' steps, minus the best
candidate. That is for constant steps, as the candidates have; nothing is trained.

    OMP_NUM_THREADS=1 python benchmarks/echoes.py --clock

How many seconds of the processor it takes to hear some models.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from honestdp.boundary.records import prepared  # noqa: E402
from honestdp.gradients.echo import LOG_NORMS, SHAKES, echoes  # noqa: E402
from honestdp.gradients.layout import layout_of, stack  # noqa: E402
from honestdp_papers.curves import seeded  # noqa: E402
from suite_data import loaded  # noqa: E402
from suite_models import maker  # noqa: E402
from suite_settings import CANDIDATES, Setting, settings  # noqa: E402

TARGETS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
Curve = np.ndarray[Any, Any]


def moves(setting: Setting) -> Curve:
    """How far each of SHAKES moves an output, for records of the size that these are."""
    x = prepared(loaded(setting.data, "cpu")[0][:200], torch.float32)
    model = seeded(maker(setting.data, setting.net), 0)
    sized = x.is_floating_point()
    layout = replace(layout_of(model), entering=x[0].numel() if sized else 0)
    table = echoes(model, layout, stack([model], layout, torch.device("cpu")), x[:2])[0].double().log().numpy()
    log_norm = float((1 + x.flatten(1).square().sum(1)).log().mean() / 2) if sized else LOG_NORMS[0]
    return np.maximum.accumulate([np.interp(log_norm, LOG_NORMS, column) for column in table.T])


def curve(part: Path) -> tuple[Curve, Curve]:
    """Accuracy by the logarithm of the step: of candidates of the same step the best."""
    with np.load(part, allow_pickle=False) as kept:
        accuracies = 100 * kept["right"].mean(0) / kept["tests"]
    steps = np.round([lr * clip for lr, clip in CANDIDATES], 9)
    every = np.unique(steps)
    return np.log(every), np.array([accuracies[steps == one].max() for one in every])


def judged(setting: Setting, part: Path) -> dict[str, Any]:
    moved, (steps, reached) = moves(setting), curve(part)
    unit = math.log(setting.noise * math.sqrt(setting.steps) / setting.lot)
    best = steps[reached.argmax()]
    about = {"setting": setting.name, "dataset": setting.data, "family": setting.family}
    found: dict[str, Any] = {**about, "step": math.exp(best), "deviation": math.exp(best + unit)}
    found["moved"] = math.exp(np.interp(best + unit, np.log(SHAKES), moved))
    for target in TARGETS:
        step = np.interp(math.log(target), moved, np.log(SHAKES)) - unit
        found[f"at {target:g}"] = float(np.interp(step, steps, reached) - reached.max())
    return found


def left_out(rows: list[dict[str, Any]], by: str) -> str:
    """What is reached where the target is the best of all other datasets or families."""
    gaps, chosen = [], []
    for value in dict.fromkeys(row[by] for row in rows):
        others = [row for row in rows if row[by] != value] or rows
        best = max(TARGETS, key=lambda target: sum(row[f"at {target:g}"] for row in others))
        gaps += [row[f"at {best:g}"] for row in rows if row[by] == value]
        chosen.append(best)
    said = f"mean {np.mean(gaps):.2f} median {np.median(gaps):.2f} worst {min(gaps):.2f}"
    return f"chosen without the {by}, {min(chosen):g} to {max(chosen):g}: {said}"


def clock() -> None:
    def dense(*widths: int) -> nn.Module:
        layers = [part for ends in pairwise(widths) for part in (nn.Linear(*ends), nn.ReLU())]
        return nn.Sequential(*layers[:-1])

    for widths in ((784, 10), (784, 100, 10), (784, 1000, 300, 10), (1000, 3000, 2400, 10)):
        model = dense(*widths)
        layout, began = replace(layout_of(model), entering=widths[0]), time.process_time()
        echoes(model, layout, stack([model], layout, torch.device("cpu")), torch.zeros(2, widths[0]))
        print(
            f"{layout.total:9d} weights, {'-'.join(map(str, widths))}: {time.process_time() - began:.2f} s", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", default="A", help="of the suite; A if left out")
    parser.add_argument("--settings", type=int, default=48, help="how many, from the first; 48 if left out")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "suite", help="where the suite is kept")
    parser.add_argument("--families", nargs="*", help="dense, scattering, convolution, ...; all if left out")
    parser.add_argument("--json", action="store_true", help="a line of JSON for every setting")
    parser.add_argument("--clock", action="store_true", help="how long some models take to hear, and nothing else")
    asked = parser.parse_args()
    if asked.clock:
        return clock()
    rows = []
    for setting in settings(asked.seed, asked.settings):
        part = asked.out / "parts" / setting.name / "oracle.npz"
        if not part.exists() or (asked.families and setting.family not in asked.families):
            continue
        row = judged(setting, part)
        rows.append(row)
        if asked.json:
            print(json.dumps(row), flush=True)
        else:
            gaps = " ".join(f"{row[f'at {target:g}']:6.2f}" for target in TARGETS)
            print(f"{row['step']:6.3g} {row['deviation']:6.3f} {row['moved']:5.2f}  {gaps}  {setting}", flush=True)
    for target in TARGETS if rows and not asked.json else ():
        gaps = [row[f"at {target:g}"] for row in rows]
        print(f"moved by {target:3g}: mean {np.mean(gaps):.2f} median {np.median(gaps):.2f} worst {min(gaps):.2f}")
    for by in ("dataset", "family") if rows and not asked.json else ():
        print(left_out(rows, by))


if __name__ == "__main__":
    main()
