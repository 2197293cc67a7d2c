"""What the paper's experiments share: three tasks with their networks, the methods and their grids, and all sizes.

The paper prints sizes (Table 1) and no network, and no code of it is published. The networks here are the plainest ones with
exactly the printed numbers of weights: likely the paper's, not proven to be. Activations (ReLU), the autoencoder's strides and
its plain last layer, the loss (a mean over the pixels) and delta are ours too; each is said on the page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import Run, load_dataset
from honestdp.data.datasets import news
from honestdp.data.named import Array
from honestdp.data.sources import find
from honestdp.losses import Loss, cross_entropy, prediction
from honestdp_papers.forms import STANDIN_RECORDS, STANDIN_TESTS

LOT, EPOCHS, DELTA, EVERY, SEEDS = 512, 10, 1e-5, 50, 5
"""Of all tasks; delta is not printed. Every so many steps the whole test set is looked at."""
GRANULARITIES, PRINTED_K = (5, 7, 9), 7
"""Values of a grid's axis; tables 2 to 4 are those of 7."""
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
FIRST_CLIP, PACE = 0.1, 2.5e-3
"""C_0 of Online and FixedQuantile; rho_c and rho_r of Online."""
ONLINE, THRESHOLD, QUANTILE, WOSM = "Online", "FixedThreshold", "FixedQuantile", "AdamWOSM"
METHODS = (ONLINE, WOSM, THRESHOLD, QUANTILE)
NODP, NODP_ADAM = "NoDP", "NoDP-Adam"
"""Without clipping and noise; the paper's step size for it is more plausible for Adam, which is run too."""


def convolutional() -> nn.Module:
    """551322 weights: MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def autoencoder() -> nn.Module:
    """48705 weights: Fashion-MNIST, 28-14-7-4-2 pixels wide and back."""
    widths, layers = (1, 8, 16, 32, 64), list[nn.Module]()
    for width, out in itertools.pairwise(widths):
        layers += [nn.Conv2d(width, out, 3, stride=2, padding=1), nn.ReLU()]
    for width, out, grown in ((64, 32, 1), (32, 16, 0), (16, 8, 1), (8, 1, 1)):
        layers += [nn.ConvTranspose2d(width, out, 3, stride=2, padding=1, output_padding=grown), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def unstrided_autoencoder() -> nn.Module:
    """The second try: the same 48705 weights with stride 1, unpadded, 28-26-24-22-20 pixels wide and back."""
    widths, layers = (1, 8, 16, 32, 64), list[nn.Module]()
    for width, out in itertools.pairwise(widths):
        layers += [nn.Conv2d(width, out, 3), nn.ReLU()]
    for width, out in itertools.pairwise(widths[::-1]):
        layers += [nn.ConvTranspose2d(width, out, 3), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def words_network() -> nn.Module:
    """113156 weights: AG News."""
    return nn.Sequential(nn.Linear(750, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))


def small_convolutional() -> nn.Module:
    """MNIST, quickly."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)
    )


def small_autoencoder() -> nn.Module:
    """Fashion-MNIST, quickly."""
    return nn.Sequential(nn.Conv2d(1, 16, 4, stride=4), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, stride=4))


def small_words_network() -> nn.Module:
    """AG News (stand-in), quickly."""
    return nn.Sequential(nn.Linear(750, 16), nn.ReLU(), nn.Linear(16, 4))


def pixel_error(output: object, y: Tensor) -> Tensor:
    """The squared error of an image, a mean over its pixels: `[examples]`."""
    found = prediction(output)
    return (found.flatten(1) - y.flatten(1).to(found.dtype)).square().mean(dim=1)


@dataclass(frozen=True)
class Task:
    """A dataset with its network.

    weights: the printed size of the network. flops: of a record's forward and backward pass. image: inputs are 28x28 images.
    error: what is measured is a mean squared error, and less is better; otherwise the accuracy in per cent. price, look: seconds
    of a run's step and of its look at the test set on a large GPU, roughly. pixels: what is taken off them, and what they are
    divided by.
    """

    name: str
    title: str
    dataset: str
    records: int
    tests: int
    lot: float
    steps: int
    epsilons: tuple[float, ...]
    weights: int
    flops: float
    make: Callable[[], nn.Module]
    words: str
    price: float
    look: float
    image: bool = True
    error: bool = False
    accounted: tuple[int, float] = (0, 0)
    pixels: tuple[float, float] = (0.0, 1.0)

    def run(self, noise: float) -> Run:
        return Run(records=self.records, lot=self.lot, steps=self.steps, noise=noise)

    @property
    def priced(self) -> Run:
        """The run whose rate is accounted, without noise; a stand-in's rate is that of what it stands in for."""
        records, lot = self.accounted if self.accounted[0] else (self.records, self.lot)
        return Run(records=records, lot=lot, steps=self.steps, noise=0.0)

    @property
    def loss(self) -> Loss:
        return pixel_error if self.error else cross_entropy

    @property
    def looks(self) -> tuple[int, ...]:
        """The steps after which the test set is looked at: every 50, and the last iterate."""
        every = range(EVERY, self.steps + 1, EVERY)
        return (*every,) if self.steps % EVERY == 0 else (*every, self.steps)

    @property
    def measure(self) -> str:
        return "mean squared error" if self.error else "accuracy, %"


MNIST = Task(
    "mnist",
    "MNIST",
    "mnist",
    60000,
    10000,
    LOT,
    1172,
    (3.0, 5.0, 7.0, 9.0),
    551322,
    2.2e7,
    convolutional,
    "3x3 convolutions without padding 1-16, 16-16, max pool 2, 16-32, 32-64, then 4096-128-10, ReLU",
    2e-4,
    1.5e-3,
)
STANDARDISED = replace(MNIST, name="mnist-standardised", title="MNIST (standardised)", pixels=(0.1307, 0.3081))
"""With the mean and deviation of MNIST's pixels that many programs bring along: it may be the paper's."""
FASHION = Task(
    "fashion",
    "Fashion-MNIST",
    "fashion-mnist",
    60000,
    10000,
    LOT,
    1172,
    (1.0, 2.0, 3.0, 4.0),
    48705,
    2.6e6,
    autoencoder,
    "3x3 convolutions of stride 2 and padding 1, 1-8-16-32-64 (28-14-7-4-2 pixels), and transposed ones 64-32-16-8-1 back, ReLU, "
    "the last layer plain",
    1.73e-4,
    4.6e-4,
    error=True,
)
UNSTRIDED = replace(
    FASHION,
    name="fashion-unstrided",
    title="Fashion-MNIST (stride 1)",
    flops=1.24e8,
    make=unstrided_autoencoder,
    words="the same with stride 1 and no padding (28-26-24-22-20 pixels and back): the second try",
    price=2.5e-3,
    look=1.5e-2,
)
AG_NEWS = Task(
    "ag-news",
    "AG News",
    "ag-news",
    news.RECORDS,
    news.TESTS,
    LOT,
    2344,
    (3.0, 5.0, 7.0, 9.0),
    113156,
    6.8e5,
    words_network,
    "750 words, 750-128-128-4, ReLU",
    1.5e-5,
    1e-4,
    image=False,
)
STANDIN = replace(
    AG_NEWS,
    name="ag-news-standin",
    title="AG News (stand-in)",
    dataset="ag-news-standin",
    records=STANDIN_RECORDS,
    tests=STANDIN_TESTS,
    lot=STANDIN_RECORDS * LOT / news.RECORDS,
    price=4.5e-6,
    look=5e-5,
    accounted=(news.RECORDS, LOT),
)
"""Four topics of 20 Newsgroups at AG News's rate, so that its noises are AG News's: a lot of 41 in place of 512."""


def text_task() -> Task:
    """AG News where its training rows are at hand (`HONESTDP_DATA`/ag_news/train.csv.gz), and the stand-in elsewhere."""
    return STANDIN if find(news.TRAIN.path) is None else AG_NEWS


def task_of(name: str) -> Task:
    return {"mnist": MNIST, "fashion": FASHION}.get(name) or text_task()


def tasks() -> tuple[Task, ...]:
    return (MNIST, FASHION, text_task())


QUICK = {
    "mnist": {"records": 4000, "tests": 1000, "lot": 64.0, "steps": 200, "make": small_convolutional},
    "fashion": {"records": 4000, "tests": 500, "lot": 64.0, "steps": 200, "make": small_autoencoder},
    "text": {"tests": 2000, "steps": 400, "make": small_words_network},
}


def sized(task: Task, quick: bool) -> Task:
    """The task, or its small version: fewer records and steps, a small network, the first and the last epsilon."""
    if not quick:
        return task
    ends = (task.epsilons[0], task.epsilons[-1])
    changes = QUICK.get(task.name, QUICK["text"])
    return replace(task, epsilons=ends, **changes)  # type: ignore[arg-type]


def step_sizes(k: int) -> tuple[float, ...]:
    """k values from 10^-2.5 to 10^1.5."""
    return tuple(10 ** (-2.5 + 4 * i / (k - 1)) for i in range(k))


def clips(k: int) -> tuple[float, ...]:
    """k values from 10^-2 to 10^2."""
    return tuple(10 ** (-2 + 4 * i / (k - 1)) for i in range(k))


def quantiles(quick: bool) -> tuple[float, ...]:
    return QUANTILES[::2] if quick else QUANTILES


def candidates(method: str, k: int, quick: bool) -> list[tuple[float, ...]]:
    """The grid of a method: (step size, clip or quantile), a step size, or a clip."""
    if method == THRESHOLD:
        return [(lr, clip) for lr in step_sizes(k) for clip in clips(k)]
    if method == QUANTILE:
        return [(lr, quantile) for lr in step_sizes(k) for quantile in quantiles(quick)]
    return [(one,) for one in (clips(k) if method == WOSM else step_sizes(k))]


@dataclass(frozen=True, eq=False)
class Records:
    """Inputs and targets (classes, or the images themselves) of training and test records, as tensors on the host."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@lru_cache(maxsize=3)
def records_of(task: Task) -> Records:
    """The records of a task, of the size that it says: the first ones of each side."""
    dataset = load_dataset(task.dataset)
    (x, y), (tests, labels) = dataset.train, dataset.test
    return Records(_pair(task, x[: task.records], y), _pair(task, tests[: task.tests], labels))


def _pair(task: Task, x: Array, y: Array) -> tuple[Tensor, Tensor]:
    inputs = torch.from_numpy(x.astype(np.float32) / 255 if x.dtype == np.uint8 else x)
    if task.image:
        inputs = (inputs.reshape(len(x), 1, 28, 28) - task.pixels[0]) / task.pixels[1]
    return inputs, inputs if task.error else torch.from_numpy(y[: len(x)].astype(np.int64))
