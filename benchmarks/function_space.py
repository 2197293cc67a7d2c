"""Step sizes in function space: what raw curves say of a rule's constants, and optimizers against kept oracles.

`curves FOLDER` reads the curves of step sizes in suite.jsonl, suite2.jsonl and suite3.jsonl: what the rule with the given
constants would have reached, interpolated, minus the best of 48 DPSGD candidates (or, where there is none, of all curves).
`train FILE` trains settings of a file of kept oracles such as suite4.jsonl, cheapest first, until the seconds are over.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import honestdp

SCALES = np.array([0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4])
NORMS = {"mnist": 9.41, "fashion-mnist": 12.73, "adult": 3.12, "enron": 1.85}
DEPTHS = {"lr": 1, "mlp": 2, "wide": 2, "deep": 4, "cnn": 4}
COSTS = {"lr": 8e3, "mlp": 8e4, "wide": 4e5, "deep": 1.4e5, "cnn": 8e5}
Key = tuple[str, str, float, float, int]
Curve = np.ndarray[Any, Any]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(row: dict[str, Any]) -> Key:
    return row["d"], row["m"], row["s"], row["L"], row["T"]


def spread(k: Key, cap: float) -> float:
    return math.hypot(k[2] * math.sqrt(k[4]) / (1.5 * k[3]), 1 / cap)


def collected(folder: Path) -> dict[Key, dict[str, Any]]:
    """All curves of a setting by name, the mean where there are several, and its oracle."""
    found: dict[Key, dict[str, list[Any]]] = {}
    for name in ("suite", "suite2", "suite3"):
        for row in lines(folder / f"{name}.jsonl"):
            for what in {"u30", "u100", "t1", "t5", "oracle"} & set(row):
                found.setdefault(key(row), {}).setdefault(what, []).append(row[what])
    return {k: {name: np.mean(values, 0) for name, values in each.items()} for k, each in found.items()}


def curve(k: Key, each: dict[str, Any]) -> tuple[Curve, Curve] | None:
    """Accuracy over the logarithm of the step, in units of 1/n_l: hidden n_l are the geometric means (t5)."""
    if k[1] != "lr":
        return (np.log(SCALES / spread(k, 60)), each["t5"]) if "t5" in each else None
    x = np.concatenate([np.log(SCALES / spread(k, cap)) for cap in (30, 100)])
    y = np.concatenate([each["u30"], each["u100"]])[np.argsort(x)]
    return np.sort(x), np.convolve(np.pad(y, 1, "edge"), [0.25, 0.5, 0.25], "valid")


def curves(folder: Path, power: float, depth: float, cap: float, scale: float) -> None:
    differences: dict[str, list[float]] = {}
    for k, each in collected(folder).items():
        if (drawn := curve(k, each)) is None:
            continue
        best = each.get("oracle", max(values.max() for values in each.values() if np.ndim(values)))
        step = math.log(scale * NORMS[k[0]] ** power / DEPTHS[k[1]] ** depth / spread(k, cap))
        reached = float(np.interp(step, *drawn)) - 4 * max(0.0, step - drawn[0][-1]) - 2 * max(0.0, drawn[0][0] - step)
        for group in ("all", "cnn" if k[1] == "cnn" else "dense", k[0]):
            differences.setdefault(group, []).append(reached - float(best))
    for group, values in differences.items():
        middle, worst = np.median(values), min(values)
        print(f"{group:14} {len(values):3} settings: mean {np.mean(values):.2f} median {middle:.2f} worst {worst:.2f}")


def model(k: Key, inputs: int, outputs: int) -> nn.Module:
    if k[1] == "lr":
        return nn.Linear(inputs, outputs)
    if k[1] == "cnn":
        from mnist_models import small_cnn

        return small_cnn()
    width, count = {"mlp": (100, 1), "wide": (512, 1), "deep": (128, 3)}[k[1]]
    sizes = [inputs, *[width] * count]
    act = nn.Tanh if k[1] == "deep" else nn.ReLU
    hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


def cost(k: Key) -> float:
    inputs = {"adult": 0.13, "enron": 6.0}.get(k[0], 1.0)
    return k[4] * (COSTS[k[1]] * inputs * (k[3] * 6 / 2.5e10 + 1.2e-8) + 5e-4)


def train(path: Path, optimizers: list[str], repeats: int, seconds: float, only: str) -> None:
    end, known = time.monotonic() + seconds, {}
    for row in sorted(lines(path), key=lambda row: cost(key(row))):
        k = key(row)
        if only not in " ".join(map(str, k)) or time.monotonic() > end:
            continue
        if k[0] not in known:
            data = honestdp.load_dataset(k[0])
            known[k[0]] = [torch.as_tensor(np.asarray(part)) for side in (data.train, data.test) for part in side]
        x, y, x_test, y_test = known[k[0]]
        torch.manual_seed(0)
        run = honestdp.Run(records=len(x), lot=k[3], steps=k[4], noise=float(k[2]))
        start = model(k, x[0].numel(), int(y.max()) + 1)
        rules = [name for name in optimizers for _ in range(repeats)]
        results = honestdp.train_population(
            start, (x.float().flatten(1), y.long()), run=run, optimizers=rules, delta=1e-5
        )
        with torch.no_grad():
            right = [
                (r.model(x_test.float().flatten(1)).argmax(1) == y_test).float().mean().item() * 100 for r in results
            ]
        means = np.mean(np.reshape(right, (len(optimizers), repeats)), 1) - row["oracle"]
        print(json.dumps({"setting": k, "oracle": row["oracle"], **dict(zip(optimizers, means.round(2), strict=True))}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    read = verbs.add_parser("curves")
    read.add_argument("folder", type=Path)
    for name, value in (("power", 0.4), ("depth", 1.0), ("cap", 150.0), ("scale", 1.0)):
        read.add_argument(f"--{name}", type=float, default=value)
    made = verbs.add_parser("train")
    made.add_argument("path", type=Path)
    made.add_argument("--optimizers", nargs="+", default=["outlook", "horizon"])
    made.add_argument("--repeats", type=int, default=2)
    made.add_argument("--seconds", type=float, default=600.0)
    made.add_argument("--only", default="", help="settings whose name holds this, such as 'enron mlp'")
    given = vars(parser.parse_args())
    if given.pop("verb") == "curves":
        curves(**given)
    else:
        train(**given)


if __name__ == "__main__":
    main()
