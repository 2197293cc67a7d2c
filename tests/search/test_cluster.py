"""A search on a cluster: the same result as on one machine, whatever dies; bad nodes_of and versions cost nothing; no word out.

One cluster of this machine for the whole file: a head that trains nothing and two nodes of one CPU, all of them Ray's processes.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import Budget, Compute
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.search.cluster import nodes as nodes_of
from honestdp.search.cluster import pool as pools
from honestdp.search.cluster import task as tasks
from honestdp.search.cluster.pool import ClusterRuns, Pool
from honestdp.search.cluster.task import FAILED, OUTCOME, PLAN, TASK, Outcome, Parcels, Task, new_key
from honestdp.search.failures import MachineStopped
from honestdp.search.folder import Lock
from honestdp.search.lifecycle import SearchStopped
from tests.tiny_search import clouds, hidden, linear, once_charged

ray = pytest.importorskip(
    "ray", reason="RAY IS MISSING: no search is tried on a cluster; pip install 'honestdp[cluster]'"
)
pytestmark = pytest.mark.slow  # a cluster of several nodes is started
NODES = 2
SEARCH: dict[str, Any] = {
    "budget": Budget(3.0, 1e-5),
    "optimizer": "sgd",
    "space": {"lr": [0.1, 0.3, 1.0], "clip": [0.5, 1.0], "width": [3, 4]},
    "selection": "compose",
    "lot": 320,
    "steps": 3,
}
SMALL: dict[str, Any] = {"space": {"lr": [0.1, 1.0], "clip": [1.0]}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Joined by this process, so that its workers are started once. As on a machine on which Ray has never run."""
    from tests.local_cluster import local_cluster

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a task has: a sum rounds otherwise on more
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
        patch.setenv("RAY_TMPDIR", str(tmp_path_factory.mktemp("never")))
        with local_cluster(nodes=NODES) as started:
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


# ---- Bad input: one line, nothing charged, nothing read. Before the cluster is there


@pytest.fixture
def waits() -> Iterator[str]:
    """The address of a server that takes connections and is not Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("where", ["127.0.0.1:1", "ray://127.0.0.1:1", "no.such.host.invalid:6379", "WAITS", "auto"])
def test_no_cluster_at_the_address_is_one_line_and_ray_is_not_even_asked(
    where: str, waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: None
) -> None:
    """Ray itself would wait for up to two minutes, and then end the process."""
    monkeypatch.setattr(nodes_of, "_PATIENCE", 0.5)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # which is what auto means then
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("Ray was asked"))
    more = with_ledger(tmp_path)
    with pytest.raises(
        InvalidArgument, match=r"^cluster must be .*nothing answers at .*nothing was charged"
    ) as refusal:
        honestdp.tune(hidden, clouds(), **on(waits if where == "WAITS" else where, **more), out=tmp_path / "out")
    assert "\n" not in str(refusal.value)
    assert charges(tmp_path) == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", ["", "local", "http://a:1", "a:b", "ray://", 6379])
def test_what_is_no_address_is_refused_by_its_name(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^cluster must be the address of a Ray cluster"):
        Compute(cluster=wrong)


def test_a_training_takes_no_cluster() -> None:
    run = honestdp.Run(records=400, lot=20, steps=1, noise=1.0)
    with pytest.raises(InvalidArgument, match="cluster must be left out for a training"):
        honestdp.train(linear(), clouds(), run=run, compute=Compute(cluster="auto"))


def test_a_local_search_imports_nothing_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nodes", "pool", "task"):
        monkeypatch.setitem(sys.modules, f"honestdp.search.cluster.{name}", None)  # to import it is an error
    assert honestdp.tune(linear, clouds(), **{**SEARCH, **SMALL}).epsilon <= 3.0


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'honestdp\[cluster\]'"):
        honestdp.tune(hidden, clouds(), **on("auto"))


@pytest.mark.parametrize("part", ["honestdp", "code", "python", "torch", "numpy"])
def test_versions_that_differ_between_nodes_are_refused(
    part: str, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: None
) -> None:
    """It is this process that differs here: who differs from whom is all the same."""
    own = nodes_of.versions()
    monkeypatch.setattr(nodes_of, "versions", lambda: {**own, part: "other"})
    more = with_ledger(tmp_path)
    words = r"cluster must be one whose nodes all have the versions of this process: node .* and this process other"
    with pytest.raises(InvalidArgument, match=words):
        honestdp.tune(hidden, clouds(), **on(cluster, **more), out=tmp_path / "out")
    assert charges(tmp_path) == 0
    assert not (tmp_path / "out").exists()


def test_a_model_that_no_node_can_import_is_refused_before_the_charge(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: None
) -> None:
    module = ModuleType("only_here")
    exec("from tests.tiny_search import hidden\ndef made(width=4): return hidden(width)", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    more = with_ledger(tmp_path)
    with pytest.raises(InvalidArgument, match=r"can import what .*No module named 'only_here'.*nothing was charged"):
        honestdp.tune(module.made, clouds(), **on(cluster, **more), out=tmp_path / "out")
    assert charges(tmp_path) == 0


def test_another_cluster_than_this_process_is_connected_to_is_refused(cluster: Any) -> None:
    with pytest.raises(InvalidArgument, match="which this process is connected to"):
        honestdp.tune(hidden, clouds(), **on("127.0.0.2:1"))


def test_of_two_searches_with_one_out_the_second_is_refused_and_costs_nothing(
    cluster: Any, tmp_path: Path, unread: None
) -> None:
    more = with_ledger(tmp_path)
    (tmp_path / "out").mkdir()
    with Lock(tmp_path / "out"), pytest.raises(InvalidArgument, match="no other process works"):
        honestdp.tune(hidden, clouds(), **on(cluster, **more), out=tmp_path / "out")
    assert charges(tmp_path) == 0


# ---- The same result


@pytest.mark.parametrize("selection", ["compose", "envelope", "compose by the default optimizer"])
def test_a_search_ends_alike_on_a_cluster_and_on_one_machine(selection: str, cluster: Any, tmp_path: Path) -> None:
    """No seed is fixed: it is the secret state of one folder, copied, that both go on with."""
    more = {"selection": selection, "coverage": 0.6, "space": {"lr": [0.1, 1.0], "clip": [1.0], "width": [3, 4]}}
    if "default" in selection:  # which every process measures for itself
        more |= {"selection": "compose", "optimizer": None, "space": {"width": [3, 4]}}
    begun(cluster, tmp_path / "cluster", **more)
    shutil.copytree(tmp_path / "cluster", tmp_path / "here")
    there = honestdp.tune(hidden, clouds(), **on(cluster, **more), out=tmp_path / "cluster")
    here = honestdp.tune(hidden, clouds(), **on(None, **more), out=tmp_path / "here")
    assert left(tmp_path / "cluster") == left(tmp_path / "here")
    assert there.hyperparameters == here.hyperparameters
    assert there.score == here.score
    assert "operator of the cluster" in str(there.statement)
    assert (
        there.statement.uncovered == here.statement.uncovered
    )  # the cluster had the records, wherever the search ended
    assert there.statement.assumptions == here.statement.assumptions
    assert not (tmp_path / "cluster" / ".secret").exists()


def test_a_population_that_came_back_is_not_made_again_by_whoever_goes_on(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []
    honest, keep = Pool._asked, ClusterRuns._keep
    monkeypatch.setattr(Pool, "_asked", lambda self, task: (asked.append(task), honest(self, task))[1])
    with monkeypatch.context() as patch:
        patch.setattr(ClusterRuns, "_keep", lambda *args: (keep(*args), stop()())[0])
        with pytest.raises(SearchStopped):
            honestdp.tune(hidden, clouds(), **on(cluster), out=tmp_path / "out")
    (kept,) = (tmp_path / "out" / ".secret").glob("population*")
    asked.clear()
    result = honestdp.tune(hidden, clouds(), **on(cluster), out=tmp_path / "out")
    runs = [run for task in asked for run in task.runs]
    assert len(runs) == len({*runs}) < len(result.candidates) == 12
    assert not kept.exists()


def test_records_that_do_not_fit_into_a_node_s_store_stop_a_search_that_can_go_on_elsewhere(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a full store Ray writes objects to plain files."""
    monkeypatch.setattr("honestdp.search.cluster.pool.sizes", lambda: [1000])
    more = with_ledger(tmp_path)
    with pytest.raises(honestdp.errors.HonestdpError, match=r"do not fit .*; to go on, make the same call again"):
        honestdp.tune(hidden, clouds(), **on(cluster, **more), out=tmp_path / "out")
    honestdp.tune(hidden, clouds(), **on(None, **more), out=tmp_path / "out")
    assert charges(tmp_path) == 1


class Talking(nn.Module):
    """Shows every record that it meets in a process of the cluster, in every way there is, and fails."""

    def __init__(self, driver: int) -> None:
        super().__init__()
        self.layer, self.driver = nn.Linear(3, 2), driver

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.driver:
            words = str(x)
            print(words)
            print(words, file=sys.stderr)
            os.write(2, words.encode())
            logging.getLogger("talking").error(words)
            if any(word in words for word in CANARIES):
                raise ValueError(words)
        return self.layer(x)


CANARY, CANARIES = 77077.125, ("77077", "7.7077")


def test_no_word_of_a_record_reaches_a_log_of_the_cluster_or_the_error(cluster: Any, tmp_path: Path) -> None:
    """Not the records' words, however they are said, and not that it was a run that failed, nor which."""
    x, y = clouds()
    x[:] = CANARY
    more = {"space": {"lr": [0.1, 1.0], "clip": [1.0]}, "selection": "winner"}
    with pytest.raises(honestdp.errors.SearchFailed, match="no run ended with weights") as failure:
        honestdp.tune(partial(Talking, os.getpid()), (x, y), **on(cluster, **more), out=tmp_path / "out")
    assert failure.value.__cause__ is None
    assert failure.value.__context__ is None
    logs = [path for path in Path(cluster.head_node.get_session_dir_path()).rglob("*") if path.is_file()]
    assert any(path.name.startswith("worker-") for path in logs)
    assert [path for path in logs for word in CANARIES if word.encode() in path.read_bytes()] == []


def test_a_parcel_is_not_taken_for_another_kind_and_shows_nothing() -> None:
    parcels = Parcels(new_key())
    sealed = parcels.sealed(b"which runs", TASK)
    assert b"which" not in sealed
    assert parcels.opened(sealed, TASK) == b"which runs"
    for other, kind in ((sealed, PLAN), (sealed[:-1] + bytes([sealed[-1] ^ 1]), TASK)):
        with pytest.raises(MachineStopped):
            parcels.opened(other, kind)


def test_a_second_ctrl_c_takes_nothing_from_what_the_first_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the command line could not say that the search was charged."""
    fake = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: None, shutdown=stop())
    monkeypatch.setattr(nodes_of, "_ray", lambda _: fake)
    monkeypatch.setattr(nodes_of, "_asked", lambda _: "")
    monkeypatch.setattr(nodes_of, "check_alike", lambda *_: [nodes_of.Node("a", 1, 0)])
    with pytest.raises(SearchStopped, match="charged"), nodes_of.Cluster("127.0.0.1:1", "cpu").joined():
        raise SearchStopped("what it was charged stays charged")


# ---- What stops a search: one line, and the same call goes on


def forget_all(*_: Any) -> None:
    """In the place of a population: what a process does that dies."""
    os._exit(1)


@pytest.mark.parametrize("what", ["head", "nodes", "deaths"])
def test_a_lost_head_no_node_and_endless_deaths_stop_a_search_in_one_line_and_the_same_call_goes_on(
    what: str, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process was connected by its user: it too is told before Ray ends it."""
    more, words = (
        with_ledger(tmp_path),
        {"head": "head does not answer", "nodes": "no node", "deaths": "again and again"},
    )
    with monkeypatch.context() as patch:
        patch.setattr(pools, "LOOK", 0.0)
        if what == "head":
            patch.setattr(pools, "SILENT", 0.0)
            patch.setattr(nodes_of, "_asked", lambda _: "gone")
        if what == "nodes":
            patch.setattr(pools, "ALONE", 0.0)
            patch.setattr(pools, "left", lambda _: 0)
        if what == "deaths":
            patch.setattr(pools, "DEATHS", 0)
            patch.setattr(pools, "population", forget_all)
        with pytest.raises(
            honestdp.errors.HonestdpError, match=rf"^the machine stopped the search \(.*{words[what]}"
        ) as stop:
            honestdp.tune(linear, clouds(), **on(cluster, **SMALL, **more), out=tmp_path / "out")
    assert "\n" not in str(stop.value)
    assert "make the same call again" in str(stop.value)
    assert stop.value.__cause__ is None
    assert stop.value.__context__ is None
    honestdp.tune(linear, clouds(), **on(None, **SMALL, **more), out=tmp_path / "out")
    assert charges(tmp_path) == 1


def test_a_process_of_the_cluster_that_is_told_to_end_ends_and_its_run_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray makes SystemExit of SIGTERM: a run that failed, to all appearance."""
    seen: list[Any] = []

    def look(*_: Any) -> Outcome:
        seen.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
        return Outcome(FAILED)

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.setattr(tasks, "_outcome", look)
    key = new_key()
    sealed = tasks.population(key, b"", b"", [])
    assert Outcome.unpacked(Parcels(key).opened(sealed, OUTCOME)).kind == FAILED
    assert seen == [signal.SIG_DFL, signal.SIG_DFL]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_task_has_one_name_no_event_and_says_nothing_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    how: list[dict[str, Any]] = []
    sent: list[tuple[Any, ...]] = []
    remote = SimpleNamespace(remote=lambda *args: sent.append(args))
    monkeypatch.setattr(ray, "put", lambda thing: thing)
    monkeypatch.setattr(ray, "remote", lambda **options: (how.append(options), lambda _: remote)[1])
    where: Any = SimpleNamespace(resource="CPU", slots=1)
    pool = Pool(where, Parcels(new_key()), plan=b"sealed", records=[], keep=lambda *_: None)
    for runs in ((3,), (4, 5)):
        pool._asked(Task(runs, tuple(range(len(runs))), ("batch", 0)))
    options = {"num_cpus": 1, "max_retries": 0, "name": "honestdp", "enable_task_events": False}
    assert how == [{**options, "scheduling_strategy": "SPREAD"}]
    assert all(key == pool._parcels.key and rest == [b"sealed", []] for key, _, *rest in sent)
    assert not any(b"runs" in sealed or b"batch" in sealed for _, sealed, *_ in sent)


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


@pytest.mark.kill
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
