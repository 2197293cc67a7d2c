"""Checks model, loss and records against each other, then builds the mechanism or the score door over the records."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from honestdp.augment import Augmentation
from honestdp.boundary.data import PrivateData
from honestdp.boundary.decoding import deaths_named
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.metrics import Metric
from honestdp.boundary.query import Constants
from honestdp.boundary.ranks import ALONE, Ranks, check_alike, mark_of, share_of
from honestdp.boundary.records import BlankRecords, Records
from honestdp.boundary.rehearsal import rehearse
from honestdp.boundary.release import Question, width_of
from honestdp.boundary.scores import ScoreDoor
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layout import Layout, layout_of
from honestdp.gradients.outputs import check_output, own_loss
from honestdp.gradients.vetting import refuse_by_name
from honestdp.losses import Loss, Taken, default_loss
from honestdp.run import ROW, Run, Unit


@dataclass(frozen=True)
class Intake:
    """Everything private behind one name, with one way out: a mechanism."""

    question: Question
    layout: Layout
    dtype: torch.dtype
    _records: Records
    _labels: Taken
    fingerprint: str | None = None
    """A hash of records in memory, for a checkpoint alone; as secret as they are."""

    unit: Unit = ROW
    """Whose record it is."""

    ranks: Ranks = ALONE
    """With whom the records are shared out."""
    _given: str = ""
    """A mark of all records as this rank was given them."""

    def compare(self) -> None:
        """An error on all ranks where they were not given the same records in the same order; before a lot is drawn."""
        check_alike(self._given, self.ranks)

    @property
    def augment(self) -> Augmentation | None:
        """How records are varied in training."""
        return self._records.augment

    def mechanism(
        self, constants: Constants, *, seed: Seed, secure: bool, pause: int | None = None, rows: Seed | None = None
    ) -> Mechanism:
        """rows: from which it follows which rows of people count, the same for all runs; by default `seed`."""
        whose = self.ranks.seed_of(rows or seed)
        how: dict[str, Any] = {"secure": secure, "labels": self._labels, "pause": pause, "ranks": self.ranks}
        return Mechanism(self.question, self._records.drawn(whose.child("rows")), constants, seed=seed, **how)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Within, the death of a worker process is told as such; after it none is left."""
        try:
            with deaths_named():
                yield
        finally:
            self._records.close()

    def bytes_per_run(self, run: Run) -> int:
        """A rough count of what one run of a population holds: weights, state and noise, and the lot as it passes."""
        x, _ = self._records.blank(self.question.model)
        size = max(part.element_size() for part in inputs.leaves(x))
        passing = 2 * run.lot * self.question.rows * (inputs.numbers(x) + self.layout.total**0.5) * size
        return int(10 * self.layout.total * size + 3 * passing) + 1

    def blank(self) -> Inputs:
        """Two made-up inputs in the shapes of the records: zeros, whatever the records hold."""
        return self._records.blank(self.question.model)[0]

    def rehearsal(self, constants: Constants) -> Mechanism:
        """A mechanism over made-up records, for timing."""
        blanks = BlankRecords(self._records, self.question.model, constants.records)
        return Mechanism(self.question, blanks, constants, seed=Seed.fresh())


def take_in(
    module: nn.Module,
    data: PrivateData,
    *,
    records: int,
    loss: Loss | None,
    device: torch.device,
    workers: int,
    by_coin: bool = False,
    marked: bool = False,
    lot: float | None = None,
    strict: bool = False,
    ranks: Ranks = ALONE,
    secret: Seed | None = None,
) -> Intake:
    """Check model, loss and data against each other and against the declared number of records.

    lot: the expected size of a lot, at whose width model and loss are tried. strict: see `honestdp.train_population`.
    marked: with a fingerprint of the data.
    by_coin: the data are those records that a coin put on one side, so that their number is not the declared one.
    ranks: who share the data out, all of which have been given them whole: see `Intake.compare`. secret: of theirs.
    """
    refuse_by_name(module)
    layout = layout_of(module, device)
    dtype = next(p.dtype for p in module.parameters() if p.requires_grad)
    if len(data) != records and not by_coin:
        wanted = (
            f"{len(data)}, as many {data.unit.plural} as the data has. The number is not taken from the data, because it sets "
            "the rate and the epsilon and so must be public: declare it in the Run, and pass exactly that many "
            f"{data.unit.plural}"
        )
        raise InvalidArgument("records", records, wanted)
    given = mark_of(data, secret) if ranks.size > 1 and secret is not None else ""
    mark, data = data.fingerprint() if marked else None, share_of(data, ranks)
    source = data._open(device=device, dtype=dtype, workers=workers)
    working = copy.deepcopy(module).to(device)
    x, y = source.blank(working)
    loss = own_loss(loss) if loss is not None else default_loss(y)
    rows = data.unit.rows
    width = 1 if lot is None else width_of(x, runs=1, records=records, lot=lot, rows=rows)
    labels = try_out(working, loss, x, y, examples=width * rows, strict=strict, declared=data.classes)
    layout = replace(layout, entering=inputs.entering(x))
    return Intake(Question(working, loss, strict, rows), layout, dtype, source, labels, mark, data.unit, ranks, given)


def open_door(
    side: PrivateData,
    module: nn.Module,
    *,
    loss: Loss | None,
    metric: Metric,
    noise: Sequence[tuple[int, ...]],
    workers: int,
    seed: Seed,
    strict: bool = False,
) -> ScoreDoor:
    """The door to the records of the validation side, once it is sure that such a module can be scored on them.

    seed: of what a Dataset draws while it is read.
    """
    parameter = next(module.parameters())
    x, y = side._gathered(dtype=parameter.dtype, device=parameter.device, workers=workers, seed=seed)
    people = side._rows_of_people(parameter.device)
    loss = loss or default_loss(y)
    if len(inputs.first(y)) == 0:  # the coins put no record here: every score is its noise
        return ScoreDoor(x, y, loss=loss, metric=metric, noise=noise, people=people)
    # Again for records in memory, and for the first time for those of a Dataset, whose shapes nobody knew before.
    none = [inputs.each(lambda part: part.new_empty(0, *part.shape[1:]), parts) for parts in (x, y)]
    forward = rehearse(metric, module, loss=loss, x=none[0], y=none[1], strict=strict)
    blank = inputs.blank(module, none[0], 1)
    return ScoreDoor(x, y, loss=loss, metric=metric, noise=noise, forward=forward, blank=blank, people=people)


def try_out(
    module: nn.Module, loss: Loss, x: Inputs, y: Inputs, *, examples: int, strict: bool, declared: int | None = None
) -> Taken:
    """Try model and loss on made-up examples, so many at once. Returns the labels that the loss takes; None for any.

    x, y: two of them. declared: how many classes there are, where that is. No record is needed for it.
    """
    layout = layout_of(module)
    try:
        with torch.random.fork_rng(devices=inputs.gpus(y)):
            labels = check_output(copy.deepcopy(module), loss, x, y, declared=declared)
            Question(module, loss, strict).vet(layout, x, y, runs=1, width=examples)
            return labels
    except InvalidArgument:
        raise
    except (RuntimeError, TypeError, LookupError, ValueError, AttributeError, AssertionError) as trouble:
        why = " ".join(f"{type(trouble).__name__}: {trouble}".split())
        several = f"up to {examples} of them at once, since lots vary in size"
        given = f"{inputs.in_words(x)} and {inputs.in_words(y, 'labels')}, {several}"
        wanted = f"one that with its loss takes {given} ({why}){_way_out(x, why)}"
        raise InvalidArgument("model", type(module).__name__, wanted) from trouble


def _way_out(x: Inputs, why: str) -> str:
    """What may be behind a failure of the model on inputs such as x."""
    if isinstance(x, dict) and "argument" in why:
        return f". Inputs of a dict are given by name, model(**x): def forward(self, {', '.join(x)})"
    if isinstance(x, Tensor) and x.dim() == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        return ". Images are [channels, height, width] in torch: x.permute(0, 3, 1, 2)"
    return ""
