"""The accuracies of every candidate of Mohapatra et al.'s grid on MNIST, and of Horizon against the best of them on four
datasets.

    HONESTDP_DATA=DATA python benchmarks/accuracies.py [--device cuda] [--steps 10000] [--seeds 5] [--json results.json]

Lot 250. Test accuracies of the last iterate. A seed is one set of initial weights; lots and noise are always new. A table
shows means over the seeds, and the least and the most. Needs torch and numpy alone. The grid is Table 3 of the paper:
DPSGD 10 step sizes x 4 clips, DPAdam 4 clips at its defaults.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.mnist_models import MODELS  # noqa: E402

from honestdp import Compute, Run  # noqa: E402
from honestdp import optimizers as rules  # noqa: E402
from honestdp.boundary.records import prepared  # noqa: E402
from honestdp.data.named import NamedDataset, load_dataset  # noqa: E402
from honestdp.training.train import train_population  # noqa: E402

STEP_SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
GRID = [rules.SGD(lr=lr, clip=clip) for lr in STEP_SIZES for clip in CLIPS]
SETS = {
    "DPSGD, 40": GRID,
    "DPAdam, 4": [rules.Adam(clip=clip) for clip in CLIPS],
    "AdamWOSM, 4": [rules.AdamWOSM(clip=clip) for clip in CLIPS],
    "AdamWOSM, clip 0.001": [rules.AdamWOSM(clip=0.001)],
}
HORIZON = [
    ("mnist", "logistic regression", 1.0),
    ("mnist", "logistic regression", 4.0),
    ("mnist", "one hidden layer of 100", 1.0),
    ("mnist", "one hidden layer of 100", 4.0),
    ("fashion-mnist", "logistic regression", 4.0),
    ("adult", "logistic regression", 4.0),
    ("enron", "logistic regression", 4.0),
]
LOT = 250


def accuracies(
    make: Callable[[], nn.Module],
    data: NamedDataset,
    optimizers: Sequence[rules.Rule],
    *,
    steps: int,
    noise: float,
    device: str,
    seed: int,
) -> list[float]:
    """Test accuracies, in order, of runs that start from the same weights."""
    (x, y), (test_x, test_y) = data.train, data.test
    torch.manual_seed(seed)
    run = Run(records=len(x), lot=LOT, steps=steps, noise=noise)
    results = train_population(make(), (x, y), run=run, optimizers=optimizers, compute=Compute(device=device))
    inputs = prepared(torch.from_numpy(test_x), torch.float32).to(device)
    labels = torch.from_numpy(test_y).to(device)
    with torch.no_grad():
        return [(result.model.to(device)(inputs).argmax(1) == labels).float().mean().item() for result in results]


def model_for(name: str, data: NamedDataset) -> Callable[[], nn.Module]:
    if name == "logistic regression":
        return lambda: nn.Linear(data.features, data.classes)
    return MODELS[name]


def over_seeds(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean, least and most of every number."""
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return {
        key: {"mean": statistics.mean(found), "least": min(found), "most": max(found)} for key, found in columns.items()
    }


def grid_row(name: str, data: NamedDataset, *, steps: int, device: str, seeds: int) -> dict[str, object]:
    row: dict[str, object] = {"steps": steps, "noise": 4.0}
    for label, optimizers in SETS.items():
        began, spreads = time.perf_counter(), []
        for seed in range(seeds):
            make = model_for(name, data)
            found = accuracies(make, data, optimizers, steps=steps, noise=4.0, device=device, seed=seed)
            spreads.append({"max": max(found), "median": statistics.median(found), "min": min(found)})
        row[label] = over_seeds(spreads) | {"seconds": time.perf_counter() - began}
        means = " / ".join(f"{value['mean']:.3f}" for value in over_seeds(spreads).values())
        print(f"  {name}, {label}: {means}  ({row[label]['seconds']:.0f} s)", flush=True)
    return row


def horizon_row(dataset: str, name: str, noise: float, *, steps: int, device: str, seeds: int) -> dict[str, object]:
    data, rows = load_dataset(dataset), []
    optimizers = [*GRID, rules.Horizon(), rules.Horizon(average=True), rules.AdamWOSM(clip=1.0)]
    for seed in range(seeds):
        make = model_for(name, data)
        found = accuracies(make, data, optimizers, steps=steps, noise=noise, device=device, seed=seed)
        oracle = max(found[:40])
        rows.append(
            {
                "oracle": oracle,
                "median": statistics.median(found[:40]),
                "horizon minus oracle": found[40] - oracle,
                "averaged horizon minus oracle": found[41] - oracle,
                "adam-wosm minus oracle": found[42] - oracle,
            }
        )
    row = over_seeds(rows)
    print(
        f"  {dataset}, {name}, sigma {noise:g}: oracle {100 * row['oracle']['mean']:.2f}, median "
        f"{100 * row['median']['mean']:.0f}, Horizon {100 * row['horizon minus oracle']['mean']:+.2f} "
        f"({100 * row['horizon minus oracle']['least']:+.2f} to {100 * row['horizon minus oracle']['most']:+.2f}), averaged "
        f"{100 * row['averaged horizon minus oracle']['mean']:+.2f}, AdamWOSM at clip 1 "
        f"{100 * row['adam-wosm minus oracle']['mean']:+.2f}",
        flush=True,
    )
    return {"steps": steps, "noise": noise, **row}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--cnn-steps", type=int, default=3000)
    parser.add_argument("--horizon-steps", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found: dict[str, object] = {"seeds": chosen.seeds}
    print(f"MNIST, sigma 4: max / median / min over the candidates, means over {chosen.seeds} seeds")
    for name in chosen.models:
        steps = chosen.cnn_steps if name == "small CNN" else chosen.steps
        found[name] = grid_row(name, load_dataset("mnist"), steps=steps, device=chosen.device, seeds=chosen.seeds)
        _write(chosen.json, found)
    print("Horizon against the best of the 40 DPSGD candidates, points of test accuracy")
    for dataset, name, noise in HORIZON:
        label = f"horizon, {dataset}, {name}, sigma {noise:g}"
        steps, device, seeds = chosen.horizon_steps, chosen.device, chosen.seeds
        found[label] = horizon_row(dataset, name, noise, steps=steps, device=device, seeds=seeds)
        _write(chosen.json, found)


def _write(path: Path | None, found: dict[str, object]) -> None:
    if path:
        path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
