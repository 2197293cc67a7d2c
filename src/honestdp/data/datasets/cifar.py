"""CIFAR-10, bytes as they are, from the published archive of binary files, which is put into HONESTDP_DATA by hand.

The channel means are compared with the published ones.
"""

from __future__ import annotations

import tarfile

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, given

_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE = SourceFile("cifar10/cifar-10-binary.tar.gz", None, (_URL,), 200_000_000)
TRAIN, ALL, NUMBERS = 50000, 60000, 3072
MEANS = (0.4914, 0.4822, 0.4465)
"""Of red, green and blue over the training images, as published."""


def cifar10() -> NamedDataset:
    names = [f"cifar-10-batches-bin/{name}.bin" for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")]
    with tarfile.open(given("cifar10", ARCHIVE)) as opened:
        files = [opened.extractfile(name) for name in names]
        raw = b"".join(file.read(10000 * (1 + NUMBERS)) for file in files if file is not None)
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + NUMBERS)
    return dataset(np.ascontiguousarray(rows[:, 1:]), rows[:, 0].copy())


def dataset(x: Array, y: Array) -> NamedDataset:
    """The dataset of these images `[60000, 3072]`, red, green and blue one after the other, the 50000 training ones first."""
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
