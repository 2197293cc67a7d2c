"""Random sane models: none may be refused, and none accepted whose gradients are not those of autograd in float64.

    python -m tests.gradients.random_models [--device cuda] [--models 200] [--first 0] [--seconds 500] [--json found.json]
    python -m tests.gradients.random_models --stand-in      # on a CPU, with what stands in for the GPU's kernels of convolutions

A model is drawn by its number: dense layers, convolutions of one and two dimensions (strides, padding, dilation, groups), pools,
norms of one record, activations, ways around, embeddings, attention, LSTM, GRU and RNN. Each is tried with one run and with
three. What is refused, or accepted with a wrong gradient, is printed with its number, and the exit status is 1. Models that go
to the slow engine are counted. Every model is a line of progress on stderr, and with --json what is known of each is written as
soon as it is: what is cut leaves what was done, and the same command goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.gradients import RefusedModel, per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.precision import products

CLASSES, LOT, WORDS = 3, 4, 11
ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus)
Made = tuple[nn.Module, tuple[int, ...], bool]
"""A model, the shape of a record, and whether it holds numbers of words."""


class Around(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(width, heads, batch_first=True), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


class First(nn.Module):
    """The outputs of a recurrent layer, without its last states."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Swapped(nn.Module):
    """A layer of channels for a sequence of features."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mT).mT


class Mean(nn.Module):
    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.dims)


def _groups(draw: random.Random, channels: int) -> int:
    return draw.choice([count for count in range(1, channels + 1) if channels % count == 0])


def images(draw: random.Random) -> Made:
    channels, side = draw.choice([1, 2, 3]), draw.randint(8, 14)
    shape, layers = (channels, side, side), []
    for _ in range(draw.randint(1, 3)):
        kernel = draw.randint(1, min(4, side))
        dilation = draw.choice([1, 1, 2]) if 2 * (kernel - 1) + 1 <= side else 1
        stride, padding = draw.choice([1, 1, 2, 3]), draw.randint(0, kernel // 2)
        mode = draw.choice(["zeros", "zeros", "zeros", "circular", "replicate"])
        groups = draw.choice([1, 1, _groups(draw, channels)])
        rows = groups * draw.randint(1, 5)
        settings = {"dilation": dilation, "groups": groups, "bias": draw.random() < 0.7, "padding_mode": mode}
        layers.append(nn.Conv2d(channels, rows, kernel, stride, padding, **settings))
        side, channels = (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, rows
        norms = [
            nn.GroupNorm(_groups(draw, channels), channels),
            nn.InstanceNorm2d(channels, affine=draw.random() < 0.5),
        ]
        norms += [nn.LayerNorm([channels, side, side])]
        if side > 1 and draw.random() < 0.4:
            layers.append(draw.choice(norms))
        layers.append(draw.choice(ACTIVATIONS)())
        if draw.random() < 0.3:
            layers.append(
                Around(nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), draw.choice(ACTIVATIONS)()))
            )
        if side >= 3 and draw.random() < 0.6:
            size, stride = draw.choice([(2, 2), (2, 1), (3, 2)])
            layers.append(draw.choice([nn.MaxPool2d, nn.AvgPool2d])(size, stride))
            side = (side - size) // stride + 1
    if draw.random() < 0.3:
        layers += [nn.AdaptiveAvgPool2d(1)]
        side = 1
    width = draw.randint(2, 8)
    layers += [
        nn.Flatten(),
        nn.Linear(channels * side * side, width),
        draw.choice(ACTIVATIONS)(),
        nn.Linear(width, CLASSES),
    ]
    return nn.Sequential(*layers), shape, False


def vectors(draw: random.Random) -> Made:
    width = first = draw.randint(3, 12)
    layers: list[nn.Module] = []
    for _ in range(draw.randint(0, 3)):
        wide = draw.randint(2, 12)
        layers.append(nn.Linear(width, wide, bias=draw.random() < 0.8))
        width = wide
        if draw.random() < 0.4:
            layers.append(draw.choice([nn.LayerNorm, nn.RMSNorm])(width))
        layers.append(draw.choice(ACTIVATIONS)())
        if draw.random() < 0.3:
            layers.append(Around(nn.Sequential(nn.Linear(width, width), draw.choice(ACTIVATIONS)())))
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)), (first,), False


def sequences(draw: random.Random) -> Made:
    width, length, words = draw.choice([4, 6, 8]), draw.randint(3, 7), draw.random() < 0.6
    layers: list[nn.Module] = [nn.Embedding(WORDS, width, padding_idx=draw.choice([None, 0]))] if words else []
    for _ in range(draw.randint(1, 2)):
        kind = draw.randint(0, 4)
        if kind == 0:
            layer, both = draw.choice([nn.LSTM, nn.GRU, nn.RNN]), draw.random() < 0.3
            size = draw.randint(2, 6)
            layers.append(First(layer(width, size, draw.randint(1, 2), batch_first=True, bidirectional=both)))
            layers.append(nn.Linear(size * (2 if both else 1), width))
        elif kind == 1:
            layers.append(Attention(width, draw.choice([1, 2])))
        elif kind == 2:
            settings = {"dropout": 0.0, "batch_first": True, "norm_first": draw.random() < 0.5}
            layers.append(nn.TransformerEncoderLayer(width, 2, 2 * width, **settings))
        elif kind == 3:
            groups = draw.choice([1, 2])
            layers.append(Swapped(nn.Conv1d(width, width, 3, padding=draw.choice([1, "same"]), groups=groups)))
        else:
            layers.append(nn.Sequential(nn.Linear(width, width), draw.choice(ACTIVATIONS)(), nn.LayerNorm(width)))
    layers += (
        [Mean(1), nn.Linear(width, CLASSES)]
        if draw.random() < 0.7
        else [nn.Flatten(), nn.Linear(width * length, CLASSES)]
    )
    return nn.Sequential(*layers), (length,) if words else (length, width), words


def made(number: int) -> Made:
    """The model of this number."""
    draw = random.Random(number)
    torch.manual_seed(number)
    return draw.choice([images, images, vectors, sequences])(draw)


def loss(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


def one_by_one(model: nn.Module, params: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The gradients `[runs, lot, ...]` by plain autograd in float64, each example alone."""
    rows: dict[str, list[Tensor]] = {name: [] for name in params}
    for run, one in ((run, one) for run in range(len(x)) for one in range(x.shape[1])):
        own = {name: value[run].double().requires_grad_() for name, value in params.items()}
        values = x[run, one : one + 1]
        output = functional_call(model, own, (values.double() if values.is_floating_point() else values,))
        found = torch.autograd.grad(
            loss(output, y[run, one : one + 1]).sum(), list(own.values()), materialize_grads=True, allow_unused=True
        )
        for name, gradient in zip(own, found, strict=True):
            rows[name].append(gradient)
    return {name: torch.stack(values).unflatten(0, x.shape[:2]) for name, values in rows.items()}


def trouble(number: int, runs: int, device: torch.device) -> tuple[str | None, bool]:
    """What is wrong with the engine's answer for this model, if anything, and whether it kept books."""
    model, shape, words = made(number)
    model.to(device)
    spread = {
        name: value.detach() + 0.1 * torch.randn(runs, *value.shape).to(device)
        for name, value in model.named_parameters()
    }
    x = torch.randint(0, WORDS, (runs, LOT, *shape)) if words else torch.randn(runs, LOT, *shape)
    x, y = x.to(device), torch.randint(0, CLASSES, (runs, LOT)).to(device)
    weights = torch.rand(runs, LOT, device=device)
    with products("highest", device):
        try:
            result = per_example(model, loss, spread, x, y)
        except RefusedModel as refusal:
            return f"refused: {refusal}", False
        books, norms, sums = isinstance(result, BookKeeping), result.norms, result.weighted_sum(weights)
    expected = one_by_one(model.double(), spread, x, y)
    right = torch.stack([value.flatten(2).square().sum(2) for value in expected.values()]).sum(0).sqrt()
    low, high = (norms / right).min().item(), (norms / right).max().item()
    if not (low >= 1 - 1e-3 and high <= 1.3):
        return f"norms are {low:.5f} to {high:.5f} times those of autograd", books
    whole = (right * weights).sum(1)
    for name, value in expected.items():
        wrong = (sums[name] - torch.einsum("rl,rl...->r...", weights.double(), value)).flatten(1).norm(dim=1)
        if not (wrong <= 1e-3 * whole).all():
            return f"the sum of {name} is off by {(wrong / whole).max().item():.1e} of the norms", books
    return None, books


def judged(number: int, device: torch.device) -> dict[str, Any]:
    """What is known of a model: of one run and of three whether it is "right", "refused", "wrong" or an "error", and why."""
    began, found = time.monotonic(), {}
    for runs in (1, 3):
        try:
            why, books = trouble(number, runs, device)
            what = "right" if why is None else "refused" if why.startswith("refused") else "wrong"
        except Exception as error:  # of the engine or of this script: either is to be looked at
            what, why, books = "error", f"{type(error).__name__}: {error}", False
        found[str(runs)] = {"is": what, "why": why and why[:300], "books": books}
    return {"runs": found, "seconds": round(time.monotonic() - began, 2)}


def known(file: Path | None, device: str) -> dict[str, Any]:
    """What an earlier call of this command, on this kind of device, left in its file."""
    if file is None or not file.exists():
        return {}
    kept = json.loads(file.read_text())
    if kept["device"] != device:
        sys.exit(f"{file} is of --device {kept['device']}, not of {device}: name another file with --json")
    return dict(kept["models"])


def keep(file: Path | None, device: str, models: dict[str, Any]) -> None:
    if file is not None:
        beside = file.with_name(file.name + ".new")
        beside.write_text(json.dumps({"device": device, "torch": torch.__version__, "models": models}) + "\n")
        os.replace(beside, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first model")
    parser.add_argument(
        "--seconds", type=float, help="begin no model after so many; what is left is said, and made by a next call"
    )
    parser.add_argument("--json", type=Path, help="write what is known after every model, and begin with what is there")
    parser.add_argument("--stand-in", action="store_true", help="tensor operations in place of a GPU's kernels")
    chosen = parser.parse_args()
    if chosen.stand_in:
        from honestdp import kernels
        from honestdp.kernels.checked import CheckedConvolutions

        from ..kernels import plain_convolution, plain_normalisation

        tried = CheckedConvolutions(plain_convolution)
        kernels.convolutions = lambda device: tried
        kernels.normalisations = lambda device: plain_normalisation
    logging.getLogger("honestdp").setLevel(logging.ERROR)
    logging.getLogger("honestdp.kernels").setLevel(logging.WARNING)  # kernels that are not used are heard
    torch.set_num_threads(1)
    began, done = time.monotonic(), known(chosen.json, chosen.device)
    numbers = range(chosen.first, chosen.first + chosen.models)
    for number in numbers:
        if str(number) in done:
            continue
        if chosen.seconds is not None and time.monotonic() - began > chosen.seconds:
            break
        one = done[str(number)] = judged(number, torch.device(chosen.device))
        keep(chosen.json, chosen.device, done)
        said = ", ".join(f"{runs} runs {each['is']}" for runs, each in one["runs"].items())
        print(f"model {number}: {said}, {one['seconds']} s", file=sys.stderr, flush=True)
        for runs, each in one["runs"].items():
            if each["is"] != "right":
                print(f"model {number}, {runs} runs: {each['why']}", flush=True)
    made = [done[str(number)] for number in numbers if str(number) in done]
    each = [one for model in made for one in model["runs"].values()]
    bad, slow = sum(one["is"] != "right" for one in each), sum(not one["books"] for one in each)
    left = f", {len(numbers) - len(made)} not yet made" if len(made) < len(numbers) else ""
    print(
        f"{len(made)} models from {chosen.first} on, one run and three: {bad} wrong, {slow} without books{left}",
        flush=True,
    )
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
