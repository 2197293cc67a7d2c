"""`TrainSpec`: the arguments that a training and every run of a search share, in one frozen value, checked when it is made.

`train`, `train_population`, `tune`, the command line and the estimators build a `TrainSpec`; everything behind them takes one.
The metadata of its fields hold the one text on each argument, under "help": the command line shows it (`help_texts`).

`Compute` is the part of it that changes no guarantee: where a training or a search is computed, with how many processes, what is
shown, and where progress is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from honestdp import checks
from honestdp.augment import Augmentation
from honestdp.boundary.clipping import gradient_multiplier, within_bounds
from honestdp.boundary.data import PrivateData
from honestdp.boundary.query import Constants, Release
from honestdp.budget import Budget, prepared
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import Layout
from honestdp.losses import Loss
from honestdp.losses.class_weights import Weights, with_class_weights
from honestdp.optimizers import Rule
from honestdp.optimizers.rule import check_decay, stack_rules, with_decay
from honestdp.optimizers.schedules import WANTED, Schedule
from honestdp.planner.shapes import chosen_shape
from honestdp.run import ROW, Run, Unit

if TYPE_CHECKING:
    from honestdp.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Compute:
    """How something is computed, for `train`, `train_population` and `tune`.

    device: "cpu", "cuda", ... or a torch.device; by default a GPU if there is one.
    workers: processes that decode a Dataset; 0 decodes in this one.
    progress: show that work goes on: a bar or a spinner on a terminal, elsewhere a line on standard error now and then.
    checkpoint: a file to keep the progress of a training in and to resume it from. It is secret, since the noise can be
        recomputed from it. A search has none: its folder, `out`, keeps its progress.
    checkpoint_seconds: how long may pass between two writings of the checkpoint.
    ranks: how many processes train one model together, each on its share of the records. By default all that torchrun has
        started, or that torch.distributed was initialised with; one where there is neither. A number must be theirs; 1 trains in
        this process alone, by itself, whoever else was started. A search is not shared out so.
    cluster: for a search alone: the Ray cluster on whose nodes its runs are trained, as "auto" (the one that this machine is in),
        "HOST:PORT" or "ray://HOST:PORT". A device is then the kind that every node trains on, "cpu" or "cuda".

    Raises InvalidArgument for workers or seconds below 0, ranks below 1, or an address that is none. A device that torch does not
    have here, or a checkpoint whose folder is missing, is refused when the work begins; so is a cluster that does not answer.

    >>> from honestdp import Compute
    >>> Compute(device="cpu", workers=0)
    Compute(device='cpu', workers=0, progress=False, checkpoint=None, checkpoint_seconds=30.0, ranks=None, cluster=None)
    """

    device: str | torch.device | None = None
    workers: int = 2
    progress: bool = False
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 30.0
    ranks: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.cluster is not None and not _is_address(self.cluster):
            raise InvalidArgument(
                "cluster", self.cluster, 'the address of a Ray cluster: "auto", HOST:PORT or ray://HOST:PORT'
            )
        checks.whole(least=0, workers=self.workers)
        checks.non_negative(checkpoint_seconds=self.checkpoint_seconds)
        if self.ranks is not None:
            checks.whole(least=1, ranks=self.ranks)

    def place(self) -> torch.device:
        """The device, which is there and has a number."""
        device = self.device
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.cluster is not None and self.kind() == "cuda" and not torch.cuda.is_available():
            device = "cpu"  # the nodes have what this machine, which only rehearses, has not
        try:
            place = torch.device(device)
            torch.empty(0, device=place)
        except (RuntimeError, AssertionError) as trouble:  # the latter from a build of torch without that device
            wanted = "cpu, or a device that torch has here"
            raise InvalidArgument("device", str(device), wanted) from trouble
        if place.type == "cuda" and place.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return place

    def kind(self) -> str:
        """Of the device, on this machine or on the nodes of the cluster: "cpu", "cuda", ..."""
        if self.device is None:
            return "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return torch.device(self.device).type
        except RuntimeError as trouble:
            raise InvalidArgument("device", str(self.device), "cpu, or a device that torch has here") from trouble


def _is_address(cluster: object) -> bool:
    if not isinstance(cluster, str):
        return False
    return cluster == "auto" or re.fullmatch(r"(ray://)?([^\s:/]+|\[[0-9a-fA-F:]+\]):\d{1,5}", cluster) is not None


def checked(compute: Compute | None, *, search: bool = False) -> Compute:
    """The default for None. Refuses what is not a Compute, a checkpoint that could not be written, and a cluster for anything but
    a search.
    """
    compute = Compute() if compute is None else compute
    if not isinstance(compute, Compute):
        raise InvalidArgument("compute", compute, 'a honestdp.Compute, such as Compute(device="cuda")')
    if compute.cluster is not None and not search:
        wanted = "left out for a training: the runs of a search, which is what tune makes, are spread over a cluster"
        raise InvalidArgument("cluster", compute.cluster, wanted)
    path = None if compute.checkpoint is None else Path(compute.checkpoint)
    writes = compute.ranks == 1 or os.environ.get("RANK", "0") == "0"  # the first of several processes writes for all
    if path is not None and writes and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InvalidArgument("checkpoint", str(path), "a file in a folder that exists")
    return compute


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """How a model is trained under differential privacy, and what pays for it.

    Raises:
        InvalidArgument: a value that no training can have.

    >>> TrainSpec(schedule="cosine").schedule
    'cosine'
    """

    budget: Budget | None = field(
        default=None,
        metadata={"help": "what may be spent by everything that reads a record."},
    )
    loss: Loss | None = field(
        default=None,
        metadata={
            "help": (
                "loss(output, y) -> one number an example. By default cross-entropy for classes, squared "
                "error for numbers, -output without labels."
            )
        },
    )
    class_weights: Weights | None = field(
        default=None,
        metadata={
            "help": (
                'the factor of the losses of each class, or "balanced": 1 for the rarest class and less for the '
                "others, by prevalence. In Python a list, such as [1, 9]."
            )
        },
    )
    prevalence: Sequence[float] | None = field(
        default=None,
        metadata={
            "help": (
                "the part of each class, declared from public knowledge and never counted from the records. "
                "In Python a list, such as [0.9, 0.1]."
            )
        },
    )
    schedule: str | Schedule = field(
        default="constant",
        metadata={
            "help": (
                "the step size over time: constant, decay (Koskela & Honkela), cosine, warmup or "
                "warmup-cosine. warmup:0.05 warms up over that part of the steps, a tenth if left out. In Python "
                "also a function of the step that returns a factor."
            )
        },
    )
    augment: Augmentation | None = field(
        default=None,
        metadata={
            "help": ("the variants of a record, drawn anew for each step, such as honestdp.augment.CropAndFlip(pad=4).")
        },
    )
    noise_seed: int | None = field(
        default=None,
        metadata={"help": "fixes every random number, to repeat a result. NOT PRIVATE."},
    )
    secure: bool = field(default=False, metadata={"help": "noise from a cryptographic generator (CPU)."})
    strict: bool = field(default=False, metadata={"help": "each record goes through model and loss by itself; slower."})
    ledger: str | Path | Ledger | None = field(
        default=None,
        metadata={"help": "the ledger to charge before a record is read: a file, or an address postgresql://..."},
    )
    dataset: str | None = field(default=None, metadata={"help": "the dataset's name in the ledger."})
    note: str = field(default="", metadata={"help": "free text stored in the ledger entry. It is public."})
    preprocessing: str | None = field(
        default=None,
        metadata={"help": "the preparation of the data beforehand, in words, for the statement."},
    )
    compute: Compute | None = field(
        default=None,
        metadata={"help": "device, workers, progress and checkpoint; see `Compute`."},
    )

    def __post_init__(self) -> None:
        if self.loss is not None and (isinstance(self.loss, type) or not callable(self.loss)):
            wanted = (
                "a function of (output, y), or a loss module that has been made, such as nn.MSELoss(reduction='none')"
            )
            raise InvalidArgument("loss", self.loss, wanted)
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise InvalidArgument("budget", self.budget, "a honestdp.Budget(epsilon, delta)")
        if not isinstance(self.schedule, str) and not callable(self.schedule):
            raise InvalidArgument("schedule", self.schedule, WANTED)
        if self.noise_seed is not None:
            checks.seed(noise_seed=self.noise_seed)
        _ = self.weighted_loss

    @cached_property
    def weighted_loss(self) -> Loss | None:
        """The loss with the class weights applied."""
        return with_class_weights(self.loss, self.class_weights, self.prevalence)


def help_texts(spec: type) -> dict[str, str]:
    """The help text of each field of a spec, by the field's name.

    >>> help_texts(TrainSpec)["secure"]
    'noise from a cryptographic generator (CPU).'
    """
    return {each.name: each.metadata["help"] for each in fields(spec)}


def check_rules(optimizers: Sequence[Rule], runs: list[Run], schedule: str | Schedule) -> None:
    """Refuse a rule that cannot train a run of a population."""
    for rule, run in zip(optimizers, runs, strict=True):
        for each in fields(rule):
            if isinstance(getattr(rule, each.name), torch.Tensor):
                wanted = "a plain number; a population takes one optimizer for each run"
                raise InvalidArgument(f"{type(rule).__name__}.{each.name}", "a tensor", wanted)
        check_decay(rule)
        rule.check(lot=run.lot, noise=run.noise)
        if rule.own_pace and schedule != "constant":
            wanted = f"'constant' for {type(rule).__name__}, which sets its own pace"
            raise InvalidArgument("schedule", schedule, wanted)


def try_rule(rule: Rule, run: Run, layout: Layout, *, runs: int = 1) -> None:
    """A rule tried on made-up releases, so that what is wrong with it shows before a record is read or a ledger charged.

    Two steps from weights and releases of zero, checked for what a population relies on. runs: of how many together.

    A rule that fails in words of its own fails in these: nothing here is of a record.
    """
    cpu, name = torch.device("cpu"), type(rule).__name__
    params = torch.zeros(runs, layout.width)
    constants = Constants(
        records=run.records,
        lot=run.lot,
        steps=max(2, run.steps),
        noise=torch.full((runs,), run.noise, dtype=params.dtype),
        layout=layout,
        factors=torch.ones(max(2, run.steps)),
    )
    stacked = stack_rules([rule] * runs, dtype=params.dtype, device=cpu)
    shown = constants.copy()
    state, steps = stacked.init(params, constants), with_decay(stacked)
    for _ in range(2):
        query = within_bounds(steps.query(state, constants), constants.noise)
        gradient_multiplier(constants.noise, query)
        release = Release(torch.zeros_like(params), None if query.second is None else query.second.zeros(params))
        moved, after = steps.update(params, state, release, constants)
        if moved.shape != params.shape or moved.dtype != params.dtype:
            wanted = f"weights [runs, d] of {params.dtype} after an update by {name}"
            raise InvalidArgument("optimizer", f"{list(moved.shape)} of {moved.dtype}", wanted)
        if not (torch.equal(constants.noise, shown.noise) and torch.equal(constants.factors, shown.factors)):
            wanted = (
                f"a rule that writes to none of its constants, as {name} does: take a copy, or no operation in place"
            )
            raise InvalidArgument("optimizer", name, wanted)
        if _shapes(after) != _shapes(state):
            wanted = f"a state of the same tensors before and after an update by {name}, each [runs, ...]"
            raise InvalidArgument("optimizer", sorted(after), wanted)
        params, state = moved, after


def _shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}


Runs = Run | Sequence[Run]


def shaped(run: Runs | None, data: Sized, *, declared: bool, budget: Any, runs: int) -> tuple[Runs, tuple[str, ...]]:
    """The given run; without one the planner's lot and steps, whose noise the budget sets, and notes that say so.

    data: counted only where no run declares the number of records. declared: whether the data declare that number.
    """
    if run is not None:
        for each in [run] if isinstance(run, Run) else run:
            if declared and isinstance(each, Run) and each.records != len(data):
                raise InvalidArgument("records", each.records, f"{len(data)}, as the data declare")
        return run, ()
    if not isinstance(budget, Budget):
        wanted = "a honestdp.Run; it may be left out with a budget=honestdp.Budget(epsilon, delta), from which it is then chosen"
        raise InvalidArgument("run", None, wanted)
    records = len(data)
    if records == 0:
        raise InvalidArgument("data", "no records", "at least one record")
    chosen = chosen_shape(budget, records=records, candidates=runs)
    notes = (chosen.how,) if declared else (chosen.how, not_declared(records, getattr(data, "unit", ROW)))
    return Run(records=records, lot=chosen.lot, steps=chosen.steps, noise=0.0), notes


def not_declared(records: int, unit: Unit) -> str:
    """The note on a number of records that nobody declared."""
    return f"the number of {unit.plural}, {records}, was not declared but taken to be that of the data; it is taken to be public"


def runs_of(run: Runs, count: int, budget: Budget | None) -> list[Run]:
    """One run for each optimizer, with the noise that a budget sets."""
    given = [run] if isinstance(run, Run) else run
    if not isinstance(given, list | tuple) or not all(isinstance(each, Run) for each in given):
        raise InvalidArgument("run", run, "a honestdp.Run, or a list of them")
    if count == 0:
        raise InvalidArgument("optimizers", [], "a list of at least one optimizer")
    runs = [run] * count if isinstance(run, Run) else list(run)
    if len(runs) != count:
        raise InvalidArgument("run", f"{len(runs)} runs", f"one Run, or one for each of the {count} optimizers")
    if len({(each.records, each.lot, each.steps) for each in runs}) > 1:
        raise InvalidArgument("run", runs, "runs that differ in their noise alone; train others separately")
    if budget is None:
        return runs
    if any(each.noise != 0 for each in runs):
        wanted = "0 when a budget is given: the noise is then calculated from it"
        raise InvalidArgument("run.noise", runs[0].noise, wanted)
    from honestdp.accounting.calibration import least_noise  # here: the engine alone needs torch and numpy only
    from honestdp.selection import Compose

    first, all_of_them = runs[0], Compose(candidates=count)
    if first.steps == 0:
        return runs  # nothing is released, so any noise meets it
    return [least_noise(budget, records=first.records, lot=first.lot, steps=first.steps, selection=all_of_them)] * count


_ROUNDING = 1e-12  # the sum of what is left and what is spent is not above the whole, whatever is rounded


@dataclass(frozen=True)
class Preparation:
    """What was done to the records beforehand, and the part of the budget that it has cost.

    A table knows both: how it encodes each row, and the epsilon of bounds that were learnt privately. That epsilon was charged
    when they were learnt. Learning is (e1, 0) private and training (e2, delta) private on the same records, whatever was
    learnt, so that both together are (e1 + e2, delta) private: a budget for everything leaves e - e1 to the runs, and a
    statement names the sum.

    words: for the statement. spent: epsilon, before the runs. declared: whether the data themselves declare N.
    """

    words: str
    spent: float = 0.0
    declared: bool = False

    def left(self, budget: Any) -> Any:
        """What a budget leaves to the runs. What is no budget is somebody else's to refuse."""
        if not self.spent or not isinstance(budget, Budget):
            return budget
        epsilon = (budget.epsilon - self.spent) * (1 - _ROUNDING)
        if epsilon <= 0:
            wanted = f"above {self.spent:g}, which was spent to learn the bounds of the table"
            raise InvalidArgument("budget.epsilon", budget.epsilon, wanted)
        return Budget(epsilon, budget.delta)


def preparation(data: PrivateData, preprocessing: object) -> Preparation:
    """The preparation of these data. preprocessing: the user's words on it, if there are any."""
    words, known = prepared(preprocessing, data.augment), data.known
    if known is None:
        return Preparation(words)
    both = known.preprocessing if preprocessing is None else f"{prepared(preprocessing)}; {known.preprocessing}"
    return Preparation(prepared(both, data.augment), known.spent, known.declared)
