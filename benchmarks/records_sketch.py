"""A sketch of the records' linear model for one core: several scales and clips of Horizon's step at once. NOT PRIVATE, no claim.

    HONESTDP_DATA=folder python benchmarks/records_sketch.py mnist --lot 2900 --steps 1000 --scales 0.5 1 2 [--clips 1 4]

All variants are read off the same lots, which no private training may do, so that one pass over the features in bfloat16 serves
all; each variant by itself has the law of a training with Horizon at epsilon 3 and delta 1e-5. `--keep` keeps the features in a
folder. Prints test accuracy: of the last weights, and of a running average of them.
"""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path

import torch
from torch import Tensor

from records import DATA, DELTA, features, honestdp

Side = tuple[Tensor, Tensor]


def sides(name: str, keep: Path | None) -> list[Side]:
    found, (_, pixels, colours) = [], DATA[name]
    for side in ("train", "test"):
        path = None if keep is None else keep / f"{name}.{side}.pt"
        if path is None or not path.exists():
            images, labels = getattr(honestdp.load_dataset(name), side)
            parts = [
                features(part, pixels, colours, "cpu").flatten(1).bfloat16()
                for part in torch.as_tensor(images).split(1000)
            ]
            made = (torch.cat(parts), torch.as_tensor(labels).long())
            if path is not None:
                torch.save(made, path)
        else:
            made = torch.load(path)
        found.append((made[0].bfloat16(), made[1].long()))
    return found


def trained(side: Side, run: honestdp.Run, variants: list[tuple[float, float]], seed: int) -> tuple[Tensor, Tensor]:
    """Weights `[numbers + 1, variants, 10]`, the bias last: the last ones, and their running average."""
    x, y = side
    wide, count, generator = x.shape[1], len(variants), torch.Generator().manual_seed(seed)
    scales, clips = (torch.tensor(each) for each in zip(*variants, strict=True))
    spread = 10 * (wide + 1) * (run.noise / run.lot) ** 2
    eta = scales / clips * 42 / math.sqrt(run.steps * (0.2 + spread))
    first = (torch.rand(wide, 1, 10, generator=generator) * 2 - 1) / math.sqrt(wide)
    weights = torch.cat([first.expand(-1, count, -1), torch.zeros(1, count, 10)])
    moment, average = torch.zeros_like(weights), weights.clone()
    norms = torch.cat([(part.float().square().sum(1) + 1).sqrt() for part in x.split(5000)])
    for step in range(run.steps):
        lot = (torch.rand(len(x), generator=generator) < run.lot / len(x)).nonzero()[:, 0]
        part = x[lot]
        slope = outputs(part, weights).softmax(-1) - torch.eye(10)[y[lot], None]
        kept = (clips / (slope.norm(dim=-1) * norms[lot, None]).clamp(min=1e-12)).clamp(max=1)
        slope = (slope * kept[..., None]).flatten(1)
        gradient = torch.cat([(part.T @ slope.bfloat16()).float(), slope.sum(0, keepdim=True)]).view_as(weights)
        gradient += torch.randn(weights.shape, generator=generator) * (run.noise * clips)[:, None]
        moment = 0.9 * moment + 0.1 * gradient / run.lot
        pace = eta * math.sqrt(1 - step / run.steps) / (1 - 0.9 ** (step + 1))
        weights = weights - pace[:, None] * moment
        average = average + 9 / (step + 9) * (weights - average)
    return weights, average


def outputs(x: Tensor, weights: Tensor) -> Tensor:
    return (x @ weights[:-1].flatten(1).bfloat16()).float().view(len(x), -1, 10) + weights[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", choices=list(DATA))
    parser.add_argument("--lot", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0])
    parser.add_argument("--clips", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the features, 560 MB of MNIST")
    asked = parser.parse_args()
    train, test = sides(asked.data, asked.keep)
    budget = honestdp.Budget(3.0, DELTA)
    run = honestdp.least_noise(budget, records=len(train[0]), lot=asked.lot, steps=asked.steps)
    variants = list(itertools.product(asked.scales, asked.clips))
    right = []
    for weights in trained(train, run, variants, asked.seed):
        hits = [
            outputs(part, weights).argmax(-1) == y[:, None]
            for part, y in zip(*(each.split(1000) for each in test), strict=True)
        ]
        right.append(100 * torch.cat(hits).double().mean(0))
    for (scale, clip), last, averaged in zip(variants, *right, strict=True):
        told = f"{asked.data}, {asked.lot:g} x {asked.steps}, noise {run.noise:.4f}, scale {scale:g}, clip {clip:g}"
        print(f"{told}: {last:.2f} %, averaged {averaged:.2f} %", flush=True)


if __name__ == "__main__":
    main()
