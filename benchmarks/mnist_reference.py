"""MNIST at sigma 4, lot 250: the accuracies of every candidate of Mohapatra et al.'s grid, and of Horizon against the
best of them.

    python benchmarks/mnist_reference.py --data DATA/mnist [--device cuda] [--steps 10000] [--json results.json]

Reads the four idx files (train and t10k, images and labels, .gz). Test accuracies are of the last iterate, one seed.
Needs torch and numpy alone. The grid is Table 3 of the paper: DPSGD 10 step sizes x 4 clips, DPAdam 4 clips at its
defaults.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src"), str(Path(__file__).resolve().parent)]

from honestdp import Run  # noqa: E402
from honestdp import optimizers as rules  # noqa: E402
from honestdp.training import train_population  # noqa: E402
from models import MODELS  # noqa: E402

STEP_SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
GRID = [rules.SGD(lr=lr, clip=clip) for lr in STEP_SIZES for clip in CLIPS]
LOT = 250


def read_idx(path: Path) -> Tensor:
    """An idx file of bytes: a magic number whose last byte counts the dimensions, the dimensions, the values."""
    raw = gzip.decompress(path.read_bytes())
    dimensions = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def read_mnist(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images `[60000, 784]` and labels, test images and labels, as bytes and whole numbers."""
    parts = [
        read_idx(folder / f"{part}-ubyte.gz")
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    ]
    return parts[0].flatten(1), parts[1].long(), parts[2].flatten(1), parts[3].long()


def accuracies(
    make: Callable[[], nn.Module],
    data: tuple[Tensor, Tensor, Tensor, Tensor],
    optimizers: Sequence[rules.Rule],
    *,
    steps: int,
    noise: float,
    device: str,
    noise_seed: int | None = None,
) -> list[float]:
    """Test accuracies, in order, of runs that start from the same weights."""
    x, y, test_x, test_y = data
    torch.manual_seed(0)
    run = Run(records=len(x), lot=LOT, steps=steps, noise=noise)
    results = train_population(make(), (x, y), run=run, optimizers=optimizers, device=device, noise_seed=noise_seed)
    found, pixels, labels = [], test_x.to(device) * (1 / 255), test_y.to(device)
    with torch.no_grad():
        for result in results:
            right = result.model.to(device)(pixels).argmax(dim=1) == labels
            found.append(right.float().mean().item())
    return found


def spread(values: list[float]) -> dict[str, float]:
    return {"max": max(values), "median": statistics.median(values), "min": min(values)}


def grid_table(name: str, data: tuple[Tensor, ...], *, steps: int, noise: float, device: str) -> dict[str, object]:
    sets = {
        "DPSGD, 40": GRID,
        "DPAdam, 4": [rules.Adam(clip=clip) for clip in CLIPS],
        "AdamWOSM, 4": [rules.AdamWOSM(clip=clip) for clip in CLIPS],
        "AdamWOSM, clip 0.001": [rules.AdamWOSM(clip=0.001)],
    }
    row: dict[str, object] = {"steps": steps}
    for label, optimizers in sets.items():
        began = time.perf_counter()
        found = accuracies(MODELS[name], data, optimizers, steps=steps, noise=noise, device=device)
        seconds = time.perf_counter() - began
        row[label] = spread(found) | {"seconds": seconds}
        print(
            f"  {name}, {label}: {' / '.join(f'{v:.3f}' for v in spread(found).values())}  ({seconds:.0f} s)",
            flush=True,
        )
    return row


def horizon_table(name: str, data: tuple[Tensor, ...], *, steps: int, noise: float, device: str) -> dict[str, object]:
    optimizers = [*GRID, rules.Horizon(), rules.Horizon(average=True), rules.AdamWOSM(clip=1.0)]
    found = accuracies(MODELS[name], data, optimizers, steps=steps, noise=noise, device=device)
    oracle = max(found[:40])
    row = {
        "steps": steps,
        "noise": noise,
        "oracle": oracle,
        "median": statistics.median(found[:40]),
        "horizon minus oracle": found[40] - oracle,
        "averaged horizon minus oracle": found[41] - oracle,
        "adam-wosm minus oracle": found[42] - oracle,
    }
    print(
        f"  {name}, sigma {noise:g}: oracle {100 * oracle:.2f}, median {100 * row['median']:.0f}, Horizon "
        f"{100 * row['horizon minus oracle']:+.2f}, averaged {100 * row['averaged horizon minus oracle']:+.2f}, "
        f"AdamWOSM at clip 1 {100 * row['adam-wosm minus oracle']:+.2f}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--cnn-steps", type=int, default=3000)
    parser.add_argument("--horizon-steps", type=int, default=5000)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    data = read_mnist(chosen.data)
    found: dict[str, object] = {}
    print("accuracy of the last iterate, sigma 4: max / median / min")
    for name in chosen.models:
        steps = chosen.cnn_steps if name == "small CNN" else chosen.steps
        found[name] = grid_table(name, data, steps=steps, noise=4.0, device=chosen.device)
        _write(chosen.json, found)
    print("Horizon against the best of the 40 DPSGD candidates, points of test accuracy")
    for name in chosen.models:
        for noise in (1.0, 4.0) if name != "small CNN" else ():
            label = f"horizon, {name}, sigma {noise:g}"
            found[label] = horizon_table(name, data, steps=chosen.horizon_steps, noise=noise, device=chosen.device)
            _write(chosen.json, found)


def _write(path: Path | None, found: dict[str, object]) -> None:
    if path:
        path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
