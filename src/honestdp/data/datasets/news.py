"""AG News, four kinds of news as bags of words, and a set made from 20 Newsgroups that stands in for it.

A text is 750 numbers, 1 for each of 750 words that it has and 0 for the others, as many as the first layer of Galli et al. 2024
takes. The words are those that are in the most training texts, of three letters or more, equals in the order of the alphabet.
That list is taken from the texts themselves; with private texts it would have to be public.

The stand-in takes the messages of four of the topics of 20 Newsgroups (comp, rec, sci, talk), subject and body, in the split by
date of their publisher: 9650 training messages where AG News has 120000. It is not AG News, and whatever is computed from it is
labelled so.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, check, content

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
NEWSGROUPS = SourceFile(
    "newsgroups20/20newsgroups.jsonl.gz", None, ("http://qwone.com/~jason/20Newsgroups/",), 40_000_000
)
"""One JSON object a line: split, label, text. It is made by hand from the published archive; its counts are checked."""
TOPICS = ("comp", "rec", "sci", "talk")
WORDS, CLASSES = 750, 4
RECORDS, TESTS = 120_000, 7_600
STANDIN_RECORDS, STANDIN_TESTS = 9650, 6425
STANDIN_SHA256 = "cfcb7bfd13885ae0b5477db689ff02e9411420d7ad1f5135d81d4f19f95b16ce"
"""Of the words of every message."""
STANDIN = "a stand-in made from four topics of 20 Newsgroups (9650 training messages); not AG News itself"
SOURCE = "Gulli 2005; Zhang, Zhao & LeCun 2015, AG's corpus of news articles"
SCALING = "none: 1 for a word that the text has, 0 for one that it has not"
_WORD = re.compile(r"[a-z]{3,}")
Text = tuple[int, str]
"""(class, text)."""


def ag_news() -> NamedDataset:
    train, test = (rows_of(content("ag-news", file).decode("utf-8"), file.path) for file in (TRAIN, TEST))
    _check_counts("ag-news", train, test, (RECORDS, TESTS))
    x, y = _encoded(train, test)
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


def standin() -> NamedDataset:
    name = "ag-news-standin"
    train, test = newsgroups(content(name, NEWSGROUPS).decode("utf-8"))
    _check_counts(name, train, test, (STANDIN_RECORDS, STANDIN_TESTS))
    x, y = _encoded(train, test)
    check(name, f"the text of {NEWSGROUPS.path}", x.tobytes(), STANDIN_SHA256)
    return NamedDataset(
        name=name,
        title="AG News (stand-in)",
        x=x,
        y=y,
        classes=CLASSES,
        tests=STANDIN_TESTS,
        source=f"Lang 1995, 20 Newsgroups; {STANDIN}",
        licence="public corpus",
        scaling=SCALING,
        standin=STANDIN,
        checksums={"the words of every message": STANDIN_SHA256},
    )


def _check_counts(name: str, train: Sequence[Text], test: Sequence[Text], wanted: tuple[int, int]) -> None:
    if (len(train), len(test)) != wanted:
        raise DatasetUnavailable(
            f"dataset {name}: {len(train)} + {len(test)} texts where {wanted[0]} + {wanted[1]} are published; replace its files"
        )


def _encoded(train: Sequence[Text], test: Sequence[Text]) -> tuple[Array, Array]:
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


def newsgroups(lines: str) -> tuple[list[Text], list[Text]]:
    """Training and test messages of the four topics: the subject and what follows the head of the message."""
    sides: dict[str, list[Text]] = {"train": [], "test": []}
    for line in filter(None, lines.split("\n")):
        message = json.loads(line)
        topic = message["label"].partition(".")[0]
        if topic in TOPICS:
            head, _, body = message["text"].partition("\n\n")
            subject = next((own[8:] for own in head.splitlines() if own.startswith("Subject:")), "")
            sides[message["split"]].append((TOPICS.index(topic), f"{subject} {body}"))
    return sides["train"], sides["test"]


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
