"""Long work in parts: each part is one file, written whole or not at all, so that work can stop and go on anywhere.

A part needs torch and numpy alone, so parts can be made on a GPU machine that has nothing else and be carried to another
one, where the figure is made from them. A part keeps every number that was measured, so that a later question is answered from
it, and its own settings: where these have changed, or where a replay of the part came out otherwise (`replay`), the part is stale
and is made anew.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shlex
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from honestdp.files import replace_file

RESULTS = Path("papers/results")
"""Where results, figures and parts are kept unless another folder is named."""
REPLAYS = "replay.json"
"""Beside the results of a paper."""
_MODULES = {"run_device.py": "python -m honestdp_papers.run_device", "__main__.py": "python -m honestdp"}
Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Finished = dict[str, Arrays]
"""The arrays of every part by the part's name."""
Tell = Callable[[float], None]
"""Called with the fraction of a part that is done."""


@dataclass(frozen=True)
class Part:
    """A piece of work. identity: everything its numbers depend on; a file with another identity is made anew.

    weight: its share of the work, as seconds on a large GPU, roughly. work(device, tell) returns the arrays to keep.
    optional: a result is made without it where it is not there. flops: what it computes, roughly, where that is known.
    """

    name: str
    identity: dict[str, Any]
    weight: float
    work: Callable[[str, Tell], Arrays]
    optional: bool = False
    flops: float = 0.0


DONE, STALE, TO_DO = "done", "stale", "to do"


def described(rule: Any) -> str:
    """A rule by its class and the numbers that are not its defaults: a new option of a rule makes no other identity."""
    given = ((f.name, getattr(rule, f.name)) for f in fields(rule) if getattr(rule, f.name) != f.default)
    return f"{type(rule).__name__}({', '.join(f'{name}={value!r}' for name, value in given)})"


@lru_cache(maxsize=4)
def kept_numbers(file: Path) -> dict[str, Any]:
    """Of a file of numbers beside a module, which were computed where the accountants are."""
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def file_of(part: Part, folder: Path) -> Path:
    return folder / f"{part.name}.npz"


def state(part: Part, folder: Path) -> str:
    """DONE; STALE where the part's settings have changed or its replay differed; TO_DO where no whole file is there."""
    about = _about(part, folder)
    if about is None:
        return TO_DO
    differed = replays(folder.parent).get(part.name, {}).get("differs", False)
    return DONE if has_settings(part, about) and not differed else STALE


def is_done(part: Part, folder: Path) -> bool:
    return state(part, folder) == DONE


def is_usable(part: Part, folder: Path) -> bool:
    """Whether the part is there with its own settings, whatever its replay said."""
    about = _about(part, folder)
    return about is not None and has_settings(part, about)


def has_settings(part: Part, about: dict[str, Any]) -> bool:
    return bool(about["identity"] == json.loads(json.dumps(part.identity)))


def _about(part: Part, folder: Path) -> dict[str, Any] | None:
    """How a part was made; None where its file is not there or not whole."""
    try:
        arrays, about = read(part, folder)
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    return about if arrays and "identity" in about else None


def replays(folder: Path) -> dict[str, dict[str, Any]]:
    """The outcome of the last replay of each part that has one, by the part's name; folder: of a paper's results."""
    file = folder / REPLAYS
    return json.loads(file.read_text())["parts"] if file.is_file() else {}


def keep_replays(folder: Path, found: dict[str, dict[str, Any]]) -> None:
    """Write the outcomes; they are of the files as they are, so that a part that is made anew loses its own."""
    write_whole(folder / REPLAYS, (json.dumps({"version": 1, "parts": found}, indent=1) + "\n").encode())


def read(part: Part, folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a part that is done, and how they were made (device, seconds, versions)."""
    file = file_of(part, folder)
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
        arrays = {name: kept[name] for name in kept.files if name != "about"}
        return arrays, json.loads(str(kept["about"]))


def make(part: Part, folder: Path, device: str, tell: Tell = lambda done: None) -> None:
    """Do a part and keep its file."""
    began = time.perf_counter()
    arrays = part.work(device, tell)
    about = {
        "identity": part.identity,
        "seconds": round(time.perf_counter() - began, 3),
        "device": device_name(device),
        "command": as_seen(),
        "versions": versions(),
    }
    packed = io.BytesIO()
    np.savez_compressed(packed, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    write_whole(file_of(part, folder), packed.getvalue())
    found = replays(folder.parent)
    if found.pop(part.name, None) is not None:
        keep_replays(folder.parent, found)


def make_all(
    parts: Sequence[Part],
    folder: Path,
    device: str,
    *,
    seconds: float | None = None,
    within: float | None = None,
    keep_stale: bool = False,
    tell: Callable[[str, float, float], None] = lambda name, done, total: None,
    refused: Callable[[str, Exception], None] | None = None,
) -> bool:
    """Do every part that is not done, and say whether all are. No part is begun after `seconds`.

    within: seconds after which nothing may be running: a part that would not be over by then is left out, and smaller ones after
    it are made. How long a part takes is told by its weight and by how much longer the parts before it took than theirs.
    keep_stale: leave parts as they are whose replay differed. tell: called with a part's name, the work done so far and all work
    of this call. refused: called with a part that cannot be made, and why; the others are made all the same,
    unless it raises.
    """
    enough = is_usable if keep_stale else is_done
    todo = [part for part in parts if not enough(part, folder)]
    total, done, began, left_out = sum(part.weight for part in todo), 0.0, time.monotonic(), False
    for part in todo:
        spent = time.monotonic() - began
        if seconds is not None and spent > seconds:
            return False
        if within is not None and spent + expected(part.weight, spent, done) > within:
            left_out = True
            continue
        before, weight = done, part.weight
        tell(part.name, before, total)
        try:
            make(part, folder, device, lambda f, p=part, b=before, w=weight: tell(p.name, b + f * w, total))  # type: ignore[misc]
        except Exception as error:
            if refused is None:
                raise
            refused(part.name, error)
            left_out = True
            continue
        done += weight
    return not left_out


_STARTS = 20.0
"""Seconds that the first part of a process takes longer than its weight, to compile and to try its model."""


_TRUSTED = 60.0
"""The weight of parts that are done from which on a pace faster than the weights is believed, but for a tenth."""


def expected(weight: float, spent: float, done: float) -> float:
    """The seconds of a part, where parts of the weight `done` took the seconds `spent`; fewer than its weight only where many
    parts took fewer, and never fewer than half."""
    if done <= 0:
        return _STARTS + weight
    pace = (spent - _STARTS) / done
    return weight * (max(0.5, pace, min(1.0, 1.1 * pace)) if done >= _TRUSTED else max(1.0, pace))


def write_whole(file: Path, raw: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, raw, mode=0o644)


def device_name(device: str) -> str:
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(torch.device(device))
    return f"CPU, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    import torch

    import honestdp

    return {
        "honestdp": honestdp.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "numpy": np.__version__,
    }


def as_seen(command: Sequence[str] | None = None) -> str:
    """The command line as a reader can repeat it: without this machine's paths. The folder of results becomes the usual one."""
    first, *rest = command or sys.argv
    told = []
    for before, word in zip(["", *rest], rest, strict=False):
        kept = str(RESULTS) if before == "--out" else f"--out={RESULTS}" if word.startswith("--out=") else word
        told.append(shlex.quote(kept))
    name = Path(first).name
    return " ".join([_MODULES.get(name, name), *told])
