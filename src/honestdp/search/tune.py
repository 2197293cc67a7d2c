"""`tune`: hyperparameter search and training under one privacy budget.

The order of things is the privacy argument. First everything public is fixed and priced (`search.design`). Then everything
random is drawn and planned (`search.secret`, `search.planning`). Then the ledger is charged, durably (`ledger.paying`). Only
then is a record read, split by its coin, and trained on or scored (`search.after_charge`, `search.runs`). At the end the winner
and the statement leave (`search.result`) and what was secret is erased (`search.ending`). `search.lifecycle` keeps that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from honestdp import checks
from honestdp.accounting.once import once
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import try_out
from honestdp.boundary.metrics import Metric, check_metric, default_metric
from honestdp.boundary.noise import noise_source
from honestdp.boundary.rehearsal import rehearse
from honestdp.boundary.release import width_of
from honestdp.boundary.seed import Seed
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.layout import layout_of
from honestdp.ledger import Ledger
from honestdp.ledger.paying import Books, books_of
from honestdp.losses import Loss, default_loss
from honestdp.optimizers.rule import kind
from honestdp.optimizers.schedules import Schedule, factors
from honestdp.planner.prospects import forewarn
from honestdp.planner.shapes import training_records
from honestdp.search.configuration import Configuration, configuration
from honestdp.search.design import Design, Request, design
from honestdp.search.errors import SearchFailed
from honestdp.search.foreseen import foreseen
from honestdp.search.guarantee import guarantee
from honestdp.search.guard import guarded
from honestdp.search.lifecycle import Search, SearchStopped, look
from honestdp.search.result import TuneResult
from honestdp.search.runs import BATCH as TOGETHER
from honestdp.search.runs import Setting
from honestdp.search.shaped import shaped_space
from honestdp.search.space import Optimizer
from honestdp.selection import Selection
from honestdp.training.compute import Compute, checked
from honestdp.training.models import Model, check_alike
from honestdp.training.progress import spinner
from honestdp.training.train import check_rules
from honestdp.training.trial import try_rule
from honestdp.training.watching import refuse_watching

__all__ = ["SearchFailed", "SearchStopped", "TuneResult", "tune"]


def tune(
    model: Model | Callable[..., torch.nn.Module],
    data: Any,
    *,
    budget: Budget,
    optimizer: Optimizer | Sequence[Optimizer] = "horizon",
    space: Mapping[str, Any] | None = None,
    selection: str | Selection = "auto",
    coverage: float = 0.9,
    lot: float | None = None,
    steps: int | None = None,
    records: int | None = None,
    validation: float = 0.2,
    metric: Metric | None = None,
    max_runs: float | None = None,
    published: bool = False,
    candidates: int | None = None,
    space_seed: int = 0,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    note: str = "",
    out: str | Path | None = None,
    resume: bool = False,
    loss: Loss | None = None,
    schedule: str | Schedule = "constant",
    noise_seed: int | None = None,
    secure: bool = False,
    strict: bool = False,
    on_step: None = None,
    compute: Compute | None = None,
    reproduce: str = "",
) -> TuneResult:
    """Search for hyperparameters and train, all within one budget.

    model: a module, or a function that makes one (with the argument `width` where the space has widths).
    data: (x, y) of tensors, arrays or memory-mapped arrays, or a map-style Dataset of pairs.
    budget: for everything: all runs, all scores, the choice among them.
    optimizer: one or several, each as a name (sgd, momentum, adam, adam-wosm, adadp, oso, quantile), a class, or a rule, whose
        numbers stand wherever the space has no others; of your own, too. The default, horizon, needs no search: it is one run
        that gets the whole budget.
    space: hyperparameters to lists (a grid), LogUniform, Uniform or Choice; may hold lot, steps and width; for several optimizers
        a dictionary of these by optimizer's name. Left out, the grid that comes with each optimizer.
    selection: compose, winner, liu-talwar, papernot-steinke, profile, envelope; auto takes the one with the least noise per run.
    coverage: the chance that a given candidate is run, for selections that draw them.
    lot, steps: of every run, where the space does not have them. Left out, they are chosen from the budget and the number of
        records (`planner.shapes`), as `honestdp plan` would, and the statement says so.
    records: N, declared. Left out, it is that of the data, and the statement says so.
    validation: the fraction of the records that score the runs; each is chosen by a coin. 0 trains on all and scores nothing.
    metric: Accuracy for classes; honestdp.ClippedLoss(bound), or honestdp.DeclaredMetric(function, low=, high=) of one record.
    max_runs: the most runs, on average. published: rest on published bounds alone.
    candidates: of a random search, how many draws it amounts to. space_seed: of those that are run once each.
    ledger, dataset: charge this dataset's budget in that ledger, or its file, before any record is read. With a dataset alone
        the ledger is that of the environment variable HONESTDP_LEDGER; without a dataset nothing is charged.
    note: for people, kept in the ledger's entry with who charged it and when. It is public.
    out: a new folder for model, statement, result and report, in which a search that was killed can be resumed.
    resume: go on with the search in `out`, with the same arguments; nothing is charged again.
    loss, schedule: see `train_population`.
    noise_seed: fixes every random number, to repeat a result that is then NOT PRIVATE.
    secure: noise from a cryptographic generator (CPU).
    strict: each example goes through model and loss under a map of its own, in training and in validation; slower.
    on_step: of `train` alone, refused here: of a search nobody may see a run (docs/curves.md).
    compute: device, workers and progress; see `Compute`.
    reproduce: for the report, the command or code that made the search.

    Returns a TuneResult: the winner, its hyperparameters and noisy score, and the statement of what the whole search guarantees.

    Raises InvalidArgument for an argument that no search can be made from and OverBudget for a budget that no noise meets, both
    before anything is charged; BudgetExceeded where the ledger has too little left. SearchFailed: charged, and no run succeeded.
    SearchStopped: Ctrl-C; with `out` it goes on with resume=True.

    >>> import torch, honestdp
    >>> x, y = honestdp.load_dataset("digits").train
    >>> result = honestdp.tune(
    ...     lambda: torch.nn.Linear(64, 10),
    ...     (x, y),
    ...     budget=honestdp.Budget(epsilon=2.0, delta=1e-5),
    ...     optimizer="sgd",
    ...     space={"lr": [0.5, 1.0], "clip": 1.0},
    ...     selection="compose",
    ...     lot=64,
    ...     steps=20,
    ... )
    >>> result.epsilon <= 2.0, result.hyperparameters["lr"] in (0.5, 1.0)
    (True, True)
    """
    compute = checked(compute)
    refuse_watching(on_step)
    if compute.checkpoint is not None:
        wanted = "left out for a search, which keeps its progress in the folder `out`"
        raise InvalidArgument("checkpoint", str(compute.checkpoint), wanted)
    private = PrivateData(data)
    size = len(private)
    checks.whole(least=1, records=size if records is None else records)
    if records is not None and records != size:
        wanted = f"{size}, as many as the data has. It sets the rates and must be public: pass exactly so many records"
        raise InvalidArgument("records", records, wanted)
    books = books_of(ledger, dataset, noise_seed=noise_seed, note=note)
    if out is not None and not isinstance(out, str | Path):
        raise InvalidArgument("out", out, "a path")
    if resume and out is None:
        raise InvalidArgument("out", out, "the folder of the search to resume")
    if noise_seed is not None:
        checks.whole(least=0, noise_seed=noise_seed)
    if not isinstance(budget, Budget):
        raise InvalidArgument("budget", budget, "a honestdp.Budget(epsilon, delta)")
    checks.whole(least=0, space_seed=space_seed)
    if loss is not None and (isinstance(loss, type) or not callable(loss)):
        raise InvalidArgument("loss", loss, "a function of (output, y), or a loss module that has been made")
    fraction = float(validation)
    shaped, how = shaped_space(
        optimizer, space, budget=budget, records=training_records(size, fraction), lot=lot, steps=steps
    )
    request = Request(
        budget=budget,
        records=size,
        fraction=fraction,
        space=shaped,
        shaped=how,
        selection=selection,
        coverage=coverage,
        max_runs=max_runs,
        published=published,
        drawn=candidates,
        space_seed=space_seed,
        metric=_metric(metric, private, validation),
    )
    setting = Setting(
        model=model,
        loss=loss,
        schedule=schedule,
        device=compute.place(),
        secure=secure,
        workers=compute.workers,
        strict=strict,
    )
    public = configuration(
        request, setting, private, declared=records is not None, seed=noise_seed, dataset=dataset, reproduce=reproduce
    )
    folder = None if out is None else Path(out)
    with guarded():
        over = None if folder is None else look(folder, public, resume=resume)
        if over is not None:
            return over
        with once():
            with spinner("planning") if compute.progress else nullcontext():
                search = _planned(public, private, books)
            forewarn(foreseen(search.design, public.setting))
            return search.carry_out(private, folder, resume=resume, show=compute.progress)


def _planned(public: Configuration, data: PrivateData, books: Books | None) -> Search:
    """The search with everything fixed that is public: its design, its statement, what its report will compare."""
    made = design(public.request)
    statement = guarantee(
        made,
        seeded=public.seed is not None,
        declared=public.declared,
        loss=public.setting.loss,
        decoded=data.shapes is None,
        strict=public.setting.strict,
    )
    return Search(
        design=made,
        configuration=public,
        statement=statement,
        report=partial(_report, made, public),
        classes=_rehearsed(made, public.setting, data),
        ledger=None if books is None else books.ledger,
        note="" if books is None else books.note,
    )


def _report(made: Design, public: Configuration, result: TuneResult, key: str) -> str:
    """The page of a search that is over. key: of its charge."""
    from honestdp.report.search import FinishedSearch, page
    from honestdp.report.view import ScoreView

    score = None
    if result.score is not None:
        limits = (0.0, 1.0) if result.score.name == "accuracy" else None
        numbers = {name: getattr(result.score, name) for name in ("name", "value", "low", "high", "noise")}
        score = ScoreView(**numbers, fraction=made.fraction, records=round(made.validation_records), limits=limits)
    return page(
        FinishedSearch(
            statement=result.statement,
            hyperparameters=result.hyperparameters,
            run=result.run,
            score=score,
            balance=result.balance,
            key=key,
            budget=made.budget,
            plan=made.plan(),
            base=made.base,
            selection=made.selection,
            configuration=public.as_dict(),
        )
    )


def _metric(metric: Metric | None, data: PrivateData, validation: float) -> Metric | None:
    if metric is not None:
        check_metric(metric)
    if metric is not None or not validation:
        return metric
    if data.shapes is None:
        raise InvalidArgument("metric", None, "given for a Dataset, whose labels are not read before they are paid for")
    return default_metric(data.shapes.y.dtype)


def _rehearsed(made: Design, setting: Setting, data: PrivateData) -> int | None:
    """What can go wrong without a record goes wrong here: rules, models, losses, metrics. The number of classes, where known."""
    drawn = made.space.draw(np.random.default_rng(0))
    some = made.candidates or tuple(replace(drawn, width=width) for width in made.space.widths())
    rules, runs = [one.rule() for one in some], [made.run_of(one) for one in some]
    check_rules(rules, runs, setting.schedule)
    for run in made.runs:
        factors(setting.schedule, run)
    noise_source(setting.device, Seed.fresh(), secure=setting.secure)
    shapes, classes = data.shapes, None
    for one in {candidate.width: candidate for candidate in some}.values():
        module = setting.module(one, 0).to(setting.device)
        check_alike([module, setting.module(one, 1).to(setting.device)])
        layout = layout_of(module)
        for rule, run in {kind(rule): (rule, run) for rule, run in zip(rules, runs, strict=True)}.values():
            try_rule(rule, run, layout)
        if shapes is not None:
            x, y = shapes.blanks(module)
            loss = setting.loss or default_loss(y.dtype)
            classes = try_out(module, loss, x, y, examples=_together(made, x), strict=setting.strict)
            if made.metric is not None:
                rehearse(made.metric, module, loss=loss, x=x, y=y, strict=setting.strict)
    return classes


WIDELY = 8192  # examples that a model is tried with before the charge, if a population may have so many


def _together(made: Design, x: Inputs) -> int:
    """How many examples to try a model with before the charge: as many as a lot of one run, or more where populations are wider.

    A population that is wider still is tried before its first step.
    """
    runs = min(TOGETHER, made.count) if made.selection.each_once else TOGETHER
    alone, all_runs = (
        max(some * width_of(x, runs=some, records=run.records, lot=run.lot) for run in made.runs) for some in (1, runs)
    )
    return max(alone, min(all_runs, WIDELY))
