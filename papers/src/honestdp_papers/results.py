"""From parts to a result: numbers, verdicts, figure, and how they were made, in files."""

from __future__ import annotations

import datetime
import json
import re
import time
from pathlib import Path
from typing import Any

from honestdp.errors import HonestdpError
from honestdp_papers.parts import (
    RESULTS,
    as_seen,
    device_name,
    is_done,
    is_usable,
    make_all,
    read,
    versions,
    write_whole,
)
from honestdp_papers.registry import Item, Paper, parts_folder, result_file


def reproduce(
    paper: Paper,
    item: Item,
    *,
    out: Path,
    quick: bool,
    device: str,
    kept_only: bool = False,
    tell: Any = lambda name, done, total: None,
) -> dict[str, Any]:
    """Do what is not done yet of an item, write its result and figure, and return the result.

    kept_only: make no part; take those that are there, as far as they go, and say which are missing. Optional parts are never
    made here, and are used where they are.
    """
    folder = parts_folder(out, paper.name, quick)
    enough = is_usable if kept_only else is_done
    wanted = item.parts(quick)
    parts = [part for part in wanted if enough(part, folder) or not (part.optional or kept_only)]
    missing = [part.name for part in wanted if not part.optional and part not in parts]
    if missing and not parts:
        raise HonestdpError(
            f"{item.name}: none of its {len(missing)} parts is in {folder}; run --anew in the place of --kept to make them"
        )
    make_all(parts, folder, device, keep_stale=kept_only, tell=tell)
    began = time.perf_counter()
    kept = {part.name: read(part, folder) for part in parts}
    outcome = item.finish({name: arrays for name, (arrays, _) in kept.items()}, quick)
    abouts = [about for _, about in kept.values()]
    result: dict[str, Any] = {
        "paper": paper.name,
        "name": item.name,
        "about": item.about,
        "quick": quick,
        **outcome.as_dict(),
        "made": {
            "command": as_seen(),
            "training by": sorted({_repeatable(about["command"]) for about in abouts}),
            "device": sorted({about["device"] for about in abouts}) or [device_name("cpu")],
            "seconds of training": round(sum(about["seconds"] for about in abouts), 1),
            "seconds of the rest": round(time.perf_counter() - began, 1),
            "versions": abouts[-1]["versions"] if abouts else versions(),
            "parts": len(parts),
            "missing": missing,
            "on": datetime.datetime.now(datetime.UTC).date().isoformat(),
        },
    }
    file = result_file(out, paper.name, item.name, quick)
    if outcome.draw is not None:
        picture = file.with_suffix(".png")
        picture.parent.mkdir(parents=True, exist_ok=True)
        outcome.draw(picture)
        result["figure"] = picture.name
    write_whole(file, readable(result).encode())
    return result


def readable(result: dict[str, Any]) -> str:
    """JSON with every list of numbers on one line."""
    text = json.dumps(result, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([-+\d.,\seEIN]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def _repeatable(command: str) -> str:
    """Parts made before the folder of results was told in commands had one."""
    bare = "run_device" in command and "--out" not in command.split()
    return f"{command} --out {RESULTS}" if bare else command


def kept_result(paper: Paper, item: Item, *, out: Path, quick: bool) -> dict[str, Any] | None:
    """The result of an item that was reproduced before, if it was."""
    file = result_file(out, paper.name, item.name, quick)
    if not file.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(file.read_text())
        whole = {"claims", "tables", "notes", "made", "quick"} <= found.keys()
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        again = f"honestdp papers run {paper.name}/{item.name} --anew{' --quick' if quick else ''}"
        raise HonestdpError(f"{file} is no whole result; make it again ({again} --out {out}) or delete it")
    return found
