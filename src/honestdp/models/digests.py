"""Digests over every file of a model folder: a change of any of them is noticed when the folder is read.

What this can promise: a file that was cut, mixed up, edited or lost is not taken for what was saved, for each is read once, and
what was read is what was compared. What it cannot: whoever can write the folder can also write digests that fit. Against that
helps the digest of the whole folder, one line that is noted elsewhere when the folder is saved and handed in when it is read.

Of the model card only what is above its mark counts: below it people write, who are asked to.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.models.card import CARD, sealed

DIGESTS = "digests.json"
FORMAT = 1
_NAME = re.compile(r"(?:candidates/)?[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOST_BYTES = 1 << 20  # of the digests themselves
_HASH = re.compile("[0-9a-f]{64}")


class TamperedFolder(HonestdpError):
    """A model folder whose files are not what was saved. Nothing of it is used."""


def digest_of(files: Mapping[str, str]) -> str:
    """One digest over the names and digests of all files."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(f"honestdp model folder {FORMAT}\n{lines}".encode()).hexdigest()


def digests(contents: Mapping[str, bytes]) -> dict[str, Any]:
    """What `digests.json` holds, of files by their names."""
    files = {name: _hash(name, content) for name, content in sorted(contents.items())}
    return {"format": FORMAT, "files": files, "digest": digest_of(files)}


def _hash(name: str, content: bytes) -> str:
    return hashlib.sha256(sealed(content) if name == CARD else content).hexdigest()


def checked_files(
    folder: Path, *, digest: str | None = None, besides: Collection[str] = ()
) -> tuple[dict[str, bytes], str]:
    """Every file that the digests name, each as it was saved, and the digest of the whole folder.

    digest: noted earlier, which the folder must still have. besides: files that may be missing. Raises TamperedFolder for any
    difference, and InvalidArgument for a folder that is none of ours, or an argument that is no digest.
    """
    if digest is not None and (not isinstance(digest, str) or not _HASH.fullmatch(digest := digest.strip().lower())):
        wanted = "a whole digest, 64 digits and letters from a to f, as it was printed when the folder was saved"
        raise InvalidArgument("digest", digest, wanted)
    named = _named(folder)
    contents = {}
    for name, known in named.items():
        content = _content(folder, name)
        if content is None and name in besides:
            continue
        if content is None:
            raise tampered(folder, f"{name} is missing")
        if _hash(name, content) != known:
            raise tampered(folder, f"{name} is not what was saved")
        contents[name] = content
    whole = digest_of(named)
    if digest is not None and whole != digest:
        raise tampered(folder, f"its files have the digest {whole}, and {digest} was asked for")
    return contents, whole


def _named(folder: Path) -> dict[str, str]:
    """Digests of files by their names, as they are written in the folder."""
    if not folder.is_dir():
        raise InvalidArgument("folder", str(folder), "the folder of a saved model: there is no such folder")
    content = _content(folder, DIGESTS, most=_MOST_BYTES)
    if content is None:
        wanted = f"the folder of a saved model, which has a file {DIGESTS}: this one has none"
        raise InvalidArgument("folder", str(folder), wanted)
    try:
        written = json.loads(content)
        version, files, whole = written["format"], written["files"], written["digest"]
        names = all(_NAME.fullmatch(name) and _HASH.fullmatch(known) for name, known in files.items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise tampered(folder, f"{DIGESTS} cannot be read") from None
    if version != FORMAT:
        raise HonestdpError(f"the model folder {folder} is of the format {version!r}; this version knows {FORMAT}")
    if not names or not files or whole != digest_of(files):
        raise tampered(folder, f"{DIGESTS} is not what was saved")
    return dict(files)


def _content(folder: Path, name: str, *, most: int | None = None) -> bytes | None:
    """A file's content, read once; None where there is none. A link, a pipe or the like in its place is not read."""
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as trouble:
        raise tampered(folder, f"{name} cannot be read ({trouble.strerror})") from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or (most is not None and found.st_size > most):
        os.close(handle)
        raise tampered(folder, f"{name} is no file, or too large")
    with os.fdopen(handle, "rb") as file:
        return file.read()


def tampered(folder: Path, what: str) -> TamperedFolder:
    return TamperedFolder(
        f"the model folder {folder} was changed since it was saved: {what}. Nothing of it is used; take a copy of "
        "the folder as it was saved"
    )
