"""Datasets in forms that papers alone take, and sets that stand in for those whose files nobody has; `load_dataset` knows them.

`mnist-signed` and `enron-counts` have the numbers that the published code of Mohapatra et al. 2022 trains on, `adult-202` its 202
dimensions: the 6 numbers and the one-hot columns twice (Table 2 there; 6 + 2 * 98).

`gisette-standin` follows the recipe of Guyon et al. 2004 with seeds of its own: 3000 fours and 3000 nines of MNIST, 2500 features
that carry signal (the 20 x 20 middle pixels and 2100 products of random pairs of them) and 2500 probes, each a copy of a random
one of these features with its values shuffled over the records; the columns are in random order. `ag-news-standin` takes the
messages of four of the topics of 20 Newsgroups (comp, rec, sci, talk), subject and body, in the split by date of their publisher:
9650 training messages where AG News has 120000. Neither is what it stands in for, and all results of them say so.

`cifar10` is also read from lossless WebP strips of 100 images, which need Pillow, or from pixels in three pieces, for a machine
that has nothing but numpy.
"""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace

import numpy as np

from honestdp.data.datasets import adult, cifar, enron, gisette, images, news
from honestdp.data.named import Array, NamedDataset, shuffled
from honestdp.data.sources import SourceFile, check, content, find

# ---- The forms of Mohapatra et al. 2022


def mnist_signed() -> NamedDataset:
    """MNIST as the published code has it: a pixel p in [0, 1] is 2p - 1, so that paper is -1."""
    plain = images.mnist()
    return replace(
        plain,
        name="mnist-signed",
        title="MNIST (pixels in [-1, 1])",
        x=plain.x.astype(np.float32) * np.float32(2 / 255) - 1,
        scaling="bytes divided by 127.5, less 1",
    )


def adult_twice() -> NamedDataset:
    """The paper's 202 columns: the one-hot part appended twice."""
    once = adult.adult()
    twice = np.concatenate([once.x, once.x[:, len(adult.RANGES) :]], axis=1)
    return replace(once, name="adult-202", title="Adult (202 columns: the one-hot part twice)", x=twice)


def enron_counts() -> NamedDataset:
    """The counts as they are. No bound of them is declared: an input may be as large as a message repeats a word."""
    counts = enron.counts()[0].astype(np.float32)
    title, scaling = "ENRON (raw counts)", "none: counts as they are"
    return replace(enron.enron(), name="enron-counts", title=title, x=counts, scaling=scaling)


# ---- Stand-ins

GISETTE_STANDIN = "a stand-in made from MNIST's fours and nines after Gisette's published recipe; not Gisette itself"
GISETTE_SHA256 = "710a277a1df7d2b5027883aaf07c092f0a06c5305533b07d98c0c9cb7014154c"
_SIGNAL = 2500


def gisette_standin() -> NamedDataset:
    x, y = made(*images.read("gisette-standin", images.MNIST))
    check("gisette-standin", "what was made of MNIST", x.tobytes(), GISETTE_SHA256)
    return NamedDataset(
        name="gisette-standin",
        title="Gisette (stand-in)",
        x=x,
        y=y,
        classes=2,
        source=f"{gisette.SOURCE}; {GISETTE_STANDIN}",
        licence="as MNIST: none stated by the authors",
        scaling="bytes divided by 255, the largest byte",
        standin=GISETTE_STANDIN,
        checksums={file.path: str(file.sha256) for file in images.MNIST} | {"the features made": GISETTE_SHA256},
    )


def made(images: Array, labels: Array) -> tuple[Array, Array]:
    """Features `[6000, 5000]` and labels (1 for a nine) from MNIST's images `[70000, 784]` and labels."""
    digits = [np.flatnonzero(labels == digit) for digit in (4, 9)]
    half = gisette.RECORDS // 2
    chosen = [rows[shuffled(len(rows), seed=place)[:half]] for place, rows in enumerate(digits)]
    rows = np.concatenate(chosen)[shuffled(gisette.RECORDS, seed=2)]
    middle = images.reshape(-1, 28, 28)[rows, 4:24, 4:24].reshape(gisette.RECORDS, -1)
    pixels = middle.shape[1]
    first, second = (_picks(pixels, _SIGNAL - pixels, seed=seed) for seed in (3, 4))
    products = middle[:, first].astype(np.uint16) * middle[:, second] // 255
    signal = np.concatenate([middle, products.astype(np.uint8)], axis=1)
    copied = _picks(_SIGNAL, gisette.FEATURES - _SIGNAL, seed=5)
    probes = [signal[shuffled(gisette.RECORDS, seed=1000 + place), column] for place, column in enumerate(copied)]
    x = np.concatenate([signal, np.stack(probes, axis=1)], axis=1)[:, shuffled(gisette.FEATURES, seed=6)]
    return np.ascontiguousarray(x), (labels[rows] == 9).astype(np.uint8)


def _picks(below: int, count: int, *, seed: int) -> Array:
    """`count` numbers below `below`, with replacement; the bias of the remainder is below 2^-50."""
    return (np.random.PCG64(seed).random_raw(count) % np.uint64(below)).astype(np.int64)


NEWSGROUPS = SourceFile(
    "newsgroups20/20newsgroups.jsonl.gz", None, ("http://qwone.com/~jason/20Newsgroups/",), 40_000_000
)
"""One JSON object a line: split, label, text. It is made by hand from the published archive; its counts are checked."""
TOPICS = ("comp", "rec", "sci", "talk")
STANDIN_RECORDS, STANDIN_TESTS = 9650, 6425
AG_NEWS_SHA256 = "cfcb7bfd13885ae0b5477db689ff02e9411420d7ad1f5135d81d4f19f95b16ce"
"""Of the words of every message."""
AG_NEWS_STANDIN = "a stand-in made from four topics of 20 Newsgroups (9650 training messages); not AG News itself"


def ag_news_standin() -> NamedDataset:
    name = "ag-news-standin"
    train, test = newsgroups(content(name, NEWSGROUPS).decode("utf-8"))
    news.check_counts(name, train, test, (STANDIN_RECORDS, STANDIN_TESTS))
    x, y = news.encoded(train, test)
    check(name, f"the text of {NEWSGROUPS.path}", x.tobytes(), AG_NEWS_SHA256)
    return NamedDataset(
        name=name,
        title="AG News (stand-in)",
        x=x,
        y=y,
        classes=news.CLASSES,
        tests=STANDIN_TESTS,
        source=f"Lang 1995, 20 Newsgroups; {AG_NEWS_STANDIN}",
        licence="public corpus",
        scaling=news.SCALING,
        standin=AG_NEWS_STANDIN,
        checksums={"the words of every message": AG_NEWS_SHA256},
    )


def newsgroups(lines: str) -> tuple[list[news.Text], list[news.Text]]:
    """Training and test messages of the four topics: the subject and what follows the head of the message."""
    sides: dict[str, list[news.Text]] = {"train": [], "test": []}
    for line in filter(None, lines.split("\n")):
        message = json.loads(line)
        topic = message["label"].partition(".")[0]
        if topic in TOPICS:
            head, _, body = message["text"].partition("\n\n")
            subject = next((own[8:] for own in head.splitlines() if own.startswith("Subject:")), "")
            sides[message["split"]].append((TOPICS.index(topic), f"{subject} {body}"))
    return sides["train"], sides["test"]


# ---- CIFAR-10 of other files

PACKED = "cifar10/cifar10_webp.npz"
PIECES, LABELS = tuple(f"cifar10/images-{i}.npy" for i in range(3)), "cifar10/labels.npy"
STRIP = 100


def cifar10() -> NamedDataset:
    """From the pieces or the strips where they are at hand, and from the published archive elsewhere."""
    pieces, labels = [find(piece) for piece in PIECES], find(LABELS)
    if labels is not None and all(pieces):
        pixels = np.concatenate([np.load(piece) for piece in pieces if piece is not None])
        return cifar.dataset(pixels.reshape(len(pixels), -1), np.load(labels))
    if (packed := find(PACKED)) is not None:
        with np.load(packed) as kept:
            sides = [_decoded(kept[f"webp_{side}"], kept[f"off_{side}"]) for side in ("train", "test")]
            return cifar.dataset(np.concatenate(sides), np.concatenate([kept["y_train"], kept["y_test"]]))
    return cifar.cifar10()


def _decoded(packed: Array, offsets: Array) -> Array:
    """Strips of 100 images, one below the other, as `[images, 3072]`."""
    from PIL import Image  # here: the other forms need none

    strips = []
    for first, last in itertools.pairwise(offsets):
        with Image.open(io.BytesIO(packed[first:last].tobytes())) as strip:
            images = np.asarray(strip.convert("RGB")).reshape(STRIP, 32, 32, 3)
            strips.append(images.transpose(0, 3, 1, 2).reshape(STRIP, -1))
    return np.concatenate(strips)
