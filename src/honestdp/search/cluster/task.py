"""One population on a node: a task of the cluster, from sealed bytes to sealed bytes.

Nothing is raised out of a task and nothing is written by it: an exception would travel with its words and its traceback, and
Ray logs it, keeps it and shows it; what is printed lands in files of the node. So every error in here is caught, looked at for
its kind as on one machine (`search.failures`), and returned as an outcome. What the process prints meanwhile goes nowhere, and
a crash writes no memory to the disk.

The runs are trained and scored by the same `Execution` as on one machine, from the seed of the plan: whoever makes a population
again, after the death of a node, draws the same numbers and scores with the same noise.

Ray sees bytes, and a disk that it spills to gets nothing but them. The plan of a search, its seed among it, and the outcome of a
population are encrypted under a key that is made for one search and one process and is kept nowhere. Tasks carry it as a small
argument, which Ray hands from process to process and keeps in no store. Whoever operates the cluster can still read all of it
out of the memory of its processes.
"""

from __future__ import annotations

import json
import pickle
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from signal import SIG_DFL, SIGINT, SIGTERM
from typing import Any

import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from torch import Tensor

from honestdp.boundary.travel import Sides, unpacked
from honestdp.identity.text import versions
from honestdp.logs import silence
from honestdp.search.design import Design
from honestdp.search.failures import MachineStopped, SearchFailed, signals, without_cores, without_records
from honestdp.search.runs import NOT_THE_RUN, Execution, Setting
from honestdp.search.secret import Secret
from honestdp.search.vault import Unkept
from honestdp.training import checkpoint
from honestdp.training.spec import Compute

_KEY_BYTES, _NONCE_BYTES = 32, 12
PLAN, TASK, OUTCOME, RECORDS = b"plan", b"task", b"outcome", b"records"
"""What a parcel is, authenticated with it: none can be put in the place of another kind."""


def new_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


@dataclass(frozen=True)
class Parcels:
    """Seals and opens under one key."""

    key: bytes = field(repr=False)

    def sealed(self, content: bytes, kind: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, content, kind)

    def opened(self, sealed: bytes, kind: bytes) -> bytes:
        try:
            return AESGCM(self.key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], kind)
        except InvalidTag:
            raise MachineStopped("what a node sent was damaged") from None


DONE, FAILED, STOPPED, MACHINE, OTHER = "done", "failed", "stopped", "machine", "other versions"
"""How a task ends: with weights and scores; with runs that failed, which is no news; with an error that ends the search; with a
failure of the node's own; on a node of other versions."""


@dataclass(frozen=True)
class Outcome:
    """kind: of the end. weights: of each run. scores: of each whose weights are numbers. words: of an error. over: whether the
    search is over with it.
    """

    kind: str
    weights: tuple[Tensor, ...] = ()
    scores: tuple[tuple[int, ...] | None, ...] = ()
    words: str = ""
    over: bool = False

    def packed(self) -> bytes:
        about = {"kind": self.kind, "scores": self.scores, "words": self.words, "over": self.over}
        return checkpoint.packed({str(i): one for i, one in enumerate(self.weights)}, about)

    @staticmethod
    def unpacked(content: bytes) -> Outcome:
        tensors, about = checkpoint.unpacked(content)
        weights = tuple(tensors[str(i)] for i in range(len(tensors)))
        scores = tuple(None if one is None else tuple(map(int, one)) for one in about["scores"])
        return Outcome(about["kind"], weights, scores, about["words"], about["over"])


@dataclass(frozen=True)
class Plan:
    """What every task of a search needs beside the records. kind: of the device."""

    design: Design
    secret: Secret
    setting: Setting
    by_coin: bool
    kind: str


@dataclass(frozen=True)
class Task:
    """A population: its runs, the numbers that they have in what is drawn for them, and the purpose of their seed."""

    runs: tuple[int, ...]
    named: tuple[int, ...]
    purpose: tuple[int | str, ...]


class NodeRuns(Execution):
    """The runs of a search on a node, whose records are split already."""

    def __init__(self, plan: Plan, sides: Sides) -> None:
        device = Compute(device=plan.kind).place()
        setting = replace(plan.setting, device=device, workers=0, cluster=None)
        records = plan.design.records
        super().__init__(plan.design, plan.secret, setting, sides[0], records=records, store=Unkept())
        self.__dict__["_sides"] = sides
        self._coin, self._asked = plan.by_coin, set[int]()

    @property
    def _by_coin(self) -> bool:
        return self._coin

    def fresh(self, task: Task) -> bool:
        """Whether no run of the task was scored here before: a door has each noise once."""
        return not self._asked & set(task.runs)

    def outcome(self, task: Task) -> Outcome:
        seed = self._secret.seed.child(*task.purpose)
        try:
            weights = self._population(list(task.runs), "", seed, named=list(task.named))
        except NOT_THE_RUN:
            raise
        except BaseException:  # whatever it is: its kind and words may come from records, or tell which run it was
            return Outcome(FAILED)
        trained = [one for one in weights if one is not None]
        self._asked |= set(task.runs)
        scores = [self._scored(run, one) for run, one in zip(task.runs, trained, strict=True)]
        return Outcome(DONE, tuple(one.cpu() for one in trained), tuple(scores))

    def _scored(self, run: int, weights: Tensor) -> tuple[int, ...] | None:
        if not bool(torch.isfinite(weights).all()):
            return None
        return () if self._door is None else self._score(run, weights)


_kept: dict[bytes, NodeRuns] = {}
"""Of the search that this process works for, by its key."""


def population(key: bytes, sealed: bytes, plan: bytes, records: list[Any]) -> bytes:
    """The task. sealed: which runs. records: the header, sealed, and the arrays beside it."""
    parcels = Parcels(key)
    # A process that is told to end, as a node does that is shut down, ends. Ray would make an exception of it in the middle of
    # the training, which looks like a run that failed: twice, and the runs would be trained with other draws.
    with silence(), without_cores, signals(SIG_DFL, SIGTERM, SIGINT):
        try:
            outcome = _outcome(parcels, sealed, plan, records)
        except BaseException as trouble:
            outcome = _ended(trouble)
        return parcels.sealed(outcome.packed(), OUTCOME)


def _outcome(parcels: Parcels, sealed: bytes, plan: bytes, records: list[Any]) -> Outcome:
    asked: dict[str, Any] = json.loads(parcels.opened(sealed, TASK))
    if asked["versions"] != versions():
        return Outcome(OTHER)
    task = Task(tuple(asked["runs"]), tuple(asked["named"]), tuple(asked["purpose"]))
    runs = _kept.get(parcels.key)
    if runs is None or not runs.fresh(task):
        if asked["threads"]:
            torch.set_num_threads(asked["threads"])
        _kept.clear()
        sides = unpacked(parcels.opened(records[0].tobytes(), RECORDS), list(records[1:]))
        runs = _kept[parcels.key] = NodeRuns(pickle.loads(parcels.opened(plan, PLAN)), sides)
    return runs.outcome(task)


def _ended(trouble: BaseException) -> Outcome:
    """An error in words that tell nothing of records or runs, as on one machine."""
    error: Exception = MachineStopped("a task was ended")
    with suppress(Exception):
        error = without_records(trouble)
    kind = MACHINE if isinstance(error, MachineStopped) else STOPPED
    return Outcome(kind, words=str(error), over=isinstance(error, SearchFailed))
