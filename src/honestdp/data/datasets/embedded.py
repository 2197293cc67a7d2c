"""Small datasets that come with scikit-learn, so that nothing has to be downloaded.

Both are scaled by declared constants. Digits are counts from 0 to 16. For breast cancer each measurement has a declared
largest value, a round number above the maximum that the data's published description prints; what lies above is clipped.
"""

from __future__ import annotations

import numpy as np

from honestdp.data.named import NamedDataset

_MEAN = (30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1)
_ERROR = (3, 5, 25, 600, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03)
_WORST = (40, 50, 260, 4500, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25)
CANCER_LARGEST = (*_MEAN, *_ERROR, *_WORST)
"""Radius, texture, perimeter, area, smoothness, compactness, concavity, concave points, symmetry, fractal dimension: of
a sample's nuclei the mean, its standard error, and the mean of the three largest."""


def digits() -> NamedDataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return NamedDataset(
        name="digits",
        title="Digits",
        x=(digits.data / 16).clip(0, 1).astype(np.float32),
        y=digits.target.astype(np.uint8),
        classes=10,
        source="Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits (test part), UCI, as embedded in scikit-learn",
        licence="CC BY 4.0",
        scaling="counts divided by 16, the largest possible",
    )


def breast_cancer() -> NamedDataset:
    from sklearn.datasets import load_breast_cancer

    cancer = load_breast_cancer()
    return NamedDataset(
        name="breast-cancer",
        title="Breast cancer",
        x=(cancer.data / np.array(CANCER_LARGEST)).clip(0, 1).astype(np.float32),
        y=cancer.target.astype(np.uint8),
        classes=2,
        source="Wolberg, Street & Mangasarian 1995, Breast Cancer Wisconsin (Diagnostic), UCI, as embedded in scikit-learn",
        licence="CC BY 4.0",
        scaling="each measurement divided by a declared round number and clipped at 1",
    )
