"""`tune`: hyperparameter search and training under one privacy budget.

The order of things is the privacy argument. First everything public is fixed and priced (`search.design`). Then everything
random is drawn and planned (`search.secret`, `search.planning`). Then the ledger is charged, durably (`ledger.paying`). Only
then is a record read, split by its coin, and trained on or scored (`search.runs`). At the end the winner and the statement are
released (`search.tune_result`) and all secrets are erased. `search.lifecycle` keeps that order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from honestdp import checks
from honestdp.accounting.calibration import once
from honestdp.augment import Augmentation
from honestdp.boundary.metrics import Metric
from honestdp.budget import Budget
from honestdp.ledger import Ledger
from honestdp.ledger.paying import Payment
from honestdp.losses import Loss
from honestdp.losses.class_weights import Weights
from honestdp.optimizers.schedules import Schedule
from honestdp.search import folder as folders
from honestdp.search.configuration import Configuration, joined_for
from honestdp.search.design import Design, design
from honestdp.search.failures import SearchFailed, guarded
from honestdp.search.guarantee import for_the_statement, forewarned, guarantee
from honestdp.search.lifecycle import Search, SearchStopped, before_the_charge, look, noted
from honestdp.search.planning import expected
from honestdp.search.rehearsal import Rehearsed, rehearse, tried
from honestdp.search.request import Requested, SearchSpec, requested
from honestdp.search.space import Optimizer
from honestdp.search.tune_result import TuneResult
from honestdp.selection import Selection
from honestdp.training.population import Model
from honestdp.training.progress import spinner
from honestdp.training.spec import Compute, TrainSpec
from honestdp.training.watching import refuse_watching

__all__ = ["SearchFailed", "SearchStopped", "TuneResult", "tune"]


@checks.hinted
def tune(
    model: Model | Callable[..., torch.nn.Module],
    data: Any,
    *,
    budget: Budget,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    space: Mapping[str, Any] | None = None,
    selection: str | Selection = "auto",
    coverage: float = 0.9,
    lot: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    records: int | None = None,
    validation: float = 0.2,
    metric: str | Metric | None = None,
    prevalence: Sequence[float] | None = None,
    max_runs: float | None = None,
    published: bool = False,
    candidates: int | None = None,
    space_seed: int = 0,
    ledger: str | Path | Ledger | None = None,
    dataset: str | None = None,
    note: str = "",
    preprocessing: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    again: bool = False,
    loss: Loss | None = None,
    class_weights: Weights | None = None,
    schedule: str | Schedule = "constant",
    augment: Augmentation | None = None,
    noise_seed: int | None = None,
    secure: bool = False,
    strict: bool = False,
    on_step: None = None,
    compute: Compute | None = None,
    reproduce: str = "",
) -> TuneResult:
    """Search for hyperparameters and train, all within one budget.

    model: a module, or a function that makes one, whose arguments the space may hold.
    data: (x, y), or x without labels, of tensors, arrays or memory-mapped arrays, x one or a tuple or a dict of them, a map-style
        Dataset of pairs, or the rows of a `Table`.
    budget: for everything: all runs, all scores, the choice among them.
    optimizer: one or several, each as a name (sgd, momentum, adam, adam-wosm, adadp, oso, adam-oso, quantile), a class, or a
        rule, whose numbers stand wherever the space has no others; of your own, too. Left out, there is no search but one run
        that gets the whole budget: by echo where the loss is a cross-entropy, by horizon for any other (see `train`).
    space: hyperparameters to lists (a grid), LogUniform, Uniform or Choice; may hold weight_decay, lot, steps or epochs, and any
        argument of the model's function, such as width; for several optimizers a dictionary of these by optimizer's name. Left
        out, or without a hyperparameter of the optimizer's own, the grid that comes with each optimizer.
    selection: compose, winner, liu-talwar, papernot-steinke, profile, envelope; auto takes the one with the least noise per run.
    coverage: the chance that a given candidate is run, for selections that draw them.
    lot, steps or epochs: of every run, where the space does not have them. Left out, they are chosen from the budget and the
        number of records (`planner.shapes`), as `honestdp plan` would, and the statement says so. An epoch is
        (1 - validation) * records / lot steps: once through the training records.
    records: N, declared. Left out, it is that of the data, and the statement says so.
    validation: the fraction of the records that score the runs; each is chosen by a coin. 0 trains on all and scores nothing.
    metric: "accuracy" (the default for classes), "balanced accuracy" with prevalence, "log loss", or an object of these:
        honestdp.Accuracy, BalancedAccuracy, LogLoss, ClippedLoss(bound), LogLikelihood and DeclaredMetric(function, low=, high=).
    prevalence: the part of each class, DECLARED from public knowledge and never counted from these records.
    max_runs: the most runs, on average. published: rest on published bounds alone.
    candidates: of a random search (a space with LogUniform or Uniform), how many draws it amounts to, which its price depends on:
        64 if left out. space_seed: of those that are run once each.
    ledger, dataset: charge this dataset's budget in that ledger, or its file, before any record is read. With a dataset alone
        the ledger is that of the environment variable HONESTDP_LEDGER; without a dataset nothing is charged.
    note: for people, kept in the ledger's entry with who charged it and when. It is public.
    preprocessing: what was done to the data beforehand, for the statement, which otherwise says that it was not stated.
    out: the folder of the search, for model, statement, result and report. The same call again goes on with a search that was
        stopped or killed there, or reads the result of one that is over; it charges nothing. Left out with a ledger, it is
        `searches/` beside the ledger, with the dataset's name and a digest of the arguments; without one nothing is kept.
    resume: refuse to begin: there must be a search in `out`. again: with `out` left out, a new search where that of the same
        arguments is over; it is charged anew.
    loss, class_weights, schedule, augment: see `train_population`.
    noise_seed: fixes every random number, to repeat a result that is then NOT PRIVATE.
    secure: noise from a cryptographic generator (CPU).
    strict: each example goes through model and loss under a map of its own, in training and in validation; slower.
    on_step: of `train` alone, refused here: of a search nobody may see a run (docs/curves.md).
    compute: device, workers and progress; see `Compute`.
    reproduce: for the report, the command or code that made the search.

    Returns a TuneResult: the winner, its hyperparameters and noisy score, and the statement of what the whole search guarantees.

    Raises InvalidArgument for an argument that no search can be made from and OverBudget for a budget that no noise meets, both
    before anything is charged; BudgetExceeded where the ledger has too little left. SearchFailed: charged, and no run succeeded.
    SearchStopped: Ctrl-C; where it has a folder, the same call goes on, and before the charge it cost nothing.

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
    refuse_watching(on_step)
    train = TrainSpec(
        budget=budget,
        loss=loss,
        class_weights=class_weights,
        prevalence=prevalence,
        schedule=schedule,
        augment=augment,
        noise_seed=noise_seed,
        secure=secure,
        strict=strict,
        ledger=ledger,
        dataset=dataset,
        note=note,
        preprocessing=preprocessing,
        compute=compute,
    )
    spec = SearchSpec(
        train=train,
        optimizer=optimizer,
        space=space,
        selection=selection,
        coverage=coverage,
        lot=lot,
        steps=steps,
        epochs=epochs,
        records=records,
        validation=validation,
        metric=metric,
        max_runs=max_runs,
        published=published,
        candidates=candidates,
        space_seed=space_seed,
        out=out,
        resume=resume,
        again=again,
        reproduce=reproduce,
    )
    return carried_out(requested(model, data, spec))


def carried_out(what: Requested) -> TuneResult:
    """The result of the search, begun, gone on with or read."""
    with guarded():
        over = None if what.folder is None else look(what.folder, what.public, resume=what.resume)
        if isinstance(over, TuneResult):
            folders.say_over(what.folder)
            return over
        with once(), joined_for(what.public):
            show, seconds = what.compute.progress, None
            with before_the_charge(), spinner("planning") if show else nullcontext():
                search, _ = planned(what)
                if what.private.known is not None and not folders.begun_in(what.folder):
                    _scan(what, search.design)
                if show:
                    setting, shapes = what.public.setting, what.private.shapes
                    seconds, _ = expected(search.design, setting, shapes, search.tested, at_a_glance=True)
            forewarned(search.design, what.public.setting)
            return noted(search, what.private, what.folder, resume=what.resume, show=show, seconds=seconds)


def _scan(what: Requested, made: Design) -> None:
    """Refuse a file that cannot be read, before it is paid for; but not before the ledger says that it could be."""
    if what.books is None:
        what.private.scan()
    else:
        payment = Payment.of(what.books, uuid.uuid4().hex)
        payment.check_first(made.spending, what.private.scan, delta=made.budget.delta)


def planned(what: Requested) -> tuple[Search, Rehearsed]:
    """The search with everything fixed that is public: its design, its statement, what its report will compare; rehearsed.

    What no plan can mend is refused first, where the search is new: a dataset without a budget, a folder that cannot be written.
    """
    public, data, folder, balance = what.public, what.private, what.folder, None
    new = not folders.begun_in(folder)
    if new and what.books is not None:
        balance = Ledger(what.books.ledger).balance(what.books.dataset)
    if new and folder is not None:
        folders.check_writable(folder)
    made = design(public.request)
    statement = guarantee(
        made,
        seeded=public.seed is not None,
        declared=public.declared,
        loss=public.setting.loss,
        decoded=bool(data.decoders()),
        strict=public.setting.strict,
        preprocessing=what.preprocessing,
        cluster=public.setting.cluster is not None,
        expected=for_the_statement(made, public.setting),
        chosen=what.chosen,
    )
    tested = tried(made, public.setting, data.shapes)
    report = partial(_report, made, public)
    shown: dict[str, Any] = {"statement": statement, "report": None if folder is None else report, "balance": balance}
    rehearsed = rehearse(made, public.setting, data.shapes, tested, **shown)
    if new and folder is not None:
        folders.check_room(folder, rehearsed.needed(made))
    fixed: dict[str, Any] = {"statement": statement, "report": report, "books": what.books}
    return Search(design=made, configuration=public, tested=tested, **fixed), rehearsed


def _report(made: Design, public: Configuration, result: TuneResult, key: str) -> str:
    """The page of a search that is over. key: of its charge."""
    from honestdp import __version__
    from honestdp.report.costs import compare
    from honestdp.report.html import render
    from honestdp.report.view import ScoreView, SearchView, said

    score = None
    if result.score is not None:
        limits = (0.0, 1.0) if result.score.name in ("accuracy", "balanced accuracy") else None
        asked = round(made.validation_records)
        score = ScoreView(**vars(result.score), fraction=made.fraction, records=asked, limits=limits)
    plan, settings = made.plan(), public.as_dict()
    name = settings["dataset"] or "the given records"
    return render(
        SearchView(
            title=f"honestdp tune: {name}",
            dataset=name,
            statement=result.statement,
            hyperparameters=result.hyperparameters,
            score=score,
            plan=replace(plan, budget=made.budget),
            costs=compare(plan, event=made.base, delta=made.budget.delta, selection=made.selection),
            ledger=result.balance,
            key="" if result.balance is None else key,
            configuration=said(settings) | {"run": vars(result.run)},
            reproduce=settings["reproduce"] or "honestdp.tune(...) with the configuration above",
            version=__version__,
        )
    )
