"""`SearchSpec`: every argument of a search in one frozen value, which holds the `TrainSpec` of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from honestdp import checks
from honestdp.boundary.metrics import Metric
from honestdp.budget import Budget
from honestdp.checks import InvalidArgument
from honestdp.search.space import Optimizer
from honestdp.selection import Selection
from honestdp.training.spec import TrainSpec


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """What a search is asked to do.

    Attributes:
        train: how each run is trained, and what pays for the search.
        optimizer: one or several, each as a name, a class, or a rule, whose numbers stand wherever the space has no others. Left
            out, there is no search but one run with the whole budget: by echo for classes, by horizon for numbers.
        space: hyperparameters to lists (a grid), LogUniform, Uniform or Choice. Left out, the grid of each optimizer.
        selection: how the winner is found; auto takes the selection that needs the least noise.
        coverage: the chance that a given candidate is run, for selections that draw candidates.
        lot: the expected size of a Poisson lot. Left out, it is chosen from public numbers.
        steps: the noisy queries in one run. Left out, they are chosen from public numbers.
        epochs: in place of steps: passes through the training records.
        records: N, declared. Left out, it is counted, and the statement says so.
        validation: the fraction of the records that score the runs, each chosen by a coin. 0 trains on all and scores nothing.
        metric: "accuracy" (for classes), "balanced accuracy" with prevalence, "log loss", or a metric object.
        max_runs: the most runs, on average, that you can afford.
        published: rest on published bounds alone.
        candidates: how many draws a random search amounts to; 64 if left out.
        space_seed: draws the candidates of a random search that runs each of them once.
        out: the folder for model, statement, result and report.
        resume: refuse to start a search: there must be one in out.
        again: with out left out: a new search, charged anew, where the search of the same arguments has finished.
        reproduce: the command or code that made the search, for the report.
        label: the name of the folder of a search without a ledger, which otherwise has none.

    Raises:
        InvalidArgument: a value that no search can have.
    """

    train: TrainSpec
    optimizer: Optimizer | Sequence[Optimizer] | None = None
    space: Mapping[str, Any] | None = None
    selection: str | Selection = "auto"
    coverage: float = 0.9
    lot: float | None = None
    steps: int | None = None
    epochs: float | None = None
    records: int | None = None
    validation: float = 0.2
    metric: str | Metric | None = None
    max_runs: float | None = None
    published: bool = False
    candidates: int | None = None
    space_seed: int = 0
    out: str | Path | None = None
    resume: bool = False
    again: bool = False
    reproduce: str = ""
    label: str | None = None

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
