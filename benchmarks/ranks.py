"""Steps a second of one training on 1, 2 and more processes of this machine, as torchrun starts them.

    python benchmarks/ranks.py [--ranks 1 2] [--lot 1024] [--hidden 512] [--steps 40] [--threads 1] [--json FILE]

A network of 784 inputs, one hidden layer and ten classes, on made-up records. Every process has as many threads as --threads
says, so that two processes have twice the cores of one only where the machine has them: compare `--ranks 1 --threads 2`, too.
The time of a step is the difference between a training of many steps and one of few, divided by the steps between them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RECORDS = 20_000


def seconds(steps: int, *, lot: int, hidden: int) -> float:
    """Of a training of so many steps in this process, and in those that were started with it."""
    import torch

    from honestdp import Compute, Run
    from honestdp.optimizers import SGD
    from honestdp.training.train import train

    maker = torch.Generator().manual_seed(0)
    x, y = torch.rand(RECORDS, 784, generator=maker), torch.randint(0, 10, (RECORDS,), generator=maker)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
    run = Run(records=RECORDS, lot=lot, steps=steps, noise=1.0)
    began = time.perf_counter()
    train(model, (x, y), run=run, optimizer=SGD(lr=0.1, clip=1.0), compute=Compute(device="cpu"))
    return time.perf_counter() - began


def of_this_process(given: argparse.Namespace) -> None:
    size = {"lot": given.lot, "hidden": given.hidden}
    seconds(2, **size)
    few = min(seconds(4, **size) for _ in range(3))
    many = min(seconds(4 + given.steps, **size) for _ in range(3))
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps((many - few) / given.steps))


def on_ranks(ranks: int, given: argparse.Namespace) -> float:
    """Seconds of a step."""
    size = ["--lot", str(given.lot), "--hidden", str(given.hidden), "--steps", str(given.steps)]
    starts = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "29655"]
    command = [sys.executable, *starts, __file__, "--measure", *size]
    own = os.environ | {"OMP_NUM_THREADS": str(given.threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=own)
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--lot", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        of_this_process(given)
        return
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "threads": given.threads,
        "lot": given.lot,
        "hidden": given.hidden,
    }
    print(f"{os.cpu_count()} cores, {given.threads} threads a process, lot {given.lot}, {given.hidden} hidden units")
    print(f"{'processes':<12}{'ms a step':>12}{'steps a second':>18}{'speed-up':>12}")
    first: float | None = None
    for ranks in given.ranks:
        took = found[str(ranks)] = on_ranks(ranks, given)
        first = took if first is None else first
        print(f"{ranks:<12}{1000 * took:>12.1f}{1 / took:>18.1f}{first / took:>12.2f}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
