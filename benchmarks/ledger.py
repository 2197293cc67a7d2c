"""What a charge to a large ledger takes, in a process of its own.

    python benchmarks/ledger.py [--json FILE]

Two ledgers: 1000 charges of 1000 kinds, and 100,000 charges that are alike. Each is charged with nothing remembered, and again by
new processes that remember. Times are of the call, without imports; memory is the process's largest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from honestdp import Budget, Run
from honestdp.ledger import Ledger
from honestdp.ledger.chain import COLUMNS, Entry, canonical
from honestdp.ledger.spending import Spending
from honestdp.selection import Compose

LEDGERS = {
    "1000 charges of 1000 kinds": [20 + 0.1 * i for i in range(1000)],
    "100,000 charges alike": [200.0] * 100_000,
}


def training(noise: float) -> Spending:
    return Spending(Compose(candidates=1), ((Run(records=60000, lot=250, steps=1000, noise=noise), 1),))


def build(path: Path, noises: list[float]) -> None:
    """The ledger that so many charges would have made."""
    Ledger(path).set_budget("a", Budget(100.0, 1e-6))
    last = Ledger(path).entries()[-1]
    rows = []
    for number, noise in enumerate(noises, start=2):
        content = canonical(training(noise).as_dict())
        last = Entry(number, last.time, "a", "charge", uuid.uuid4().hex, "benchmark", content, last.hash).sealed()
        rows.append(tuple(last))
    with sqlite3.connect(path) as connection:
        connection.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", rows)
    connection.close()


def charge(path: Path, noise: float) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    balance = Ledger(path).charge("a", training(noise), key=uuid.uuid4().hex)
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - used,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "spent": balance.spent,
    }


def in_a_new_process(path: Path, noise: float) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--charge", str(path), str(noise)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--charge", nargs=2, metavar=("LEDGER", "NOISE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.charge is not None:
        print(json.dumps(charge(Path(given.charge[0]), float(given.charge[1]))))
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HONESTDP_COMPOSED"] = str(Path(folder) / "composed")
        print(f"{'ledger':<28}{'charge':<24}{'seconds':>9}{'cpu':>9}{'MB':>7}{'spent':>10}")
        for number, (name, noises) in enumerate(LEDGERS.items()):
            path = Path(folder) / f"{number}.db"
            build(path, noises)
            for label, noise in (
                ("nothing remembered", noises[0]),
                ("a known kind", noises[0]),
                ("a new kind", 77.77),
                ("another new kind", 177.77),
            ):
                row = in_a_new_process(path, noise)
                found[f"{name}, {label}"] = row
                numbers = f"{row['seconds']:>9.2f}{row['cpu']:>9.2f}{row['megabytes']:>7.0f}{row['spent']:>10.5f}"
                print(f"{name:<28}{label:<24}{numbers}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
