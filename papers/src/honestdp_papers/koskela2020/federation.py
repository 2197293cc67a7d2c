"""The federated experiments of the supplement (section 3) as parts: test accuracies of the averaged model over the
rounds.

Five clients, each with the images of two classes; a part of all images is dealt out at random. In every round all
clients begin with the average, make their local steps by ADADP (with rejection, tau 1), SGD or Adam, and are averaged.
Nothing is private here: no noise, nothing is clipped. So the local steps are those of `LocalSteps`, which needs no
gradient of a single image; that they are those of honestdp's own clients (`honestdp.federated`), from the same lots, is
shown by a test.

What the text leaves open. One epoch of the client's data is a round: 1000 lots of 10, for every method; Algorithm 1
read by the letter would give ADADP, which takes two lots an iteration, twice the data of the others. A client's images
are shuffled in every round and cut into lots. Step sizes and moments are kept from round to round. Images are
normalised by channel with public constants, and not augmented. Layers have biases and torch's initial weights, which
the three runs do not share.

`LocalSteps`: the local steps of many clients side by side, on lots that are given, by the rules' own updates. NOT
PRIVATE.

The federated experiments of the paper have no noise and clip nothing, so a step needs the mean gradient of a lot and
none of a single record: that is all that is computed here, and why it is fast. It belongs to the papers alone. It takes
arrays of public images and not private data, knows neither noise nor budget, and makes no statement; whoever trains on
private records has `honestdp.federated`, which draws its own lots, and of which a test shows that it makes the same
weights of the same lots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from honestdp.boundary.query import Constants, Release
from honestdp.data.named import Array
from honestdp.gradients.layout import layout_of, stack
from honestdp.optimizers import ADADP, SGD, Adam, Rule, State
from honestdp.optimizers.rule import kind, stack_rules
from honestdp_papers.curves import Exam, placed, seeded
from honestdp_papers.koskela2020.cifar import DEVIATIONS, MEANS, TRAIN, images
from honestdp_papers.parts import Arrays, Part, Tell, described


@dataclass(frozen=True)
class Side:
    """Runs of one kind of rule, which lie side by side. rule: with numbers `[runs]`."""

    rule: Rule
    rows: slice


def sides_of(rules: Sequence[Rule], device: torch.device, dtype: torch.dtype = torch.float32) -> list[Side]:
    """Rules of one kind beside each other, as one rule."""
    found: list[Side] = []
    begin = 0
    for end in range(1, len(rules) + 1):
        if end == len(rules) or kind(rules[end]) != kind(rules[begin]):
            stacked = stack_rules(list(rules[begin:end]), dtype=dtype, device=device)
            found.append(Side(stacked, slice(begin, end)))
            begin = end
    return found


class LocalSteps:
    """Runs of one model, one rule each, on images that all of them share.

    images: `[N, ...]`, float or half precision; classes: `[N]`. lot: images of a step. steps: of all rounds, at most.
    """

    def __init__(
        self, model: nn.Module, rules: Sequence[Rule], images: Tensor, classes: Tensor, *, lot: int, steps: int
    ) -> None:
        place = images.device
        self._dtype = next(model.parameters()).dtype
        self.layout, self.sides, self.lot = layout_of(model), sides_of(rules, place, self._dtype), lot
        self._images, self._classes = images, classes
        self._model = model.to(place)
        self._gradient = vmap(grad(self._loss))
        self.weights = torch.zeros(len(rules), self.layout.width, dtype=self._dtype, device=place)
        none = torch.zeros(len(rules), dtype=self._dtype, device=place)
        self._constants = Constants(
            len(images), lot, steps, none, self.layout, torch.ones(steps, dtype=self._dtype, device=place)
        )
        self._states: list[State] = [side.rule.init(self.weights[side.rows], self._constants) for side in self.sides]

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(self._model, parameters, (x,)), y)

    def make(self, lots: Tensor) -> None:
        """Local steps from the weights as they are. lots: which images, `[steps, runs, lot]`."""
        for lot in lots:
            self.update(self.gradient(lot))

    @torch.no_grad()
    def gradient(self, lot: Tensor) -> Tensor:
        """The mean gradient of every run's lot, `[runs, d]`. lot: `[runs, lot]`."""
        rows = lot.long()
        views = self._gradient(self.layout.views(self.weights), self._images[rows].to(self._dtype), self._classes[rows])
        return torch.cat([views[name].flatten(1) for name in self.layout.names], dim=1)

    @torch.no_grad()
    def update(self, gradient: Tensor) -> None:
        """The weights after a gradient, by every run's rule."""
        after = []
        for number, side in enumerate(self.sides):
            release, before = Release(gradient[side.rows]), self.weights[side.rows]
            moved, self._states[number] = side.rule.update(before, self._states[number], release, self._constants)
            after.append(moved)
        self.weights = torch.cat(after)

    @property
    def step_sizes(self) -> Tensor:
        """Those that rules have found, `[runs]`; NaN for rules that seek none."""
        nothing = torch.full((len(self.weights),), torch.nan, device=self.weights.device)
        found = [state.get("eta", nothing[side.rows]) for side, state in zip(self.sides, self._states, strict=True)]
        return torch.cat(found)


LEVELS, QUICK_LEVELS = (0, 33, 67, 100), (0, 33, 100)
"""Per cent of the images that are dealt out at random."""
THIRD, APART, BESIDES = 33, 0, 67
"""Of figures 3a and 4, of figure 3b, and one that figure 2 can do without."""
REPEATS, QUICK_REPEATS = 3, 2
UNCLIPPED = 1e9
TAU = 1.0
"""That of the paper's networks; the supplement gives none."""
STEP_SIZES = {
    "ADADP": (1e-3, 1e-1),
    "SGD": (10**-2.5, 1e-2, 10**-1.5, 1e-1),
    "Adam": (1e-5, 10**-4.5, 1e-4, 10**-3.5),
}
"""Half decades; for ADADP the first step size, of which the last is its usual one."""
QUICK_STEP_SIZES = {"ADADP": (1e-3, 1e-1), "SGD": (1e-2, 10**-1.5, 1e-1), "Adam": (1e-4, 10**-3.5, 1e-3)}
RUN_STEP = 1.4e-4
"""Seconds of a run's step on a large GPU, among the runs of a part (measured on an H200)."""


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
    def looks(self) -> int:
        return self.rounds // self.every


def convolutional() -> nn.Module:
    """The supplement's network: two convolutions and three dense layers, all trained; about 10^6 weights."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(1600, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def dense() -> nn.Module:
    """A network that two cores train in minutes: 13002 weights."""
    return nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))


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
def cifar_small() -> tuple[Array, Array, Array, Array]:
    """Half of the training images, of 8 by 8 places, each the mean of sixteen."""
    x, y, test_x, test_y = cifar()

    def smaller(some: Array) -> Array:
        means: Array = some.astype(np.float32).reshape(-1, 3, 8, 4, 8, 4).mean(axis=(3, 5)).reshape(-1, 192)
        return means

    return smaller(x[:25000]), y[:25000], smaller(test_x), test_y


# cars and trucks, planes and ships, cats and dogs, birds and frogs, deer and horses
PAIRS = ((1, 9), (0, 8), (3, 5), (2, 6), (4, 7))
FULL = World("CIFAR-10", PAIRS, 10000, 10, 1000, 200, 5, convolutional, cifar)
QUICK = World("CIFAR-10 at 8 by 8", PAIRS, 4000, 10, 400, 10, 1, dense, cifar_small)


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


PLAIN, BY_ADAM = ("SGD", "ADADP"), ("Adam",)
"""The methods of a part."""


def part_name(level: int, method: str) -> str:
    return f"federated/{level}{'-Adam' if method in BY_ADAM else ''}"


@lru_cache(maxsize=2)
def _described(make: Callable[[], nn.Module]) -> str:
    return repr(make())


def _part(quick: bool, level: int, methods: tuple[str, ...] = PLAIN) -> Part:
    """All step sizes and repeats at one level. It keeps `right_METHOD` `[repeats, step sizes, looks]`, and `eta` of ADADP."""
    here, name = world(quick), part_name(level, methods[0])
    rules = {method: rules_of(method, quick) for method in methods}
    identity = {
        "images": here.title,
        "clients": [list(pair) for pair in here.pairs],
        "sizes": [here.records, here.lot, here.steps, here.rounds, here.every],
        "random": level,
        "candidates": [described(rule) for some in rules.values() for rule in some],
        "model": _described(here.model),
        "repeats": repeats(quick),
    }
    steps = repeats(quick) * here.clients * here.steps * here.rounds
    seconds = 30 + steps * sum(map(len, rules.values())) * RUN_STEP

    def work(device: str, tell: Tell) -> Arrays:
        return trained(here, rules, level=level, repeats=repeats(quick), device=device, tell=tell)

    return Part(name, identity, seconds, work, optional=level == BESIDES)


def trained(
    here: World, rules: Mapping[str, Sequence[Rule]], *, level: int, repeats: int, device: str, tell: Tell
) -> Arrays:
    """Federations that differ in method, step size and repeat, side by side: every client of each is a run of one population.

    Runs lie by method, step size, repeat and client, in this order.
    """
    place = placed(device)
    x, y, test_x, test_y = here.images()
    each = [rule for some in rules.values() for rule in some]
    runs = [rule for rule in each for _ in range(repeats * here.clients)]
    dealt = Dealt([shares(y, here, level, repeat) for repeat in range(repeats)], here, level, place)
    (pixels, classes), tests = (_at(place, *side) for side in ((x, y), (test_x, test_y)))
    steps = LocalSteps(here.model(), runs, pixels, classes, lot=here.lot, steps=here.steps * here.rounds)
    models = [seeded(here.model, repeat) for repeat in range(repeats)]
    layout = layout_of(models[0])
    averages = stack(models, layout, place).repeat(len(each), 1)
    exam = Exam(here.model().to(place), layout, *tests)
    right = np.empty((len(each), repeats, here.looks), np.uint16)
    eta = np.empty((len(each), repeats, here.clients, here.looks), np.float32)
    for number in range(here.rounds):
        steps.weights = averages.repeat_interleave(here.clients, dim=0)
        steps.make(dealt.lots(number, len(each)))
        averages = steps.weights.view(-1, here.clients, averages.shape[1]).mean(dim=1)
        look, rest = divmod(number + 1, here.every)
        if not rest:
            right[..., look - 1] = exam.measured(averages).reshape(len(each), repeats)
            eta[..., look - 1] = steps.step_sizes.view(len(each), repeats, here.clients).cpu().numpy()
        tell((number + 1) / here.rounds)
    return _kept(rules, right, eta) | {"tests": np.array(len(test_y)), "every": np.array(here.every)}


def _kept(rules: Mapping[str, Sequence[Rule]], right: Array, eta: Array) -> Arrays:
    """By method; `eta` `[repeats, step sizes, clients, looks]` of ADADP."""
    kept, begin = {}, 0
    for method, some in rules.items():
        rows = slice(begin, begin + len(some))
        kept[f"right_{method}"] = right[rows].swapaxes(0, 1)
        if method == "ADADP":
            kept["eta"] = eta[rows].swapaxes(0, 1)
        begin += len(some)
    return kept


class Dealt:
    """Which images each client has in each repeat, and the lots of a round: its images in a new order, cut into lots."""

    def __init__(self, rows: Sequence[Sequence[Array]], here: World, level: int, place: torch.device) -> None:
        self._rows, self._here, self._level, self._place = rows, here, level, place

    def lots(self, number: int, federations: int) -> Tensor:
        """`[steps, runs, lot]` of round `number`. Every method and step size has the same ones: a difference is none of luck."""
        here = self._here
        ordered = [
            np.random.default_rng([self._level, repeat, client, number]).permutation(rows)
            for repeat, clients in enumerate(self._rows)
            for client, rows in enumerate(clients)
        ]
        cut = np.stack(ordered).astype(np.int32).reshape(len(ordered), here.steps, here.lot)
        lots = torch.from_numpy(np.ascontiguousarray(cut.swapaxes(0, 1))).to(self._place)
        return lots.repeat(1, federations, 1)


def _at(place: torch.device, x: Array, y: Array) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(x).to(place), torch.from_numpy(y.astype(np.int64)).to(place)


def parts_all(quick: bool) -> list[Part]:
    """Every level: figures 2a and 2b."""
    return [_part(quick, level) for level in levels(quick)]


def parts_at(quick: bool, level: int) -> list[Part]:
    return [_part(quick, level)]


def parts_adam(quick: bool) -> list[Part]:
    """A third of the images at random, by Adam too: figure 4."""
    return [_part(quick, THIRD), _part(quick, THIRD, BY_ADAM)]
