"""Checks model, loss and records against each other, then builds the mechanism or the score door over the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from honestdp.augment import Augmentation
from honestdp.boundary.data import PrivateData, Shapes
from honestdp.boundary.decoding import deaths_named
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.metrics import Metric
from honestdp.boundary.query import Constants
from honestdp.boundary.ranks import ALONE, Ranks, check_alike, mark_of, share_of
from honestdp.boundary.records import BlankRecords, Records
from honestdp.boundary.scores import ScoreDoor
from honestdp.boundary.seed import Seed
from honestdp.boundary.vetted import Vetted, rehearse, vet
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layout import Layout, dtype_of, layout_of
from honestdp.gradients.vetting import refuse_by_name
from honestdp.losses import Loss, default_loss
from honestdp.run import ROW, Run, Unit


@dataclass(frozen=True)
class Intake:
    """Everything private behind one name, with one way out: a mechanism."""

    vetted: Vetted
    _records: Records
    fingerprint: str | None = None
    """A hash of records in memory, for a checkpoint alone; as secret as they are."""

    unit: Unit = ROW
    """Whose record it is."""

    ranks: Ranks = ALONE
    """With whom the records are shared out."""
    _given: str = ""
    """A mark of all records as this rank was given them."""

    @property
    def layout(self) -> Layout:
        return self.vetted.layout

    @property
    def dtype(self) -> torch.dtype:
        return self.vetted.dtype

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
        records, ranks = self._records.drawn(whose.child("rows")), self.ranks
        return Mechanism(self.vetted, records, constants, seed=seed, secure=secure, pause=pause, ranks=ranks)

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
        x, _ = self._records.blank(self.vetted.model)
        size = max(part.element_size() for part in inputs.leaves(x))
        passing = 2 * run.lot * self.vetted.rows * (inputs.numbers(x) + self.layout.total**0.5) * size
        return int(10 * self.layout.total * size + 3 * passing) + 1

    def blank(self) -> Inputs:
        """Two made-up inputs in the shapes of the records: zeros, whatever the records hold."""
        return self._records.blank(self.vetted.model)[0]

    def rehearsal(self, constants: Constants) -> Mechanism:
        """A mechanism over made-up records, for timing."""
        blanks = BlankRecords(self._records, self.vetted.model, constants.records)
        return Mechanism(self.vetted, blanks, constants, seed=Seed.fresh())


def take_in(
    model: nn.Module | Vetted,
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
    metric: Metric | None = None,
    ranks: Ranks = ALONE,
    secret: Seed | None = None,
) -> Intake:
    """Check model, loss and data against each other and against the declared number of records.

    model: tested, or a module that is tested here: that of a Dataset, whose shapes nobody knows before a record is read.
    loss, strict: of such a module. metric: by which it will be scored, if it will. lot: the expected size of a lot, at whose
        width it is tested.
    marked: with a fingerprint of the data.
    by_coin: the data are those records that a coin put on one side, so that their number is not the declared one.
    ranks: who share the data out, all of which have been given them whole: see `Intake.compare`. secret: of theirs.
    """
    if not isinstance(model, Vetted):
        refuse_by_name(model)
        layout_of(model)  # refuses a model without trainable weights, or of several kinds
    dtype = model.dtype if isinstance(model, Vetted) else dtype_of(model)
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
    if not isinstance(model, Vetted):
        shapes = Shapes(*source.blank(model), ("", ""), unit=data.unit, classes=data.classes)
        model = vet(model, shapes, loss=loss, device=device, records=records, lot=lot, strict=strict, metric=metric)
    return Intake(model, source, mark, data.unit, ranks, given)


def open_door(
    side: PrivateData,
    model: nn.Module | Vetted,
    *,
    loss: Loss | None,
    metric: Metric,
    noise: Sequence[tuple[int, ...]],
    workers: int,
    seed: Seed,
    strict: bool = False,
) -> ScoreDoor:
    """The door to the records of the validation side, once it is sure that such a model can be scored on them.

    model: tested, with this metric, or a module that is tested here, once records of a Dataset have shown their shapes.
    seed: of what a Dataset draws while it is read.
    """
    module = model.model if isinstance(model, Vetted) else model
    parameter = next(module.parameters())
    x, y = side._gathered(dtype=parameter.dtype, device=parameter.device, workers=workers, seed=seed)
    people = side._rows_of_people(parameter.device)
    if isinstance(model, Vetted):
        loss, forward = model.loss, model.forward
    else:
        loss, forward = loss or default_loss(y), None
    if len(inputs.first(y)) == 0:  # the coins put no record here: every score is its noise
        return ScoreDoor(x, y, loss=loss, metric=metric, noise=noise, people=people)
    none = [inputs.each(lambda part: part.new_empty(0, *part.shape[1:]), parts) for parts in (x, y)]
    forward = forward or rehearse(metric, module, loss=loss, x=none[0], y=none[1], strict=strict)
    blank = inputs.blank(module, none[0], 1)
    return ScoreDoor(x, y, loss=loss, metric=metric, noise=noise, forward=forward, blank=blank, people=people)
