"""The published records, honestly: order-2 scattering features, (3, 1e-5) for everything, nothing tuned or a search inside of it.

    python benchmarks/records.py --quick                      # digits, on a CPU, a minute
    python benchmarks/records.py --prepare                    # noises into results/records_noises.json: needs the accountant
    HONESTDP_DATA=folder python benchmarks/records.py --device cuda [--data mnist ...] [--epsilon 3 ...] [--seeds 5]

Features are `scattering.py`'s, 81 channels a colour, group-normalised image by image: no statistic of any data is in them. On
them a linear model, and a small CNN of two convolutions. Two ways:

- `untuned`: one training with Horizon, all records, lot and steps by the public rule of `honestdp.planner.shapes`. Where the
  noises were prepared it needs torch, numpy and honestdp's source, and nothing else.
- `search`: `honestdp.tune` over momentum's step size and clip, a fifth of the records to validate, all runs, scores and the
  choice inside the same epsilon. It needs the whole package; where that is not installed it is left out, and that is said.

Test accuracy is of the public test set, after the model has left. Every cell (data, model, way, epsilon, seed) is a line of
`--out`, by default results/records.jsonl; cells that are there are not made again, so the same command goes on where it was
stopped. At the end means over seeds, beside Tramer & Boneh 2021 where they have a number: theirs do not count their searches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

import honestdp  # noqa: E402
from honestdp.planner.shapes import chosen_shape  # noqa: E402
from scattering import Scattering, normalised  # noqa: E402

DELTA, EPSILONS = 1e-5, (0.5, 1.0, 2.0, 3.0)
DATA = {"mnist": (60_000, 28, 1), "fashion-mnist": (60_000, 28, 1), "cifar10": (50_000, 32, 3), "digits": (1437, 8, 1)}
PUBLISHED = {  # at epsilon 3, their searches not counted
    ("mnist", "linear"): 98.7,
    ("fashion-mnist", "linear"): 89.7,
    ("cifar10", "linear"): 67.0,
    ("cifar10", "cnn"): 69.3,
}
SPACE = {"lr": [0.05, 0.1, 0.2, 0.5], "clip": [0.1, 1.0], "momentum": 0.9}
NOISES, RESULTS = HERE.parent / "results" / "records_noises.json", HERE.parent / "results" / "records.jsonl"


def features(images: Any, pixels: int, colours: int, device: str) -> Tensor:
    """Bytes, or numbers from 0 to 1, to normalised scattering coefficients `[n, channels, side, side]`, on the device."""
    flat = torch.as_tensor(images)
    scatter, parts = Scattering(pixels), []
    for part in flat.split(1000):
        part = part.to(device)
        part = part.float() / 255 if part.dtype == torch.uint8 else part.float()
        parts.append(normalised(scatter(part.reshape(-1, colours, pixels, pixels))))
    return torch.cat(parts)


def linear(channels: int, side: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side**2, 10))


def cnn(channels: int, side: int) -> nn.Module:
    last = side // 2 if side > 2 else side
    pool = nn.MaxPool2d(2) if side > 2 else nn.Identity()
    head = nn.Sequential(nn.Flatten(), nn.Linear(32 * last**2, 10))
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1), nn.Tanh(), pool, nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(), head
    )


MODELS: dict[str, Callable[[int, int], nn.Module]] = {"linear": linear, "cnn": cnn}


def run_of(name: str, epsilon: float) -> honestdp.Run:
    """Lot and steps by the public rule; the noise as it was prepared for them, or by the accountant where it is installed."""
    budget, records = honestdp.Budget(epsilon, DELTA), DATA[name][0]
    chosen = chosen_shape(budget, records=records)
    known = json.loads(NOISES.read_text()) if NOISES.exists() else {}
    noise = known.get(f"{records} {chosen.lot:g} {chosen.steps} {epsilon:g} {DELTA:g}")
    if noise is not None:
        return honestdp.Run(records=records, lot=chosen.lot, steps=chosen.steps, noise=noise)
    return honestdp.least_noise(budget, records=records, lot=chosen.lot, steps=chosen.steps)


def prepare() -> None:
    noises = {}
    for records, epsilon in itertools.product(sorted({each[0] for each in DATA.values()}), EPSILONS):
        name = next(each for each, (count, *_) in DATA.items() if count == records)
        run = run_of(name, epsilon)
        noises[f"{records} {run.lot:g} {run.steps} {epsilon:g} {DELTA:g}"] = run.noise
    NOISES.write_text(json.dumps(noises, indent=1) + "\n")


def untuned(make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], name: str, epsilon: float, device: str) -> Any:
    how = {"compute": honestdp.Compute(device=device), "preprocessing": "scattering of each image by itself, public"}
    return honestdp.train(make(), data, run=run_of(name, epsilon), delta=DELTA, optimizer="horizon", **how)


def search(make: Callable[[], nn.Module], data: tuple[Tensor, Tensor], name: str, epsilon: float, device: str) -> Any:
    how = {"compute": honestdp.Compute(device=device), "preprocessing": "scattering of each image by itself, public"}
    return honestdp.tune(
        make, data, budget=honestdp.Budget(epsilon, DELTA), optimizer="momentum", space=SPACE, max_runs=20, **how
    )


WAYS = {"untuned": untuned, "search": search}


def cells(asked: argparse.Namespace) -> None:
    done = {tuple(each["cell"]) for each in lines(asked.out)}
    for name in asked.data:
        _, pixels, colours = DATA[name]
        todo = [
            cell
            for cell in itertools.product([name], asked.models, asked.ways, asked.epsilon, range(asked.seeds))
            if cell not in done
        ]
        if not todo:
            continue
        data = honestdp.load_dataset(name)
        x, tested = (features(side[0], pixels, colours, asked.device) for side in (data.train, data.test))
        y, labels = (torch.as_tensor(side[1]).to(asked.device) for side in (data.train, data.test))
        for cell in todo:
            _, model, way, epsilon, seed = cell
            torch.manual_seed(seed)  # of the initial weights; lots and noise are the operating system's
            began = time.perf_counter()
            try:
                result = WAYS[way](partial(MODELS[model], *x.shape[1:3]), (x, y), name, epsilon, asked.device)
            except ImportError as missing:
                print(f"left out: {' '.join(map(str, cell))}, for {missing.name} is not installed here", flush=True)
                continue
            trained = result.model.to(asked.device)
            with torch.no_grad():
                right = sum(
                    int((trained(part).argmax(1) == answer).sum())
                    for part, answer in zip(tested.split(1000), labels.split(1000), strict=True)
                )
            found: dict[str, Any] = {"cell": cell, "accuracy": 100 * right / len(labels), "run": vars(result.run)}
            found["seconds"] = round(time.perf_counter() - began, 1)
            with asked.out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{' '.join(map(str, cell))}: {found['accuracy']:.2f} % in {found['seconds']} s", flush=True)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(path: Path) -> None:
    print(
        "\n| data | model | way | epsilon | accuracy, mean (range) | seeds | Tramer & Boneh 2021 |\n|---|---|---|---|---|---|---|"
    )
    grouped: dict[tuple[Any, ...], list[float]] = {}
    for each in lines(path):
        grouped.setdefault(tuple(each["cell"][:4]), []).append(each["accuracy"])
    for (name, model, way, epsilon), found in sorted(grouped.items()):
        theirs = PUBLISHED.get((name, model), "") if epsilon == 3 else ""
        spread = f"{sum(found) / len(found):.2f} ({min(found):.2f} to {max(found):.2f})"
        print(f"| {name} | {model} | {way} | {epsilon:g} | {spread} | {len(found)} | {theirs} |")


def main() -> None:
    logging.getLogger("honestdp").setLevel(logging.ERROR)  # other trainings on the same data, which are the point here
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="digits at epsilon 3, one seed")
    parser.add_argument("--prepare", action="store_true", help="write the noises and stop")
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist", "cifar10"], choices=list(DATA))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.prepare:
        prepare()
        return
    if asked.quick:
        asked.data, asked.epsilon, asked.seeds, asked.ways = ["digits"], [3.0], 1, ["untuned"]
    asked.out = asked.out or (RESULTS.with_name("records_quick.jsonl") if asked.quick else RESULTS)
    cells(asked)
    table(asked.out)


if __name__ == "__main__":
    main()
