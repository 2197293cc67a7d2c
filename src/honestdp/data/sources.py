"""Files of public datasets: found in a folder, in a cache, or downloaded, and never used unchecked.

The order is HONESTDP_DATA, then the cache (HONESTDP_CACHE, or the user's cache folder), then the public addresses. A file's
checksum is that of its content, decompressed where the name ends in .gz, so that a file that was packed again is the same
file. A file that does not have its checksum is refused wherever it was found: it is not replaced silently.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

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
    hand, and the reader checks shapes and counts instead. urls: where it is published.
    """

    path: str
    sha256: str | None
    urls: tuple[str, ...]


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
    file = find(source.path)
    if file is None:
        return _download(dataset, source)
    try:
        found = unpacked(file.read_bytes(), packed=file.suffix == ".gz")
    except (OSError, EOFError, zlib.error) as damage:
        raise DatasetUnavailable(f"dataset {dataset}: {file} cannot be read ({damage}); replace it") from damage
    _check(dataset, source, found, str(file))
    return found


def unpacked(raw: bytes, *, packed: bool) -> bytes:
    return gzip.decompress(raw) if packed else raw


def keep(path: str, raw: bytes) -> Path:
    """Put a file into the cache, whole or not at all."""
    target = cache_folder() / path
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, raw)
    return target


def discard(path: str) -> None:
    """Forget a file of the cache that turned out to be no good, so that it is downloaded again."""
    (cache_folder() / path).unlink(missing_ok=True)


def _check(dataset: str, source: SourceFile, found: bytes, where: str) -> None:
    if source.sha256 is None:
        return
    digest = hashlib.sha256(found).hexdigest()
    if digest != source.sha256:
        raise DatasetUnavailable(
            f"dataset {dataset}: {where} is damaged or another file: its content has sha256 {digest}, and {source.sha256} is "
            "right; replace it, or remove it to have it downloaded"
        )


def _download(dataset: str, source: SourceFile) -> bytes:
    troubles = []
    for url in source.urls:
        try:
            raw = _get(url)
            found = unpacked(raw, packed=url.endswith(".gz"))
            _check(dataset, source, found, url)
        except (OSError, EOFError, ValueError, zlib.error, DatasetUnavailable) as trouble:
            troubles.append(f"{url} ({trouble})")
            continue
        same = url.endswith(".gz") == source.path.endswith(".gz")
        keep(source.path, raw if same else gzip.compress(found, mtime=0) if source.path.endswith(".gz") else found)
        return found
    folder = data_folder()
    looked = [
        "HONESTDP_DATA (not set)" if folder is None else str(folder / source.path),
        str(cache_folder() / source.path),
        *troubles,
    ]
    raise DatasetUnavailable(
        f"dataset {dataset} is not here and could not be downloaded; looked for {source.path} in: {'; '.join(looked)}. Set "
        f"HONESTDP_DATA to a folder that holds {source.path}, or run once with a network"
    )


def _get(url: str) -> bytes:
    """The whole of a file, or an OSError."""
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=_SECONDS) as answer:
            return _whole(answer)
    except HTTPException as trouble:
        raise OSError(f"{type(trouble).__name__}: {trouble}") from trouble


def _whole(answer: Any) -> bytes:
    began, parts = monotonic(), []
    while part := answer.read1(1 << 20):
        parts.append(part)
        if monotonic() - began > _MOST_SECONDS:
            raise OSError(f"not whole after {_MOST_SECONDS} seconds")
    if answer.length:  # what is still to come of the announced length
        raise OSError(f"it ends {answer.length} bytes too early")
    return b"".join(parts)
