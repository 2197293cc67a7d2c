"""Replays: one cheap part of each code path is made again by today's code and compared with the part that is kept.

A part that was trained on the same kind of device has the same draws, and its numbers are compared one by one. A GPU's noise is
drawn by another generator than a CPU's: a part that was trained on a GPU and replayed on a CPU is another realisation, of which
the means alone are compared, against the standard error of its repeats.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import honestdp
from honestdp.errors import HonestdpError
from honestdp_papers.parts import Array, Arrays, device_name, file_of, has_settings, keep_replays, read, replays
from honestdp_papers.registry import Paper, Replay, parts_folder

NEAR = 0.01
"""Difference up to which two numbers count as equal, as a part of the larger one."""
FEW = 0.05
"""Share of the numbers that may be further apart: of trainings that diverge no digit stands still."""
ERRORS = 5.0
"""Standard errors up to which two means of independent trainings count as equal."""


def replay(
    paper: Paper, *, out: Path, device: str, tell: Callable[[str], None], only: str = "*"
) -> dict[str, dict[str, Any]]:
    """Make the cheap parts of a paper again, write the outcomes beside its results, and return them by the parts' names.

    Args:
        paper: the paper; `paper.replays` names the parts.
        out: the folder of results.
        device: cpu or cuda; parts that only a GPU makes in minutes are left out on a CPU.
        tell: called with a line before each part and after it.
        only: the pattern of the parts to make; the outcomes of others are kept.
    """
    folder = parts_folder(out, paper.name, False)
    found = replays(folder.parent)
    for one in paper.replays:
        if not fnmatch.fnmatch(one.part, only):
            continue
        if one.gpu and not device.startswith("cuda"):
            tell(f"{one.part}: left out, it needs a GPU")
            continue
        tell(f"{one.part}: made again on {device_name(device)}")
        found[one.part] = replayed(paper, one, folder, device)
        keep_replays(folder.parent, found)
        tell(f"{one.part}: {outcome(found[one.part])}")
    return found


def replayed(paper: Paper, one: Replay, folder: Path, device: str) -> dict[str, Any]:
    """One part made again, and its comparison with the part that is kept."""
    part = next(part for part in paper.item(one.item).parts(False) if part.name == one.part)
    if not file_of(part, folder).is_file():
        raise HonestdpError(f"{one.part} is not in {folder}: there is nothing to compare a replay with")
    kept, about = read(part, folder)
    if not has_settings(part, about):
        raise HonestdpError(f"{one.part} was made with other settings: run {paper.name}/{one.item} --anew first")
    began = time.monotonic()
    again = part.work(device, lambda done: None)
    same_draws = about["device"].startswith("CPU") == device_name(device).startswith("CPU")
    return {
        **(compared(kept, again) if same_draws else compared_means(kept, again, one.repeats)),
        "made on": about["device"],
        "replayed on": device_name(device),
        "on": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "seconds": round(time.monotonic() - began),
    }


def compared(kept: Arrays, again: Arrays) -> dict[str, Any]:
    """Every number with its own, of trainings with the same draws."""
    gaps = np.concatenate([_gaps(kept[name], again[name]).ravel() for name in kept])
    apart = int((gaps > NEAR).sum())
    return {
        "draws": "same",
        "numbers": len(gaps),
        "apart": apart,
        "difference": float(f"{gaps.max():.2g}"),
        "differs": apart > FEW * len(gaps),
    }


def compared_means(kept: Arrays, again: Arrays, axis: int) -> dict[str, Any]:
    """The mean of each array, of trainings with other draws. axis: that of the independent repeats."""
    gaps, errors, names = [], [], [name for name, values in kept.items() if values.ndim > axis]
    for name in names:
        first, second = (_by_repeat(one[name], axis) for one in (kept, again))
        gap = abs(float(first.mean() - second.mean()))
        error = math.sqrt(sum(one.var(ddof=1) / len(one) for one in (first, second)))
        gaps.append(gap / max(abs(float(first.mean())), 1e-12))
        errors.append(0.0 if gap == 0 else gap / max(error, 1e-12))
    return {
        "draws": "other",
        "numbers": len(names),
        "apart": sum(error > ERRORS for error in errors),
        "difference": float(f"{max(gaps):.2g}"),
        "errors": float(f"{max(errors):.2g}"),
        "differs": max(errors) > ERRORS,
    }


def _by_repeat(values: Array, axis: int) -> Array:
    """The mean of each repeat."""
    rows = np.moveaxis(values.astype(float), axis, 0).reshape(values.shape[axis], -1)
    found: Array = np.nanmean(np.where(np.isfinite(rows), rows, np.nan), axis=1)
    return found


def _gaps(kept: Array, again: Array) -> Array:
    """The differences of two arrays, each as a part of the larger number; infinite where one of two alone is no number."""
    first, second = np.asarray(kept, float), np.asarray(again, float)
    if first.shape != second.shape:
        return np.array([math.inf])
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        gaps = np.abs(first - second) / np.maximum(np.abs(first), np.abs(second))
    return np.where(same, 0.0, np.where(np.isfinite(gaps), gaps, math.inf))


def outcome(found: dict[str, Any]) -> str:
    """The outcome of a replay in words."""
    when = f"replayed {found['on']} at {found['commit']}"
    if found["draws"] == "same":
        if not found["apart"]:
            return f"{when}: equal within {found['difference']:g}"
        said = (
            f"{found['apart']} of {found['numbers']} numbers more than {NEAR:.0%} apart, up to {found['difference']:g}"
        )
        return f"{when}: {'DIFFERS, ' if found['differs'] else 'equal but for '}{said}"
    words = f"equal within {found['difference']:g}" if not found["differs"] else f"DIFFERS by {found['difference']:g}"
    return f"{when}: {words} in the mean ({found['errors']:g} standard errors, with other draws of noise)"


def commit() -> str:
    """The commit of the library's sources, with a + where they have changed since; its version outside of a checkout."""
    where = Path(honestdp.__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=8", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"honestdp {honestdp.__version__}"
