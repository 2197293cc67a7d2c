"""Gisette (Guyon et al. 2004), made from MNIST's fours and nines; the challenge's training part: 6000 records of 5000 numbers."""

from __future__ import annotations

import numpy as np

from honestdp.data.named import NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, content

_BASE = "https://archive.ics.uci.edu/ml/machine-learning-databases/gisette/GISETTE/"
FILES = tuple(
    SourceFile(f"gisette/gisette_train.{part}", None, (f"{_BASE}gisette_train.{part}",), size)
    for part, size in (("data", 200_000_000), ("labels", 50_000))
)
"""Their publisher gives no checksums and no copy was at hand: they are read from HONESTDP_DATA alone."""
RECORDS, FEATURES, LARGEST = 6000, 5000, 999
SOURCE = "Guyon, Gunn, Ben-Hur & Dror 2004, NIPS 2003 feature selection challenge"


def gisette() -> NamedDataset:
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
