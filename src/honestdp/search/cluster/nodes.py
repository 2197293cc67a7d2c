"""The nodes of a cluster: how much each can train at once, and whether it has the versions of this process."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from honestdp.checks import InvalidArgument
from honestdp.identity.text import source_digest

_PATIENCE = 120.0  # seconds in which a node starts a process and imports what is asked for
_WORDS = {"code": "honestdp's code", "honestdp": "honestdp", "python": "Python", "torch": "torch", "numpy": "numpy"}


@dataclass(frozen=True)
class Node:
    """name: Ray's for the node. slots: how many populations it trains at once. memory: bytes that it gives to tasks."""

    name: str
    slots: int
    memory: int


@cache
def versions() -> dict[str, str]:
    """Of everything that decides what a population becomes, in this process."""
    import numpy
    import torch

    from honestdp import __version__

    python = ".".join(platform.python_version_tuple()[:2])
    own = {"honestdp": __version__, "code": source_digest(), "python": python}
    return own | {"torch": torch.__version__, "numpy": numpy.__version__}


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
            theirs = ray.get(answer, timeout=_PATIENCE)
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
            import numpy
            import torch

            found |= {"torch": torch.__version__, "numpy": numpy.__version__}
            from honestdp import __version__
            from honestdp.identity.text import source_digest

            found |= {"honestdp": __version__, "code": source_digest()}
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
