"""What the paper's experiments share: grids (Table 3), datasets (Table 2), models, sizes.

Sizes. The paper prints 80 % of each dataset as training records and one delta for all, but its own costs (Table 1) follow from
other sizes: 60000 training records of MNIST, and 5000 steps at delta 1e-5 for ENRON and Gisette (see table1). Those are used
here, for costs and for training alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from honestdp import optimizers as rules
from honestdp.data.named import NamedDataset, load_dataset
from honestdp.run import Run

LOT = 250
STEP_SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
MOMENTA = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
REPEATS = 3
EVERY = 100


@dataclass(frozen=True)
class Task:
    """A dataset as the paper uses it."""

    name: str
    title: str
    records: int
    steps: int
    delta: float

    def run(self, *, noise: float, steps: int | None = None) -> Run:
        return Run(records=self.records, lot=LOT, steps=self.steps if steps is None else steps, noise=noise)

    @property
    def plain_title(self) -> str:
        """Of the dataset that is meant, for what does not depend on its columns or on which copy of it is used."""
        return self.title.partition(" (")[0]

    @property
    def dataset(self) -> NamedDataset:
        return _loaded(self.name)


TASKS = (
    Task("adult-202", "Adult (202)", 36177, 10000, 1e-6),
    Task("enron", "ENRON", 4137, 5000, 1e-5),
    Task("gisette-standin", "Gisette (stand-in)", 4800, 5000, 1e-5),
    Task("mnist", "MNIST", 60000, 10000, 1e-6),
)
MODELS = ("LR", "TLNN")
"""Logistic regression, and one hidden layer of 100."""
Pair = tuple[Task, str]


def pairs(quick: bool) -> list[Pair]:
    """Every task with every model; quickly, those that two cores train in minutes."""
    fast = {("adult-202", "LR"), ("adult-202", "TLNN"), ("mnist", "LR")}
    return [(task, model) for model in MODELS for task in TASKS if not quick or (task.name, model) in fast]


def pair_name(pair: Pair) -> str:
    return f"{pair[0].name}-{pair[1]}"


def pair_title(pair: Pair) -> str:
    return f"{pair[0].title}, {pair[1]}"


@lru_cache(maxsize=1)
def _loaded(name: str) -> NamedDataset:
    return load_dataset(name)


def model_of(kind: str, *, features: int, classes: int) -> Callable[[], nn.Module]:
    if kind == "LR":
        return lambda: nn.Linear(features, classes)
    return lambda: nn.Sequential(nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, classes))


def grid(optimizer: str, quick: bool = False) -> list[rules.Rule]:
    """The candidates of Table 3, or a few of them that span the same ranges."""
    sizes = STEP_SIZES[::3] if quick else STEP_SIZES
    clips = (CLIPS[0], CLIPS[-1]) if quick else CLIPS
    momenta = (MOMENTA[4],) if quick else MOMENTA
    if optimizer == "DPSGD":
        return [rules.SGD(lr=lr, clip=clip) for lr in sizes for clip in clips]
    if optimizer == "DPMomentum":
        return [rules.Momentum(lr=lr, momentum=m, clip=clip) for lr in sizes for clip in clips for m in momenta]
    made = {"DPAdam": rules.Adam, "DPAdamWOSM": rules.AdamWOSM, "ADADP": rules.ADADP}[optimizer]
    return [made(clip=clip) for clip in CLIPS]
