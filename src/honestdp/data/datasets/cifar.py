"""CIFAR-10, bytes as they are, from files that are put into HONESTDP_DATA by hand, in one of three forms.

The published archive of binary files; lossless WebP strips of 100 images, which need Pillow; or pixels in three pieces, for a
machine that has nothing but numpy. The channel means are compared with the published ones.
"""

from __future__ import annotations

import io
import itertools
import tarfile

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, find, given

_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE = SourceFile("cifar10/cifar-10-binary.tar.gz", None, (_URL,), 200_000_000)
PACKED = "cifar10/cifar10_webp.npz"
PIECES, LABELS = tuple(f"cifar10/images-{i}.npy" for i in range(3)), "cifar10/labels.npy"
TRAIN, ALL, NUMBERS, STRIP = 50000, 60000, 3072, 100
MEANS = (0.4914, 0.4822, 0.4465)
"""Of red, green and blue over the training images, as published."""


def cifar10() -> NamedDataset:
    x, y = _read()
    means = x[:TRAIN].reshape(TRAIN, 3, -1).mean(axis=(0, 2)) / 255 if x.shape == (ALL, NUMBERS) else np.zeros(3)
    if y.shape != (ALL,) or np.abs(means - MEANS).max() > 1e-4:
        raise DatasetUnavailable(f"dataset cifar10: images {x.shape} and labels {y.shape} are not those of CIFAR-10")
    return NamedDataset(
        name="cifar10",
        title="CIFAR-10",
        x=x,
        y=y,
        classes=10,
        tests=ALL - TRAIN,
        source="Krizhevsky 2009, CIFAR-10",
        licence="none stated by the authors",
        scaling="bytes divided by 255, the largest byte",
    )


def _read() -> tuple[Array, Array]:
    """Images `[60000, 3072]`, red, green and blue one after the other, and labels, the 50000 training ones first."""
    pieces, labels = [find(piece) for piece in PIECES], find(LABELS)
    if labels is not None and all(pieces):
        pixels = np.concatenate([np.load(piece) for piece in pieces if piece is not None])
        return pixels.reshape(len(pixels), -1), np.load(labels)
    if (packed := find(PACKED)) is not None:
        with np.load(packed) as kept:
            sides = [_decoded(kept[f"webp_{side}"], kept[f"off_{side}"]) for side in ("train", "test")]
            return np.concatenate(sides), np.concatenate([kept["y_train"], kept["y_test"]])
    names = [f"cifar-10-batches-bin/{name}.bin" for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")]
    with tarfile.open(given("cifar10", ARCHIVE)) as opened:
        files = [opened.extractfile(name) for name in names]
        raw = b"".join(file.read(10000 * (1 + NUMBERS)) for file in files if file is not None)
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + NUMBERS)
    return np.ascontiguousarray(rows[:, 1:]), rows[:, 0].copy()


def _decoded(packed: Array, offsets: Array) -> Array:
    """Strips of 100 images, one below the other, as `[images, 3072]`."""
    from PIL import Image  # here: the other forms need none

    strips = []
    for first, last in itertools.pairwise(offsets):
        with Image.open(io.BytesIO(packed[first:last].tobytes())) as strip:
            images = np.asarray(strip.convert("RGB")).reshape(STRIP, 32, 32, 3)
            strips.append(images.transpose(0, 3, 1, 2).reshape(STRIP, -1))
    return np.concatenate(strips)
