"""CIFAR-10 from an archive that was put there by hand: in small, with means of its own."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from honestdp.data.datasets import cifar
from honestdp.data.sources import DatasetUnavailable

ROWS = np.random.default_rng(0).integers(0, 256, (6, 1 + cifar.NUMBERS), dtype=np.uint8)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path))
    monkeypatch.setenv("HONESTDP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar, "TRAIN", 5)
    monkeypatch.setattr(cifar, "ALL", 6)
    monkeypatch.setattr(cifar, "MEANS", tuple(ROWS[:5, 1:].reshape(5, 3, -1).mean(axis=(0, 2)) / 255))
    (tmp_path / "cifar10").mkdir()


def archive(folder: Path, rows: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    with tarfile.open(folder / cifar.ARCHIVE.path, "w:gz") as made:
        for name, row in zip(names, rows, strict=True):
            about = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            about.size = row.nbytes
            made.addfile(about, io.BytesIO(row.tobytes()))


def test_the_published_archive_is_read(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    whole = cifar.cifar10()
    assert np.array_equal(whole.train[0], ROWS[:5, 1:])
    assert np.array_equal(whole.y, ROWS[:, 0])


def test_other_images_are_refused(tmp_path: Path) -> None:
    archive(tmp_path, 255 - ROWS)
    with pytest.raises(DatasetUnavailable, match="not those of CIFAR-10"):
        cifar.cifar10()


def test_what_is_not_there_is_not_downloaded() -> None:
    with pytest.raises(DatasetUnavailable, match=r"not downloaded.*cifar-10-binary"):
        cifar.cifar10()
