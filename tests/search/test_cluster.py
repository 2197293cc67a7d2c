"""A search on a cluster: the same result as on one machine, whatever dies; bad addresses and versions cost nothing; no word out.

One cluster of this machine for the whole file: a head that trains nothing and two nodes of one CPU, all of them Ray's processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

import honestdp
from honestdp import Budget, Compute
from honestdp.ledger import Ledger
from honestdp.search.cluster.pool import Pool
from honestdp.search.lifecycle import SearchStopped
from tests.tiny_search import clouds, hidden, once_charged

ray = pytest.importorskip(
    "ray", reason="RAY IS MISSING: no search is tried on a cluster; pip install 'honestdp[cluster]'"
)
NODES = 2
SEARCH: dict[str, Any] = {
    "budget": Budget(3.0, 1e-5),
    "optimizer": "sgd",
    "space": {"lr": [0.1, 0.3, 1.0], "clip": [0.5, 1.0], "width": [3, 4]},
    "selection": "compose",
    "lot": 320,
    "steps": 3,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Joined by this process, so that its workers are started once."""
    from honestdp.cli.local_cluster import local_cluster

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a task has: a sum rounds otherwise on more
    with warnings.catch_warnings(action="ignore"), local_cluster(nodes=NODES) as started:
        ray.init(address=started.address, log_to_driver=False, configure_logging=False)
        yield started
        ray.shutdown()
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def as_users_see_it() -> Iterator[None]:
    """Ray's own warnings, on sockets that it leaves open, are no news of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def on(where: Any, **more: Any) -> dict[str, Any]:
    named = None if where is None else where if isinstance(where, str) else where.address
    return {**SEARCH, "compute": Compute(device="cpu", cluster=named), **more}


def left(folder: Path) -> dict[str, bytes]:
    """What a search left, but for what names when it was and where."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix == ".safetensors"]
    assert files
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def with_ledger(folder: Path) -> dict[str, Any]:
    ledger = Ledger(folder / "ledger.db")
    ledger.set_budget("a", Budget(50.0, 1e-5))
    return {"ledger": folder / "ledger.db", "dataset": "a"}


def charges(folder: Path) -> int:
    return Ledger(folder / "ledger.db").balance("a").charges


def stop() -> Callable[..., Any]:
    return lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)


def begun(cluster: Any, out: Path, model: Any = hidden, data: Any = None, **more: Any) -> None:
    """A search whose draws are made, for the cluster, and which is stopped before its first population."""
    with pytest.MonkeyPatch.context() as patch:
        once_charged(patch, Pool, "add", stop())
        with pytest.raises(SearchStopped):
            honestdp.tune(model, data or clouds(), **on(cluster, **more), out=out)


# ---- The same result


@pytest.mark.parametrize("selection", ["compose", "envelope"])
def test_a_search_ends_alike_on_a_cluster_and_on_one_machine(selection: str, cluster: Any, tmp_path: Path) -> None:
    """No seed is fixed: it is the secret state of one folder, copied, that both go on with."""
    more = {"selection": selection, "coverage": 0.6, "space": {"lr": [0.1, 1.0], "clip": [1.0], "width": [3, 4]}}
    begun(cluster, tmp_path / "cluster", **more)
    shutil.copytree(tmp_path / "cluster", tmp_path / "here")
    there = honestdp.tune(hidden, clouds(), **on(cluster, **more), out=tmp_path / "cluster")
    here = honestdp.tune(hidden, clouds(), **on(None, **more), out=tmp_path / "here")
    assert left(tmp_path / "cluster") == left(tmp_path / "here")
    assert there.hyperparameters == here.hyperparameters
    assert there.score == here.score
    assert "operator of the cluster" in str(there.statement)
    assert "cluster" not in str(here.statement)
    assert not (tmp_path / "cluster" / ".secret").exists()


class Stuck:
    """A factory of models that, in a process of the cluster, says which process it is in and waits to be killed, a few times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times, self.driver = folder, times, os.getpid()

    def __call__(self, width: int = 4) -> nn.Module:
        if os.getpid() != self.driver:
            for turn in range(self.times):
                try:
                    handle = os.open(self.folder / f"stuck {turn}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                except FileExistsError:
                    continue
                os.write(handle, f"{os.getpid():10d}".encode())
                time.sleep(300)
        return hidden(width)


def test_workers_and_nodes_that_are_killed_cost_nothing_but_time(cluster: Any, tmp_path: Path) -> None:
    """Two workers by kill -9, then a node with its worker. The winner is that of a search which nothing disturbs, bit for bit,
    and it is charged once.
    """
    disturbed, whole = tmp_path / "disturbed", tmp_path / "whole"
    disturbed.mkdir()
    stuck = Stuck(tmp_path, times=3)
    begun(cluster, disturbed / "out", stuck, **with_ledger(disturbed))
    shutil.copytree(disturbed, whole)

    def kill() -> None:
        for turn in range(3):
            for victim in victims(stuck, turn):
                os.kill(victim, signal.SIGKILL)

    killer = Thread(target=kill, daemon=True)
    killer.start()
    ledger = {"ledger": disturbed / "ledger.db", "dataset": "a"}
    honestdp.tune(stuck, clouds(), **on(cluster, **ledger), out=disturbed / "out")
    killer.join()
    assert charges(disturbed) == 1
    ledger = {"ledger": whole / "ledger.db", "dataset": "a"}
    honestdp.tune(stuck, clouds(), **on(None, **ledger), out=whole / "out")
    assert left(disturbed / "out") == left(whole / "out")


def victims(stuck: Stuck, turn: int) -> list[int]:
    """The worker that waits, or, at the third turn, all processes of the node that it is on, as without power."""
    path = stuck.folder / f"stuck {turn}"
    while not (path.exists() and len(path.read_bytes()) == 10):
        time.sleep(0.02)
    worker = int(path.read_text())
    if turn < 2:
        return [worker]
    node = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    return [node, *map(int, Path(f"/proc/{node}/task/{node}/children").read_text().split())]
