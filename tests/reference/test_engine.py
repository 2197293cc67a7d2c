"""The engine's releases are the reference's: every kind of layer, person, augmentation, second question and odd lot."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import honestdp
from honestdp import reference
from honestdp.augment import Augmentation, CropAndFlip, PerRecord
from honestdp.boundary.people import People
from honestdp.boundary.seed import Seed
from honestdp.gradients import rules as layer_rules
from honestdp.gradients.layout import layout_of, stack
from honestdp.losses import cross_entropy
from honestdp.reference import Public, Record
from honestdp.run import Unit
from tests.gradients.test_attention import ATTENDING
from tests.gradients.test_layers import LAYERS, Bags, Places, Words, after, weighed
from tests.gradients.test_recurrent import KINDS, Sequences
from tests.reference.both_ways import Training, check, sgd
from tests.reference.test_optimizers import training_of
from tests.toy_training import CPU, toy_data, toy_model

# ---- Layers


class Bare(nn.Module):
    """Parameters that belong to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(6, 3)), nn.Parameter(torch.randn(()))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).tanh() * self.scale


class Tied(nn.Module):
    """One weight in two layers, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.twice = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.twice(self.twice(self.first(x).tanh()).tanh()))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    model[0].requires_grad_(False)
    return model


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)


WHOLE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    **{
        name: (lambda make=make, shape=shape: after(make(), shape[-1]), shape) for name, (make, shape) in LAYERS.items()
    },
    **{name: (lambda kind=kind, how=how: Sequences(kind, **how), (4, 6)) for name, (kind, how) in KINDS.items()},
    **{f"attention {name}": (make, (4, 6)) for name, make in ATTENDING.items()},
    "lstm, two layers, two ways": (lambda: Sequences(nn.LSTM, num_layers=2, bidirectional=True), (4, 6)),
    "transformer": (encoder, (4, 6)),
    "batch norm 1d, fixed statistics": (lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).eval(), (6,)),
    "batch norm 3d, fixed statistics": (lambda: nn.BatchNorm3d(2).eval(), (2, 3, 2, 2)),
    "bare parameters": (Bare, (6,)),
    "tied weights": (Tied, (6,)),
    "a frozen layer": (frozen, (6,)),
}
TOKENS: dict[str, Callable[[], nn.Module]] = {
    "embedding": Words,
    "embedding, padding": lambda: Words(padding_idx=2),
    "bags of words": lambda: Bags(mode="sum"),
    "a table of places": Places,
}


def models_of(name: str) -> list[nn.Module]:
    torch.manual_seed(7)
    make = TOKENS[name] if name in TOKENS else WHOLE[name][0]
    return [make().double(), make().double()]


def layered(name: str) -> Training:
    models, shape = models_of(name), (5,) if name in TOKENS else WHOLE[name][1]
    x = torch.randint(0, 7, (12, *shape)) if name in TOKENS else torch.randn(12, *shape, dtype=torch.float64)
    y = torch.randn(12, *models[0](x[:1]).shape[1:], dtype=torch.float64)
    return Training(models, (x, y), lot=4.0, steps=2, loss=weighed)


@pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("name", [*WHOLE, *TOKENS])
def test_a_layer(name: str) -> None:
    check(layered(name))


def test_every_layer_that_has_a_rule_is_compared() -> None:
    seen = {type(module) for name in (*WHOLE, *TOKENS) for model in models_of(name) for module in model.modules()}
    ruled = {kind for kind in layer_rules._RULES if kind.__module__.startswith("torch.")}
    assert ruled <= seen


# ---- Records


def people(ids: list[int], cap: int, data: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """Rows as people, for both."""
    found = People.of(ids, Unit("id", cap)).draw(Seed.fixed(11).child("rows"))
    places, counts = found.places()
    rows = [found.all_rows[own[:count]] for own, count in zip(places, counts, strict=True)]
    x, y = data
    records: list[Record] = [[(x[int(i)], y[int(i)]) for i in own] for own in rows]
    return {"data": honestdp.by_person(data, ids, rows=cap), "people": records, "cap": cap}


IDS = [number // 2 for number in range(40)] + [20 + number // 5 for number in range(20)]
"""Twenty people of two rows, and four of five."""


@pytest.mark.parametrize("cap", [1, 3, 8])
@pytest.mark.parametrize("width", [None, 2])
def test_people_of_several_rows(cap: int, width: int | None) -> None:
    check(Training(lot=5.0, width=width, **people(IDS, cap, toy_data())))


def images() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    return torch.rand(60, 1, 4, 4, dtype=torch.float64), torch.randint(0, 3, (60,))


def image_models() -> list[nn.Module]:
    torch.manual_seed(1)
    return [nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double() for _ in range(2)]


AUGMENTS = [CropAndFlip(pad=1), PerRecord(lambda x, u: x * (0.5 + u[0]) + u[1], draws=2)]


@pytest.mark.parametrize("augment", AUGMENTS, ids=["crop and flip", "a function"])
@pytest.mark.parametrize("width", [None, 3])
def test_records_in_variants(augment: Augmentation, width: int | None) -> None:
    check(Training(image_models(), images(), augment=augment, lot=8.0, width=width))


def test_people_whose_rows_are_in_variants() -> None:
    check(Training(image_models(), augment=CropAndFlip(pad=1), lot=5.0, width=2, **people(IDS, 3, images())))


POISONS = [math.nan, math.inf, -math.inf, 1e30, 1e100, 0.0]
QUESTIONS = {"none": "sgd", "automatic": "automatic", "direction": "oso", "quantile": "quantile", "norm": "echo"}
"""An optimizer that asks each second question."""


@pytest.mark.parametrize("question", QUESTIONS)
def test_records_that_are_not_finite_or_huge(question: str) -> None:
    training = training_of(QUESTIONS[question], steps=3)
    for place, value in enumerate(POISONS):
        training.data[0][5 * place] = value
    check(training)


@pytest.mark.parametrize("question", QUESTIONS)
def test_people_and_a_second_question(question: str) -> None:
    training = training_of(QUESTIONS[question], lot=15.0, steps=3)
    check(replace(training, width=4, **people(IDS, 3, training.data)))


# ---- Lots


@pytest.mark.parametrize("question", ["none", "automatic", "direction", "norm"])
def test_empty_lots(question: str) -> None:
    """Two lots of three are empty; some steps have a record in one run and none in the other. Two blocks of lots are drawn."""
    check(training_of(QUESTIONS[question], lot=0.4, steps=70, noise=(0.01, 0.02)))
    sizes = [
        list(map(len, lots)) for lots in reference.lots(60, Public(records=60, lot=0.4, steps=70), 2, Seed.fixed(11))
    ]
    assert [0, 0] in sizes
    assert [1, 0] in sizes


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("width", [1, 7])
def test_lots_larger_than_the_shape(question: str, width: int) -> None:
    check(replace(training_of(QUESTIONS[question], steps=2), width=width))


def test_a_rate_of_one_and_a_lot_that_is_no_whole_number() -> None:
    check(Training(lot=60.0, steps=1))
    check(Training(lot=7.3, steps=2))


@pytest.mark.parametrize("runs", [1, 5])
def test_runs_of_a_population_have_lots_and_noise_of_their_own(runs: int) -> None:
    rule, formula = honestdp.optimizers.SGD(lr=0.5, clip=0.4), sgd()
    models = [toy_model(seed=1)] * runs
    numbers: dict[str, Any] = {"rules": [rule] * runs, "formulas": [formula] * runs, "noise": [1.0] * runs}
    released = check(Training(models, lot=8.0, steps=3, **numbers)).gradients[0]
    assert len({tuple(row.tolist()) for row in released}) == runs


def test_no_noise() -> None:
    check(Training(noise=(0.0, 0.0), steps=2))


# ---- Precision


def test_a_float32_release_is_off_by_less_than_a_hundredth_of_its_noise() -> None:
    """The engine's margin takes 2e-4 of each weight here; the rest is rounding, and one cell of the grid."""
    x, y = toy_data()
    models = [toy_model(seed=1).float(), toy_model(seed=2).float()]
    training = Training(models, (x.float(), y), steps=3)
    engine, plain = training.engine(), training.plain()
    for step in range(3):
        for run, (sigma, clip) in enumerate(zip((0.7, 1.3), (0.4, 1.5), strict=True)):
            off = (engine.gradients[step][run] - plain.gradients[step][run]).norm().item()
            assert off < 0.01 * sigma * clip * 39**0.5 / 20


# ---- The front door


def inputs(kind: str) -> Any:
    x, y = toy_data()
    arrays = (x.numpy(), y.numpy())
    return {"arrays": arrays, "dataset": TensorDataset(x, y), "tensors": (x, y), "strict": (x, y)}[kind]


@pytest.mark.parametrize("kind", ["tensors", "arrays", "dataset", "strict"])
def test_what_train_returns(kind: str) -> None:
    run, model = honestdp.Run(records=60, lot=10, steps=5, noise=1.3), toy_model()
    rule = honestdp.optimizers.SGD(lr=0.3, clip=0.7)
    more: dict[str, Any] = {
        "loss": cross_entropy,
        "strict": kind == "strict",
        "compute": honestdp.Compute(device="cpu"),
    }
    result = honestdp.train(model, inputs(kind), run=run, optimizer=rule, noise_seed=5, **more)
    records = [[pair] for pair in zip(*toy_data(), strict=True)]
    (weights,), _ = reference.train(
        model, cross_entropy, records, Public(records=60, lot=10, steps=5),
        weights=list(stack([model], layout_of(model), CPU)), rules=[reference.SGD(lr=0.3, clip=0.7)], noise=[1.3],
        seed=Seed.fixed(5).child("chunk", 0),
    )  # fmt: skip
    found = torch.cat([value.detach().flatten() for value in result.model.parameters()])
    torch.testing.assert_close(found, weights, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("label", [-1, -100, 3])
def test_a_label_outside_of_the_outputs_contributes_zero(label: int) -> None:
    """The reference fails on it, or takes it as its loss does; given a loss that is zero there, it releases the same."""
    training = Training()
    training.data[1][7] = label
    training.lot = 60.0
    found = training.engine()
    if label != -100:  # the number that torch's own loss leaves out
        with pytest.raises(IndexError):
            training.plain()

    def of_classes_alone(output: Tensor, y: Tensor) -> Tensor:
        fits = (y >= 0) & (y < 3)
        return cross_entropy(output, y.where(fits, 0)).where(fits, 0)

    training.loss = of_classes_alone
    expected = training.plain()
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-9, atol=1e-11)
