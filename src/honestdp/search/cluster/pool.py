"""`ClusterRuns`: the runs of a search as populations on the nodes of a cluster, each until it is done, whatever dies meanwhile.

Nothing of what is drawn depends on the cluster: which runs are trained together is in the plan of the search, each population's
seed is a child of the plan's, and each score's noise is in it. So a search that is begun on a cluster and resumed on one machine,
or the other way round, ends in the same result, bit for bit on one kind of device. A population that is done is kept in the
secret folder until its batch is, so that the death of this process costs no population that came back.

A worker or a node that dies costs what it was working on: that is asked for again, with the same runs and the same seed, so that
nothing is drawn anew and nothing is charged again. Ray makes none of these second attempts by itself. Where nothing is left to
work on, or processes die again and again and nothing comes back in between, the search stops and can be resumed.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
from torch import Tensor

from honestdp.boundary.travel import packed
from honestdp.checks import HonestdpError
from honestdp.identity.text import versions
from honestdp.search.cluster.nodes import Cluster, left, sizes
from honestdp.search.cluster.task import (
    DONE,
    FAILED,
    MACHINE,
    OTHER,
    OUTCOME,
    PLAN,
    RECORDS,
    STOPPED,
    TASK,
    Outcome,
    Parcels,
    Plan,
    Task,
    new_key,
    population,
)
from honestdp.search.failures import MachineStopped, SearchFailed
from honestdp.search.runs import SEEN, Execution, Standing
from honestdp.training.chunks import plan_chunks

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


ROOM = 0.8  # of a node's object store that the records may take: from a full one Ray writes to the disk
_KEPT = re.compile(r"population(\d+)-(\d+)")


class ClusterRuns(Execution):
    """An `Execution` whose populations are tasks of the setting's cluster."""

    _pool: Pool | None = None

    def _finish(self) -> Standing:
        self._scored: dict[int, tuple[int, ...]] = {}
        self._tasks: dict[int, list[Task]] = {}
        try:
            return super()._finish()
        finally:
            if self._pool is not None:
                self._pool.close()

    def _ready(self, standing: Standing) -> None:
        """Put the records into the stores of the nodes, and ask for every population that is left."""
        cluster = self._setting.cluster
        assert cluster is not None
        parcels = Parcels(new_key())
        parcel = None
        with suppress(Exception):  # its words may be of a record
            parcel = packed(self._sides)
        if parcel is None:
            way_out = "the same call without a cluster goes on with the search"
            raise HonestdpError(
                f"the Dataset cannot be sent to a cluster; what it was charged stays charged; {way_out}"
            )
        header, beside = parcel
        room = min(sizes(), default=0)
        if sum(part.nbytes for part in beside) > ROOM * room:  # how much it is may tell how many records a file has
            raise MachineStopped(f"the records do not fit into an object store of {room / 1e6:,.0f} MB, that of a node")
        records = [np.frombuffer(parcels.sealed(header, RECORDS), np.uint8), *beside]
        setting = replace(self._setting, cluster=None)
        plan = Plan(self._design, self._secret, setting, self._by_coin, cluster.kind)
        from ray import cloudpickle

        sealed = parcels.sealed(cloudpickle.dumps(plan), PLAN)
        self._store.write(SEEN, b"")  # before anything is there, wherever the search then ends
        self._pool = Pool(cluster, parcels, plan=sealed, records=records, keep=self._keep)
        before = self._before()
        for number, batch in enumerate(self.batches()):
            if number < standing.done or self._store.read(f"failed{number}") is not None:
                continue
            self._tasks[number] = self._populations(number, batch)
            for place, task in enumerate(self._tasks[number]):
                if (number, place) in before:
                    self._pool.known(task, before[number, place])
                else:
                    self._pool.add([task])

    def _populations(self, number: int, batch: list[int]) -> list[Task]:
        """Those that one machine would train one after the other."""
        rules = [self._secret.candidates[run].rule() for run in batch]
        most = self._together(batch[0]) or self._job(batch[:1], self._secret.seed).most_together(len(batch))
        return [
            Task(tuple(batch[i] for i in chunk), tuple(chunk), ("batch", number)) for chunk in plan_chunks(rules, most)
        ]

    def _whole(self, number: int, batch: list[int]) -> list[Tensor | None] | None:
        assert self._pool is not None
        if number not in self._tasks:  # it had failed before: a resume begins with the whole batch
            self._tasks[number] = self._populations(number, batch)
            self._pool.add(self._tasks[number])
        tasks = self._tasks[number]
        outcomes = dict(zip(tasks, self._pool.taken(tasks), strict=True))
        failed = [task for task in tasks if outcomes[task].kind == FAILED]
        if failed:  # once more with the same seed, which is no second chance
            self._pool.add(failed, first=True)
            outcomes |= zip(failed, self._pool.taken(failed), strict=True)
        if any(outcome.kind == FAILED for outcome in outcomes.values()):
            return None
        weights = dict[int, Tensor]()
        for task, outcome in outcomes.items():
            weights |= self._weights(task, outcome)
        return [weights[run] for run in batch]

    def _weights(self, task: Task, outcome: Outcome) -> dict[int, Tensor]:
        self._scored |= {run: one for run, one in zip(task.runs, outcome.scores, strict=True) if one is not None}
        return dict(zip(task.runs, outcome.weights, strict=True))

    def _one_by_one(self, number: int, batch: list[int], attempt: int) -> list[Tensor | None]:
        assert self._pool is not None
        tasks = [Task((run,), (0,), ("alone", number, run, attempt)) for run in batch]
        self._pool.add(tasks, first=True)
        outcomes = zip(tasks, self._pool.taken(tasks), strict=True)
        return [self._weights(task, one)[task.runs[0]] if one.kind == DONE else None for task, one in outcomes]

    def _score(self, run: int, weights: Tensor) -> tuple[int, ...]:
        """Of the node that trained the run; its noise is of the plan."""
        return self._scored.pop(run)

    def _keep(self, task: Task, content: bytes) -> None:
        kind, number, *_ = task.purpose
        if kind == "batch" and Outcome.unpacked(content).kind == DONE and int(number) in self._tasks:
            place = self._tasks[int(number)].index(task)
            self._store.write(f"population{number}-{place}", content)

    def _before(self) -> dict[tuple[int, int], Outcome]:
        """The populations that came back before the search was stopped, by batch and place in it."""
        found = {}
        for name in self._store.names():
            if (match := _KEPT.fullmatch(name)) and (content := self._store.read(name)) is not None:
                found[int(match[1]), int(match[2])] = Outcome.unpacked(content)
        return found

    def _save(self, standing: Standing) -> None:
        super()._save(standing)
        over = [name for name in self._store.names() if (m := _KEPT.fullmatch(name)) and int(m[1]) < standing.done]
        self._store.remove(*over)
