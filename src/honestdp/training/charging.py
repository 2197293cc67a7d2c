"""A training's charge in the ledger: after everything that can fail without a record has been tried, and before one is read.

With a checkpoint, the key of the charge is in its file before the charge is made, so that a training that is killed at any moment
goes on under its key and is charged once. One charge pays for one training: before its first step the seed of everything random
is in the file, and a token of the file is in the ledger, as for each resume of a search. A copy of the file from before has no
token, or an older one, and is refused; two copies from after it have one seed and end in the same weights.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from honestdp.boundary.data import PrivateData
from honestdp.boundary.noise import noise_source
from honestdp.boundary.ranks import ALONE, Ranks
from honestdp.boundary.seed import Seed
from honestdp.budget import LEDGER_VARIABLE
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients.layout import layout_of, stack
from honestdp.optimizers import Rule
from honestdp.optimizers.echo import try_once
from honestdp.optimizers.rule import kind
from honestdp.optimizers.schedules import factors
from honestdp.planner.prospects import counting, forewarn, prospects
from honestdp.run import Run
from honestdp.training import checkpoint as checkpoints
from honestdp.training.checkpoint import File, Progress
from honestdp.training.loop import Interrupted, Job
from honestdp.training.population import check_finite
from honestdp.training.spec import TrainSpec, try_rule
from honestdp.training.watching import Watch

if TYPE_CHECKING:
    from honestdp.ledger import Balance
    from honestdp.ledger.paying import Books, Payment

STAYS = "what was charged for it stays charged"


@dataclass(kw_only=True)
class Charging:
    """What a training is to be charged to. watch: who looks at a run of so many steps, if anybody does.

    books: None where nothing is charged; then what can be tried is tried, and every other step is empty.
    kept: what the checkpoint, which the first rank reads, holds of its charge; None where there is no checkpoint yet.
    ranks: who train together; the first of them pays, once all have tried what can be tried.
    balance: the dataset's, once it is charged. charge: what the checkpoint keeps of it.
    """

    books: Books | None
    place: File | None
    kept: dict[str, str] | None
    rules: Sequence[Rule]
    spec: TrainSpec
    watch: Callable[[int], Watch | None]
    ranks: Ranks = ALONE
    balance: Balance | None = field(init=False, default=None)
    charge: dict[str, str] = field(init=False, default_factory=dict)

    def pay(
        self,
        data: PrivateData,
        modules: Sequence[nn.Module],
        runs: Sequence[Run],
        device: torch.device,
        made_up: Callable[[PrivateData], Job],
    ) -> None:
        """Try what can be tried, then charge the events of these very runs, durably.

        made_up: the job over made-up records in the place of these, of which one step is rehearsed.
        """
        self.ranks.together(lambda: self._try(data, modules, runs, device, made_up=made_up), words=True)
        if (books := self.books) is not None:
            self.charge, self.balance = self.ranks.first(lambda: self._paid(books, data, runs))

    def _paid(self, books: Books, data: PrivateData, runs: Sequence[Run]) -> tuple[dict[str, str], Balance]:
        from honestdp.ledger.spending import Spending
        from honestdp.selection import Compose

        spending = Spending(Compose(candidates=len(runs)), tuple((run, 1) for run in runs), unit=data.unit.person)
        self.charge = self.kept or {"key": uuid.uuid4().hex, "dataset": books.dataset, "token": "", "after": ""}
        delta, undo = None if self.spec.budget is None else self.spec.budget.delta, None
        if self.kept is None and data.known is not None:  # a file that cannot be read is found before it is paid for
            self._payment(books).check_first(spending, data.scan, delta=delta)
        if self.kept is None and self.place is not None:
            checkpoints.begin(self.place, self.charge)
            undo = partial(self.place.path.unlink, missing_ok=True)
        what = "honestdp train" if len(runs) == 1 else f"honestdp train_population, {len(runs)} runs"
        read = bool(self.charge["token"])
        return self.charge, self._payment(books).charge(spending, what=what, read=read, delta=delta, undo=undo)

    def start(self, progress: Progress) -> None:
        """Before the next step: the checkpoint with its seed and a new token is on the disk, and the token in the ledger."""
        if self.books is not None and self.place is not None:
            self.charge = self.ranks.first(partial(self._begun, self.books, self.place, progress))

    def _begun(self, books: Books, place: File, progress: Progress) -> dict[str, str]:
        def keep(token: dict[str, str]) -> None:
            progress.charge = self.charge = self.charge | token
            checkpoints.save(place, progress)

        self._payment(books).resume(self.charge, keep)
        return self.charge

    def _payment(self, books: Books) -> Payment:
        from honestdp.ledger.paying import Payment

        return Payment.of(books, self.charge["key"])

    def end(self) -> None:
        """The training is over. A ledger that is busy must not cost its result: the next look at a checkpoint ends it."""
        if self.books is not None and self.ranks.is_first:
            self._payment(self.books).end(if_possible=True)

    def _try(
        self,
        data: PrivateData,
        modules: Sequence[nn.Module],
        runs: Sequence[Run],
        device: torch.device,
        *,
        made_up: Callable[[PrivateData], Job],
    ) -> None:
        """What can fail without a record fails here. Only a training that is charged is rehearsed."""
        first, module = runs[0], modules[0].to(device)
        if data.exact and len(data) != first.records:
            wanted = (
                f"{len(data)}, as many {data.unit.plural} as the data has: pass exactly so many as the Run declares. The number "
                "is not taken from the data, because it sets the rate and the epsilon and so must be public"
            )
            raise InvalidArgument("records", first.records, wanted)
        check_finite(modules)
        noise_source(device, Seed.fresh(), secure=self.spec.secure)
        layout, watch = layout_of(module, device), self.watch(first.steps)
        initial = stack([module], layout, device)[0]
        if self.books is not None and data.shapes is not None:
            job = made_up(data.shapes.made_up())
            job.rehearse()
            if any(rule.by_echo for rule in self.rules):
                try_once(job.intake.vetted.model, job.intake.layout, job.initial[0], job.intake.blank())
        elif self.books is not None:  # of a Dataset no shape is known before a record of it is read
            factors(self.spec.schedule, first)
            for rule, run in {kind(rule): (rule, run) for rule, run in zip(self.rules, runs, strict=True)}.values():
                try_rule(rule, run, layout, runs=min(2, len(runs)))
        if self.ranks.is_first:
            names = [rule.name for rule in self.rules]
            forewarn(prospects(first, parameters=counting(layout.shapes), optimizers=names))
            if watch is not None and self.kept is None:
                watch.begin(module, layout, initial)


def charging_of(
    spec: TrainSpec,
    *,
    place: File | None,
    rules: Sequence[Rule],
    watch: Callable[[int], Watch | None],
    ranks: Ranks,
) -> Charging:
    """The charge that a spec names, if any; refused where the checkpoint was charged otherwise."""
    books = None
    if spec.ledger is not None or spec.dataset is not None or spec.note:
        from honestdp.ledger.paying import books_of  # here: the engine alone needs torch and numpy only

        books = books_of(spec.ledger, spec.dataset, noise_seed=spec.noise_seed, note=spec.note)
    kept = None if place is None or not ranks.is_first else checkpoints.charge_of(place)
    if books is None and kept:
        wanted = f"given with dataset={kept['dataset']!r}: the training in this checkpoint was charged to it"
        raise InvalidArgument("ledger", spec.ledger, wanted)
    if books is not None and kept == {}:
        wanted = "one of a training that was charged when it was begun, or a path where none is yet; this one was not"
        raise InvalidArgument("checkpoint", str(place), wanted)
    if books is not None and kept and kept["dataset"] != books.dataset:
        wanted = (
            f"{kept['dataset']!r}, which the training in this checkpoint was charged to, or with another checkpoint"
        )
        raise InvalidArgument("dataset", books.dataset, wanted)
    return Charging(books=books, place=place, kept=kept, rules=rules, spec=spec, watch=watch, ranks=ranks)


def uncharged(books: Books | None) -> tuple[str, ...]:
    """The note of a statement where the environment names a ledger and nothing is charged to it."""
    if books is not None or not os.environ.get(LEDGER_VARIABLE):
        return ()
    return (f"{LEDGER_VARIABLE} is set and no dataset was named: this was not charged to the ledger",)


@contextmanager
def said_to_stay(charging: Charging) -> Iterator[None]:
    """Within, what goes wrong after the charge says that it stays charged."""
    try:
        yield
    except BaseException as trouble:
        if charging.balance is not None:
            if isinstance(trouble, HonestdpError | Interrupted):
                trouble.args = (f"{trouble}; {STAYS}",)
            else:
                trouble.add_note(STAYS)
        raise
