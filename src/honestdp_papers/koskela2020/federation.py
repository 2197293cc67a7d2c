"""The federated experiments of the supplement (section 3) as parts: test accuracies of the averaged model over the rounds.

Five clients, each with the images of two classes; a part of all images is dealt out at random. In every round all clients begin
with the average, make their local steps by ADADP (with rejection, tau 1), SGD or Adam, and are averaged. Nothing is private
here: noise 0, and a clip that no gradient reaches. The clients are honestdp's own (`honestdp.federated`), all of a part as one
population.

What the text leaves open. One epoch of the client's data is a round: 1000 lots of 10, for every method; Algorithm 1 read by the
letter would give ADADP, which takes two lots an iteration, twice the data of the others. Lots are Poisson samples. Step sizes and
moments are kept from round to round. Images are normalised by channel with public constants, and not augmented. Layers have
biases and torch's initial weights, which the three runs do not share.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from honestdp.boundary.capture import free_captured
from honestdp.boundary.data import PrivateData
from honestdp.boundary.seed import Seed
from honestdp.data.named import Array, load_dataset
from honestdp.federated.rounds import Member, Rounds
from honestdp.gradients.layout import layout_of, stack
from honestdp.optimizers import ADADP, SGD, Adam, Rule
from honestdp.run import Run
from honestdp_papers.curves import placed, seeded
from honestdp_papers.koskela2020.cifar import DEVIATIONS, MEANS, TRAIN, images
from honestdp_papers.parts import Arrays, Part, Tell

LEVELS, QUICK_LEVELS = (0, 33, 67, 100), (0, 33, 100)
"""Per cent of the images that are dealt out at random."""
THIRD, APART, BESIDES = 33, 0, 67
"""Of figures 3a and 4, of figure 3b, and one that figure 2 can do without."""
REPEATS, QUICK_REPEATS = 3, 2
UNCLIPPED = 1e9
TAU = 1.0
STEP_SIZES = {
    "ADADP": (1e-3, 1e-2, 1e-1),
    "SGD": (10**-2.5, 1e-2, 10**-1.5, 1e-1),
    "Adam": (1e-5, 10**-4.5, 1e-4, 10**-3.5),
}
"""Half decades; for ADADP the first step size, of which the last is its usual one."""
QUICK_STEP_SIZES = {"ADADP": (1e-3, 1e-1), "SGD": (1e-1, 10**-0.5, 1.0), "Adam": (1e-4, 10**-3.5, 1e-3)}
"""For the small network, whose best ones are larger."""
RUN_STEP = 6e-5
"""Seconds of a run's step on a large GPU, roughly."""


@dataclass(frozen=True)
class World:
    """Images, clients and sizes, in full or quickly. steps: local ones of a round, each with a lot."""

    title: str
    pairs: tuple[tuple[int, int], ...]
    records: int
    lot: int
    steps: int
    rounds: int
    every: int
    model: Callable[[], nn.Module]
    images: Callable[[], tuple[Array, Array, Array, Array]]

    @property
    def clients(self) -> int:
        return len(self.pairs)

    @property
    def run(self) -> Run:
        """Of one round of one client."""
        return Run(records=self.records, lot=self.lot, steps=self.steps, noise=0)

    @property
    def looks(self) -> int:
        return self.rounds // self.every


def convolutional() -> nn.Module:
    """The supplement's network: two convolutions and three dense layers, all trained; about 10^6 weights."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(1600, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def dense() -> nn.Module:
    """A network that two cores train in minutes."""
    return nn.Sequential(nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 10))


@lru_cache(maxsize=1)
def cifar() -> tuple[Array, Array, Array, Array]:
    """Training and test images, normalised, in half precision (they have 8 bits), and their classes."""
    pixels, classes = images()
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (MEANS, DEVIATIONS))

    def normalised(some: Array) -> Array:
        scaled: Array = ((some.astype(np.float32) / np.float32(255) - mean) / deviation).astype(np.float16)
        return scaled

    return normalised(pixels[:TRAIN]), classes[:TRAIN], normalised(pixels[TRAIN:]), classes[TRAIN:]


@lru_cache(maxsize=1)
def mnist() -> tuple[Array, Array, Array, Array]:
    """Images of 14 by 14, each pixel the mean of four."""
    dataset = load_dataset("mnist")
    (x, y), (test_x, test_y) = dataset.train, dataset.test

    def smaller(images: Array) -> Array:
        blocks = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
        pixels: Array = blocks.reshape(-1, 196).astype(np.uint8)
        return pixels

    return smaller(x[:25000]), y[:25000], smaller(test_x), test_y


# cars and trucks, planes and ships, cats and dogs, birds and frogs, deer and horses
FULL = World(
    "CIFAR-10", ((1, 9), (0, 8), (3, 5), (2, 6), (4, 7)), 10000, 10, 1000, 200, 5, convolutional, cifar
)  # fmt: skip
QUICK = World("MNIST, a small network", ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)), 4000, 10, 400, 10, 1, dense, mnist)


def world(quick: bool) -> World:
    return QUICK if quick else FULL


def shares(y: Array, here: World, level: int, seed: int) -> list[Array]:
    """The rows of each client: of its own two classes, but for `level` per cent, which are dealt out from what all have left."""
    drawn = np.random.default_rng([seed, level])
    own = round(here.records * (1 - level / 100))
    each = [drawn.permutation(np.flatnonzero(np.isin(y, pair)))[: here.records] for pair in here.pairs]
    dealt = drawn.permutation(np.concatenate([rows[own:] for rows in each]))
    rest = here.records - own
    return [np.concatenate([rows[:own], dealt[i * rest : (i + 1) * rest]]) for i, rows in enumerate(each)]


def step_sizes(method: str, quick: bool) -> tuple[float, ...]:
    return (QUICK_STEP_SIZES if quick else STEP_SIZES)[method]


def levels(quick: bool) -> tuple[int, ...]:
    return QUICK_LEVELS if quick else LEVELS


def repeats(quick: bool) -> int:
    return QUICK_REPEATS if quick else REPEATS


def rules_of(method: str, quick: bool) -> list[Rule]:
    sizes = step_sizes(method, quick)
    if method == "ADADP":
        return [ADADP(clip=UNCLIPPED, lr=size, tau=TAU, accept=True) for size in sizes]
    if method == "SGD":
        return [SGD(clip=UNCLIPPED, lr=size) for size in sizes]
    return [Adam(clip=UNCLIPPED, lr=size) for size in sizes]


def part_name(method: str, level: int, repeat: int) -> str:
    return f"federated/{method}-{level}-{repeat}"


def parts_for(quick: bool, *, methods: Sequence[str], at: Sequence[int]) -> list[Part]:
    every = range(repeats(quick))
    return [_part(quick, method, level, repeat) for level in at for method in methods for repeat in every]


@lru_cache(maxsize=2)
def _described(make: Callable[[], nn.Module]) -> str:
    return repr(make())


def _part(quick: bool, method: str, level: int, repeat: int) -> Part:
    """All step sizes of a method at one level, once. It keeps `right` `[step sizes, looks]`, and `eta` where there is one."""
    here, name, rules = world(quick), part_name(method, level, repeat), rules_of(method, quick)
    seed = zlib.crc32(f"{level} {repeat}".encode())
    identity = {
        "images": here.title,
        "clients": [list(pair) for pair in here.pairs],
        "sizes": [here.records, here.lot, here.steps, here.rounds, here.every],
        "random": level,
        "candidates": [repr(rule) for rule in rules],
        "model": _described(here.model),
        "seed": [seed, repeat],
    }
    run_steps = len(rules) * here.clients * here.steps * here.rounds

    def work(device: str, tell: Tell) -> Arrays:
        return trained(here, rules, level=level, seed=seed, repeat=repeat, device=device, tell=tell)

    return Part(name, identity, 5 + run_steps * RUN_STEP, work, __name__, optional=level == BESIDES)


def trained(
    here: World, rules: Sequence[Rule], *, level: int, seed: int, repeat: int, device: str, tell: Tell
) -> Arrays:
    """Federations that differ in their rule alone, side by side: every client of every one is a run of one population."""
    place = placed(device)
    x, y, test_x, test_y = here.images()
    clients = [PrivateData((x[rows], y[rows].astype(np.int64))) for rows in shares(y, here, level, seed)]
    members = [Member(data, here.run, rule) for rule in rules for data in clients]
    model = seeded(here.model, repeat)
    rounds = Rounds(model, members, rounds=here.rounds, device=place)
    exam = Exam(here.model(), test_x, test_y, place)
    averages = stack([model], layout_of(model), place).repeat(len(rules), 1)
    secret = Seed.fixed(seed)
    right = np.empty((len(rules), here.looks), np.uint16)
    eta = np.full((len(rules), here.clients, here.looks), np.nan, np.float32)
    for number in range(here.rounds):
        # Every method has the same lots: a difference between two of them is none of luck in drawing.
        seeds = [secret.child("round", number, client) for _ in rules for client in range(here.clients)]
        ended = rounds.make(averages.repeat_interleave(here.clients, dim=0), seeds, number=number)
        averages = ended.view(len(rules), here.clients, -1).mean(dim=1)
        look, rest = divmod(number + 1, here.every)
        if not rest:
            right[:, look - 1] = exam.right(averages)
            if "eta" in rounds.state:
                eta[:, :, look - 1] = rounds.state["eta"].view(len(rules), here.clients).cpu().numpy()
        tell((number + 1) / here.rounds)
    del rounds
    free_captured()
    return {"right": right, "eta": eta, "tests": np.array(len(test_y)), "every": np.array(here.every)}


class Exam:
    """The test images on the device, and how many of them each of a few models answers rightly."""

    def __init__(self, model: nn.Module, x: Array, y: Array, place: torch.device) -> None:
        self._model, self._layout = model.to(place), layout_of(model)
        pixels = torch.from_numpy(x).to(place)
        self._x = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels.float()
        self._y = torch.from_numpy(y.astype(np.int64)).to(place)

    @torch.no_grad()
    def right(self, weights: Tensor) -> Array:
        """weights `[models, d]` -> right answers `[models]`; of a model that has diverged, those of chance."""
        counts = []
        for row in weights:
            named = {name: value[0] for name, value in self._layout.views(row[None]).items()}
            answers = torch.cat(
                [functional_call(self._model, named, (some,)).argmax(1) for some in torch.split(self._x, 2500)]
            )
            counts.append(int((answers == self._y).sum()))
        return np.array(counts, np.uint16)


def parts_all(quick: bool) -> list[Part]:
    """Every level, by ADADP and SGD: figures 2a and 2b."""
    return parts_for(quick, methods=("ADADP", "SGD"), at=levels(quick))


def parts_third(quick: bool) -> list[Part]:
    """A third of the images at random: figure 3a."""
    return parts_for(quick, methods=("ADADP", "SGD"), at=(THIRD,))


def parts_apart(quick: bool) -> list[Part]:
    """Every class at one client: figure 3b."""
    return parts_for(quick, methods=("ADADP", "SGD"), at=(APART,))


def parts_adam(quick: bool) -> list[Part]:
    """Adam, a third of the images at random: figure 4."""
    return parts_for(quick, methods=("ADADP", "SGD", "Adam"), at=(THIRD,))
