"""Looking at a population while it trains shows what it is and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.data.named import NamedDataset
from honestdp.gradients.layout import stack
from honestdp.optimizers import SGD, Adam
from honestdp.run import Run
from honestdp_papers import curves
from honestdp_papers.curves import Exam, Plan, accuracies, population_of

CPU = torch.device("cpu")
RUN = Run(records=400, lot=40, steps=60, noise=0.5)


def toy() -> NamedDataset:
    rng = np.random.default_rng(0)
    x = rng.random((500, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.uint8)
    rows = np.arange(500)
    return NamedDataset("toy", "Toy", x, y, rows[:400], rows[400:], 2, "made up", "none", "none")


def linear() -> nn.Module:
    return nn.Linear(6, 2)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize("make", [linear, network])
def test_right_answers_of_a_population_are_those_of_each_model(make: type[nn.Module]) -> None:
    dataset = toy()
    modules = [make() for _ in range(5)]
    intake = take_in(modules[0], PrivateData(dataset.train), records=400, loss=None, device=CPU, workers=0)
    test = Exam(intake.question.model, intake.layout, dataset, CPU)
    x, y = torch.from_numpy(dataset.test[0]), torch.from_numpy(dataset.test[1].astype(np.int64))
    expected = [int((module(x).argmax(1) == y).sum()) for module in modules]
    assert test.right(stack(modules, intake.layout, CPU)).tolist() == expected
    test._together = 2
    assert test.right(stack(modules, intake.layout, CPU)).tolist() == expected


def test_curves_have_a_number_for_every_repeat_candidate_and_look() -> None:
    plan = Plan([SGD(lr=2.0, clip=1.0), SGD(lr=1e-6, clip=1.0), Adam(clip=1.0, lr=0.05)], RUN, 2, 20, seed=1)
    told: list[float] = []
    found = accuracies(linear, toy(), plan, device="cpu", tell=told.append)
    assert found.shape == (2, 3, 3)
    assert (found[:, [0, 2], -1] > 80).all()
    assert (found[:, 1] == found[:, 1, :1]).all(), "a step size of nothing moves nothing"
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert np.array_equal(found, accuracies(linear, toy(), plan, device="cpu"))


def test_each_repeat_has_its_own_start_and_all_candidates_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    real = curves.population_of
    monkeypatch.setattr(curves, "population_of", lambda *a: (seen.append(a[3].clone()), real(*a))[1])
    accuracies(linear, toy(), Plan([SGD(lr=1.0, clip=c) for c in (0.1, 1.0)], RUN, 2, 20, seed=1), device="cpu")
    (starts,) = seen
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[2], starts[3])
    assert not torch.equal(starts[0], starts[2])


def test_looking_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, plan = toy(), Plan([SGD(lr=1.0, clip=1.0)], RUN, 1, 20, seed=7)
    looked_at: list[torch.Tensor] = []

    def glance(self: Exam, weights: torch.Tensor) -> np.ndarray:
        looked_at.append(weights.clone())
        torch.rand(100)
        return np.zeros(len(weights), np.uint16)

    monkeypatch.setattr(Exam, "right", glance)
    accuracies(linear, dataset, plan, device="cpu")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = linear()
    intake = take_in(module, PrivateData(dataset.train), records=400, loss=None, device=CPU, workers=0)
    population = population_of(intake, plan, list(plan.rules), stack([module], intake.layout, CPU), 0)
    while population.step < 60:
        population.block()
    assert torch.equal(population.weights(), looked_at[-1])
    assert len(looked_at) == 3


def test_equal_runs_in_different_chunks_have_lots_and_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "most_together", lambda *_: 2)
    ended: list[torch.Tensor] = []
    plain = Exam.right

    def right(self: Exam, weights: torch.Tensor) -> np.ndarray:
        ended.append(weights.clone())
        return plain(self, weights)

    monkeypatch.setattr(Exam, "right", right)
    accuracies(linear, toy(), Plan([SGD(lr=1.0, clip=1.0)] * 6, RUN, 1, RUN.steps, seed=1), device="cpu")
    found = torch.cat(ended)
    assert found.shape[0] == 6
    assert len({tuple(row) for row in found.tolist()}) == 6
