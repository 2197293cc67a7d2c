"""The runs of a search: trained as populations, scored, and forgotten but for the best.

Runs of one (lot, steps, model) are trained in batches, each a population. After a batch its runs are scored, the best run so far
is kept, and the rest is dropped. All of that is in the secret folder, written atomically, so that a search that was killed at any
moment goes on from the last batch and, within it, from the last checkpoint. Every batch and every attempt at it has a seed of its
own, a child of the plan's, so that whoever goes on draws the same numbers.

A run whose training fails, or whose weights are no numbers, scores minus infinity and counts: that a run failed must not be seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from honestdp.boundary.data import PrivateData, Shapes
from honestdp.boundary.decoding import WorkerDied
from honestdp.boundary.intake import open_door
from honestdp.boundary.score_noise import best_of
from honestdp.boundary.scores import ScoreDoor
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.boundary.vetted import Vetted, vet
from honestdp.checks import HonestdpError
from honestdp.gradients.layout import layout_of, load_row
from honestdp.losses import Loss
from honestdp.optimizers.schedules import Schedule
from honestdp.search.design import Design
from honestdp.search.failures import MachineStopped, SearchFailed, in_own_words
from honestdp.search.secret import Secret
from honestdp.search.space import Arguments, Candidate, Space
from honestdp.search.vault import Kept, Store, Unkept
from honestdp.training.checkpoint import packed, unpacked
from honestdp.training.loop import Job
from honestdp.training.population import Model, fresh
from honestdp.training.spec import Compute, TrainSpec
from honestdp.training.train import assemble

if TYPE_CHECKING:
    from honestdp.search.cluster.nodes import Cluster

BATCH = 256  # runs that are trained and scored before the best of them is kept; a constant, so that it says nothing
CHECKPOINT_SECONDS = 15.0
ROUNDS = 3  # in which the runs of a batch that fails are trained one by one, before the search stops
STANDING = "standing"
SEEN = "cluster"  # the name, among the secrets, of the mark that records and draws were on a cluster
MACHINE = (torch.OutOfMemoryError, MemoryError, OSError, WorkerDied, torch.AcceleratorError)
"""The machine failed; after an error of an accelerator nothing can be computed on it in this process."""
NOT_THE_RUN = (*MACHINE, HonestdpError)
"""What stops a search, to be resumed: the machine failed, or the arguments are wrong for every run."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained, and where: public, and the same for every run."""

    model: Model | Callable[..., nn.Module]
    loss: Loss | None
    schedule: str | Schedule
    device: torch.device
    secure: bool
    workers: int
    strict: bool = False
    cluster: Cluster | None = None

    @property
    def kind(self) -> str:
        """Of the device that the runs are trained on."""
        return self.device.type if self.cluster is None else self.cluster.kind

    @property
    def execution(self) -> type[Execution]:
        """What trains the runs: this process, or the cluster, whose modules are imported for it alone."""
        return Execution if self.cluster is None else self.cluster.execution

    def spec(self, compute: Compute) -> TrainSpec:
        """How one population is trained. Its noise, budget and ledger are those of the search."""
        return TrainSpec(
            loss=self.loss, schedule=self.schedule, secure=self.secure, strict=self.strict, compute=compute
        )

    def module(self, candidate: Candidate, start: int) -> nn.Module:
        """The module of a run before its first step. start: a seed that depends on no record."""
        return fresh(self.model, arguments=candidate.model, start=start)

    def vetted(self, candidate: Candidate, shapes: Shapes, design: Design) -> Vetted:
        """The candidate's model, its loss and the metric, tested as widely as the search needs them."""
        largest = max(design.runs, key=lambda run: run.lot)
        return vet(
            self.module(candidate, 0),
            shapes,
            loss=self.loss,
            device=self.device,
            records=largest.records,
            lot=largest.lot,
            runs=min(BATCH, design.count) if design.selection.each_once else BATCH,
            strict=self.strict,
            metric=design.metric,
        )


Tested = dict[Arguments, Vetted]
"""What was tested, by the arguments of the model."""


def first_arguments(space: Space) -> Arguments:
    """Those of a model that stands for none: a count that may be zero was zero."""
    return (space.candidates()[0] if space.finite else space.draw(np.random.default_rng(0))).model


class Execution:
    """All runs of one search, over the given records."""

    def __init__(
        self,
        design: Design,
        secret: Secret,
        setting: Setting,
        data: PrivateData,
        *,
        records: int,
        store: Store,
        tested: Tested | None = None,
    ) -> None:
        """store: for what a resume needs. tested: models that are tested already; others are tested before their first step.

        Nothing is read yet: that is for `finish`.
        """
        self._tested: Tested = {} if tested is None else tested
        self._forgiving = True
        self._design, self._secret, self._setting, self._store = design, secret, setting, store
        self._data, self._records = data.guarded(), records

    @cached_property
    def _sides(self) -> tuple[PrivateData, PrivateData | None]:
        """(training, validation): two sides of the records, or all of them and None. Which rows of people count is drawn once:
        given that, all runs see the same records.
        """
        data = self._data.drawn(self._secret.seed.child("rows"))
        if not self._design.fraction:
            return data, None
        count = self._records if self._data.exact else len(data)
        return data.split(self._secret.held_out(count, self._design.fraction))

    @property
    def _by_coin(self) -> bool:
        """Whether how many records train was decided by coins, or by a file, and is not the declared number."""
        return self._design.fraction > 0 or not self._data.exact

    @cached_property
    def _door(self) -> ScoreDoor | None:
        side, metric, setting = self._sides[1], self._design.metric, self._setting
        if side is None or metric is None:
            return None
        vetted = self._vetted(0) if self._secret.candidates else None
        module = self._module(0) if self._secret.candidates else self.untrained()
        return open_door(
            side,
            vetted or module.to(setting.device),
            loss=setting.loss,
            metric=metric,
            noise=self._secret.noises,
            workers=setting.workers,
            seed=self._secret.seed.child("validation"),
            strict=setting.strict,
        )

    def finish(self) -> Standing:
        """Train and score what is left of the search, and find its winner. To be called within `silence`: what is said in a run
        tells of the runs.
        """
        return in_own_words(self._finish, of_runs=True)

    def rehearsed(self) -> Standing:
        """The same over synthetic records: what fails in a run is no outcome but an error, with its own words. The first batch is
        trained before, so that it goes on from its checkpoint, as after a kill.
        """
        self._forgiving = False
        for batch in itertools.islice(self.batches(), 1):
            self._whole(0, batch)
        self._finish()
        return self._load()

    def _finish(self) -> Standing:
        _ = self._door  # opened before the first run, so that what does not fit is found before the training
        standing = self._load()
        self._ready(standing)
        for number, batch in enumerate(self.batches()):
            if number >= standing.done:
                self._batch(number, batch, standing)
                standing.done += 1
                self._save(standing)
                self._forget()
        if self._design.choice is not None and standing.best is None:
            self._choose(standing)
            self._save(standing)
        if self._secret.candidates and standing.best is None and self._forgiving:
            unsaid = (
                "Why is not said, since it might tell of the records: try the model and the space on made-up records. Labels of "
                "classes are whole numbers from 0 to one less than the model has outputs"
            )
            raise SearchFailed(f"no run ended with weights that are numbers. {unsaid}")
        return standing

    def _ready(self, standing: Standing) -> None:
        """Before the first batch that is left. Here there is nothing to do."""

    def batches(self) -> Iterator[list[int]]:
        """The runs that are trained together, in order: of one (lot, steps, model), at most BATCH."""
        for group in self._secret.groups():
            for first in range(0, len(group), BATCH):
                yield group[first : first + BATCH]

    def _forget(self) -> None:
        """Remove the checkpoints of trainings that are over."""
        self._store.remove(*(name for name in self._store.names() if name.startswith("batch")))

    def _batch(self, number: int, batch: list[int], standing: Standing) -> None:
        rank = self._secret.rank
        for run, weights in zip(batch, self._trained(number, batch), strict=True):
            if weights is None or not bool(torch.isfinite(weights).all()):
                continue
            if self._design.choice is not None:
                standing.kept[run] = weights.cpu()
                standing.chosen_by[run], standing.scored[run] = self._score(run, weights)
                continue
            noisy = 0.0 if self._door is None else float(self._score(run, weights)[0])
            if standing.best is None or rank(run, noisy) > rank(standing.best, standing.noisy):
                standing.best, standing.noisy, standing.weights = run, noisy, weights.cpu()

    def _trained(self, number: int, batch: list[int]) -> list[Tensor | None]:
        """The weights of each run; None for one that failed.

        Checkpoints carry the batch's number: one of an earlier batch, left by a kill, must not be taken for this one's.

        A failure ends the whole batch. It is tried once more with the same seed: that draws no number anew and so is no second
        chance. What follows from draws and records fails again; what came from the machine and has passed does not. A batch
        that fails twice is trained anew, run by run. With Q the law of all of them, a failure being an outcome, the first
        attempt is kept where none fails; what is put in its place must then be Q given that one fails, or runs that fail by
        chance would have a second one. So the new attempts are kept where one fails, as it nearly always does again, and all
        are made anew where none does. What is returned has the law Q. But not without end: after `ROUNDS` of that in which no
        run failed, the search stops and says that it was the machine. A resume begins with the whole batch and its seed,
        and then makes further rounds, with seeds of their own: what a search that ends returns still has the law Q.
        """
        rounds = self._store.read(f"failed{number}")
        if rounds is None or rounds.endswith(b"stopped"):
            together = self._whole(number, batch)
            if together is not None:
                return together
        before = int((rounds or b"0").split()[0])
        # Who is killed from here on does not try the whole again.
        self._store.write(f"failed{number}", f"{before}".encode())
        if len(batch) == 1:
            return [None]
        for attempt in range(before + 1, before + 1 + ROUNDS):
            self._forget()
            one_by_one = self._one_by_one(number, batch, attempt)
            if any(weights is None for weights in one_by_one):
                return one_by_one
            self._store.write(f"failed{number}", f"{attempt}".encode())
        self._store.write(f"failed{number}", f"{before + ROUNDS} stopped".encode())
        raise MachineStopped("an error that passed")  # runs that failed together did not fail one by one

    def _whole(self, number: int, batch: list[int]) -> list[Tensor | None] | None:
        for _ in range(2):
            try:
                return self._population(batch, f"batch{number}", self._secret.seed.child("batch", number))
            except (KeyboardInterrupt, *NOT_THE_RUN):
                raise
            except BaseException:  # whatever it is: its kind and words may come from records, or tell which run it was
                if not self._forgiving:
                    raise
                self._forget()
        return None

    def _one_by_one(self, number: int, batch: list[int], attempt: int) -> list[Tensor | None]:
        return [self._alone(number, run, attempt) for run in batch]

    def _alone(self, number: int, run: int, attempt: int) -> Tensor | None:
        seed = self._secret.seed.child("alone", number, run, attempt)
        try:
            return self._population([run], f"batch{number}-{run}", seed)[0]
        except (KeyboardInterrupt, *NOT_THE_RUN):
            raise
        except BaseException:
            return None

    def _population(
        self, batch: list[int], name: str, seed: Seed, named: list[int] | None = None
    ) -> list[Tensor | None]:
        """named: the numbers of the runs in the batch, where they are a population of it that is trained by itself."""
        job = self._job(batch, seed, name)
        if named is not None:
            job.named, job.together = named, len(batch)
        return [*job.work(False)]

    def _job(self, batch: list[int], seed: Seed, name: str = "") -> Job:
        candidates, setting = [self._secret.candidates[run] for run in batch], self._setting
        compute = Compute(device=setting.device, workers=setting.workers, checkpoint_seconds=CHECKPOINT_SECONDS)
        job = assemble(
            [self._module(run) for run in batch],
            self._sides[0],
            run=[self._design.run_of(candidate) for candidate in candidates],
            optimizers=[candidate.rule() for candidate in candidates],
            spec=setting.spec(compute),
            by_coin=self._by_coin,
            seed=seed,
            keep=None if isinstance(self._store, Unkept) or not name else Kept(self._store, name),
            together=self._together(batch[0]),
            memory=self._secret.memory,
            vetted=self._vetted(batch[0]),
            metric=self._design.metric,
        )
        self._tested[candidates[0].model] = job.intake.vetted
        return job

    def _vetted(self, run: int) -> Vetted | None:
        """The copies that a run trains. None before the first run of a Dataset, whose shapes are not known yet."""
        candidate, shapes = self._secret.candidates[run], self._sides[0].shapes
        if candidate.model not in self._tested and shapes is not None:
            self._tested[candidate.model] = self._setting.vetted(candidate, shapes, self._design)
        return self._tested.get(candidate.model)

    def _together(self, run: int) -> int:
        """The plan's word on how many runs of this one's group are trained together; 0 where it has none."""
        sizes = zip(self._secret.groups(), self._secret.together, strict=False)
        return next((size for group, size in sizes if run in group), 0)

    def _module(self, run: int) -> nn.Module:
        return self._setting.module(self._secret.candidates[run], self._secret.starts[run])

    def untrained(self) -> nn.Module:
        return fresh(self._setting.model, arguments=first_arguments(self._design.space), start=0)

    def model(self, run: int, weights: Tensor) -> nn.Module:
        """The module of a run with its final weights `[d]`."""
        module = self._module(run)
        return load_row(module, layout_of(module, self._setting.device), weights)

    def _score(self, run: int, weights: Tensor) -> tuple[int, ...]:
        assert self._door is not None
        vetted = self._tested[self._secret.candidates[run].model]
        assert vetted.forward is not None  # every architecture is tested to be scored, by itself
        with lent():  # for a model that draws when it is scored
            seed_all(self._secret.seed.child("score", run).number(63))
            return self._door.score(run, vetted.scored(weights), vetted.forward)

    def _choose(self, standing: Standing) -> None:
        """The winner of runs that all leave, and its score: two questions, whatever the number of runs.

        The noise of both was drawn before the runs: whoever asks again, from a copy of the folder, gets the same answers.
        """
        if standing.chosen_by:
            best = best_of(standing.chosen_by)
            standing.best, standing.noisy, standing.weights = best, float(standing.scored[best]), standing.kept[best]

    def _load(self) -> Standing:
        return Standing.read(self._store.read(STANDING))

    def _save(self, standing: Standing) -> None:
        if not isinstance(self._store, Unkept):
            self._store.write(STANDING, standing.written())


@dataclass
class Standing:
    """Where a search stands. Secret.

    done: batches that are over. best: the run that wins so far, its noisy score and its weights `[d]`. For a selection whose
    candidates all leave, of every run: kept, the weights; chosen_by, the score with the noise of the choice; scored, the score
    with the noise that leaves. No score without noise is in here.
    """

    done: int = 0
    best: int | None = None
    noisy: float = -math.inf
    weights: Tensor | None = None
    kept: dict[int, Tensor] = field(default_factory=dict)
    chosen_by: dict[int, int] = field(default_factory=dict)
    scored: dict[int, int] = field(default_factory=dict)

    def written(self) -> bytes:
        tensors = {f"kept.{run}": weights for run, weights in self.kept.items()}
        if self.weights is not None and self.best not in self.kept:
            tensors["best"] = self.weights
        noisy = None if math.isinf(self.noisy) else self.noisy
        scores = {"chosen_by": self.chosen_by, "scored": self.scored}
        return packed(tensors, {"done": self.done, "best": self.best, "noisy": noisy, **scores})

    @classmethod
    def read(cls, content: bytes | None) -> Standing:
        """What was written; the beginning where nothing was."""
        if content is None:
            return cls()
        tensors, about = unpacked(content)
        kept = {int(name[5:]): value for name, value in tensors.items() if name.startswith("kept.")}
        return cls(
            done=about["done"],
            best=about["best"],
            noisy=-math.inf if about["noisy"] is None else about["noisy"],
            weights=kept.get(about["best"], tensors.get("best")),
            kept=kept,
            chosen_by={int(run): noisy for run, noisy in about["chosen_by"].items()},
            scored={int(run): noisy for run, noisy in about["scored"].items()},
        )
