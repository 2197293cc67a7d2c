"""AG News, four kinds of news as bags of words.

A text is 750 numbers, 1 for each of 750 words that it has and 0 for the others, as many as the first layer of Galli et al. 2024
takes. The words are those that are in the most training texts, of three letters or more, equals in the order of the alphabet.
That list is taken from the texts themselves; with private texts it would have to be public.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, content

_BASE = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
TRAIN = SourceFile(
    "ag_news/train.csv.gz",
    "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
    (f"{_BASE}train.csv",),
    40_000_000,
)
TEST = SourceFile(
    "ag_news/test.csv.gz",
    "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
    (f"{_BASE}test.csv",),
    4_000_000,
)
WORDS, CLASSES = 750, 4
RECORDS, TESTS = 120_000, 7_600
SOURCE = "Gulli 2005; Zhang, Zhao & LeCun 2015, AG's corpus of news articles"
SCALING = "none: 1 for a word that the text has, 0 for one that it has not"
_WORD = re.compile(r"[a-z]{3,}")
Text = tuple[int, str]
"""(class, text)."""


def ag_news() -> NamedDataset:
    train, test = (rows_of(content("ag-news", file).decode("utf-8"), file.path) for file in (TRAIN, TEST))
    check_counts("ag-news", train, test, (RECORDS, TESTS))
    x, y = encoded(train, test)
    return NamedDataset(
        name="ag-news",
        title="AG News",
        x=x,
        y=y,
        classes=CLASSES,
        tests=TESTS,
        source=SOURCE,
        licence="non-commercial use",
        scaling=SCALING,
        checksums={file.path: str(file.sha256) for file in (TRAIN, TEST)},
    )


def check_counts(name: str, train: Sequence[Text], test: Sequence[Text], wanted: tuple[int, int]) -> None:
    if (len(train), len(test)) != wanted:
        raise DatasetUnavailable(
            f"dataset {name}: {len(train)} + {len(test)} texts where {wanted[0]} + {wanted[1]} are published; replace its files"
        )


def encoded(train: Sequence[Text], test: Sequence[Text]) -> tuple[Array, Array]:
    """Inputs and classes of all texts, by the words of the training texts."""
    texts = [*train, *test]
    x = presence([text for _, text in texts], vocabulary(text for _, text in train))
    return x, np.array([kind for kind, _ in texts], np.uint8)


def rows_of(published: str, where: str) -> list[Text]:
    """(class from 0, title and description) of each row of a published file: "class","title","description", classes from 1."""
    found = []
    for number, row in enumerate(csv.reader(io.StringIO(published)), start=1):
        if len(row) != 3 or row[0] not in ("1", "2", "3", "4"):
            raise DatasetUnavailable(
                f"dataset ag-news: row {number} of {where} is not a class from 1 to 4, a title and a description; replace it"
            )
        found.append((int(row[0]) - 1, f"{row[1]} {row[2]}".replace("\\", " ")))
    return found


def vocabulary(texts: Iterable[str], count: int = WORDS) -> list[str]:
    """The words that are in the most texts, in that order."""
    held: Counter[str] = Counter()
    for text in texts:
        held.update(set(_WORD.findall(text.lower())))
    return sorted(held, key=lambda word: (-held[word], word))[:count]


def presence(texts: Sequence[str], words: Sequence[str]) -> Array:
    """1 where a text has a word, `[texts, 750]`; columns of words that there are too few of stay 0."""
    place = {word: number for number, word in enumerate(words)}
    x = np.zeros((len(texts), WORDS), np.float32)
    for row, text in enumerate(texts):
        x[row, [place[word] for word in set(_WORD.findall(text.lower())) if word in place]] = 1
    return x
