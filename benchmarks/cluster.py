"""Searches on a cluster of this machine: speed-up and overhead of 1, 2 and 4 workers, and 20 kills with the winner unchanged.

python benchmarks/cluster.py              both
python benchmarks/cluster.py speed        a search of 500 runs, on one machine and on 1, 2 and 4 nodes of one CPU each
python benchmarks/cluster.py overhead     tasks that do next to nothing, and the records of a node
python benchmarks/cluster.py kills        20 times kill -9, of workers and of whole nodes in turn, in searches of one secret state

All go on with copies of one folder, so that every search has the same draws and must end in the same winner. Times depend on
what else the machine does: its load is printed with them. A machine with two cores cannot be twice as fast on four workers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

import honestdp
from honestdp import Budget, Compute
from honestdp.search.cluster.pool import ClusterRuns
from honestdp.search.lifecycle import SearchStopped

sys.path.insert(0, str(Path(__file__).parent.parent))  # the cluster is that of the tests

from tests.local_cluster import LOOPBACK, STORE, local_cluster

RUNS, WORKERS, KILLS = 500, (1, 2, 4), 20
LEARNING_RATES = 50


def logistic() -> nn.Module:
    return nn.Linear(64, 10)


def settings(runs: int, steps: int) -> dict[str, Any]:
    """Each candidate once, so that the number of runs is no secret."""
    rates = [0.01 * 1.1**i for i in range(LEARNING_RATES)]
    return {
        "budget": Budget(3.0, 1e-5),
        "optimizer": "adam-wosm",
        "space": {"lr": rates, "clip": [0.1 * 1.3**i for i in range(runs // LEARNING_RATES)]},
        "selection": "winner",
        "lot": 64,
        "steps": steps,
    }


def data() -> Any:
    return honestdp.load_dataset("digits").train


def begin(folder: Path, asked: dict[str, Any], address: str) -> None:
    """The secret state of a search, planned for a cluster; stopped before its first population."""
    honest = ClusterRuns._ready

    def stop(self: ClusterRuns, standing: Any) -> None:
        raise KeyboardInterrupt

    ClusterRuns._ready = stop  # type: ignore[method-assign]
    try:
        with suppress(SearchStopped):
            honestdp.tune(logistic, data(), **asked, out=folder, compute=Compute(device="cpu", cluster=address))
    finally:
        ClusterRuns._ready = honest  # type: ignore[method-assign]


def timed(folder: Path, asked: dict[str, Any], address: str | None) -> tuple[float, float, str]:
    """(seconds of the whole call, seconds of its runs, the winner) of the search in a copy of the folder."""
    copy = folder.with_name(f"{folder.name} {time.monotonic_ns()}")
    shutil.copytree(folder, copy)
    with of_the_runs() as spent:
        begun = time.perf_counter()
        honestdp.tune(logistic, data(), **asked, out=copy, compute=Compute(device="cpu", cluster=address))
        whole = time.perf_counter() - begun
    winner = hashlib.sha256((copy / "model.safetensors").read_bytes()).hexdigest()[:16]
    shutil.rmtree(copy)
    return whole, spent[0], winner


@contextmanager
def of_the_runs() -> Iterator[list[float]]:
    """How long the runs took, without planning, rehearsal and report."""
    from honestdp.search.runs import Execution

    spent, honest = [0.0], Execution.finish

    def finish(self: Execution) -> Any:
        begun = time.perf_counter()
        try:
            return honest(self)
        finally:
            spent[0] = time.perf_counter() - begun

    Execution.finish = finish  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        Execution.finish = honest  # type: ignore[method-assign]


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def speed(folder: Path, steps: int, runs: int) -> None:
    asked, rows = settings(runs, steps), []
    with local_cluster(nodes=max(WORKERS)) as cluster:
        begin(folder / "speed", asked, cluster.address)
    print(f"a search of {runs} runs, {steps} steps each, logistic regression on digits, lots of 64; {load()}")
    print("workers        seconds of the runs   the whole call   speed-up")
    whole, alone, winner = timed(folder / "speed", asked, None)
    print(f"this process   {alone:19.1f}   {whole:14.1f}", flush=True)
    for workers in WORKERS:
        with local_cluster(nodes=workers) as cluster:
            whole, spent, other = timed(folder / "speed", asked, cluster.address)
        rows.append(spent)
        print(f"{workers:<12}   {spent:19.1f}   {whole:14.1f}   {rows[0] / spent:8.2f}   {load()}", flush=True)
        if other != winner:
            sys.exit("the winners differ")
    print(f"the winner is the same in all of them: {winner}")


def overhead() -> None:
    """A task that only opens and seals, its bytes, and the records of a node."""
    import numpy as np
    import ray

    from honestdp.search.cluster.task import OUTCOME, Parcels, new_key

    def nothing(key: bytes, sealed: bytes, plan: bytes, records: list[Any]) -> bytes:
        return Parcels(key).sealed(bytes(2600), OUTCOME)  # the weights of one run of 650 numbers

    key, tasks = new_key(), 400
    with local_cluster(nodes=2, store=400_000_000) as cluster:
        ray.init(address=cluster.address, log_to_driver=False)
        task = ray.remote(num_cpus=1, max_retries=0, enable_task_events=False, scheduling_strategy="SPREAD")(nothing)
        for size in (1_000_000, 100_000_000):
            plan, records = ray.put(bytes(10_000)), ray.put([np.zeros(size, np.uint8)])
            ray.get([task.remote(key, bytes(200), plan, records) for _ in range(20)])
            begun = time.perf_counter()
            ray.get([task.remote(key, bytes(200), plan, records) for _ in range(tasks)])
            each = (time.perf_counter() - begun) / tasks
            print(f"{1e3 * each:.2f} ms a task over 2 nodes, {size / 1e6:.0f} MB of records; {load()}", flush=True)
            del plan, records
        ray.shutdown()


class Killer(threading.Thread):
    """Kills a worker that is at work, or all processes of its node, which another one replaces, at random moments."""

    def __init__(self, cluster: Any, kills: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.left, self.chance, self.made = (
            cluster,
            kills,
            random.Random(seed),
            dict.fromkeys(("worker", "node"), 0),
        )
        self.over = threading.Event()

    def run(self) -> None:
        while self.left and not self.over.wait(self.chance.uniform(0.3, 2.0)):
            busy = workers_at_work()
            if not busy:
                continue
            worker = self.chance.choice(busy)
            node = parent(worker)
            kind = "node" if self.made["worker"] > self.made["node"] else "worker"
            victims = [worker] if kind == "worker" else [node, *children(node)]
            for victim in victims:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
            self.made[kind] += 1
            self.left -= 1
            print(f"  killed a {kind}; {self.left} kills to go; {load()}", flush=True)
            if kind == "node":
                common = {"object_store_memory": STORE, "node_ip_address": LOOPBACK, "include_dashboard": False}
                self.cluster._shutdown_at_exit = (
                    False  # Ray's hooks need the main thread; the end of the cluster ends it
                )
                self.cluster.add_node(num_cpus=1, **common)


def workers_at_work() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::honestdp"):
                found.append(int(path.parent.name))
    return found


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def kills(folder: Path, steps: int, runs: int, wanted: int) -> None:
    """Searches of one secret state, one after the other, until there were so many kills."""
    asked, made, searches = settings(runs, steps), {"worker": 0, "node": 0}, 0
    with local_cluster(nodes=2) as cluster:
        begin(folder / "kills", asked, cluster.address)
        *_, winner = timed(folder / "kills", asked, cluster.address)
        while sum(made.values()) < wanted:
            killer = Killer(cluster, wanted - sum(made.values()), seed=searches)
            killer.start()
            seconds, _, other = timed(folder / "kills", asked, cluster.address)
            killer.over.set()
            killer.join()
            searches += 1
            made = {kind: made[kind] + killer.made[kind] for kind in made}
            print(f"search {searches}: {killer.made}, {seconds:.1f} s, winner {other}; {load()}", flush=True)
            if other != winner:
                sys.exit("the winners differ")
    print(
        f"{made['worker']} workers and {made['node']} nodes killed in {searches} searches: the winner is {winner}, as undisturbed"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["speed", "overhead", "kills"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"a multiple of {LEARNING_RATES}")
    parser.add_argument("--kills", type=int, default=KILLS)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # as many as a task has
    with tempfile.TemporaryDirectory() as folder:
        if "speed" in asked.what:
            speed(Path(folder), asked.steps, asked.runs)
        if "overhead" in asked.what:
            overhead()
        if "kills" in asked.what:
            kills(Path(folder), asked.steps, asked.runs, asked.kills)


if __name__ == "__main__":
    main()
