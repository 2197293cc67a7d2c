"""One step size for all layers, set by how far the noise of the run moves an output, against kept oracles: dense models.

With noise sigma, lot L and T steps of size eta, each weight has noise s = eta sigma sqrt(T) / L at the end (sqrt(T/2) where steps
decay). q is how far noise of that deviation in all initial weights moves an output, in root mean square, on made-up inputs as
large as the records.

`train FOLDER` trains the dense settings whose oracles `suite.py --out FOLDER` has kept, with decay and momentum, for each of
`--targets`, which are values of q, and of `--noises`, which are factors, all on the same lots and noise. `kept FILE` does so for
the dense settings of a file such as suite4.jsonl, until the seconds are over. Both are simulations in float32 with torch's
generator: they protect nobody.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

import function_space as space  # noqa: E402
from honestdp.boundary.records import prepared  # noqa: E402
from honestdp.data.named import load_dataset  # noqa: E402
from honestdp_papers.curves import seeded  # noqa: E402
from suite_data import loaded  # noqa: E402
from suite_models import maker  # noqa: E402
from suite_settings import SOURCES, Setting, settings  # noqa: E402

NORMS = {**space.NORMS, "digits": 3.96, "cifar10": 28.0, "gisette-standin": 17.7}
"""Geometric means of sqrt(1 + |x|^2) over 500 records."""
SHAKES = np.geomspace(0.002, 2, 19)
BETA, FLOOR = 0.9, 1 / 50
Array = np.ndarray[Any, Any]
Sides = tuple[Tensor, Tensor, Tensor, Tensor]


@torch.no_grad()
def moves(model: nn.Module, x: Tensor, draws: int = 3) -> Array:
    """How far each of SHAKES moves an output: it grows with them but for draws."""
    drawn, found = torch.Generator().manual_seed(0), np.zeros(len(SHAKES))
    start, before = {name: value.detach() for name, value in model.named_parameters()}, model(x)
    for _ in range(draws):
        noise = {name: torch.randn(value.shape, generator=drawn) for name, value in start.items()}
        for place, shake in enumerate(SHAKES):
            noisy = {name: value + shake * noise[name] for name, value in start.items()}
            found[place] += float((functional_call(model, noisy, (x,)) - before).square().mean()) / draws
    return np.maximum.accumulate(np.sqrt(found))


def made_up(features: int, norm: float) -> Tensor:
    drawn = torch.Generator().manual_seed(5)
    return torch.randn(64, features, generator=drawn) * math.sqrt((norm**2 - 1) / features)


def norm_of(data: str) -> float:
    """Scattering features are normalised."""
    return NORMS.get(data, math.sqrt(1 + SOURCES[data].features))


def deviation(target: float, moved: Array) -> float:
    return float(np.exp(np.interp(math.log(target), np.log(moved), np.log(SHAKES))))


def accuracies(folder: Path, setting: Setting) -> Array | None:
    file = folder / "parts" / setting.name / "oracle.npz"
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as kept:
        return 100 * kept["right"].mean(0) / float(kept["tests"])


@dataclass
class Trained:
    """One dense network under one step size. noise: of the gradient's mean, a weight."""

    eta: float
    noise: float
    weights: list[Tensor]
    first: list[Tensor]


def passed(x: Tensor, weights: Sequence[Tensor], activation: str) -> list[Tensor]:
    """What enters each layer, and the outputs. A layer's last column is its bias."""
    found = [x]
    for number, weight in enumerate(weights):
        out = torch.addmm(weight[:, -1], found[-1], weight[:, :-1].t())
        last = number == len(weights) - 1
        found.append(out if last else out.relu() if activation == "relu" else out.tanh())
    return found


def gradients(x: Tensor, y: Tensor, weights: Sequence[Tensor], activation: str, lot: float) -> list[Tensor]:
    """Of each layer the sum over the lot of gradients clipped to 1, divided by the lot."""
    entered = passed(x, weights, activation)
    back = entered[-1].softmax(1)
    back[torch.arange(len(y)), y] -= 1
    backs, squares = [back], back.square().sum(1) * (1 + entered[-2].square().sum(1))
    for number in range(len(weights) - 1, 0, -1):
        here = entered[number]
        back = back @ weights[number][:, :-1] * ((here > 0) if activation == "relu" else 1 - here.square())
        backs.insert(0, back)
        squares = squares + back.square().sum(1) * (1 + entered[number - 1].square().sum(1))
    weigh = (1 / squares.sqrt().clamp(min=1e-30)).clamp(max=1)[:, None] / lot
    return [
        torch.cat([(weigh * b).t() @ a, (weigh * b).sum(0)[:, None]], 1) for a, b in zip(entered, backs, strict=False)
    ]


@torch.no_grad()
def simulated(
    model: nn.Module,
    sides: Sides,
    norm: float,
    shape: tuple[float, float, int, str],
    asked: argparse.Namespace,
    seed: int,
) -> list[float]:
    """Test accuracies, of each factor of the noise and each target. shape: noise, lot, steps and activation."""
    x, y, tested, answers = sides
    sigma, lot, steps, activation = shape
    moved = moves(model, made_up(x[0].numel(), norm))
    layers = [part for part in model.modules() if isinstance(part, nn.Linear)]
    start = [torch.cat([layer.weight, layer.bias[:, None]], 1) for layer in layers]
    runs = []
    for factor in asked.noises:
        unit = math.hypot(factor * sigma * math.sqrt(steps) / lot, FLOOR)
        for target in asked.targets:
            zeros = [torch.zeros_like(weight) for weight in start]
            eta = math.sqrt(2) * deviation(target, moved) / unit
            runs.append(Trained(eta, factor * sigma / lot, [weight.clone() for weight in start], zeros))
    drawn, noise = torch.Generator().manual_seed(1000 + seed), [torch.empty_like(weight) for weight in start]
    for step in range(steps):
        rows = (torch.rand(len(x), generator=drawn) < lot / len(x)).nonzero()[:, 0]
        examples, labels = prepared(x[rows], torch.float32), y[rows]
        for each in noise:
            each.normal_(generator=drawn)
        ahead = math.sqrt(1 - step / steps) / (1 - BETA ** (step + 1))
        for run in runs:
            found = gradients(examples, labels, run.weights, activation, lot)
            for weight, first, gradient, z in zip(run.weights, run.first, found, noise, strict=True):
                first.mul_(BETA).add_(gradient.add_(z, alpha=run.noise), alpha=1 - BETA)
                weight.sub_(first, alpha=run.eta * ahead)
    test = prepared(tested, torch.float32)
    return [
        100 * float((passed(test, run.weights, activation)[-1].argmax(1) == answers).float().mean()) for run in runs
    ]


def told(name: str, oracle: float, found: Sequence[Sequence[float]], asked: argparse.Namespace) -> None:
    gaps = iter((np.mean(found, 0) - oracle).round(2).tolist())
    lines = {f"noise x {factor:g}": {f"q {q:g}": next(gaps) for q in asked.targets} for factor in asked.noises}
    print(json.dumps({"setting": name, "oracle": round(oracle, 2), **lines}), flush=True)


def train(asked: argparse.Namespace) -> None:
    for setting in settings(asked.seed, asked.count):
        reached = accuracies(asked.path, setting)
        if setting.net.kind != "dense" or reached is None or (asked.only and setting.name not in asked.only.split(",")):
            continue
        x, y, tested, answers = loaded(setting.data, "cpu")
        sides = x[: setting.records], y[: setting.records], tested, answers
        shape = setting.noise, float(setting.lot), setting.steps, setting.net.activation
        found = [
            simulated(
                seeded(maker(setting.data, setting.net), repeat), sides, norm_of(setting.data), shape, asked, repeat
            )
            for repeat in range(asked.repeats)
        ]
        told(f"{setting.name} {setting}", float(reached.max()), found, asked)


def kept(asked: argparse.Namespace) -> None:
    end = time.monotonic() + asked.seconds
    for k, oracle in _dense(asked.path, asked.only):
        if time.monotonic() > end:
            return
        data = load_dataset(k[0])
        x, y, tested, answers = (torch.as_tensor(np.asarray(part)) for side in (data.train, data.test) for part in side)
        sides = x.flatten(1), y.long(), tested.flatten(1), answers.long()
        torch.manual_seed(0)
        model = space.model(k, x[0].numel(), int(y.max()) + 1)
        shape = float(k[2]), float(k[3]), k[4], "tanh" if k[1] == "deep" else "relu"
        found = [simulated(model, sides, NORMS[k[0]], shape, asked, repeat) for repeat in range(asked.repeats)]
        told(" ".join(map(str, k)), oracle, found, asked)


def _dense(path: Path, only: str) -> Iterator[tuple[space.Key, float]]:
    for row in sorted(space.lines(path), key=lambda row: space.cost(space.key(row))):
        if row["m"] != "cnn" and only in " ".join(map(str, space.key(row))):
            yield space.key(row), float(row["oracle"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("verb", choices=("train", "kept"))
    parser.add_argument("path", type=Path, help="a folder of the suite, or for kept a file of oracles")
    parser.add_argument("--seed", default="A")
    parser.add_argument("--count", type=int, default=48, help="settings of the suite, from the first")
    parser.add_argument("--only", default="", help="names of settings by commas; for kept, part of a name")
    parser.add_argument("--targets", type=float, nargs="+", default=[1.0, 1.4, 2.0])
    parser.add_argument(
        "--noises", type=float, nargs="+", default=[1.01], help="factors; 1.01 is what asking the norm costs"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=600.0, help="of kept: begin no setting after so long")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    (train if asked.verb == "train" else kept)(asked)


if __name__ == "__main__":
    main()
