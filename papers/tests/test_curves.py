"""Looking at a population while it trains shows what it is and changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from honestdp.boundary.seed import Seed
from honestdp.data.named import NamedDataset
from honestdp.gradients.layout import layout_of, stack
from honestdp.optimizers import SGD, Adam, Rule
from honestdp.run import Run
from honestdp_papers import curves
from honestdp_papers.curves import Bench, Exam
from honestdp_papers.mohapatra2022 import training
from honestdp_papers.mohapatra2022.training import right_answers

CPU = torch.device("cpu")
RUN = Run(records=400, lot=40, steps=60, noise=0.5)


def toy() -> NamedDataset:
    rng = np.random.default_rng(0)
    x = rng.random((500, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.uint8)
    about = {"source": "made up", "licence": "none", "scaling": "none"}
    return NamedDataset(name="toy", title="Toy", x=x, y=y, classes=2, tests=100, **about)


def linear() -> nn.Module:
    return nn.Linear(6, 2)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


def looked_at(rules: list[Rule], repeats: int = 1, every: int = 20, seed: int = 1, **how: Any) -> np.ndarray:
    return right_answers(linear, toy(), rules, RUN, repeats=repeats, every=every, seed=seed, device="cpu", **how)


@pytest.mark.parametrize("make", [linear, network])
def test_right_answers_of_a_population_are_those_of_each_model(make: type[nn.Module]) -> None:
    dataset = toy()
    modules = [make() for _ in range(5)]
    bench = Bench(modules[0], dataset.train, CPU, records=400)
    x, y = torch.from_numpy(dataset.test[0]), torch.from_numpy(dataset.test[1].astype(np.int64))
    exam = bench.exam(x, y)
    expected = [int((module(x).argmax(1) == y).sum()) for module in modules]
    weights = stack(modules, bench.layout, CPU)
    assert exam.measured(weights).tolist() == expected
    exam.together, exam._rows = 2, 30
    assert exam.measured(weights).tolist() == expected


def test_an_error_is_the_mean_over_records_and_numbers_of_each_model() -> None:
    modules = [nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.ConvTranspose2d(2, 1, 3)) for _ in range(3)]
    x = torch.rand(20, 1, 6, 6)
    layout = layout_of(modules[0])
    exam = Exam(modules[0], layout, x, x, error=True)
    exam._rows = 7
    expected = [(module(x) - x).square().mean().item() for module in modules]
    assert exam.measured(stack(modules, layout, CPU)) == pytest.approx(expected)
    bytes_of = (255 * x).round().to(torch.uint8)
    read = bytes_of.float() / 255
    exam = Exam(modules[0], layout, bytes_of, read, error=True)
    expected = [(module(read) - read).square().mean().item() for module in modules]
    assert exam.measured(stack(modules, layout, CPU)) == pytest.approx(expected)


def test_curves_have_a_number_for_every_repeat_candidate_and_look() -> None:
    rules = [SGD(lr=2.0, clip=1.0), SGD(lr=1e-6, clip=1.0), Adam(clip=1.0, lr=0.05)]
    told: list[float] = []
    found = looked_at(rules, 2, tell=told.append)
    assert found.shape == (2, 3, 3)
    assert (found[:, [0, 2], -1] > 80).all()
    assert (found[:, 1] == found[:, 1, :1]).all(), "a step size of nothing moves nothing"
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert np.array_equal(found, looked_at(rules, 2))


def test_each_repeat_has_its_own_start_and_all_candidates_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    population = Bench.population
    monkeypatch.setattr(Bench, "population", lambda *a, **how: (seen.append(a[3].clone()), population(*a, **how))[1])
    looked_at([SGD(lr=1.0, clip=c) for c in (0.1, 1.0)], 2)
    (starts,) = seen
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[2], starts[3])
    assert not torch.equal(starts[0], starts[2])


def test_looking_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def glance(self: Exam, weights: torch.Tensor) -> np.ndarray:
        seen.append(weights.clone())
        torch.rand(100)
        return np.zeros(len(weights), np.uint16)

    monkeypatch.setattr(Exam, "measured", glance)
    looked_at([SGD(lr=1.0, clip=1.0)], seed=7)
    bench = Bench(curves.seeded(linear, 0), toy().train, CPU, records=400)
    starts, seed = bench.starts(linear, [0]), Seed.fixed(7).child(0)
    population = bench.population(RUN, [SGD(lr=1.0, clip=1.0)], starts, seed, every=20)
    while population.step < 60:
        population.block()
    assert torch.equal(population.weights(), seen[-1])
    assert len(seen) == 3


def test_equal_runs_in_different_chunks_have_lots_and_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "most_together", lambda *_: 2)
    ended: list[torch.Tensor] = []
    plain = Exam.measured

    def measured(self: Exam, weights: torch.Tensor) -> np.ndarray:
        ended.append(weights.clone())
        return plain(self, weights)

    monkeypatch.setattr(Exam, "measured", measured)
    looked_at([SGD(lr=1.0, clip=1.0)] * 6, every=RUN.steps)
    found = torch.cat(ended)
    assert found.shape[0] == 6
    assert len({tuple(row) for row in found.tolist()}) == 6
