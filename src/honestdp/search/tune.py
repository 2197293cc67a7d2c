"""`tune`: hyperparameter search and training under one privacy budget.

The order of things is the privacy argument. First everything public is fixed and priced (`search.design`). Then everything
random is drawn and planned (`search.secret`, `search.planning`). Then the ledger is charged, durably (`ledger.paying`). Only
then is a record read, split by its coin, and trained on or scored (`search.runs`). At the end the winner and the statement are
released (`search.result`) and all secrets are erased. `search.lifecycle` keeps that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from honestdp import checks
from honestdp.accounting.once import once
from honestdp.augment import Augmentation
from honestdp.boundary.data import PrivateData
from honestdp.boundary.metrics import Metric
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.ledger import Ledger
from honestdp.ledger.paying import Books, books_of
from honestdp.losses import Loss
from honestdp.losses.class_weights import Weights
from honestdp.optimizers.default import BEFORE, default_note, default_rule
from honestdp.optimizers.schedules import Schedule
from honestdp.planner.shapes import training_records
from honestdp.search import folder as folders
from honestdp.search.configuration import Configuration, configuration, joined_for
from honestdp.search.design import Design, Request, design
from honestdp.search.dress_rehearsal import Rehearsed, rehearse, tried
from honestdp.search.duration import at_a_glance
from honestdp.search.errors import SearchFailed
from honestdp.search.guarantee import for_the_statement, forewarned, guarantee
from honestdp.search.guard import guarded
from honestdp.search.lifecycle import Search, SearchStopped, before_the_charge, look, noted
from honestdp.search.result import TuneResult
from honestdp.search.runs import Setting
from honestdp.search.scored_by import metric_of
from honestdp.search.space import Optimizer, shaped_space
from honestdp.search.spec import SearchSpec
from honestdp.selection import Selection
from honestdp.training.compute import Compute, checked
from honestdp.training.models import Model
from honestdp.training.progress import spinner
from honestdp.training.spec import TrainSpec, preparation
from honestdp.training.torchrun import refuse_ranks
from honestdp.training.watching import refuse_watching

if TYPE_CHECKING:
    from honestdp.search.cluster.address import Cluster

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


@dataclass(frozen=True, kw_only=True)
class Requested:
    """A requested search that is not planned yet. folder: where it is, or will be. chosen: words on a default optimizer."""

    public: Configuration
    private: PrivateData
    books: Books | None
    folder: Path | None
    resume: bool
    compute: Compute
    preprocessing: str
    chosen: tuple[str, ...] = ()


def requested(model: Model | Callable[..., torch.nn.Module], data: Any, spec: SearchSpec) -> Requested:
    """Check the spec against model and data, and find the search's folder. No record is read."""
    train, compute = spec.train, checked(spec.train.compute, search=True)
    refuse_ranks(compute, "a search")
    if compute.checkpoint is not None:
        wanted = "left out for a search, which keeps its progress in the folder `out`"
        raise InvalidArgument("checkpoint", str(compute.checkpoint), wanted)
    size = len(private := PrivateData(data).augmented(train.augment))
    checks.whole(least=1, records=size if spec.records is None else spec.records)
    if spec.records is not None and spec.records != size:
        wanted = f"{size}, as many {private.unit.plural} as the data has. It sets the rates and is public: pass exactly so many"
        raise InvalidArgument("records", spec.records, wanted)
    books = books_of(train.ledger, train.dataset, noise_seed=train.noise_seed, note=train.note)
    if spec.resume and spec.out is None and books is None:
        raise InvalidArgument("out", spec.out, "the folder of the search to resume")
    before = preparation(private, train.preprocessing)
    budget, loss, shapes = before.left(spec.budget), train.weighted_loss, private.shapes
    usual = default_rule(loss, None if shapes is None else shapes.y)
    rules, chosen = (usual, (default_note(usual),)) if spec.optimizer is None else (spec.optimizer, ())
    fraction = float(spec.validation)
    try:
        space, how = shaped_space(
            rules,
            spec.space,
            budget=budget,
            records=training_records(size, fraction),
            lot=spec.lot,
            steps=spec.steps,
            epochs=spec.epochs,
            model=model,
        )
    except InvalidArgument as trouble:
        if spec.optimizer is None and trouble.argument == "space":
            taken = f"{usual.name} was taken, since no optimizer is named: name one, such as optimizer='sgd'"
            trouble.args = (f"{trouble}; {taken}",)
        raise
    request = Request(
        budget=budget,
        records=size,
        fraction=fraction,
        space=space,
        shaped=how,
        spent=before.spent,
        selection=spec.selection,
        coverage=spec.coverage,
        max_runs=spec.max_runs,
        published=spec.published,
        drawn=spec.candidates,
        space_seed=spec.space_seed,
        metric=metric_of(spec.metric, shapes, validation=fraction, prevalence=train.prevalence, unit=private.unit),
        unit=private.unit,
    )
    setting = Setting(
        model=model,
        loss=loss,
        schedule=train.schedule,
        secure=train.secure,
        strict=train.strict,
        device=compute.place(),
        workers=compute.workers,
        cluster=_cluster(compute),
    )
    public = configuration(
        request,
        setting,
        private,
        seed=train.noise_seed,
        reproduce=spec.reproduce,
        declared=spec.records is not None or before.declared,
        dataset=train.dataset,
    )
    older = BEFORE if spec.optimizer is None else None
    folder = folders.folder_of(spec.out, public, books=books, label=spec.label, again=spec.again, before=older)
    return Requested(
        public=public,
        private=private,
        books=books,
        folder=folder,
        resume=spec.resume,
        compute=compute,
        preprocessing=before.words,
        chosen=chosen,
    )


def _cluster(compute: Compute) -> Cluster | None:
    """The cluster that the runs of a search are to be trained on, not joined yet; None for this machine."""
    if compute.cluster is None:
        return None
    from honestdp.search.cluster.address import Cluster

    return Cluster(compute.cluster, compute.kind())


def carried_out(what: Requested) -> TuneResult:
    """The result of the search, begun, gone on with or read."""
    with guarded():
        over = None if what.folder is None else look(what.folder, what.public, resume=what.resume)
        if over is not None:
            folders.say_over(what.folder)
            return over
        with once(), joined_for(what.public):
            show, seconds = what.compute.progress, None
            with before_the_charge(), spinner("planning") if show else nullcontext():
                search, _ = planned(what)
                if what.private.known is not None:
                    cost, delta = search.design.spending, search.design.budget.delta
                    folders.check_readable(what.folder, what.books, cost, what.private.scan, delta=delta)
                if show:
                    seconds = at_a_glance(search.design, what.public.setting, what.private.shapes)
            forewarned(search.design, what.public.setting)
            how: dict[str, Any] = {"resume": what.resume, "show": show, "seconds": seconds}
            return noted(search, what.private, what.folder, books=what.books, **how)


def planned(what: Requested) -> tuple[Search, Rehearsed]:
    """The search with everything fixed that is public: its design, its statement, what its report will compare; rehearsed."""
    public, data, folder = what.public, what.private, what.folder
    balance = folders.check_before_planning(folder, what.books)
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
    tried(made, public.setting, data.shapes)
    report = partial(_report, made, public)
    shown: dict[str, Any] = {"statement": statement, "report": None if folder is None else report, "balance": balance}
    rehearsed = rehearse(made, public.setting, data.shapes, **shown)
    folders.check_room(folder, rehearsed.needed(made))
    search = Search(
        design=made,
        configuration=public,
        statement=statement,
        report=report,
        ledger=None if what.books is None else what.books.ledger,
        note="" if what.books is None else what.books.note,
    )
    return search, rehearsed


def _report(made: Design, public: Configuration, result: TuneResult, key: str) -> str:
    """The page of a search that is over. key: of its charge."""
    from honestdp.report.search import FinishedSearch, page
    from honestdp.report.view import ScoreView

    score = None
    if result.score is not None:
        limits = (0.0, 1.0) if result.score.name in ("accuracy", "balanced accuracy") else None
        numbers = {name: getattr(result.score, name) for name in ("name", "value", "low", "high", "noise")}
        how: dict[str, Any] = {"fraction": made.fraction, "records": round(made.validation_records), "limits": limits}
        score = ScoreView(**numbers, **how, caution=result.score.caution)
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
