"""The papers' own forms of datasets, and sets that stand in for others and say so."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from tests.shared_data import FOLDER, needs_files

from honestdp.data.named import load_dataset as load
from honestdp_papers import forms

SIZES = {
    "mnist-signed": (60000, 10000, 784, 10),
    "adult-202": (36177, 9045, 202, 2),
    "enron-counts": (4137, 1035, 5512, 2),
    "gisette-standin": (4800, 1200, 5000, 2),
    "ag-news-standin": (9650, 6425, 750, 4),
}

pytestmark = needs_files


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONESTDP_DATA", str(FOLDER))


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_paper(name: str) -> None:
    train, test, features, classes = SIZES[name]
    found = load(name)
    assert found.name == name
    assert (found.train[0].shape, found.test[0].shape) == ((train, features), (test, features))
    assert sorted(set(found.train[1].tolist())) == list(range(classes)) == list(range(found.classes))
    assert (found.standin is not None) == ("standin" in name) == ("stand-in" in found.title)


def test_adult_has_its_one_hot_columns_twice() -> None:
    plain, twice = load("adult"), load("adult-202")
    assert np.array_equal(twice.x[:, :104], plain.x)
    assert np.array_equal(twice.x[:, 104:], plain.x[:, 6:])


@pytest.mark.slow
def test_the_gisette_standin_has_signal_and_probes_without_any() -> None:
    found = load("gisette-standin")
    assert found.standin is not None
    assert "not Gisette itself" in found.standin
    nines = found.y == 1
    assert nines.sum() == 3000
    values = found.x.astype(np.float64)
    spread = values.std(axis=0) + 1e-9
    difference = np.abs(values[nines].mean(axis=0) - values[~nines].mean(axis=0)) / spread
    # Half the features are shuffled copies: a difference above 0.2 deviations has a chance of 1e-14 in each of them.
    assert 500 < (difference > 0.2).sum() < 2500
    assert (difference < 0.1).sum() > 2450


@pytest.mark.slow
def test_the_standin_of_ag_news_says_so_and_is_the_same_everywhere() -> None:
    found = load("ag-news-standin")
    assert found.standin is not None
    assert "not AG News itself" in found.standin
    assert 0.18 < found.y.astype(float).tolist().count(3) / len(found.y) < 0.3
    assert hashlib.sha256(found.x.tobytes()).hexdigest() == forms.AG_NEWS_SHA256


@pytest.mark.slow
def test_a_papers_form_is_the_same_records_with_other_numbers() -> None:
    plain, signed = load("mnist"), load("mnist-signed")
    rows = slice(0, 300)
    assert signed.x[rows] == pytest.approx(plain.x[rows].astype(float) / 127.5 - 1, abs=1e-6)
    assert (signed.x.min(), signed.x.max()) == (-1, 1)
    assert np.array_equal(signed.train_rows, plain.train_rows)
    cut, counts = load("enron"), load("enron-counts")
    assert np.array_equal(np.minimum(counts.x, 10) / np.float32(10), cut.x)
    assert counts.x.max() > 10
    assert "raw counts" in counts.title
