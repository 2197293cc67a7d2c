"""UCI Adult: 45222 rows without missing values, 6 numbers and 98 one-hot columns.

Numbers are scaled by declared ranges and clipped to them: the code book of the census gives the codes of age (17, the
youngest that was extracted, to 90), education (1 to 16) and weekly hours (1 to 99) and the largest gain (99999); for the
sampling weight and the loss round numbers above any plausible one are declared. The categories are those of the data's own
description; "Never-worked" is left out, because it never comes with an occupation.
"""

from __future__ import annotations

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, content

_BASE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
FILES = tuple(
    SourceFile(f"adult/adult.{part}.gz", digest, (f"{_BASE}adult.{part}",), size)
    for part, digest, size in (
        ("data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3_974_305),
        ("test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2_003_153),
    )
)
RANGES = {0: (17, 90), 2: (0, 1_500_000), 4: (1, 16), 10: (0, 99_999), 11: (0, 5_000), 12: (1, 99)}
"""Column of the source -> declared least and largest value: age, sampling weight, education, gain, loss, weekly hours."""

_CATEGORIES = {
    1: "Federal-gov Local-gov Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    3: (
        "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters Preschool "
        "Prof-school Some-college"
    ),
    5: "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed",
    6: (
        "Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners Machine-op-inspct "
        "Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support Transport-moving"
    ),
    7: "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    8: "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    9: "Female Male",
    13: (
        "Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany Greece Guatemala "
        "Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos Mexico Nicaragua "
        "Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan Thailand "
        "Trinadad&Tobago United-States Vietnam Yugoslavia"
    ),
}
CATEGORIES = {column: tuple(words.split()) for column, words in _CATEGORIES.items()}


def _rows() -> list[list[str]]:
    """The fields of every row without a missing value, the training file's first."""
    rows = []
    for file in FILES:
        for line in content("adult", file).decode("ascii").splitlines():
            fields = [word.strip() for word in line.rstrip(".").split(",")]
            if len(fields) == 15 and "?" not in fields:
                rows.append(fields)
    if len(rows) != 45222:
        raise DatasetUnavailable(f"dataset adult: {len(rows)} whole rows in place of 45222")
    return rows


def _columns(rows: list[list[str]]) -> tuple[Array, Array, Array]:
    """Numbers `[rows, 6]` in [0, 1], one-hot columns `[rows, 98]`, labels `[rows]`, 1 for an income above 50000."""
    numbers = np.empty((len(rows), len(RANGES)), np.float32)
    for place, (column, (least, most)) in enumerate(RANGES.items()):
        values = np.array([float(row[column]) for row in rows])
        numbers[:, place] = ((values - least) / (most - least)).clip(0, 1)
    hot = np.zeros((len(rows), sum(map(len, CATEGORIES.values()))), np.float32)
    first = 0
    for column, words in CATEGORIES.items():
        place_of = {word: place for place, word in enumerate(words)}
        hot[np.arange(len(rows)), [first + place_of[row[column]] for row in rows]] = 1
        first += len(words)
    return numbers, hot, np.array([row[14] == ">50K" for row in rows], np.uint8)


def adult() -> NamedDataset:
    """The 104 columns."""
    numbers, hot, y = _columns(_rows())
    return NamedDataset(
        name="adult",
        title="Adult",
        x=np.concatenate([numbers, hot], axis=1),
        y=y,
        classes=2,
        source="Becker & Kohavi 1996, Adult, UCI Machine Learning Repository",
        licence="CC BY 4.0",
        scaling="numbers by declared ranges of the census code book, clipped; categories one-hot",
        checksums={file.path: str(file.sha256) for file in FILES},
    )
