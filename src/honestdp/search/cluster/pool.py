"""`Pool`: populations on their way through a cluster, each until it is done, whatever dies meanwhile.

A worker or a node that dies costs what it was working on: that is asked for again, with the same runs and the same seed, so that
nothing is drawn anew and nothing is charged again. Ray makes none of these second attempts by itself. Where nothing is left to
work on, or processes die again and again and nothing comes back in between, the search stops and can be resumed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any

from honestdp.checks import HonestdpError
from honestdp.search.cluster.address import Cluster
from honestdp.search.cluster.nodes import left, versions
from honestdp.search.cluster.parcels import OUTCOME, TASK, Parcels
from honestdp.search.cluster.task import MACHINE, OTHER, STOPPED, Outcome, Task, population
from honestdp.search.errors import MachineStopped, SearchFailed

AHEAD = 2  # tasks that wait on the cluster for each that is worked on
DEATHS = 8  # in a row, and as many again for each slot, after which the search stops
LOOK = 2.0  # seconds between two looks at what is left of the cluster
ALONE = 60.0  # seconds without a node that could train, after which the search stops
SILENT = 10.0  # seconds without an answer of the cluster's head, after which the search stops


class Pool:
    """Tasks of one search. keep: called with each population that is done, and its bytes."""

    def __init__(
        self,
        cluster: Cluster,
        parcels: Parcels,
        *,
        plan: bytes,
        records: list[Any],
        keep: Callable[[Task, bytes], None],
    ) -> None:
        import ray

        self._ray, self._cluster, self._parcels, self._keep = ray, cluster, parcels, keep
        self._plan, self._records = ray.put(plan), ray.put(records)
        resources = {"num_gpus": 1, "num_cpus": 0} if cluster.resource == "GPU" else {"num_cpus": 1}
        how: dict[str, Any] = {"max_retries": 0, "name": "honestdp", "enable_task_events": False}
        self._remote = ray.remote(**resources, **how, scheduling_strategy="SPREAD")(population)
        self._waiting: deque[Task] = deque()
        self._flying: dict[Any, Task] = {}
        self._done: dict[Task, Outcome] = {}
        self._deaths, self._looked, self._answered, self._peopled = 0, monotonic(), monotonic(), monotonic()

    def add(self, tasks: Iterable[Task], *, first: bool = False) -> None:
        """Ask for these, after all others or before them."""
        self._waiting.extendleft(reversed([*tasks])) if first else self._waiting.extend(tasks)

    def known(self, task: Task, outcome: Outcome) -> None:
        """One that was done before."""
        self._done[task] = outcome

    def taken(self, tasks: Iterable[Task]) -> list[Outcome]:
        """The outcomes of tasks that were asked for, once all of them are there. They are forgotten here."""
        wanted = [*tasks]
        while not all(task in self._done for task in wanted):
            self._turn()
        return [self._done.pop(task) for task in wanted]

    def close(self) -> None:
        """End what is still worked on, and drop the records from the nodes' stores."""
        for reference in self._flying:
            with suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._flying.clear()
        self._waiting.clear()
        self._plan = self._records = None

    def _turn(self) -> None:
        """Keep the cluster busy, and take what has come back."""
        while self._waiting and len(self._flying) < AHEAD * self._cluster.slots:
            task = self._waiting.popleft()
            self._flying[self._asked(task)] = task
        try:
            ready, _ = self._ray.wait([*self._flying], num_returns=1, timeout=LOOK)
        except (self._ray.exceptions.RayError, ConnectionError, RuntimeError):
            raise MachineStopped("the connection to the cluster was lost") from None
        for reference in ready:
            self._came(self._flying.pop(reference), reference)
        if monotonic() - self._looked > LOOK:
            self._looked = monotonic()
            self._look()

    def _asked(self, task: Task) -> Any:
        threads = 1 if self._cluster.resource == "CPU" else 0
        what = {"runs": task.runs, "named": task.named, "purpose": task.purpose}
        sealed = self._parcels.sealed(json.dumps(what | {"versions": versions(), "threads": threads}).encode(), TASK)
        return self._remote.remote(self._parcels.key, sealed, self._plan, self._records)

    def _came(self, task: Task, reference: Any) -> None:
        content = None
        with suppress(self._ray.exceptions.RayError):  # the worker or its node died, or what it made went with it
            content = self._parcels.opened(self._ray.get(reference), OUTCOME)
        outcome = Outcome(MACHINE, words="processes of the cluster were ended again and again")
        if content is not None:
            outcome = Outcome.unpacked(content)
        if outcome.kind == STOPPED:
            raise SearchFailed(outcome.words) if outcome.over else HonestdpError(outcome.words)
        if outcome.kind == OTHER:
            raise MachineStopped("a node of the cluster has other versions of honestdp, torch, numpy or Python")
        if outcome.kind == MACHINE:
            self._deaths += 1
            if self._deaths > DEATHS * (1 + self._cluster.slots):
                raise MachineStopped(outcome.words)
            self._waiting.appendleft(task)
            return
        self._deaths = 0
        self._done[task] = outcome
        if content is not None:
            self._keep(task, content)

    def _look(self) -> None:
        """Stop where nobody is left to work, and before Ray, without its head, ends this process."""
        now = monotonic()
        if self._cluster.reachable():
            self._answered = now
        elif now - self._answered > SILENT:
            raise MachineStopped("the cluster's head does not answer any more")
        else:
            return
        if left(self._cluster.resource):
            self._peopled = now
        elif now - self._peopled > ALONE:
            raise MachineStopped("no node of the cluster is left")
