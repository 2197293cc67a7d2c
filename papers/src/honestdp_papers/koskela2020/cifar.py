"""CIFAR-10 and the authors' frozen convolutions: images, features of every crop, and a random crop as a look-up in them.

The convolutions have no padding, so the features of a crop are those of the padded image at some of its places: a dense map of
25 by 25 places holds all 81 crops, 5 by 5 places each, four apart; a second map holds the mirrored ones. The map is computed
once, and a step looks up the crop that it drew, where the convolutions would be most of a step's work. The features are the same
as those of the cropped image (papers/tests/test_koskela2020.py). The look-up is an augmentation: a function of a
record's number and of numbers drawn for it.

A machine without an image decoder is given the pixels as three files, each of which can be carried by itself:

    python -m honestdp_papers.koskela2020.cifar carry/data        # cifar10/images-0.npy, -1, -2 and labels.npy
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import load_dataset
from honestdp.augment import Augmentation
from honestdp.data.datasets.cifar import TRAIN
from honestdp.data.sources import find
from honestdp.errors import DatasetUnavailable
from honestdp_papers.forms import LABELS, PIECES
from honestdp_papers.parts import Array

LAYERS = "cifar10/koskela2020_conv_layers.npz"
SIDE = 32
MEANS, DEVIATIONS = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
__all__ = ["TRAIN", "Crops", "convolutions", "every_crop", "features", "images"]
PAD, PLACES, CHANNELS, STRIDE, CROP = 4, 25, 64, 4, 5
"""Of the dense map: places a side, channels, places from one feature of a crop to the next, and features of a crop a side."""
FEATURES = CROP * CROP * CHANNELS


def _found(path: str) -> Path:
    file = find(path)
    if file is None:
        raise DatasetUnavailable(
            f"dataset cifar10: {path} is not in the folder that HONESTDP_DATA names, nor in the cache"
        )
    return file


@lru_cache(maxsize=1)
def images() -> tuple[Array, Array]:
    """Pixels `[60000, 3, 32, 32]`, the 50000 training images first, and labels `[60000]`."""
    dataset = load_dataset("cifar10")
    return dataset.x.reshape(-1, 3, SIDE, SIDE), dataset.y.astype(np.int64)


def convolutions() -> nn.Sequential:
    """The authors' two layers for pixels in [0, 1], frozen: normalising by channel is folded into the first."""
    with np.load(_found(LAYERS)) as kept:
        layers = {name: torch.from_numpy(kept[name]) for name in kept.files}
    first, second = nn.Conv2d(3, CHANNELS, 3), nn.Conv2d(CHANNELS, CHANNELS, 3)
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEANS, DEVIATIONS))
    weight = layers["conv1.weight"] / deviation
    with torch.no_grad():
        first.weight.copy_(weight)
        first.bias.copy_(layers["conv1.bias"] - (weight * mean).sum(dim=(1, 2, 3)))  # type: ignore[union-attr]
        second.weight.copy_(layers["conv2.weight"])
        second.bias.copy_(layers["conv2.bias"])  # type: ignore[union-attr]
    body = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(3, 2), second, nn.ReLU(), nn.MaxPool2d(3, 2), ByPlace())
    return body.requires_grad_(False)


class ByPlace(nn.Module):
    """Features of an image as one row, the channels of a place side by side."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


@torch.no_grad()
def features(pixels: Array, device: torch.device, *, together: int = 1000) -> Tensor:
    """Those of images as they are, `[n, 1600]`."""
    body, rows = convolutions().to(device), []
    for some in np.array_split(pixels, max(1, len(pixels) // together)):
        rows.append(body(torch.from_numpy(some).to(device).float() / 255))
    return torch.cat(rows)


@torch.no_grad()
def every_crop(pixels: Array, device: torch.device, *, together: int = 500) -> Tensor:
    """The dense maps of images and of their mirror images, `[n * 2 * 25 * 25, 64]`."""
    body = convolutions().to(device)
    first, second = body[0], body[3]
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Conv2d)
    table = torch.empty(len(pixels), 2, PLACES, PLACES, CHANNELS, device=device)
    for at in range(0, len(pixels), together):
        some = F.pad(torch.from_numpy(pixels[at : at + together]).to(device).float() / 255, (PAD,) * 4)
        for mirrored, seen in enumerate((some, some.flip(3))):
            # At every place in place of every second: strides become dilations.
            near = F.max_pool2d(F.relu(first(seen)), 3, 1)
            far = F.relu(F.conv2d(near, second.weight, second.bias, dilation=2))
            map_of = F.max_pool2d(far, 3, 1, dilation=2)[:, :, :PLACES, :PLACES]
            table[at : at + together, mirrored] = map_of.permute(0, 2, 3, 1)
    return table.view(-1, CHANNELS)


@dataclass(frozen=True, eq=False)
class Crops(Augmentation):
    """The features of a random crop, mirrored half of the time, of the image with a record's number x `[1]`."""

    table: Tensor
    draws: int = 3
    _places: Tensor = field(init=False)

    def __post_init__(self) -> None:
        steps = STRIDE * torch.arange(CROP, device=self.table.device)
        object.__setattr__(self, "_places", (steps[:, None] * PLACES + steps).flatten())

    def one(self, x: Any, u: Tensor) -> Tensor:
        down, right = ((2 * PAD + 1) * u[:2]).floor().long().clamp(max=2 * PAD).unbind()
        mirrored = (u[2] < 0.5).long()
        right = torch.where(u[2] < 0.5, 2 * PAD - right, right)
        start = (2 * x[0] + mirrored) * PLACES * PLACES + down * PLACES + right
        return self.table.index_select(0, start + self._places).flatten()


def main(folder: Path) -> None:
    """Writes pixels and labels in pieces that can be carried one by one, and the layers beside them."""
    pixels, labels = images()
    (folder / "cifar10").mkdir(parents=True, exist_ok=True)
    for name, piece in zip(PIECES, np.array_split(pixels, len(PIECES)), strict=True):
        np.save(folder / name, piece)
    np.save(folder / LABELS, labels.astype(np.uint8))
    (folder / LAYERS).write_bytes(_found(LAYERS).read_bytes())
    for name in (*PIECES, LABELS, LAYERS):
        print(f"{(folder / name).stat().st_size / 2**20:6.1f} MiB  {folder / name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
