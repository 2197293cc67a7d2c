"""Files of public datasets: found in a folder, in a cache, or downloaded, and never used unchecked.

The order is HONESTDP_DATA, then the cache (HONESTDP_CACHE, or the user's cache folder), then the public addresses, https before
http. A file's checksum is that of its content, decompressed where the name ends in .gz, so that a file that was packed again
is the same file. A file that does not have its checksum is refused wherever it was found: it is not replaced silently. A file
of which no checksum is known is never downloaded: who wants it puts it into HONESTDP_DATA by hand.

Every file has a declared size. No more than that is received, and no more is unpacked, whatever a server or an archive says.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from honestdp.checks import HonestdpError
from honestdp.files import replace_file

_SECONDS, _MOST_SECONDS = 60, 1800
"""How long to wait for the next bytes of a file, and for all of it."""


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
    file = find(source.path) if source.sha256 is not None else _given(dataset, source)
    if file is None:
        return _download(dataset, source)
    try:
        if file.stat().st_size > source.packed_size:
            raise OSError(f"it has {file.stat().st_size} bytes, and {source.packed_size} are the most")
        raw = unpacked(file.read_bytes(), packed=file.suffix == ".gz", most=source.size)
    except (OSError, EOFError, zlib.error) as damage:
        raise DatasetUnavailable(f"dataset {dataset}: {file} cannot be read ({damage}); replace it") from damage
    _check(dataset, source, raw, str(file))
    return raw


def _given(dataset: str, source: SourceFile) -> Path:
    """A file without a checksum, which only the user's own folder may hold."""
    folder = data_folder()
    if folder is not None and (folder / source.path).is_file():
        return folder / source.path
    raise DatasetUnavailable(
        f"dataset {dataset}: no checksum of {source.path} is known, so that it is not downloaded; get it from {source.urls[0]}, "
        f"convince yourself that it is what it should be, and put it into the folder that HONESTDP_DATA names, as {source.path}"
    )


def unpacked(raw: bytes, *, packed: bool, most: int) -> bytes:
    """The content, of which not a byte more than `most` is made: a small archive can hold any number of them."""
    if packed:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as archive:
            raw = archive.read(most + 1)
    if len(raw) > most:
        raise OSError(f"its content has more than {most} bytes")
    return raw


def keep(path: str, raw: bytes) -> Path:
    """Put a file into the cache, whole or not at all; what a process that was killed left half done goes."""
    target = cache_folder() / path
    target.parent.mkdir(parents=True, exist_ok=True)
    for half in target.parent.glob(f".{target.name}.*.new"):
        with contextlib.suppress(OSError):
            if time() - half.stat().st_mtime > _MOST_SECONDS:
                half.unlink()
    replace_file(target, raw)
    return target


def _check(dataset: str, source: SourceFile, found: bytes, where: str) -> None:
    if source.sha256 is None:  # of the user's own folder; the reader checks what it holds
        return
    digest = hashlib.sha256(found).hexdigest()
    if digest != source.sha256:
        raise DatasetUnavailable(
            f"dataset {dataset}: {where} is damaged or another file: its content has sha256 {digest}, and {source.sha256} is "
            "right; replace it, or remove it to have it downloaded"
        )


def _download(dataset: str, source: SourceFile) -> bytes:
    troubles = []
    for url in sorted(source.urls, key=lambda url: not url.startswith("https:")):
        try:
            raw = _get(url, most=source.packed_size)
            found = unpacked(raw, packed=url.endswith(".gz"), most=source.size)
            _check(dataset, source, found, url)
        except (OSError, EOFError, ValueError, zlib.error, DatasetUnavailable) as trouble:
            troubles.append(f"{url} ({trouble})")
            continue
        same = url.endswith(".gz") == source.path.endswith(".gz")
        keep(source.path, raw if same else gzip.compress(found, mtime=0) if source.path.endswith(".gz") else found)
        return found
    folder = data_folder()
    own = "HONESTDP_DATA (not set)" if folder is None else str(folder / source.path)
    looked = [own, str(cache_folder() / source.path), *troubles]
    raise DatasetUnavailable(
        f"dataset {dataset} is not here and could not be downloaded; looked for {source.path} in: {'; '.join(looked)}. Set "
        f"HONESTDP_DATA to a folder that holds {source.path}, or run once with a network"
    )


class _NeverToHttp(HTTPRedirectHandler):
    """Follows a redirection to https alone: nobody between may choose another place."""

    def redirect_request(self, *arguments: Any) -> Request | None:
        address = arguments[-1]
        if urlsplit(address).scheme != "https":
            raise OSError(f"it redirects to {address}, which is not https")
        return super().redirect_request(*arguments)


def _get(url: str, *, most: int) -> bytes:
    """The whole of a file, or an OSError."""
    try:
        with build_opener(_NeverToHttp).open(url, timeout=_SECONDS) as answer:
            return _whole(answer, most)
    except HTTPException as trouble:
        raise OSError(f"{type(trouble).__name__}: {trouble}") from trouble


def _whole(answer: Any, most: int) -> bytes:
    began, parts, received = monotonic(), [], 0
    while part := answer.read1(1 << 20):
        parts.append(part)
        received += len(part)
        if received + (answer.length or 0) > most:
            raise OSError(f"it has more than {most} bytes")
        if monotonic() - began > _MOST_SECONDS:
            raise OSError(f"not whole after {_MOST_SECONDS} seconds")
    if answer.length:  # what is still to come of the announced length
        raise OSError(f"it ends {answer.length} bytes too early")
    return b"".join(parts)
