"""`Cluster` and its `Node`s: the Ray cluster at an address, joined while a search lasts, or refused in one line.

Everything here happens before the charge. Ray waits for minutes for an address at which nothing answers, and its words are many:
so the address is asked first whether Ray is behind it, and Ray's errors are put in words of our own. Each node must have the
versions of this process. No task of ours is recorded in the cluster's task events, no log of a node is brought to this process,
and no usage is reported from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, Any

from honestdp.checks import InvalidArgument
from honestdp.identity.text import versions
from honestdp.logs import silence
from honestdp.search.failures import signals

if TYPE_CHECKING:
    from honestdp.search.runs import Execution

_STARTING = 120.0  # seconds in which a node starts a process and imports what is asked for
_WORDS = {"code": "honestdp's code", "honestdp": "honestdp", "python": "Python", "torch": "torch", "numpy": "numpy"}


@dataclass(frozen=True)
class Node:
    """name: Ray's for the node. slots: how many populations it trains at once. memory: bytes that it gives to tasks."""

    name: str
    slots: int
    memory: int


def living(resource: str) -> list[Node]:
    """The nodes that are there now, with how many of the resource each has."""
    import ray

    found = []
    for node in ray.nodes():
        if node["Alive"]:
            has = node["Resources"]
            found.append(Node(node["NodeID"], int(has.get(resource, 0)), int(has.get("memory", 0))))
    return found


def check_alike(address: str, resource: str, things: Any = None) -> list[Node]:
    """The nodes; refused where one that would train has other versions, does not answer, or cannot import what these things, the
    user's functions and classes, are made of.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes, asked, content = living(resource), {}, _content(address, things)
    question = ray.remote(num_cpus=0, max_retries=2, name="versions", enable_task_events=False)(_question())
    for node in nodes:
        if node.slots:
            there = NodeAffinitySchedulingStrategy(node_id=node.name, soft=False)
            asked[node.name] = question.options(scheduling_strategy=there).remote(content)
    own = versions()
    for name, answer in asked.items():
        try:
            theirs = ray.get(answer, timeout=_STARTING)
        except ray.exceptions.GetTimeoutError:
            wanted = f"one whose nodes answer: node {name[:8]} starts no process; nothing was charged"
            raise InvalidArgument("cluster", address, wanted) from None
        except ray.exceptions.RayError:
            if name not in {node.name for node in living(resource)}:  # it has gone, and trains nothing
                nodes = [node for node in nodes if node.name != name]
                continue
            wanted = f"one whose nodes stay: processes of node {name[:8]} end at once; nothing was charged"
            raise InvalidArgument("cluster", address, wanted) from None
        other = [part for part in own if own[part] != theirs.get(part)]
        if other:
            # The code differs wherever the version does: the version is then the clearer word.
            part = "honestdp" if "honestdp" in other else other[0]
            there = theirs.get(part) or "none"
            wanted = (
                f"one whose nodes all have the versions of this process: node {name[:8]} has {_WORDS[part]} {there}, and "
                f"this process {own[part]}; nothing was charged"
            )
            raise InvalidArgument("cluster", address, wanted)
        if theirs["missing"]:
            wanted = (
                f"one whose nodes can import what model, loss and metric are made of: node {name[:8]} says "
                f"{theirs['missing']!r}; install it there, or define them in the script or notebook; nothing was charged"
            )
            raise InvalidArgument("cluster", address, wanted)
    return nodes


def _content(address: str, things: Any) -> bytes:
    from ray import cloudpickle

    try:
        return bytes(cloudpickle.dumps(things))
    except Exception as trouble:
        wanted = f"left out for a model, a loss or a metric that cannot be sent ({type(trouble).__name__}: {trouble})"
        raise InvalidArgument("cluster", address, wanted) from trouble


def _question() -> Callable[[bytes], dict[str, str]]:
    """A function that travels as it is, for a node on which honestdp may be another or missing."""

    def answered(content: bytes) -> dict[str, str]:
        import pickle
        import platform

        found: dict[str, str] = {"python": ".".join(platform.python_version_tuple()[:2])}
        try:
            from honestdp.identity.text import versions

            found |= versions()
        except Exception:  # of what is missing nothing is said, and that is what differs
            return found
        try:
            pickle.loads(content)
            found["missing"] = ""
        except Exception as trouble:
            found["missing"] = f"{type(trouble).__name__}: {trouble}"[:200]
        return found

    return answered


def left(resource: str) -> int:
    """How many populations the nodes that are there now train at once."""
    return sum(node.slots for node in living(resource))


def sizes() -> list[int]:
    """Bytes of each living node's object store."""
    import ray

    stores: list[Any] = [node["Resources"].get("object_store_memory", 0) for node in ray.nodes() if node["Alive"]]
    return [int(size) for size in stores]


_ANSWERS = {True: "/ray.rpc.RayletDriver/ClusterInfo", False: "/ray.rpc.NodeInfoGcsService/CheckAlive"}
"""A call that Ray answers at such an address, by whether it is one for clients (ray://)."""
_PATIENCE = 5.0  # seconds in which a cluster that is there answers
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_CLIENT = "ray://"


@dataclass(eq=False)
class Cluster:
    """address: as `Compute` takes it. kind: of the device that every node trains on. nodes: those that were there when it was
    joined.
    """

    address: str
    kind: str
    nodes: list[Node] = field(default_factory=list)
    _place: str = field(default="auto", init=False, repr=False)

    @property
    def slots(self) -> int:
        """How many populations are trained at once."""
        return max(1, sum(node.slots for node in self.nodes))

    @property
    def memory(self) -> int | None:
        """Bytes that a population has on the smallest node; None where nobody knows."""
        return min((node.memory // node.slots for node in self.nodes if node.slots and node.memory), default=None)

    @property
    def resource(self) -> str:
        return "GPU" if self.kind == "cuda" else "CPU"

    @property
    def execution(self) -> type[Execution]:
        """What trains the runs of a search on this cluster."""
        from honestdp.search.cluster.pool import ClusterRuns

        return ClusterRuns

    @contextmanager
    def joined(self, *things: Any) -> Iterator[None]:
        """Within, Ray is connected to it and all nodes have the same versions as this process, and can import what the things,
        a user's functions, are made of. A connection that the caller has made stays.
        """
        ray = _ray(self.address)
        own = not ray.is_initialized()
        if own:
            self._check_answer()
        else:
            self._check_connected(ray)
        try:
            with silence(), signals(None, SIGTERM, SIGINT):  # Ray takes SIGTERM when it connects
                if own:
                    self._connect(ray)
                self.nodes = check_alike(self.address, self.resource, things)
            if not any(node.slots for node in self.nodes):
                wanted = f"a cluster with a {self.resource} on some node; this one has none for {self.kind}"
                raise InvalidArgument("cluster", self.address, wanted)
            yield
        finally:
            self.nodes = []
            if own:
                with silence(), suppress(Exception, KeyboardInterrupt):  # a second Ctrl-C: what the first says stands
                    ray.shutdown()

    def reachable(self) -> bool:
        """Whether Ray still answers. Where its head is gone, Ray would end this process after a while."""
        return self._place == "auto" or _asked(self._place) == ""

    def _check_answer(self) -> None:
        self._place = _found() if self.address == "auto" else self.address
        if self._place == "auto":
            why = "this machine is in none; start one with `ray start`, or name the address of another"
        else:
            why = _asked(self._place)
        if why:
            raise self._refused(f"{why}; nothing was charged")

    def _check_connected(self, ray: Any) -> None:
        """A process is connected to one cluster at a time."""
        from ray.util.client import ray as client

        if client.is_connected():  # to a client server, which ray:// names
            self._place = self.address
            return
        there = self._place = ray.get_runtime_context().gcs_address
        if self.address not in ("auto", there) and not self.address.startswith(_CLIENT):
            wanted = f"that of the cluster which this process is connected to, {there}, or ray.shutdown() called before"
            raise InvalidArgument("cluster", self.address, wanted)

    def _connect(self, ray: Any) -> None:
        os.environ.update({name: os.environ.get(name, value) for name, value in _QUIET.items()})
        try:
            ray.init(address=self._place, log_to_driver=False, configure_logging=False)
        except KeyboardInterrupt:
            raise
        except BaseException as trouble:  # Ray ends processes too: SystemExit
            error = self._refused(f"{_why(trouble)}; nothing was charged")
        else:
            return
        with suppress(Exception):
            ray.shutdown()
        raise error

    def _refused(self, why: str) -> InvalidArgument:
        return InvalidArgument("cluster", self.address, f"the address of a Ray cluster that can be used: {why}")


def _ray(address: str) -> Any:
    try:
        import ray
    except ImportError:
        wanted = "left out, or Ray installed: pip install 'honestdp[cluster]'"
        raise InvalidArgument("cluster", address, wanted) from None
    return ray


def _asked(address: str) -> str:
    """Why what is at the address is no Ray cluster; empty where it is one."""
    import grpc

    client, place = address.startswith(_CLIENT), address.removeprefix(_CLIENT)
    none = f"nothing answers at {place}"
    try:
        with grpc.insecure_channel(place, [("grpc.enable_http_proxy", 0)]) as channel:
            channel.unary_unary(_ANSWERS[client])(b"", timeout=_PATIENCE, wait_for_ready=True)
    except grpc.RpcError as trouble:
        code = trouble.code() if isinstance(trouble, grpc.Call) else grpc.StatusCode.UNKNOWN
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return f"{none}, or it is not Ray"
        if code == grpc.StatusCode.UNIMPLEMENTED:
            other = (
                "HOST:PORT is the port of the head node, 6379 by default, and ray://HOST:PORT that of its client server"
            )
            return f"what answers at {place} is not {'the client server' if client else 'the head'} of Ray; {other}"
    return ""


def _found() -> str:
    """The address of the cluster that this machine is in, by the environment or as Ray finds it; "auto" where there is none."""
    if named := os.environ.get("RAY_ADDRESS"):
        return named
    with silence(), suppress(Exception, SystemExit):
        from ray._private.services import canonicalize_bootstrap_address

        return canonicalize_bootstrap_address("auto") or "auto"
    return "auto"


def _why(trouble: BaseException) -> str:
    """What Ray said, in a few words of our own where they are known."""
    said = " ".join(str(trouble).split())
    if "Version mismatch" in said or re.search(r"version .*(differ|mismatch)|mismatch.* version", said, re.I):
        return f"its versions of Ray and Python are those of this process ({said[:200]})"
    if "node_ip_address" in said or "raylet" in said.lower() or isinstance(trouble, SystemExit):
        join = "join it with `ray start`, or take the address of its client server, ray://HOST:10001"
        return f"this machine is not in it; {join}"
    return f"Ray could not connect ({type(trouble).__name__}: {said[:160]})"
