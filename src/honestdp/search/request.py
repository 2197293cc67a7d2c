"""A search as a user asks for it: its `SearchSpec`, and that spec checked against a model and data, before a record is read.

`SearchSpec` holds every argument of a search in one frozen value, with the `TrainSpec` of its runs. `requested` adds
the space, the metric, the public configuration and the folder of the search, from the shapes of the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from honestdp import checks
from honestdp.boundary.data import PrivateData, Shapes
from honestdp.boundary.metrics import (
    Accuracy,
    BalancedAccuracy,
    LogLoss,
    Metric,
    PersonMean,
    check_metric,
    default_metric,
)
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.ledger.paying import Books, books_of
from honestdp.optimizers.default import default_note, default_rule
from honestdp.planner.shapes import training_records
from honestdp.run import ROW, Unit
from honestdp.search import folder as folders
from honestdp.search.configuration import Configuration, configuration
from honestdp.search.design import Request
from honestdp.search.runs import Setting
from honestdp.search.space import Optimizer, shaped_space
from honestdp.selection import Selection
from honestdp.training.population import Model
from honestdp.training.spec import Compute, TrainSpec, checked, preparation
from honestdp.training.torchrun import refuse_ranks

if TYPE_CHECKING:
    from honestdp.search.cluster.nodes import Cluster


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """What a search is asked to do.

    Raises:
        InvalidArgument: a value that no search can have.
    """

    train: TrainSpec = field(metadata={"help": "how each run is trained, and what pays for the search."})
    optimizer: Optimizer | Sequence[Optimizer] | None = field(
        default=None,
        metadata={
            "help": (
                "one or several, by name. Left out, there is no search but one run with the whole budget: by echo "
                "for classes, by horizon for numbers. In Python also a class, or a rule, whose numbers stand wherever "
                "the space has no others."
            )
        },
    )
    space: Mapping[str, Any] | None = field(
        default=None,
        metadata={
            "help": (
                "hyperparameters to lists (a grid), LogUniform, Uniform or Choice. Left out, the grid of each "
                "optimizer."
            )
        },
    )
    selection: str | Selection = field(
        default="auto",
        metadata={"help": "how the winner is found; auto takes the selection that needs the least noise."},
    )
    coverage: float = field(
        default=0.9,
        metadata={"help": "the chance that a given candidate is run, for selections that draw candidates."},
    )
    lot: float | None = field(
        default=None,
        metadata={"help": "the expected size of a Poisson lot. Left out, it is chosen from public numbers."},
    )
    steps: int | None = field(
        default=None,
        metadata={"help": "the noisy queries in one run. Left out, they are chosen from public numbers."},
    )
    epochs: float | None = field(
        default=None,
        metadata={"help": "in place of steps: passes through the training records."},
    )
    records: int | None = field(
        default=None,
        metadata={"help": "N, declared. Left out, it is counted, and the statement says so."},
    )
    validation: float = field(
        default=0.2,
        metadata={
            "help": (
                "the fraction of the records that score the runs, each chosen by a coin. 0 trains on all and "
                "scores nothing."
            )
        },
    )
    metric: str | Metric | None = field(
        default=None,
        metadata={
            "help": (
                '"accuracy" (the default for classes), "balanced accuracy" with prevalence, or "log loss". In Python '
                "also a metric object."
            )
        },
    )
    max_runs: float | None = field(default=None, metadata={"help": "the most runs, on average, that you can afford."})
    published: bool = field(default=False, metadata={"help": "rest on published bounds alone."})
    candidates: int | None = field(
        default=None,
        metadata={"help": "how many draws a random search amounts to; 64 if left out."},
    )
    space_seed: int = field(
        default=0,
        metadata={"help": "draws the candidates of a random search that runs each of them once."},
    )
    out: str | Path | None = field(
        default=None,
        metadata={"help": "the folder for model, statement, result and report."},
    )
    resume: bool = field(default=False, metadata={"help": "refuse to start a search: there must be one in out."})
    again: bool = field(
        default=False,
        metadata={
            "help": (
                "with out left out: a new search, charged anew, where the search of the same arguments has finished."
            )
        },
    )
    reproduce: str = field(default="", metadata={"help": "the command or code that made the search, for the report."})
    label: str | None = field(
        default=None,
        metadata={"help": "the name of the folder of a search without a ledger, which otherwise has none."},
    )

    def __post_init__(self) -> None:
        if self.train.budget is None:
            raise InvalidArgument("budget", None, "a honestdp.Budget(epsilon, delta)")
        if self.out is not None and not isinstance(self.out, str | Path):
            raise InvalidArgument("out", self.out, "a path")
        checks.whole(least=0, space_seed=self.space_seed)
        if self.train.noise_seed is not None:
            checks.whole(least=0, noise_seed=self.train.noise_seed)

    @classmethod
    def of(cls, **arguments: Any) -> SearchSpec:
        """The spec of keyword arguments of `tune`, those of its `TrainSpec` among them."""
        shared = {each.name for each in fields(TrainSpec)} & arguments.keys()
        train = TrainSpec(**{name: arguments.pop(name) for name in sorted(shared)})
        return cls(train=train, **arguments)

    @property
    def budget(self) -> Budget:
        """The budget of the whole search."""
        assert self.train.budget is not None
        return self.train.budget


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
    folder = folders.folder_of(spec.out, public, books=books, label=spec.label, again=spec.again)
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
    from honestdp.search.cluster.nodes import Cluster

    return Cluster(compute.cluster, compute.kind())


NAMES = ("accuracy", "balanced accuracy", "log loss")
_AUC = (
    "one of accuracy, balanced accuracy and log loss. The area under the ROC curve compares pairs of records, so that one record "
    "moves it by as much as one over the number of records of its class, which is private: there is no bound for noise to cover. "
    "log loss judges probabilities too, balanced accuracy does not mind rare classes; the AUC of result.model on public records "
    "costs nothing"
)


def metric_of(
    metric: Any,
    shapes: Shapes | None,
    *,
    validation: float,
    prevalence: Sequence[float] | None = None,
    unit: Unit = ROW,
) -> Metric | None:
    """The metric that is meant; None where nothing is scored.

    shapes: of the records, where they are known. prevalence: of the classes, declared. unit: whose record it is.
    """
    found = _meant(metric, shapes, validation, prevalence)
    if found is None or isinstance(found, PersonMean) or not unit.person:
        return found
    return PersonMean(found)


def _meant(metric: Any, shapes: Shapes | None, validation: float, prevalence: Sequence[float] | None) -> Metric | None:
    if isinstance(metric, str):
        return _named(metric, prevalence)
    if metric is not None:
        check_metric(metric)
    if metric is not None or not validation:
        found: Metric | None = metric
        return found
    if shapes is None:
        wanted = (
            'given for a Dataset, whose labels are not read before they are paid for, such as "accuracy" or "log loss"'
        )
        raise InvalidArgument("metric", None, wanted)
    return default_metric(None if inputs.several(shapes.y) else inputs.first(shapes.y).dtype)


def _named(metric: str, prevalence: Sequence[float] | None) -> Metric:
    name = re.sub(r"[\s_-]+", " ", metric.strip().lower())
    if name == "accuracy":
        return Accuracy()
    if name in ("log loss", "logloss"):
        return LogLoss()
    if name == "balanced accuracy":
        if prevalence is None:
            wanted = (
                "given for balanced accuracy: a list with the part of each class, such as [0.9, 0.1], declared from public "
                "knowledge and never counted from these records"
            )
            raise InvalidArgument("prevalence", None, wanted)
        return BalancedAccuracy(prevalence)
    if name in ("auc", "roc auc", "auroc"):
        raise InvalidArgument("metric", metric, _AUC)
    wanted = (
        f"one of {', '.join(NAMES)}, honestdp.ClippedLoss(bound), honestdp.LogLikelihood(low=, high=), or "
        "honestdp.DeclaredMetric(function, low=, high=)"
    )
    raise InvalidArgument("metric", metric, wanted)
