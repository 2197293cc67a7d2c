"""What the paper's experiments share: datasets and sizes (Table 2), grids (Table 3), models, in the authors' form and
in ours.

The authors' form is that of their published code
(github.com/mshubhankar/The-Role-of-Adaptive-Optimizers-for-Honest-Private- Hyperparameter-Selection): ENRON as raw
counts (the text says [0, 1]), MNIST's pixels in [-1, 1] with the publisher's split, and a "two-layer network" without
an activation. It is what is reproduced. Our form has inputs scaled by public constants and a ReLU between the layers;
it is shown beside.

Sizes. The paper prints 80 % of each dataset as training records and one delta for all, but its own costs (Table 1)
follow from other sizes: 60000 training records of MNIST, and 5000 steps at delta 1e-5 for ENRON and Gisette (see
table1). Those are used here, for costs and for training alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from torch import nn

from honestdp import Run, load_dataset
from honestdp import optimizers as rules
from honestdp.data.named import NamedDataset
from honestdp.optimizers import ADADP
from honestdp.optimizers.rule import Number

LOT = 250
STEP_SIZES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
CLIPS = (0.1, 0.2, 0.5, 1.0)
MOMENTA = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
NOISES = (2.0, 4.0, 8.0)
REPEATS, MORE_REPEATS = 3, 6
"""Trainings of each candidate: three as in the paper, and six where a grid has but a few candidates."""
FEW = 4
EVERY = 100


@dataclass(frozen=True)
class Task:
    """A dataset as it is used."""

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
    Task("enron-counts", "ENRON", 4137, 5000, 1e-5),
    Task("gisette-standin", "Gisette (stand-in)", 4800, 5000, 1e-5),
    Task("mnist-signed", "MNIST", 60000, 10000, 1e-6),
)
"""The authors' form."""
OUR_TASKS = {
    "enron-counts": Task("enron", "ENRON (cut at 10)", 4137, 5000, 1e-5),
    "mnist-signed": Task("mnist", "MNIST (in [0, 1])", 60000, 10000, 1e-6),
}
"""Ours, where it is another, by the name of the authors'."""
MODELS = ("LR", "TLNN")
"""Logistic regression, and the authors' two linear layers, 100 wide between, without an activation."""
RELU = "TLNN-ReLU"
"""Ours: the same with a ReLU between the layers."""
Pair = tuple[Task, str]


def pairs(quick: bool) -> list[Pair]:
    """Every task with every model; quickly, those that two cores train in minutes."""
    fast = {("adult-202", "LR"), ("adult-202", "TLNN"), ("mnist-signed", "LR")}
    return [(task, model) for model in MODELS for task in TASKS if not quick or (task.name, model) in fast]


def ours(pair: Pair) -> Pair:
    """The same dataset and model in our form."""
    task, model = pair
    return OUR_TASKS.get(task.name, task), RELU if model == "TLNN" else model


def beside(quick: bool) -> list[tuple[Pair, Pair]]:
    """(authors', ours) wherever the two forms differ."""
    return [(pair, ours(pair)) for pair in pairs(quick) if ours(pair) != pair]


def is_ours(pair: Pair) -> bool:
    return pair[1] == RELU or pair[0] in OUR_TASKS.values()


def pair_name(pair: Pair) -> str:
    return f"{pair[0].name}-{pair[1]}"


def pair_title(pair: Pair) -> str:
    return f"{pair[0].title}, {'TLNN with ReLU' if pair[1] == RELU else pair[1]}"


@lru_cache(maxsize=8)
def _loaded(name: str) -> NamedDataset:
    return load_dataset(name)


def model_of(kind: str, *, features: int, classes: int) -> Callable[[], nn.Module]:
    """Makes a model with torch's initial weights, which are those of the published code."""
    if kind == "LR":
        return lambda: nn.Linear(features, classes)
    between = [nn.ReLU()] if kind == RELU else []
    return lambda: nn.Sequential(nn.Linear(features, 100), *between, nn.Linear(100, classes))


def grid(optimizer: str, quick: bool = False, model: str = "LR") -> list[rules.Rule]:
    """The candidates of Table 3, or a few of them that span the same ranges. model: ADADP's published tolerance depends on it."""
    sizes = STEP_SIZES[::3] if quick else STEP_SIZES
    clips = (CLIPS[0], CLIPS[-1]) if quick else CLIPS
    momenta = (MOMENTA[4],) if quick else MOMENTA
    if optimizer == "DPSGD":
        return [rules.SGD(lr=lr, clip=clip) for lr in sizes for clip in clips]
    if optimizer == "DPMomentum":
        return [rules.Momentum(lr=lr, momentum=m, clip=clip) for lr in sizes for clip in clips for m in momenta]
    if optimizer == PUBLISHED:
        return [PublishedADADP(clip=clip, tau=0.1 if model == "LR" else 1.0) for clip in CLIPS]
    made = {"DPAdam": rules.Adam, "DPAdamWOSM": rules.AdamWOSM, "ADADP": rules.ADADP}[optimizer]
    return [made(clip=clip) for clip in CLIPS]


PUBLISHED = "ADADP-published"
"""ADADP as the authors ran it, by their published code."""


def repeats_of(candidates: int, quick: bool) -> int:
    return 1 if quick else MORE_REPEATS if candidates <= FEW else REPEATS


@dataclass(frozen=True)
class PublishedADADP(ADADP):
    """ADADP as in the code that Mohapatra et al. ran for it (github.com/mshubhankar/ADADP, `MNIST_tests/adadp.py`).

    It differs from Koskela & Honkela 2020 in four ways: the step size moves with sqrt(tau / err) and not tau / err; a
    step whose err is above tau is taken back; err sums over the 10 copies of the weights that their way of computing
    gradients keeps, so that it is sqrt(10) times the error of the weights (`ADADP(published=True)` has these three);
    and the tolerance is a constant, 0.1 for logistic regression and 1 for the network, with a first step size of
    0.001. Only these facts are theirs, the code is ours.
    """

    lr: Number = 1e-3
    tau: Number | None = 1.0
    published: bool = True
