"""MNIST and Fashion-MNIST from their four idx files, bytes as they are."""

from __future__ import annotations

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, content

_PARTS = {
    "train-images-idx3": 47040016,
    "train-labels-idx1": 60008,
    "t10k-images-idx3": 7840016,
    "t10k-labels-idx1": 10008,
}
"""The four files, and the bytes of each: a header, and one for each pixel or label."""


def _files(folder: str, bases: tuple[str, ...], digests: tuple[str, ...]) -> tuple[SourceFile, ...]:
    names = [(f"{part}-ubyte.gz", size) for part, size in _PARTS.items()]
    return tuple(
        SourceFile(f"{folder}/{name}", digest, tuple(base + name for base in bases), size)
        for (name, size), digest in zip(names, digests, strict=True)
    )


MNIST = _files(
    "mnist",
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
FASHION = _files(
    "fashion-mnist",
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)


def idx(raw: bytes) -> Array:
    """An idx file of bytes: a magic number whose last byte counts the dimensions, the dimensions, the values."""
    dimensions = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read(dataset: str, files: tuple[SourceFile, ...]) -> tuple[Array, Array]:
    """Images `[70000, 784]` and labels `[70000]`, the 60000 training ones first."""
    train_x, train_y, test_x, test_y = (idx(content(dataset, file)) for file in files)
    x = np.concatenate([train_x, test_x]).reshape(-1, 784)
    y = np.concatenate([train_y, test_y])
    if x.shape != (70000, 784) or y.shape != (70000,):
        raise DatasetUnavailable(f"dataset {dataset}: images {x.shape} and labels {y.shape} in place of 70000")
    return x, y


def _images(name: str, title: str, files: tuple[SourceFile, ...], source: str, licence: str) -> NamedDataset:
    x, y = read(name, files)
    return NamedDataset(
        name=name,
        title=title,
        x=x,
        y=y,
        classes=10,
        tests=10000,
        source=source,
        licence=licence,
        scaling="bytes divided by 255, the largest byte",
        checksums={file.path: str(file.sha256) for file in files},
    )


def mnist() -> NamedDataset:
    source = "LeCun, Cortes & Burges, the MNIST database of handwritten digits"
    return _images("mnist", "MNIST", MNIST, source, "none stated by the authors")


def fashion_mnist() -> NamedDataset:
    source = "Xiao, Rasul & Vollgraf 2017, Fashion-MNIST (Zalando Research)"
    return _images("fashion-mnist", "Fashion-MNIST", FASHION, source, "MIT")
