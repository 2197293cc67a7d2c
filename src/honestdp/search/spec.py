"""`SearchSpec`: every argument of a search in one frozen value, which holds the `TrainSpec` of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
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

    Raises:
        InvalidArgument: a value that no search can have.
    """

    train: TrainSpec = field(metadata={"help": "how each run is trained, and what pays for the search."})
    optimizer: Optimizer | Sequence[Optimizer] | None = field(
        default=None,
        metadata={
            "help": (
                "one or several, each as a name, a class, or a rule, whose numbers stand wherever the space "
                "has no others. Left out, there is no search but one run with the whole budget: by echo for "
                "classes, by horizon for numbers."
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
            "help": ('"accuracy" (for classes), "balanced accuracy" with prevalence, "log loss", or a metric object.')
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
