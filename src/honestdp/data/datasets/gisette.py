"""Gisette, and a set made after its recipe from MNIST that stands in for it.

Guyon et al. 2004 made Gisette from MNIST's fours and nines: pixels from the middle of the image, products of random
pairs of pixels, and as many distractors ("probes") without any connection to the label; 6000 training records of 5000
features.

The stand-in follows that recipe with seeds of its own: 3000 fours and 3000 nines of MNIST, 2500 features that carry
signal (the 20 x 20 middle pixels and 2100 products of random pairs of them) and 2500 probes, each a copy of a random
one of these features with its values shuffled over the records; the columns are in random order. It is not Gisette, and
whatever is computed from it is labelled so.
"""

from __future__ import annotations

import numpy as np

from honestdp.data.datasets.images import MNIST, read
from honestdp.data.named import Array, NamedDataset, shuffled
from honestdp.data.sources import DatasetUnavailable, SourceFile, check, content

_BASE = "https://archive.ics.uci.edu/ml/machine-learning-databases/gisette/GISETTE/"
FILES = tuple(
    SourceFile(f"gisette/gisette_train.{part}", None, (f"{_BASE}gisette_train.{part}",), size)
    for part, size in (("data", 200_000_000), ("labels", 50_000))
)
"""Their publisher gives no checksums and no copy was at hand: they are read from HONESTDP_DATA alone."""
RECORDS, FEATURES, LARGEST = 6000, 5000, 999
SOURCE = "Guyon, Gunn, Ben-Hur & Dror 2004, NIPS 2003 feature selection challenge"
STANDIN = "a stand-in made from MNIST's fours and nines after Gisette's published recipe; not Gisette itself"
STANDIN_SHA256 = "710a277a1df7d2b5027883aaf07c092f0a06c5305533b07d98c0c9cb7014154c"
_SIGNAL = 2500


def real() -> NamedDataset:
    """The published training part, 6000 records; the validation and test parts are not used by the paper's sizes."""
    contents = [content("gisette", file) for file in FILES]
    try:
        values, labels = (np.array(raw.split(), dtype=np.float64) for raw in contents)
    except ValueError:
        values = labels = np.empty(0)
    in_range = values.size > 0 and values.min() >= 0 and values.max() <= LARGEST
    if values.size != RECORDS * FEATURES or not in_range or sorted(set(labels)) != [-1, 1] or labels.sum() != 0:
        raise DatasetUnavailable(
            f"dataset gisette: {FILES[0].path} and {FILES[1].path} are not {RECORDS} records of {FEATURES} whole numbers from 0 "
            f"to {LARGEST} with as many labels of 1 as of -1; replace them"
        )
    x = (values / LARGEST).astype(np.float32).reshape(RECORDS, FEATURES)
    y = (labels > 0).astype(np.uint8)
    return NamedDataset(
        name="gisette",
        title="Gisette",
        x=x,
        y=y,
        classes=2,
        source=SOURCE,
        licence="CC BY 4.0",
        scaling="values divided by 999, the largest of the published format",
    )


def standin() -> NamedDataset:
    x, y = made(*read("gisette-standin", MNIST))
    check("gisette-standin", "what was made of MNIST", x.tobytes(), STANDIN_SHA256)
    return NamedDataset(
        name="gisette-standin",
        title="Gisette (stand-in)",
        x=x,
        y=y,
        classes=2,
        source=f"{SOURCE}; {STANDIN}",
        licence="as MNIST: none stated by the authors",
        scaling="bytes divided by 255, the largest byte",
        standin=STANDIN,
        checksums={file.path: str(file.sha256) for file in MNIST} | {"the features made": STANDIN_SHA256},
    )


def made(images: Array, labels: Array) -> tuple[Array, Array]:
    """Features `[6000, 5000]` and labels (1 for a nine) from MNIST's images `[70000, 784]` and labels."""
    digits = [np.flatnonzero(labels == digit) for digit in (4, 9)]
    half = RECORDS // 2
    chosen = [rows[shuffled(len(rows), seed=place)[:half]] for place, rows in enumerate(digits)]
    rows = np.concatenate(chosen)[shuffled(RECORDS, seed=2)]
    middle = images.reshape(-1, 28, 28)[rows, 4:24, 4:24].reshape(RECORDS, -1)
    pixels = middle.shape[1]
    first, second = (_picks(pixels, _SIGNAL - pixels, seed=seed) for seed in (3, 4))
    products = middle[:, first].astype(np.uint16) * middle[:, second] // 255
    signal = np.concatenate([middle, products.astype(np.uint8)], axis=1)
    copied = _picks(_SIGNAL, FEATURES - _SIGNAL, seed=5)
    probes = [signal[shuffled(RECORDS, seed=1000 + place), column] for place, column in enumerate(copied)]
    x = np.concatenate([signal, np.stack(probes, axis=1)], axis=1)[:, shuffled(FEATURES, seed=6)]
    return np.ascontiguousarray(x), (labels[rows] == 9).astype(np.uint8)


def _picks(below: int, count: int, *, seed: int) -> Array:
    """`count` numbers below `below`, with replacement; the bias of the remainder is below 2^-50."""
    return (np.random.PCG64(seed).random_raw(count) % np.uint64(below)).astype(np.int64)
