"""Counts the files and functions of the library through which a search of two candidates of a linear model runs.

    python benchmarks/files_of_a_search.py
    python benchmarks/files_of_a_search.py --list

A file counts if one of its functions is called in the search: a file that is only imported does not, nor does what an import
runs. The search is charged, so that the whole lifecycle is in it: key, draws, charge, token, runs, result, end.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import honestdp

PACKAGE = Path(honestdp.__file__).parent


def search(folder: Path, records: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Ten steps of two candidates, charged to a ledger of their own."""
    ledger = honestdp.Ledger(folder / "ledger.db")
    ledger.set_budget("digits", honestdp.Budget(epsilon=10.0, delta=1e-5))
    honestdp.tune(
        lambda: torch.nn.Linear(64, 10),
        records,
        budget=honestdp.Budget(epsilon=3.0, delta=1e-5),
        optimizer="sgd",
        space={"lr": [0.5, 1.0], "clip": 1.0},
        selection="winner",
        lot=64,
        steps=10,
        ledger=ledger,
        dataset="digits",
        compute=honestdp.Compute(device="cpu"),
    )


def traced(act: Callable[[], None]) -> Counter[tuple[str, str]]:
    """How often each function of the library was called by `act`, by its file and name; calls of an import are left out."""
    calls: Counter[tuple[str, str]] = Counter()
    inside, importing = str(PACKAGE) + os.sep, 0

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        elif event == "call" and not importing and code.co_filename.startswith(inside):
            calls[code.co_filename.removeprefix(inside), code.co_qualname] += 1

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name every file, with the number of its functions")
    arguments = parser.parse_args()
    records = honestdp.load_dataset("digits").train
    with tempfile.TemporaryDirectory() as folder:
        calls = traced(partial(search, Path(folder), records))
    files = Counter(file for file, _ in calls if file.endswith(".py"))
    if arguments.list:
        print(*(f"{count:4} {file}" for file, count in sorted(files.items())), sep="\n")
    print(f"{len(files)} files, {len(calls)} functions")


if __name__ == "__main__":
    main()
