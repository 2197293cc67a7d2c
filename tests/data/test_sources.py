"""Files are found, downloaded and kept, whole and checked, or one line says where they were looked for."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar

import pytest

from honestdp.data import sources
from honestdp.data.sources import DatasetUnavailable, SourceFile, content

WHOLE = b"the records of a small public dataset" * 100
DIGEST = hashlib.sha256(WHOLE).hexdigest()


class Publisher(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = gzip.compress(WHOLE) if self.path.endswith(".gz") else WHOLE
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path.startswith("/half"):
            body = body[: len(body) // 2]
        if self.path.startswith("/other"):
            body = bytes(len(body))
        if self.path.startswith("/slow"):
            with contextlib.suppress(OSError):
                for place in range(100):
                    self.wfile.write(body[place : place + 1])
                    self.wfile.flush()
                    sleep(0.05)
            return
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
    file = SourceFile(path, DIGEST, (site + remote,))
    assert content("small", file) == WHOLE
    assert content("small", file) == WHOLE
    assert Publisher.asked == [remote]
    assert files_below(cache) == [cache / path]


def test_the_given_folder_comes_before_cache_and_network(site: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.bin").write_bytes(WHOLE)
    assert content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",))) == WHOLE
    assert Publisher.asked == []


def test_a_given_file_with_another_checksum_is_refused_and_not_replaced(site: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a.bin").write_bytes(WHOLE[:-1])
    with pytest.raises(DatasetUnavailable, match="damaged or another file"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",)))
    assert Publisher.asked == []


@pytest.mark.parametrize("remote", ["/half.bin", "/half.bin.gz", "/missing.bin"])
def test_half_a_download_leaves_nothing_and_the_next_address_is_asked(site: str, cache: Path, remote: str) -> None:
    with pytest.raises(DatasetUnavailable, match="could not be downloaded"):
        content("small", SourceFile("a.bin", DIGEST, (site + remote,)))
    assert files_below(cache) == []
    assert content("small", SourceFile("a.bin", DIGEST, (site + remote, site + "/a.bin"))) == WHOLE


def test_a_download_with_another_checksum_is_refused_and_leaves_nothing(site: str, cache: Path) -> None:
    with pytest.raises(DatasetUnavailable, match=r"/other\.bin is damaged or another file"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/other.bin",)))
    assert files_below(cache) == []
    assert content("small", SourceFile("a.bin", DIGEST, (site + "/other.bin", site + "/a.bin"))) == WHOLE


def test_a_server_that_drips_is_given_up(site: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_SECONDS", 0.3)
    began = monotonic()
    with pytest.raises(DatasetUnavailable, match="not whole after"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/slow.bin",)))
    assert monotonic() - began < 5
    assert files_below(cache) == []


def test_a_disk_that_fails_leaves_nothing(site: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(sources.os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        content("small", SourceFile("a.bin", DIGEST, (site + "/a.bin",)))
    assert files_below(cache) == []


def test_offline_one_line_says_what_where_and_what_to_set(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailable) as missing:
        content("small", SourceFile("b/a.bin", DIGEST, ("http://127.0.0.1:9/a.bin",)))
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
