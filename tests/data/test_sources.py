"""Files are found, downloaded and kept, whole and checked, or one line says where they were looked for."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from honestdp.data import sources
from honestdp.data.sources import DatasetUnavailable, SourceFile, content

WHOLE = b"the records of a small public dataset" * 100
DIGEST = hashlib.sha256(WHOLE).hexdigest()


class Publisher(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    sent: ClassVar[int] = 0

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = gzip.compress(WHOLE) if self.path.endswith(".gz") else WHOLE
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        if self.path.startswith("/bomb"):
            body = gzip.compress(bytes(1 << 26))  # 64 MiB of zeros in 64 KiB
        self.send_response(200)
        if not self.path.startswith("/endless"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path.startswith("/half"):
            body = body[: len(body) // 2]
        if self.path.startswith("/other"):
            body = bytes(len(body))
        if self.path.startswith("/endless"):
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))
                    Publisher.sent += 1 << 16
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Publisher.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HONESTDP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HONESTDP_DATA", str(tmp_path / "given"))
    return tmp_path / "cache"


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", ["small/a.bin", "small/a.bin.gz"])
@pytest.mark.parametrize("remote", ["/a.bin", "/a.bin.gz"])
def test_a_download_is_kept_and_not_asked_for_again(site: str, cache: Path, path: str, remote: str) -> None:
    file = SourceFile(path, DIGEST, (site + remote,), len(WHOLE))
    assert content("small", file) == WHOLE
    assert content("small", file) == WHOLE
    assert Publisher.asked == [remote]
    assert files_below(cache) == [cache / path]


def test_the_given_folder_comes_before_cache_and_network(site: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.bin").write_bytes(WHOLE)
    assert content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",), len(WHOLE))) == WHOLE
    assert Publisher.asked == []


def test_a_given_file_with_another_checksum_is_refused_and_not_replaced(site: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.bin").write_bytes(WHOLE[:-1])
    with pytest.raises(DatasetUnavailable, match="damaged or another file"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",), len(WHOLE)))
    assert Publisher.asked == []


@pytest.mark.parametrize("remote", ["/half.bin", "/half.bin.gz", "/missing.bin"])
def test_half_a_download_leaves_nothing_and_the_next_address_is_asked(site: str, cache: Path, remote: str) -> None:
    with pytest.raises(DatasetUnavailable, match="could not be downloaded"):
        content("small", SourceFile("a.bin", DIGEST, (site + remote,), len(WHOLE)))
    assert files_below(cache) == []
    assert content("small", SourceFile("a.bin", DIGEST, (site + remote, site + "/a.bin"), len(WHOLE))) == WHOLE


def test_a_download_with_another_checksum_is_refused_and_leaves_nothing(site: str, cache: Path) -> None:
    with pytest.raises(DatasetUnavailable, match=r"/other\.bin is damaged or another file"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/other.bin",), len(WHOLE)))
    assert files_below(cache) == []
    assert content("small", SourceFile("a.bin", DIGEST, (site + "/other.bin", site + "/a.bin"), len(WHOLE))) == WHOLE


def test_a_disk_that_fails_leaves_nothing(site: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",), len(WHOLE)))
    assert files_below(cache) == []


def test_offline_one_line_says_what_where_and_what_to_set(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable) as missing:
        content("small", SourceFile("b/a.bin", DIGEST, ("http://127.0.0.1:9/a.bin",), len(WHOLE)))
    text = str(missing.value)
    assert "\n" not in text
    for part in (
        "dataset small",
        "b/a.bin",
        str(tmp_path / "given"),
        str(cache),
        "http://127.0.0.1:9",
        "HONESTDP_DATA",
    ):
        assert part in text


def test_a_server_that_never_ends_is_given_up_at_the_declared_size(site: str, cache: Path) -> None:
    Publisher.sent = 0
    with pytest.raises(DatasetUnavailable, match="it has more than"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/endless.bin",), len(WHOLE)))
    assert Publisher.sent < 1 << 24  # what the sockets held when the connection was closed
    assert files_below(cache) == []


def test_an_announced_length_above_the_declared_size_is_refused_at_its_first_bytes(site: str, cache: Path) -> None:
    with pytest.raises(DatasetUnavailable, match="it has more than 1224 bytes"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",), 200))
    assert files_below(cache) == []


def peak_of(code: str) -> tuple[str, int]:
    """What a process of its own prints, and the most memory that it had, in MiB."""
    script = f"import resource\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n{code}\n"
    script += "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    said, grown = done.stdout.rsplit("\n", 2)[0], done.stdout.split()[-1]
    return said, int(grown)


def test_an_archive_that_unpacks_to_more_than_was_declared_is_not_unpacked(site: str, cache: Path) -> None:
    for packed in ("a.bin", "a.bin.gz"):
        with pytest.raises(DatasetUnavailable, match="its content has more than"):
            content("small", SourceFile(packed, DIGEST, (site + "/bomb.bin.gz",), 100_000))
    assert files_below(cache) == []


@pytest.mark.slow
def test_unpacking_takes_no_more_memory_than_was_declared(tmp_path: Path) -> None:
    """A gibibyte of zeros is a mebibyte packed, and a declared mebibyte of it is all that is ever made."""
    file = tmp_path / "bomb.gz"
    with gzip.open(file, "wb", compresslevel=6) as archive:
        for _ in range(64):
            archive.write(bytes(1 << 24))
    code = f"""
from pathlib import Path
from honestdp.data.sources import unpacked
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpacked(Path({str(file)!r}).read_bytes(), packed=True, most=1 << 20)
except OSError as refused:
    print(refused)
"""
    said, grown = peak_of(code)
    assert "more than 1048576 bytes" in said
    assert grown < 100


def test_a_given_file_larger_than_declared_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    with (tmp_path / "given" / "a.bin").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing: to read it would end this process
    with pytest.raises(DatasetUnavailable, match="cannot be read"):
        content("small", SourceFile("a.bin", DIGEST, (), len(WHOLE)))


def test_https_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(url: str, *, most: int) -> bytes:
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr(sources, "_get", unreachable)
    urls = ("http://one/a.bin", "https://two/a.bin", "http://three/a.bin", "https://four/a.bin")
    with pytest.raises(DatasetUnavailable):
        content("small", SourceFile("a.bin", DIGEST, urls, len(WHOLE)))
    assert asked == ["https://two/a.bin", "https://four/a.bin", "http://one/a.bin", "http://three/a.bin"]


def test_a_file_without_a_checksum_is_never_downloaded_nor_taken_from_the_cache(
    site: str, cache: Path, tmp_path: Path
) -> None:
    source = SourceFile("a.bin", None, (site + "/a.bin",), len(WHOLE))
    cache.mkdir()
    (cache / "a.bin").write_bytes(WHOLE)
    with pytest.raises(DatasetUnavailable, match=r"no checksum of a\.bin is known.*HONESTDP_DATA"):
        content("small", source)
    assert Publisher.asked == []
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.bin").write_bytes(WHOLE)
    assert content("small", source) == WHOLE


def test_every_file_of_every_dataset_has_a_checksum_or_is_not_downloaded() -> None:
    from honestdp.data.datasets import adult, enron, gisette, images

    published = (*adult.FILES, *images.MNIST, *images.FASHION, *gisette.FILES, enron.ARCHIVE)
    assert {file.path for file in published if file.sha256 is None} == {
        "enron/enron1.tar.gz",
        "gisette/gisette_train.data",
        "gisette/gisette_train.labels",
    }
    assert all(file.size > 0 for file in published)
    assert all(file.urls[0].startswith("https:") for file in published if file.sha256 is not None)
