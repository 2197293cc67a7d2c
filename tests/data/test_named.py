"""Named datasets have the sizes the papers give, and what is read is what was published."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from honestdp.checks import InvalidArgument
from honestdp.data.datasets import adult, embedded, enron, gisette, news
from honestdp.data.named import LOADERS, shuffled, split_rows
from honestdp.data.named import load_dataset as load
from honestdp.data.sources import DatasetUnavailable
from tests.shared_data import FOLDER, needs_files

SIZES = {
    "mnist": (60000, 10000, 784, 10),
    "fashion-mnist": (60000, 10000, 784, 10),
    "adult": (36177, 9045, 104, 2),
    "enron": (4137, 1035, 5512, 2),
    "digits": (1437, 360, 64, 10),
    "breast-cancer": (455, 114, 30, 2),
}


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HONESTDP_DATA", str(FOLDER))
    monkeypatch.setenv("HONESTDP_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "name", [n if n in ("digits", "breast-cancer") else pytest.param(n, marks=needs_files) for n in SIZES]
)
def test_sizes_are_those_of_the_paper(name: str) -> None:
    train, test, features, classes = SIZES[name]
    found = load(name)
    assert found.name == name
    assert found.train[0].shape == (train, features)
    assert found.test[0].shape == (test, features)
    assert sorted(set(found.train[1].tolist())) == list(range(classes)) == list(range(found.classes))
    assert not set(found.train_rows) & set(found.test_rows)
    assert found.records == train + test == len(found.y)
    assert found.x.dtype in (np.uint8, np.float32)
    assert found.x.min() >= 0
    assert found.x.max() <= (255 if found.x.dtype == np.uint8 else 1)
    assert found.source
    assert found.licence
    assert found.standin is None


def test_every_name_is_covered() -> None:
    own = {name for name, place in LOADERS.items() if place.startswith("honestdp.data")}
    assert {*own, "cifar10"} == {*SIZES, "gisette", "ag-news", "cifar10"}  # which are not at hand everywhere
    with pytest.raises(InvalidArgument, match=r"one of mnist, .*breast-cancer"):
        load("cifar")


def test_the_split_depends_on_the_count_alone_and_on_no_version_of_numpy() -> None:
    train, test = split_rows(10)
    assert train.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert test.tolist() == [5, 9]
    assert sorted(shuffled(1000, seed=1).tolist()) == list(range(1000))


@needs_files
def test_adult_columns_are_six_numbers_and_one_category_of_each_of_eight() -> None:
    found = load("adult")
    assert found.x[:, 6:].sum(axis=1).tolist() == [8.0] * 45222
    assert (found.x[:, 6:].sum(axis=0) > 0).all()
    first = found.x[0, :6] * [73, 1_500_000, 15, 99_999, 5_000, 98] + [17, 0, 1, 0, 0, 1]
    assert first.round().tolist() == [39, 77516, 13, 2174, 0, 40]  # the first row of adult.data
    assert sum(map(len, adult.CATEGORIES.values())) == 98


@needs_files
def test_enron_from_the_published_archive_is_enron_from_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(FOLDER / "enron" / "enron1.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for message in reversed(texts):
            body = message["text"].encode("latin-1")
            member = tarfile.TarInfo(message["file"])
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    (tmp_path / "enron").mkdir()
    (tmp_path / "enron" / "enron1.tar.gz").write_bytes(packed.getvalue())
    expected = load("enron")
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    made = load("enron")
    assert np.array_equal(made.x, expected.x)
    assert np.array_equal(made.y, expected.y)
    (tmp_path / "enron" / "enron1.tar.gz").unlink()
    assert np.array_equal(load("enron").x, expected.x), "the counts were kept in the cache"


@needs_files
def test_counts_that_are_not_the_published_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(FOLDER / enron.COUNTS) as parts:
        values = dict(parts)
    values["data"][7] += 1
    (tmp_path / "enron").mkdir()
    np.savez_compressed(tmp_path / enron.COUNTS, **values)
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    with pytest.raises(DatasetUnavailable, match="dataset enron: the table of word counts"):
        load("enron")
    values["data"][7] -= 1
    values["y"] = np.roll(values["y"], 1)
    np.savez_compressed(tmp_path / enron.COUNTS, **values)
    with pytest.raises(DatasetUnavailable, match="dataset enron: the list of labels"):
        load("enron")
    (tmp_path / enron.COUNTS).write_bytes((FOLDER / enron.COUNTS).read_bytes()[:5000])
    with pytest.raises(DatasetUnavailable, match="cannot be read"):
        load("enron")


@pytest.mark.parametrize(
    ("path", "name"), [("enron/enron1.tar.gz", "enron"), ("gisette/gisette_train.data", "gisette")]
)
def test_a_file_without_a_checksum_must_be_given_and_must_be_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    """A page in place of a file, as a proxy gives."""
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path / "none"))
    with pytest.raises(DatasetUnavailable, match=f"dataset {name}: no checksum of {path} is known"):
        load(name)
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    page = b"<html>please log in</html>"
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_bytes(gzip.compress(page) if path.endswith(".gz") else page)
    (tmp_path / "gisette").mkdir(exist_ok=True)
    (tmp_path / "gisette" / "gisette_train.labels").write_text("1 -1")
    with pytest.raises(DatasetUnavailable, match=f"dataset {name}: .*(not the published archive|are not)"):
        load(name)


def test_the_real_gisette_is_read_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gisette, "RECORDS", 4)
    monkeypatch.setattr(gisette, "FEATURES", 3)
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    folder = tmp_path / "gisette"
    folder.mkdir()
    (folder / "gisette_train.data").write_text("0 999 1 \n2 3 4 \n5 6 7 \n8 9 10 \n")
    (folder / "gisette_train.labels").write_text("1\n-1\n-1\n1\n")
    found = load("gisette")
    assert found.x[0].tolist() == pytest.approx([0, 1, 1 / 999])
    assert found.y.tolist() == [1, 0, 0, 1]
    assert found.standin is None
    for name, text in (("data", "0 1000 1 2 3 4 5 6 7 8 9 10"), ("labels", "1 1 1 -1")):
        before = (folder / f"gisette_train.{name}").read_text()
        (folder / f"gisette_train.{name}").write_text(text)
        with pytest.raises(DatasetUnavailable, match="from 0 to 999 with as many labels of 1 as of -1"):
            load("gisette")
        (folder / f"gisette_train.{name}").write_text(before)


def test_embedded_data_is_scaled_by_constants_that_hold_it() -> None:
    from sklearn.datasets import load_breast_cancer, load_digits

    assert np.allclose(load("digits").x * 16, load_digits().data)
    raw = load_breast_cancer().data
    assert np.allclose(load("breast-cancer").x * embedded.CANCER_LARGEST, raw, rtol=1e-5)


@needs_files
def test_loading_needs_numpy_alone(tmp_path: Path) -> None:
    """As on a GPU machine that has torch and numpy and nothing else of ours."""
    code = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"dp_accounting", "scipy", "sklearn", "rich", "typer", "matplotlib"}:
            raise ImportError(name)

sys.meta_path.insert(0, Without())
from honestdp.data.named import load_dataset as load
print([load(name).features for name in ("mnist", "adult", "enron")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "[784, 104, 5512]", done.stderr


@needs_files
def test_a_damaged_file_is_refused_by_its_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER / "adult", tmp_path / "adult")
    file = tmp_path / "adult" / "adult.test.gz"
    file.chmod(0o644)
    (tmp_path / "adult").chmod(0o755)
    whole = gzip.decompress(file.read_bytes())
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    file.write_bytes(gzip.compress(whole, compresslevel=1))
    load("adult")  # packed again, the same content
    file.write_bytes(gzip.compress(whole.replace(b"25, Private", b"26, Private", 1)))
    with pytest.raises(DatasetUnavailable, match=r"dataset adult: .*adult\.test\.gz is damaged or another file"):
        load("adult")
    file.write_bytes(gzip.compress(whole)[:-1000])
    with pytest.raises(DatasetUnavailable, match="cannot be read"):
        load("adult")


AG_NEWS = (
    '"3","Oil up, shares down (AP)","AP - Oil prices rose ""sharply"" again\\on Monday, as the shares fell."\n'
    '"2","Cup final","The final of the cup, in the rain."\n'
)


def test_ag_news_is_read_in_its_published_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"train": AG_NEWS, "test": AG_NEWS[: AG_NEWS.index("\n") + 1]}.items():
        (tmp_path / "ag_news").mkdir(exist_ok=True)
        (tmp_path / "ag_news" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        source = getattr(news, name.upper())
        own = hashlib.sha256(text.encode()).hexdigest()
        monkeypatch.setattr(news, name.upper(), replace(source, sha256=own))
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    with pytest.raises(DatasetUnavailable, match=r"2 \+ 1 texts where 120000 \+ 7600 are published"):
        load("ag-news")
    monkeypatch.setattr(news, "RECORDS", 2)
    monkeypatch.setattr(news, "TESTS", 1)
    found = load("ag-news")
    assert found.standin is None
    assert found.y.tolist() == [2, 1, 2]
    assert found.x.shape == (3, 750)
    words = news.vocabulary(text for _, text in news.rows_of(AG_NEWS, "here"))
    assert words[:2] == ["the", "again"]
    assert "on" not in words
    assert found.x[0, words.index("sharply")] == found.x[2, words.index("monday")] == 1
    assert found.x[1].sum() == 4
    assert not found.x[:, len(words) :].any()


def test_rows_that_are_not_ag_news_are_refused_by_their_number() -> None:
    with pytest.raises(DatasetUnavailable, match=r"row 2 of train\.csv"):
        news.rows_of(AG_NEWS.replace('"2","Cup', '"5","Cup'), "train.csv")
