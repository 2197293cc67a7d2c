"""A sketch of the records' linear model for one core: several scales and clips of Horizon's step at once. NOT PRIVATE, no claim.

    HONESTDP_DATA=folder python benchmarks/records_sketch.py mnist --lot 2900 --steps 1000 --scales 0.5 1 2 [--clips 1 4]

All variants are read off the same lots, which no private training may do, so that one pass over the features in bfloat16 serves
all; each variant by itself has the law of a training with Horizon at this epsilon and delta 1e-5. `--outlook` adds the scale at
which Horizon's step is Outlook's; `--centred` adds every variant on features less their mean, which is released as in
`centring.py`, out of the same epsilon. `--mirrored`, `--scaled`: see `scattering.py`. `--keep` keeps the features in a folder.
`--held-out` scores on the last 10,000 training images, which then do not train, and opens no test set. `--louder` multiplies the
noise, as a search does. Prints accuracy: of the last weights, and of a running average of them.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from centring import REACH, mean_run, run_after
from honestdp.boundary.query import HALF_RANGE
from honestdp.optimizers import outlook
from records import DATA, DELTA, MIRRORED, SCALED, features, honestdp

Side = tuple[Tensor, Tensor]
HELD_OUT = 10_000


@dataclass(frozen=True)
class Variant:
    """A scale of Horizon's step and a clip. centred: on features less their released mean."""

    scale: float
    clip: float
    centred: bool = False

    def __str__(self) -> str:
        return f"scale {self.scale:g}, clip {self.clip:g}" + (", centred" if self.centred else "")


def sides(name: str, keep: Path | None, way: str) -> list[Side]:
    found, (_, pixels, colours) = [], DATA[name]
    for side in ("train", "test"):
        path = None if keep is None else keep / f"{name}{way.replace(', ', '.')}.{side}.pt"
        if path is None or not path.exists():
            images, labels = getattr(honestdp.load_dataset(name), side)
            parts = [
                features(part, pixels, colours, "cpu", way).flatten(1).bfloat16()
                for part in torch.as_tensor(images).split(100)
            ]
            made = (torch.cat(parts), torch.as_tensor(labels).long())
            if path is not None:
                torch.save(made, path)
        else:
            made = torch.load(path)
        found.append((made[0].bfloat16(), made[1].long()))
    return found


def noisy_mean(x: Tensor, budget: honestdp.Budget, generator: torch.Generator, reach: float) -> Tensor:
    """As `centring.released_mean` makes it."""
    bound = reach * math.sqrt(x.shape[1])
    total = torch.zeros(x.shape[1])
    for part in x.split(2000):
        total += part.float().renorm(2, 0, bound).sum(0)
    noise = mean_run(budget, len(x)).noise * bound
    return (total + noise * torch.randn(total.shape, generator=generator)) / len(x)


def of_outlook(norms: Tensor, run: honestdp.Run, wide: int) -> float:
    """The scale at which Horizon's step is Outlook's, of a single layer that records of these norms enter."""
    size = float(norms.log().clamp(max=2 * HALF_RANGE).mean().exp())
    spread = (run.noise * math.sqrt(run.steps) / (outlook.TRAVEL * run.lot)) ** 2 + outlook.FLOOR**2
    return size ** (outlook.POWER - 1) / math.sqrt(spread) / step_of(run, wide)


def step_of(run: honestdp.Run, wide: int) -> float:
    """Horizon's, of a linear model with ten outputs."""
    return 42 / math.sqrt(run.steps * (0.2 + 10 * (wide + 1) * (run.noise / run.lot) ** 2))


def shifted_norms(x: Tensor, mean: Tensor) -> Tensor:
    return torch.cat([((part.float() - mean).square().sum(1) + 1).sqrt() for part in x.split(2000)])


class Sketch:
    """Weights `[numbers + 1, variants, 10]`, the bias last, of all variants: the last ones, and their running average."""

    def __init__(self, side: Side, asked: argparse.Namespace) -> None:
        self.x, self.y = side
        self.generator = torch.Generator().manual_seed(asked.seed)
        budget, wide = honestdp.Budget(asked.epsilon, DELTA), self.x.shape[1]
        shape = {"records": len(self.x), "lot": asked.lot, "steps": asked.steps}
        ways = [False, True] if asked.centred else [False]
        runs = {False: honestdp.least_noise(budget, **shape)}
        means, norms = {False: torch.zeros(wide)}, {}
        reach = REACH if asked.scaled else 1.0
        if asked.centred:
            runs[True], means[True] = run_after(budget, **shape), noisy_mean(self.x, budget, self.generator, reach)
        runs = {way: replace(run, noise=asked.louder * run.noise) for way, run in runs.items()}
        self.variants: list[Variant] = []
        for way in ways:
            norms[way] = shifted_norms(self.x, means[way])
            scales = (
                [*asked.scales, round(of_outlook(norms[way], runs[way], wide), 3)] if asked.outlook else asked.scales
            )
            self.variants += [Variant(scale, clip, way) for scale, clip in itertools.product(scales, asked.clips)]
        self.run, which = runs[False], [each.centred for each in self.variants]
        self.norms = torch.stack([norms[way] for way in which], 1)
        self.means = torch.stack([means[way] for way in which], 1)  # [numbers, variants]
        self.noises = torch.tensor([runs[way].noise for way in which])
        self.clips = torch.tensor([each.clip for each in self.variants])
        paces = [each.scale / each.clip * step_of(runs[each.centred], wide) for each in self.variants]
        self.paces = torch.tensor(paces)
        first = (torch.rand(wide, 1, 10, generator=self.generator) * 2 - 1) / math.sqrt(wide)
        count = len(self.variants)
        self.weights = torch.cat([first.expand(-1, count, -1), torch.zeros(1, count, 10)])
        self.moment, self.average = torch.zeros_like(self.weights), self.weights.clone()

    def train(self) -> None:
        began, run = time.perf_counter(), self.run
        for step in range(run.steps):
            self.moment = 0.9 * self.moment + 0.1 * self.gradient() / run.lot
            pace = self.paces * math.sqrt(1 - step / run.steps) / (1 - 0.9 ** (step + 1))
            self.weights = self.weights - pace[:, None] * self.moment
            self.average = self.average + 9 / (step + 9) * (self.weights - self.average)
            if step % 50 == 9:
                print(f"step {step + 1}, {(time.perf_counter() - began) / (step + 1):.2f} s each", flush=True)

    def gradient(self) -> Tensor:
        """Of a lot: clipped, summed, noise added."""
        lot = (torch.rand(len(self.x), generator=self.generator) < self.run.lot / len(self.x)).nonzero()[:, 0]
        part = self.x[lot]
        slope = self.outputs(part, self.weights).softmax(-1) - torch.eye(10)[self.y[lot], None]
        kept = (self.clips / (slope.norm(dim=-1) * self.norms[lot]).clamp(min=1e-12)).clamp(max=1)
        slope = slope * kept[..., None]
        whole = slope.sum(0, keepdim=True)
        product = (part.T @ slope.flatten(1).bfloat16()).float().view(-1, *slope.shape[1:])
        gradient = torch.cat([product - self.means[..., None] * whole, whole])
        noise = torch.randn(gradient.shape, generator=self.generator)
        return gradient + noise * (self.noises * self.clips)[:, None]

    def outputs(self, x: Tensor, weights: Tensor) -> Tensor:
        shift = (self.means[..., None] * weights[:-1]).sum(0)
        return (x @ weights[:-1].flatten(1).bfloat16()).float().view(len(x), -1, 10) + weights[-1] - shift

    def accuracies(self, side: Side) -> Iterator[tuple[Variant, float, float]]:
        right = []
        for weights in (self.weights, self.average):
            hits = [
                self.outputs(x, weights).argmax(-1) == y[:, None]
                for x, y in zip(*(each.split(1000) for each in side), strict=True)
            ]
            right.append(100 * torch.cat(hits).double().mean(0))
        for variant, last, averaged in zip(self.variants, *right, strict=True):
            yield variant, float(last), float(averaged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", choices=list(DATA))
    parser.add_argument("--lot", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0])
    parser.add_argument("--clips", type=float, nargs="+", default=[1.0])
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--outlook", action="store_true", help="one more scale: that of Outlook's step")
    parser.add_argument(
        "--centred", action="store_true", help="every variant also on features less their released mean"
    )
    parser.add_argument(
        "--held-out", action="store_true", help="score on the last 10,000 training images, not on test ones"
    )
    parser.add_argument("--mirrored", action="store_true", help="left and right are taken for the same")
    parser.add_argument("--scaled", action="store_true", help="channels are divided by public constants")
    parser.add_argument("--louder", type=float, default=1.0, help="so many times the noise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the features: 560 MB of MNIST, 1.9 GB of CIFAR-10")
    asked = parser.parse_args()
    train, scored = sides(asked.data, asked.keep, MIRRORED * asked.mirrored + SCALED * asked.scaled)
    if asked.held_out:
        edge = len(train[0]) - HELD_OUT
        train, scored = (train[0][:edge], train[1][:edge]), (train[0][edge:], train[1][edge:])
    sketch = Sketch(train, asked)
    sketch.train()
    way = MIRRORED * asked.mirrored + SCALED * asked.scaled
    where = f"{asked.data}{way}{', held out' * asked.held_out}, epsilon {asked.epsilon:g}"
    where += f", {asked.lot:g} x {asked.steps}" + (f", noise x {asked.louder:g}" if asked.louder != 1 else "")
    for variant, last, averaged in sketch.accuracies(scored):
        print(f"{where}, {variant}: {last:.2f} %, averaged {averaged:.2f} %", flush=True)


if __name__ == "__main__":
    main()
