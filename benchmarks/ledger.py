"""What a ledger takes as it grows, in a file and on a PostgreSQL server: to charge, show, verify; each in a process of its own.

    python benchmarks/ledger.py [--charges 1000 10000 100000] [--places file server] [--json FILE]

Ledgers of so many charges that are alike, one of as many as the largest in 100 kinds, and one of 1000 kinds. The first charge of
a process composes every kind; "next" is a second charge, of a new kind, by the same process. Times are of the call, without
imports; memory is the process's largest. The server is one of its own, in a temporary folder and on a socket of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from honestdp import Budget, Run
from honestdp.ledger import Ledger, copying
from honestdp.ledger.chain import COLUMNS, Entry, canonical
from honestdp.ledger.spending import Spending
from honestdp.selection import Compose

sys.path.insert(0, str(Path(__file__).parent.parent))  # the server is that of the tests

KINDS = [200.0 + i for i in range(100)]


def training(noise: float) -> Spending:
    return Spending(Compose(candidates=1), ((Run(records=60000, lot=250, steps=1000, noise=noise), 1),))


def build(path: Path, noises: list[float]) -> None:
    """The ledger that so many charges would have made."""
    Ledger(path).set_budget("a", Budget(1000.0, 1e-6))
    last = Ledger(path).entries()[-1]
    contents = {noise: canonical(training(noise).as_dict()) for noise in set(noises)}
    rows = []
    for number, noise in enumerate(noises, start=2):
        last = Entry(
            number, last.time, "a", "charge", uuid.uuid4().hex, "benchmark", contents[noise], last.hash
        ).sealed()
        rows.append(tuple(last))
    with sqlite3.connect(path) as connection:
        connection.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", rows)
    connection.close()


def charge(ledger: Ledger, noise: float) -> float:
    return ledger.charge("a", training(noise), key=uuid.uuid4().hex).spent


def show(ledger: Ledger) -> float:
    """As `honestdp ledger show` does, to nowhere."""
    from honestdp.report import console

    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        balance = ledger.balance("a")
        print(console.account_text(balance, ledger.charges("a")))
    return balance.spent


def verify(ledger: Ledger) -> float:
    ledger.verify()
    return 0.0


ACTS: dict[str, Callable[..., float]] = {"charge": charge, "next": charge, "show": show, "verify": verify}


def measured(place: str, act: str, noise: float) -> dict[str, float]:
    ledger = Ledger(place)
    if act == "next":
        charge(ledger, 77.77)
    began, used = time.perf_counter(), time.process_time()
    spent = ACTS[act](*((ledger, noise) if act in ("charge", "next") else (ledger,)))
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - used,
        "megabytes": _most_memory() / 1024,
        "spent": spent,
    }


def _most_memory() -> int:
    """In kilobytes, of this program alone: what the operating system says of a process counts its parent's too."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def in_a_new_process(place: str, act: str, noise: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", place, act, str(noise)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


@contextlib.contextmanager
def places(kinds: list[str], path: Path) -> Iterator[dict[str, str]]:
    """The ledger at this path in every place that is asked for."""
    with contextlib.ExitStack() as lasting:
        found = {"file": str(path)} if "file" in kinds else {}
        if "server" in kinds:
            from tests.ledger.postgres_server import Server

            server = Server()
            lasting.callback(server.remove)
            address = lasting.enter_context(server.ledger())
            began = time.perf_counter()
            copying.copy(path, address)
            path.chmod(0o600)
            print(f"{'':<32}copied to the server in {time.perf_counter() - began:.1f} s", flush=True)
            found["server"] = address.url
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--charges", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--places", nargs="+", choices=["file", "server"], default=["file", "server"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        place, act, noise = given.measure
        print(json.dumps(measured(place, act, float(noise))))
        return
    most = max(given.charges)
    ledgers = {f"{count:,} alike": [200.0] * count for count in sorted(given.charges)}
    ledgers[f"{most:,} of {len(KINDS)} kinds"] = [KINDS[i % len(KINDS)] for i in range(most)]
    ledgers["1,000 kinds"] = [200.0 + i / 7 for i in range(1000)]
    found: dict[str, Any] = {}
    print(f"{'charges':<24}{'place':<8}{'act':<32}{'seconds':>9}{'cpu':>8}{'MB':>6}{'spent':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, noises) in enumerate(ledgers.items()):
            path = Path(folder) / f"{number}.db"
            build(path, noises)
            with places(given.places, path) as named:
                for kind, place in named.items():
                    found |= of_one(name, kind, place, noises[0])
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


def of_one(name: str, kind: str, place: str, noise: float) -> dict[str, Any]:
    found = {}
    for label, act, of in (
        ("charge", "charge", noise),
        ("next charge", "next", 177.77),
        ("show", "show", noise),
        ("verify", "verify", noise),
    ):
        row = in_a_new_process(place, act, of)
        found[f"{name}, {kind}, {label}"] = row
        numbers = f"{row['seconds']:>9.2f}{row['cpu']:>8.2f}{row['megabytes']:>6.0f}{row['spent']:>10.5f}"
        print(f"{name:<24}{kind:<8}{label:<32}{numbers}", flush=True)
    return found


if __name__ == "__main__":
    main()
