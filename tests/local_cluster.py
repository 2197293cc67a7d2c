"""`local_cluster`: a Ray cluster of several nodes on this machine, to try a search on: closed to others, and gone after.

python -m tests.local_cluster --nodes 3 -- honestdp tune digits --epsilon 3

starts it, runs the command with `--cluster` and its address added, and ends it, after Ctrl-C too. Its nodes listen on this
machine alone, keep their files in a folder of its owner alone, and spill nothing to a disk; there is no dashboard, and no usage
is reported.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.2"  # Ray takes 127.0.0.1 for the address by which others reach this machine
STORE = 100_000_000
STOPPED = 130  # what a command ends with after Ctrl-C


@contextmanager
def local_cluster(*, nodes: int = 3, cpus: int = 1, store: int = STORE) -> Iterator[Any]:
    """Ray's `Cluster`, whose `address` is for `Compute(cluster=...)`: a head that trains nothing, and so many nodes of so many
    CPUs, each with an object store of so many bytes.
    """
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_enable_timeline": "0",
    }
    from ray._common.utils import get_default_ray_temp_dir, try_to_create_directory
    from ray.cluster_utils import Cluster

    try_to_create_directory(get_default_ray_temp_dir())  # a Cluster writes its address there, and takes it for granted
    folder = tempfile.mkdtemp(prefix="ray-")  # readable by its owner alone; sockets in it have short names
    common = {"object_store_memory": store, "node_ip_address": LOOPBACK, "include_dashboard": False}
    spilling = {"automatic_object_spilling_enabled": False}
    cluster = Cluster()
    try:
        cluster.add_node(**common, num_cpus=0, temp_dir=folder, _system_config=spilling)  # the head
        for _ in range(nodes):
            cluster.add_node(num_cpus=cpus, **common)
        yield cluster
    finally:
        with _undisturbed():
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local_cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, help="nodes that train, one run at a time each")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --: honestdp tune and its arguments")
    asked = parser.parse_args(arguments)
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    if not command or asked.nodes < 1:
        parser.error("a command is needed after --, and at least one node")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the nodes end too
    print(f"starting a cluster of {asked.nodes} nodes on this machine", file=sys.stderr)
    try:
        with local_cluster(nodes=asked.nodes) as cluster:
            status = _status([*command, "--cluster", cluster.address])
    except KeyboardInterrupt:
        print("stopped before the command began", file=sys.stderr)
        return STOPPED
    if status in (STOPPED, -signal.SIGINT):
        way = "to go on, leave out --cluster, which takes this machine, or name another"
        print(f"the cluster of this command has ended with it: {way}", file=sys.stderr)
    return status


def _status(command: list[str]) -> int:
    """What the command ends with. It hears Ctrl-C too, and says how to go on."""
    beside = Path(sys.executable).with_name(command[0])
    process = subprocess.Popen([str(beside) if beside.exists() else command[0], *command[1:]])
    try:
        while True:
            with suppress(KeyboardInterrupt):
                return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
