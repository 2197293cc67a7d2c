"""Files of public datasets: found in a folder, in a cache, or downloaded, and never used unchecked.

The order is HONESTDP_DATA, then the cache (HONESTDP_CACHE, or the user's cache folder), then the public addresses, https before
http; whatever a server sends is nothing until it has its checksum. A file's checksum is that of its content, decompressed where
the name ends in .gz, so that a file that was packed again is the same file. A file that does not have its checksum is refused
wherever it was found: it is not replaced silently. A file of which no checksum is known is never downloaded: who wants it puts it
into HONESTDP_DATA by hand.

Every file has a declared size. No more than that is received, and no more is unpacked, whatever a server or an archive says.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from honestdp.checks import HonestdpError
from honestdp.files import replace_file

_SECONDS = 60  # how long to wait for the next bytes of a file


class DatasetUnavailable(HonestdpError):
    """A dataset whose files are neither here nor to be had, or are not what they should be."""


@dataclass(frozen=True)
class SourceFile:
    """One file of a dataset.

    path: below the data folder or the cache. sha256: of the content; None where the publisher gives none and no copy was at
    hand: such a file is taken from HONESTDP_DATA alone, and its reader checks what it holds. urls: where it is published.
    size: the bytes of its content, at the most.
    """

    path: str
    sha256: str | None
    urls: tuple[str, ...]
    size: int

    @property
    def packed_size(self) -> int:
        """The bytes that it can take at the most, packed or not: what cannot be packed grows by less than a thousandth."""
        return self.size + self.size // 1000 + 1024


def data_folder() -> Path | None:
    named = os.environ.get("HONESTDP_DATA")
    return Path(named) if named else None


def cache_folder() -> Path:
    named = os.environ.get("HONESTDP_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "honestdp" / "data"


def find(path: str) -> Path | None:
    """The file of this path in HONESTDP_DATA or in the cache, if there is one."""
    folders = [folder for folder in (data_folder(), cache_folder()) if folder is not None]
    return next((folder / path for folder in folders if (folder / path).is_file()), None)


def content(dataset: str, source: SourceFile) -> bytes:
    """The checked content of a file of a dataset, downloaded into the cache if it is nowhere yet."""
    file = find(source.path) if source.sha256 is not None else given(dataset, source)
    if file is None:
        return _download(dataset, source)
    try:
        if file.stat().st_size > source.packed_size:
            raise OSError(f"it has {file.stat().st_size} bytes, and {source.packed_size} are the most")
        raw = unpacked(file.read_bytes(), packed=file.suffix == ".gz", most=source.size)
    except (OSError, EOFError, zlib.error) as damage:
        raise DatasetUnavailable(f"dataset {dataset}: {file} cannot be read ({damage}); replace it") from damage
    if source.sha256 is not None:  # else it is of the user's own folder, and the reader checks what it holds
        check(dataset, str(file), raw, source.sha256)
    return raw


def given(dataset: str, source: SourceFile) -> Path:
    """A file without a checksum, which only the user's own folder may hold."""
    folder = data_folder()
    if folder is not None and (folder / source.path).is_file():
        return folder / source.path
    raise DatasetUnavailable(
        f"dataset {dataset}: no checksum of {source.path} is known, so it is not downloaded; get it from {source.urls[0]}, "
        f"make sure that it is the right file, and put it into the folder that HONESTDP_DATA names, as {source.path}"
    )


def unpacked(raw: bytes, *, packed: bool, most: int) -> bytes:
    """The content, of which not a byte more than `most` is made: a small archive can hold any number of them."""
    if packed:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as archive:
            raw = archive.read(most + 1)
    if len(raw) > most:
        raise OSError(f"its content has more than {most} bytes")
    return raw


def keep(path: str, raw: bytes) -> None:
    """Put a file into the cache, whole or not at all."""
    target = cache_folder() / path
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, raw)


def check(dataset: str, what: str, raw: bytes, sha256: str) -> None:
    """Refuse a content that does not have its checksum."""
    digest = hashlib.sha256(raw).hexdigest()
    if digest != sha256:
        raise DatasetUnavailable(
            f"dataset {dataset}: {what} is damaged or another file: its content has sha256 {digest}, and {sha256} is right; "
            "replace it, or remove it to have it downloaded or made again"
        )


def _download(dataset: str, source: SourceFile) -> bytes:
    assert source.sha256 is not None
    troubles = []
    for url in sorted(source.urls, key=lambda url: not url.startswith("https:")):
        try:
            raw = _get(url, most=source.packed_size)
            found = unpacked(raw, packed=url.endswith(".gz"), most=source.size)
            check(dataset, url, found, source.sha256)
        except (OSError, EOFError, ValueError, zlib.error) as trouble:
            troubles.append(f"{url} ({trouble})")
            continue
        keep(source.path, gzip.compress(found, mtime=0) if source.path.endswith(".gz") else found)
        return found
    folder = data_folder()
    own = "HONESTDP_DATA (not set)" if folder is None else str(folder / source.path)
    looked = [own, str(cache_folder() / source.path), *troubles]
    raise DatasetUnavailable(
        f"dataset {dataset} is not here and could not be downloaded; looked for {source.path} in: {'; '.join(looked)}. Set "
        f"HONESTDP_DATA to a folder that holds {source.path}, or run once with a network"
    )


def _get(url: str, *, most: int) -> bytes:
    """The whole of a file, or an OSError. A file that ends too early does not have its checksum."""
    try:
        with urlopen(url, timeout=_SECONDS) as answer:
            raw: bytes = answer.read(most + 1)
    except HTTPException as trouble:
        raise OSError(f"{type(trouble).__name__}: {trouble}") from trouble
    if len(raw) > most:
        raise OSError(f"it has more than {most} bytes")
    return raw
