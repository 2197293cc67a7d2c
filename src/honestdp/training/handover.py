"""From the final weights of a job to the results that its user gets."""

from __future__ import annotations

from torch import Tensor

from honestdp.gradients.layout import load_row
from honestdp.losses.class_weights import ClassWeighted
from honestdp.planner.prospects import stated
from honestdp.training.charging import Charging, uncharged
from honestdp.training.history import Past, marks_of
from honestdp.training.loop import Job
from honestdp.training.preparation import Preparation
from honestdp.training.result import Result


def results_of(
    job: Job,
    weights: Tensor,
    *,
    delta: float | None,
    seeded: bool,
    charging: Charging | None,
    past: Past,
    preparation: Preparation,
    notes: tuple[str, ...] = (),
) -> list[Result]:
    """The results of a job that ended with these weights `[runs, d]`. Without a delta it is that of the ledger's budget."""
    balance = None if charging is None else charging.balance
    if delta is None and balance is not None:
        delta = balance.budget.delta
    past.marks.update(marks_of(weights, job.intake.layout) if job.runs[0].steps else ())
    return [
        Result(
            load_row(module, job.intake.layout, row).eval(),
            run,
            rule,
            delta,
            seeded,
            siblings=tuple(other for j, other in enumerate(job.runs) if j != i),
            strict=job.intake.question.strict,
            weighted=isinstance(job.intake.question.loss, ClassWeighted),
            stopped=job.stopped,
            watched=job.watched,
            balance=balance,
            key="" if charging is None else charging.charge["key"],
            notes=(
                *notes,
                *stated(run, job.intake.layout.shapes),
                *uncharged(None if charging is None else charging.books),
                *past.notes,
            ),
            preprocessing=preparation.words,
            spent=preparation.spent,
            alone=not past.notes,
            unit=job.intake.unit,
        )
        for i, (module, row, run, rule) in enumerate(zip(job.modules, weights, job.runs, job.rules, strict=True))
    ]
