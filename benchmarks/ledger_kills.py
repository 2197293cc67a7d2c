"""Sixteen clients charge one dataset on a PostgreSQL server that is killed with -9 over and over, through a network that is cut.

    python benchmarks/ledger_kills.py [--kills 20] [--clients 16] [--charges 400] [--json FILE]

The server is one of its own, in a temporary folder and on a socket of its own. A part of all commits is cut, before the server
hears of it or before it has answered. After an error a client asks for the same key again, as a search does that goes on. In the
end: what a client was told is charged is charged once, nothing else is, and the budget is met to the last charge.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from honestdp import Budget
from honestdp.ledger import Address, BudgetExceeded, InDoubt, Ledger, Locked, Unreachable
from honestdp.ledger.spending import total_epsilon

sys.path.insert(0, str(Path(__file__).parent.parent))  # the server and the network are those of the tests

from tests.ledger.cut_network import network
from tests.ledger.postgres_server import Server
from tests.ledger.small_ledger import ledger_of, spending

DELTA = 1e-6
CUT = 0.1  # the part of all commits
FORK = multiprocessing.get_context("fork")


def hammer(address: Address, me: int, notes: Path, begin: Any) -> None:
    ledger, attempt = Ledger(address, timeout=5.0), 0
    trouble: Counter[str] = Counter()
    begin.wait()
    with (notes / f"told-{me}").open("a", buffering=1) as told:
        while True:
            try:
                found = ledger.charge("a", spending(), key=f"{me}-{attempt}")
                trouble["found charged" if not found.charged else "charged"] += 1
                told.write(f"{me}-{attempt}\n")
                attempt += 1
            except BudgetExceeded:
                break
            except (Unreachable, InDoubt, Locked) as error:
                trouble[type(error).__name__] += 1
                time.sleep(0.02)
    (notes / f"trouble-{me}").write_text(json.dumps(trouble))


def told_in(notes: Path) -> list[str]:
    return [line for file in sorted(notes.glob("told-*")) for line in file.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("kills", 20), ("clients", 16), ("charges", 400), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    budget = Budget(total_epsilon([spending()] * given.charges, delta=DELTA), DELTA)
    for count in range(given.charges + 2):
        total_epsilon([spending()] * count, delta=DELTA)  # known to the children, whose time goes into the ledger
    chance = random.Random(given.seed)
    server = Server()
    try:
        with (
            server.ledger() as address,
            network(address, server.folder) as (between, through),
            tempfile.TemporaryDirectory() as folder,
        ):
            found = _run(given, server, address, between, through, budget, Path(folder), chance)
    finally:
        server.remove()
    print("\n".join(f"{name:<22}{value}" for name, value in found.items()))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


def _run(
    given: Any,
    server: Server,
    address: Address,
    between: Any,
    through: Address,
    budget: Budget,
    notes: Path,
    chance: Any,
) -> dict[str, Any]:
    ledger = ledger_of(address, budget=budget)
    begin = FORK.Barrier(given.clients + 1)
    children = [FORK.Process(target=hammer, args=(through, me, notes, begin)) for me in range(given.clients)]
    for child in children:
        child.start()
    between.often = CUT
    between.cut(b"COMMIT", "either", times=10**9)
    begin.wait()
    began, kills = time.monotonic(), 0
    while kills < given.kills:
        wanted = given.charges * (kills + 1) / (given.kills + 1)
        while len(told_in(notes)) < wanted and any(child.is_alive() for child in children):
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        server.kill()
        kills += 1
        server.start()
    for child in children:
        child.join(600)
        assert child.exitcode == 0, "a client ended with an error"
    seconds = time.monotonic() - began
    keys = [entry.key for entry in ledger.entries("a") if entry.kind == "charge"]
    told = told_in(notes)
    trouble: Counter[str] = sum((Counter(json.loads(f.read_text())) for f in notes.glob("trouble-*")), Counter())
    assert len(keys) == len(set(keys)), "a double charge"
    assert len(told) == len(set(told)), "told twice"
    assert set(told) <= set(keys), "a refund"
    assert set(keys) <= set(told), "charged and not told"
    balance = ledger.balance("a")
    assert balance.spent <= budget.epsilon, "over budget"
    assert len(keys) == given.charges, "less than the budget allows"
    ledger.verify()
    return {
        "clients": given.clients, "server killed": kills, "commits cut": 10**9 - between.times, "charges": len(keys),
        "told": len(told), "spent": balance.spent, "budget": budget.epsilon, "seconds": round(seconds, 1), **trouble,
    }  # fmt: skip


if __name__ == "__main__":
    main()
