"""`evaluate`: one noisy score of a saved model on held-out records, charged before a record is read.

An exact score of private records is a function of them that no noise protects: asked often enough, or of few enough records, it
gives one away. So a score leaves through the boundary's score door alone, as S + Z with Z a discrete Laplace number of scale
D/epsilon (`boundary.metrics`): pure epsilon, no delta. Every call is a question of its own with noise of its own,
and is charged by itself.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from honestdp import checks
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import open_door
from honestdp.boundary.metrics import Metric
from honestdp.boundary.score_noise import NORMAL, Score, question_noise, question_scale
from honestdp.boundary.seed import Seed
from honestdp.boundary.vetted import rehearse
from honestdp.budget import Statement, large_epsilon
from honestdp.checks import HonestdpError
from honestdp.gradients.outputs import own_loss
from honestdp.gradients.probe import copied
from honestdp.ledger import Balance, Ledger
from honestdp.ledger.paying import Payment, books_of
from honestdp.ledger.spending import Spending
from honestdp.logs import silence
from honestdp.losses import Loss, default_loss
from honestdp.models.saved import SavedModel
from honestdp.notebook import Rows, Shown
from honestdp.plain_words import rounded_up
from honestdp.planner.prospects import forewarn
from honestdp.run import Run, Unit
from honestdp.search.request import metric_of
from honestdp.selection import Compose
from honestdp.training.spec import Preparation, preparation

LAPLACE = math.log(20) / math.sqrt(2)  # standard deviations of a Laplace law, as NORMAL of a normal one
NOT_FOR_PUBLISHING = (
    "an exact score of private rows has no guarantee and is not for publishing; this one has noise in it, and may leave"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Shown):
    """A noisy score on held-out records, and what is guaranteed about them. balance: of their dataset, around the charge."""

    score: Score
    records: int
    statement: Statement
    balance: Balance | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "score": self.score.as_dict(),
            "records": self.records,
            "ledger": None if self.balance is None else self.balance.as_dict(),
            "statement": self.statement.as_dict(),
        }

    def _title(self) -> str:
        return str(self.score)

    def _rows(self) -> Rows:
        cost = f"{rounded_up(self.statement.epsilon)} at delta 0 for this one question, {self.statement.relation}"
        absent = "one that is missing or has no label counts as the middle of the range"
        size = f"{self.records} by which the sum is divided; {absent}"
        return [("score", self.score.in_words()), ("epsilon", cost), ("records", size)]

    def _whole(self) -> tuple[str, str] | None:
        return "the whole statement", str(self.statement)


def evaluate(
    saved: SavedModel,
    data: Any,
    *,
    epsilon: float,
    metric: str | Metric | None = None,
    prevalence: Sequence[float] | None = None,
    loss: Loss | None = None,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    note: str = "",
    preprocessing: str | None = None,
) -> Evaluation:
    """data: as `tune` takes it; with a table, what the table makes of rows. The others: see `SavedModel.evaluate`."""
    checks.positive(epsilon=epsilon)
    checks.refuse_many("an evaluation", "make it once, in a program without torchrun, of the model that was saved")
    books = books_of(ledger, dataset, note=note)
    private = PrivateData(data)
    records = len(private)
    checks.whole(least=1, records=records)
    judged = metric_of(metric, private.shapes, validation=1.0, prevalence=prevalence, unit=private.unit)
    assert judged is not None
    shapes, balance = private.shapes, None
    model = copied(saved.model)  # tested here and scored after the charge, whatever becomes of the user's own
    if loss is not None:
        loss = own_loss(loss)
    if shapes is not None:  # what does not fit without a record is found before the charge
        rehearse(judged, model, loss=loss or default_loss(shapes.y), x=shapes.x, y=shapes.y, strict=False)
    forewarn(large_epsilon(epsilon))
    if books is not None:
        account, cost = Payment.of(books, uuid.uuid4().hex), spending(epsilon, records, private.unit)
        if private.known is not None:  # every call is charged by itself: a file that cannot be read must not be
            account.check_first(cost, private.scan)
        balance = account.charge(cost, what=f"honestdp evaluate, {judged.name}", read=False)
    else:
        private.scan()
    before = preparation(private, preprocessing)
    noisy = _asked(model, private, judged, loss, epsilon)
    return Evaluation(
        score=score_of(judged, noisy, epsilon=epsilon, records=records),
        records=records,
        statement=_statement(epsilon, judged, before, records, private.unit),
        balance=balance,
    )


def spending(epsilon: float, records: int, unit: Unit) -> Spending:
    """What one such question costs: no training, and one choice of a number at pure epsilon."""
    nothing = Run(records=records, lot=1, steps=0, noise=1.0)
    return Spending(Compose(candidates=1), ((nothing, 1),), choice=epsilon, unit=unit.person)


def score_of(metric: Metric, noisy: int, *, epsilon: float, records: int) -> Score:
    """What a noisy S says of the records' population, each of them one draw of it. The interval is at least as wide as 95 %
    need: the noise's own 95 %, heavier in its tails than a normal law's, and that of the draw, as if both were normal.
    """
    value = metric.value(noisy, records=records)
    scale = question_scale(epsilon=epsilon, sensitivity=metric.sensitivity)
    unit = abs(metric.best - metric.worst) / (2 * records * metric.sensitivity)
    noise = math.sqrt(2) * scale * unit
    drawn = NORMAL**2 * metric.sampling_variance(value, records=records, fraction=1.0)
    reach = math.sqrt((LAPLACE * noise) ** 2 + drawn)
    low, high = metric.limits
    return Score(
        metric.name, value, max(value - reach, low), min(value + reach, high), noise, metric.value(0, records=records)
    )


def _asked(model: nn.Module, private: PrivateData, metric: Metric, loss: Loss | None, epsilon: float) -> int:
    """S + Z. What fails in here may have a word of a record in it, and is said without."""
    noise = question_noise(epsilon=epsilon, sensitivity=metric.sensitivity)
    try:
        with silence():
            seed = Seed.fresh()
            side = private.read().drawn(seed.child("rows")).guarded()
            door = open_door(side, model, loss=loss, metric=metric, noise=[(noise,)], workers=0, seed=seed)
            return door.score(0, model)[0]
    except Exception as trouble:
        machine = isinstance(trouble, OSError | MemoryError | torch.OutOfMemoryError | torch.AcceleratorError)
    # Here and not there, so that nothing of what was caught is carried along.
    words = "the machine stopped the evaluation" if machine else "the evaluation failed"
    raise HonestdpError(f"{words}; what it was charged stays charged. Why is not said, for it may tell of records")


def _statement(epsilon: float, metric: Metric, before: Preparation, records: int, unit: Unit) -> Statement:
    size = "it was declared" if before.declared else "it was not declared but counted in the data"
    return Statement.about(
        unit,
        epsilon=epsilon,
        delta=0.0,
        records=records,
        accountant="pure epsilon",
        selection="compose",
        how=f"one question of these {unit.plural}; every further one is charged by itself",
        runs=1,
        leaves=f"one noisy {metric.name}, which is not exact",
        scores=metric.absence(unit.plural),
        basis=f"the discrete Laplace mechanism on a sum of one bounded number a {unit.noun}",
        assumptions=(
            f"the number of {unit.plural}, {records}, is public; {size}",
            "the model, and every choice made before this question, used none of these records, or was charged elsewhere",
        ),
        further=(
            "this is about the records that were scored: what is guaranteed about those that the model was trained on is the "
            "model's own statement, and for a record that is among both, both count",
        ),
        preprocessing=before.words,
    )
