"""Enron-Spam, part enron1: 5172 messages as counts of 5512 words, which are the dimensions of Mohapatra et al. 2022.

The words are those in at least 8 messages that are not on scikit-learn's English stop list. That list of words is taken
from the messages themselves, as the paper does; with private messages it would have to be public. Counts are cut at 10 and
divided by 10, a declared constant, in place of the largest count of each word.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np

from honestdp.data.named import Array, NamedDataset
from honestdp.data.sources import DatasetUnavailable, SourceFile, check, content, find, keep

_URLS = (
    "http://www.aueb.gr/users/ion/data/enron-spam/preprocessed/enron1.tar.gz",
    "http://nlp.cs.aueb.gr/software_and_datasets/Enron-Spam/preprocessed/enron1.tar.gz",
)
ARCHIVE = SourceFile("enron/enron1.tar.gz", None, _URLS, 64_000_000)
"""Its publisher gives no checksum and no copy was at hand: it is read from HONESTDP_DATA alone, and the counts are checked."""
COUNTS = "enron/enron1_counts_5512.npz"
SHAPE = (5172, 5512)
SHA256 = "95c7fabd569013208402a7457d01a84d1c6604dd63ad4f76adaaff6990e5cfc3"
"""Of the counts as 16-bit numbers, row by row: whatever way they were made, they are these."""
LABELS_SHA256 = "e40105dbc2e72e64d6df72d2f89730bc15270d3b466d171c6295172371a66947"
"""Of the labels as bytes."""
MOST_COUNT = 10


def enron() -> NamedDataset:
    found, y = counts()
    return NamedDataset(
        name="enron",
        title="ENRON",
        x=np.minimum(found, MOST_COUNT).astype(np.float32) / MOST_COUNT,
        y=y,
        classes=2,
        source="Metsis, Androutsopoulos & Paliouras 2006, Enron-Spam, part enron1",
        licence="public corpus, no licence stated",
        scaling=f"counts cut at {MOST_COUNT} and divided by {MOST_COUNT}",
        checksums={"the word counts": SHA256, "the labels": LABELS_SHA256},
    )


def counts() -> tuple[Array, Array]:
    """Word counts `[5172, 5512]` and labels, 1 for spam."""
    file = find(COUNTS)
    return _made() if file is None else _read(file)


def _read(file: Path) -> tuple[Array, Array]:
    """Counts and labels from the file of word counts."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as parts:
            found = np.zeros(SHAPE, np.uint16)
            found[np.repeat(np.arange(SHAPE[0]), np.diff(parts["indptr"])), parts["indices"]] = parts["data"]
            labels = parts["y"].astype(np.uint8)
    except Exception as damage:  # a damaged archive fails in many ways, none of them the caller's fault
        raise DatasetUnavailable(f"dataset enron: {file} cannot be read ({damage}); replace it") from damage
    _check(found, labels, str(file))
    return found, labels


def _check(counts: Array, labels: Array, where: str) -> None:
    check("enron", f"the table of word counts in {where}", counts.astype("<u2").tobytes(), SHA256)
    check("enron", f"the list of labels in {where}", labels.tobytes(), LABELS_SHA256)


def _made() -> tuple[Array, Array]:
    """The same from the published archive, kept in the cache for the next time."""
    archive = content("enron", ARCHIVE)
    try:
        counts, labels = counted(messages(archive))
    except (tarfile.TarError, EOFError, ValueError) as damage:
        raise DatasetUnavailable(f"dataset enron: {ARCHIVE.path} is not the published archive ({damage})") from damage
    _check(counts, labels, ARCHIVE.path)
    rows, columns = np.nonzero(counts)
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        data=counts[rows, columns],
        indices=columns.astype(np.uint16),
        indptr=np.concatenate([[0], np.cumsum((counts > 0).sum(axis=1))]),
        shape=np.array(counts.shape),
        y=labels,
    )
    keep(COUNTS, packed.getvalue())
    return counts, labels


def messages(archive: bytes) -> list[tuple[str, str]]:
    """Path and text of each message in the (uncompressed) archive, by path."""
    texts = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            body = files.extractfile(member) if member.isfile() and member.name.endswith(".txt") else None
            if body is not None and member.name.split("/")[-2:-1] in (["ham"], ["spam"]):
                texts.append((member.name, body.read().decode("latin-1")))
    return sorted(texts)


def counted(texts: list[tuple[str, str]]) -> tuple[Array, Array]:
    """Word counts and labels of messages given as (path, text)."""
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer(stop_words="english", min_df=8)
    counts = words.fit_transform([text for _, text in texts]).toarray().astype(np.uint16)
    return counts, np.array([path.split("/")[-2] == "spam" for path, _ in texts], np.uint8)
