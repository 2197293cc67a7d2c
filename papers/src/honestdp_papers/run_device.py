"""Makes the parts of a paper's figure with torch and numpy alone, as on a bare GPU machine.

    python -m honestdp_papers.run_device mohapatra2022/figure4 --out papers/results --device cuda

The files go to OUT/mohapatra2022/parts. On a machine with everything installed `honestdp papers run mohapatra2022/figure4 --kept
--out OUT` finds them there and makes the figure. Run again to go on where it stopped; parts that cannot be made are one line for
each reason and exit code 2, and the others are made. Exit code 1: the GPU was lost to the process, and the same
again goes on; 3: time was up.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from honestdp.errors import HonestdpError, InvalidArgument
from honestdp_papers.parts import RESULTS, TO_DO, Part, make_all, state
from honestdp_papers.registry import lookup, parts_folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", nargs="+", help="paper/item, or a paper for all of its items")
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"where parts are kept; {RESULTS} if left out")
    parser.add_argument("--device", default="cuda", help="cuda or cpu; cuda if left out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--only", default="*", help="the parts of a pattern, such as '*mnist*', or of several, by commas, in that order"
    )
    parser.add_argument("--keep-stale", action="store_true", help="leave parts as they are whose replay differed")
    parser.add_argument("--seconds", type=float, help="begin no part after so long")
    parser.add_argument(
        "--within",
        type=float,
        help="be over after so long: leave out parts that would take longer, by what others took",
    )
    parser.add_argument("--list", action="store_true", help="show the parts and whether they are done")
    try:
        return _made(parser.parse_args(arguments))
    except (HonestdpError, OSError) as error:
        print("run_device: error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("run_device: stopped; what is done is kept: run the same again to go on", file=sys.stderr)
        return 130
    except RuntimeError as trouble:
        if not is_lost(trouble):
            raise
        end_lost(f"run_device: {words_of(trouble)}; what is done is kept: run the same again to go on")


def _made(chosen: argparse.Namespace) -> int:
    every: dict[str, Part] = {}
    folder: Path | None = None
    for name in chosen.name:
        paper, items = lookup(name)
        folder = parts_folder(chosen.out, paper.name, chosen.quick)
        every |= {part.name: part for item in items for part in item.parts(chosen.quick)}
    assert folder is not None
    parts: dict[str, Part] = {}
    for pattern in chosen.only.split(","):
        parts |= {name: part for name, part in every.items() if name not in parts and fnmatch.fnmatch(name, pattern)}
    if not parts:
        raise HonestdpError(f"--only {chosen.only} names no part of {', '.join(chosen.name)}; --list shows the parts")
    if chosen.list:
        whole = sum(part.weight for part in parts.values())
        for part in parts.values():
            now = state(part, folder)
            known = f", {part.flops / 1e12:7.1f} TFLOP" if part.flops else ""
            print(f"{now:<5}  {part.weight:6.1f} s, {100 * part.weight / whole:5.1f} %{known}  {part.name}")
        flops = sum(part.flops for part in parts.values())
        left = sum(part.weight for part in parts.values() if state(part, folder) == TO_DO)
        print(f"{left:.0f} s of parts that are not there")
        print(f"{whole:.0f} s{f' and {flops:.1e} FLOP' if flops else ''} on a large GPU in all, roughly")
        return 0
    check_device(chosen.device)
    failed: dict[str, str] = {}

    def refused(name: str, error: Exception) -> None:
        if is_lost(error):
            raise error
        why = " ".join(str(error).split())
        if why not in failed.values():  # what many parts lack is told once
            if not isinstance(error, HonestdpError | OSError):  # a fault of ours: where it is
                traceback.print_exception(error)
            print(f"run_device: error: {name} cannot be made: {why}", file=sys.stderr, flush=True)
        failed[name] = why

    finished = make_all(
        list(parts.values()),
        folder,
        chosen.device,
        seconds=chosen.seconds,
        within=chosen.within,
        keep_stale=chosen.keep_stale,
        tell=Lines(),
        refused=refused,
    )
    if failed:
        print(f"{len(failed)} parts cannot be made; the others that there was time for are done", flush=True)
        return 2
    print("all parts are done" if finished else "stopped in time; run again to go on", flush=True)
    return 0 if finished else 3


def check_device(device: str) -> None:
    import torch

    if device not in ("cpu", "cuda"):
        raise InvalidArgument("device", device, "cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidArgument("device", device, "cpu here: torch finds no GPU")


def is_lost(trouble: BaseException) -> bool:
    """Whether a GPU is lost to this process, so that nothing more can be computed on it: an illegal access, say."""
    return "CUDA error" in str(trouble)


def words_of(trouble: BaseException) -> str:
    """An error in one line."""
    return f"{type(trouble).__name__}: {' '.join(str(trouble).split())[:300]}"


def end_lost(words: str) -> NoReturn:
    """End the process that has lost its GPU, with exit code 1. No destructor is called: the first would abort."""
    print(words, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1)


class Lines:
    """Progress as lines: where there is no terminal a bar would be noise. file: where they go, standard output if left out."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._began = time.monotonic()
        self._said = -1e9
        self._part = ""

    def __call__(self, name: str, done: float, total: float) -> None:
        now = time.monotonic()
        if name == self._part and now - self._said < 15:
            return
        self._part, self._said = name, now
        spent = now - self._began
        left = f"{spent / done * (total - done):5.0f} s left" if done > 0 else ""
        print(f"{100 * done / total:5.1f} %  {spent:5.0f} s  {left:>12}  {name}", file=self._file, flush=True)


@contextmanager
def quietly() -> Iterator[None]:
    """Warnings about kernels are said nevertheless: what is measured without them is another thing."""
    ours, kernels = logging.getLogger("honestdp"), logging.getLogger("honestdp.kernels")
    before = ours.level, kernels.level
    ours.setLevel(logging.ERROR)
    kernels.setLevel(logging.WARNING)
    try:
        yield
    finally:
        ours.setLevel(before[0])
        kernels.setLevel(before[1])


if __name__ == "__main__":
    sys.exit(main())
