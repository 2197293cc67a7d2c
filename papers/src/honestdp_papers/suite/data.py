"""The data of the suite: by name, from HONESTDP_DATA or in memory, and packed for a machine that has torch and numpy alone.

    python -m honestdp_papers.suite --prepare carry/suite      # then HONESTDP_DATA=carry/suite there

MNIST, Adult and ENRON's counts are copied as they are published, and the stand-in for Gisette is made from MNIST. Of
Fashion-MNIST 12000 and 4000 images are packed and of CIFAR-10 10000 and 2000; digits; and texts as the numbers of their
first words. Scattering features are made where they are needed: half precision would be 8 KB an image where the image
is 0.4 to 3. Which images are taken is a fixed shuffle, and a setting's records are the first of another: functions of
their number alone. The words are those in the most training texts: taken from the texts, which are public here; of
private ones a list of words would have to be public.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from honestdp import load_dataset
from honestdp.boundary.records import prepared
from honestdp.data.datasets import adult, enron, images, news
from honestdp.data.named import Array, shuffled, split_rows
from honestdp.data.sources import find
from honestdp.errors import DatasetUnavailable
from honestdp_papers.forms import newsgroups
from honestdp_papers.records.scattering import Scattering, normalised
from honestdp_papers.suite.settings import SOURCES, WORDS

PARTS = {"fashion-mnist": (12_000, 4_000), "cifar10": (10_000, 2_000)}
"""Training and test images of which a part is taken."""
TEXTS = {"enron-text": "enron/enron1.jsonl.gz", "newsgroups-text": "newsgroups20/20newsgroups.jsonl.gz"}
WORD = re.compile(r"[a-z]{3,}")
FOLDER = "suite"


class Sides(NamedTuple):
    """Training and test records: bytes as `[n, features]`, other numbers as they are, words as whole numbers."""

    x: Array
    y: Array
    tested: Array
    answers: Array


@lru_cache(maxsize=1)
def loaded(name: str, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All records of a dataset of the suite on the device, the training ones shuffled once and for all."""
    base, scattered, _ = name.partition("-scattering")
    sides = _sides(base)
    order = shuffled(len(sides.x), seed=18)[: max(SOURCES[name].records)]
    x, y = torch.from_numpy(sides.x[order]).to(device), torch.from_numpy(sides.y[order].astype(np.int64)).to(device)
    tested, answers = torch.from_numpy(sides.tested).to(device), torch.from_numpy(sides.answers.astype(np.int64))
    if scattered:
        x, tested = (_scattering(part, name, device) for part in (x, tested))
    if len(x) < max(SOURCES[name].records) or x[0].numel() != SOURCES[name].features:
        raise DatasetUnavailable(f"dataset {name} of the suite has {tuple(x.shape)} numbers; {SOURCES[name]} is right")
    return x, y, tested, answers.to(device)


def _scattering(pictures: Tensor, name: str, device: str) -> Tensor:
    """Normalised coefficients of each image by itself, `[n, features]`."""
    source = SOURCES[name]
    scatter, found = Scattering(source.side), []
    for part in torch.split(pictures, 1000):
        numbers = prepared(part.to(device), torch.float32)
        assert isinstance(numbers, Tensor)
        shaped = numbers.reshape(-1, source.colours, source.side, source.side)
        found.append(normalised(scatter(shaped)).flatten(1))
    return torch.cat(found)


def _sides(name: str) -> Sides:
    packed = find(f"{FOLDER}/{name}.npz")
    return _unpacked(packed) if packed is not None else made(name)


def made(name: str) -> Sides:
    """From the datasets as they are published."""
    if name == "digits-text":
        return _as_words(_sides("digits"))
    if name in TEXTS:
        return _texts(name)
    data = load_dataset(name)
    sides = Sides(*data.train, *data.test)
    if name == "digits":
        return sides._replace(x=_sixteenths(sides.x), tested=_sixteenths(sides.tested))
    if name in PARTS:
        rows, tests = (
            shuffled(len(side), seed=17)[:part]
            for side, part in zip((sides.y, sides.answers), PARTS[name], strict=True)
        )
        return Sides(sides.x[rows], sides.y[rows], sides.tested[tests], sides.answers[tests])
    return sides


def _sixteenths(x: Array) -> Array:
    """Counts of 0 to 16, divided by 16."""
    return np.round(16 * x).astype(np.float32) / 16


def _as_words(digits: Sides) -> Sides:
    """An image of digits as 16 words, in rows: the mean of 2 x 2 pixels is one of 17."""

    def words(x: Array) -> Array:
        means = x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
        words_of_image: Array = np.round(16 * means).astype(np.int64) + 1
        return words_of_image

    return digits._replace(x=words(digits.x), tested=words(digits.tested))


def _texts(name: str) -> Sides:
    file = find(TEXTS[name])
    if file is None:
        raise DatasetUnavailable(f"dataset {name}: {TEXTS[name]} is not in the folder that HONESTDP_DATA names")
    text = gzip.decompress(file.read_bytes()).decode("utf-8")
    if name == "enron-text":
        lines = [json.loads(line) for line in text.split("\n") if line]
        kept = [(int(line["label"] == "spam"), str(line["text"])) for line in lines]
        train, test = ([kept[row] for row in rows] for rows in split_rows(len(kept)))
    else:
        train, test = newsgroups(text)  # without the heads, which name the group
    return _numbered(train, test, WORDS[name], SOURCES[name].features)


def _numbered(train: Sequence[tuple[int, str]], test: Sequence[tuple[int, str]], words: int, length: int) -> Sides:
    """Texts as the numbers of their first known words, after a 1 for the beginning and with 0 behind the end."""
    known = news.vocabulary((text for _, text in train), words - 2)
    number = {word: place for place, word in enumerate(known, start=2)}

    def ids(texts: Sequence[tuple[int, str]]) -> Array:
        found = np.zeros((len(texts), length), np.int64)
        for row, (_, text) in enumerate(texts):
            own = [1, *(number[word] for word in WORD.findall(text.lower()) if word in number)][:length]
            found[row, : len(own)] = own
        return found

    labels = [np.array([kind for kind, _ in texts], np.uint8) for texts in (train, test)]
    return Sides(ids(train), labels[0], ids(test), labels[1])


def prepare(folder: Path) -> None:
    """Everything that settings need, as files that torch and numpy alone can read."""
    for path in (*(file.path for files in (images.MNIST, adult.FILES) for file in files), enron.COUNTS):
        if (found := find(path)) is None:
            load_dataset(path.partition("/")[0])
            found = find(path)
        assert found is not None
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, folder / path)
    (folder / FOLDER).mkdir(exist_ok=True)
    for name in ("digits", *PARTS, *TEXTS):
        np.savez_compressed(folder / FOLDER / f"{name}.npz", **made(name)._asdict())
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{size / 2**20:.1f} MiB in {folder}", file=sys.stderr)


def _unpacked(file: Path) -> Sides:
    with np.load(file, allow_pickle=False) as kept:
        return Sides(*(kept[side] for side in Sides._fields))
